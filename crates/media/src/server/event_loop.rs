//! An event loop: one thread with one epoll, its own listener, and all of its connections.

use std::{
    collections::VecDeque,
    io,
    net::{TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant, SystemTime},
};

use rustix::{
    event::epoll,
    io::Errno,
    net::{Shutdown, SocketFlags, acceptfrom_with, shutdown, sockopt},
};
use slab::Slab;

use super::{
    BACKLOG,
    answers::{Client, Reply, answer, common},
    connection::{Answer, Connection, Heard, Interest, LogLine, Phase, Sent},
    idlest::Idlest,
    limits::{
        ACCEPT_PAUSE, ACCEPTS_MAX, BORROWED_LOOK, DRAIN_GRACE, LINGER, SHORT_LOOK, TICK,
        TURN_BYTES_MAX,
    },
    open_files::OpenFiles,
    snapshot::{LoopPart, Mailbox},
    timers::Timers,
    transport::Transport,
};
use crate::{
    delivery::{self, Delivery},
    http::{
        request::{Refused, Request},
        response::of_status,
    },
    pace::Verdict,
    server::shared::{Access, Shared},
    slack::SlackHistogram,
};

/// Keys by which epoll tells of the listener, the wake and the disk: no connection has them.
const LISTENER: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;
const DISK: u64 = u64::MAX - 2;
const EVENTS_MAX: usize = 512;
/// Bytes that are read at once: the heads of many requests.
const SCRATCH_BYTES: usize = 64 << 10;
/// Most requests of one connection before the others have their turn.
const REQUESTS_A_TURN: u32 = 32;
/// Bits of an answer's number that tell its loop.
const LOOP_BITS: u32 = 10;

pub(super) struct EventLoop {
    number: usize,
    shared: Arc<Shared>,
    epoll: OwnedFd,
    mailbox: Mailbox,
    /// Listener of the loop; `None` once the server drains.
    listener: Option<TcpListener>,
    accepts_again: Option<Instant>,
    connections: Slab<Connection>,
    timers: Timers<usize>,
    idlest: Idlest,
    /// Connections that have more to do, and wait while the others have their turn.
    ready: VecDeque<usize>,
    delivery: Box<dyn Delivery>,
    /// Connections whose reads have ended; empty between two looks.
    goes_on: Vec<usize>,
    scratch: Vec<u8>,
    files: OpenFiles,
    /// Slack of all periods of all streams of the loop.
    slack: SlackHistogram,
    /// Number of answers so far.
    answers: u64,
}

impl EventLoop {
    pub fn new(
        number: usize,
        shared: Arc<Shared>,
        listener: TcpListener,
        mailbox: Mailbox,
        delivery: Box<dyn Delivery>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let reads = epoll::EventFlags::IN;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), reads)?;
        epoll::add(&epoll, &*mailbox.wake, epoll::EventData::new_u64(WAKE), reads)?;
        if let Some(disk) = delivery.disk() {
            epoll::add(&epoll, disk, epoll::EventData::new_u64(DISK), reads)?;
        }
        Ok(Self {
            number,
            shared,
            epoll,
            mailbox,
            listener: Some(listener),
            accepts_again: None,
            connections: Slab::new(),
            timers: Timers::default(),
            idlest: Idlest::default(),
            ready: VecDeque::new(),
            delivery,
            goes_on: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            files: OpenFiles::default(),
            slack: SlackHistogram::default(),
            answers: 0,
        })
    }

    /// Runs the loop until the server stops, or has drained.
    ///
    /// # Errors
    /// If epoll itself fails.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.shared.stops.load(Ordering::Relaxed) {
            if self.drains() {
                self.drain(Instant::now());
                if self.connections.is_empty() {
                    break;
                }
            }
            events.clear();
            let timeout = self.timeout(Instant::now());
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let now = Instant::now();
            let mut accepts = self.accepts_again.is_some_and(|at| at <= now);
            for event in &events {
                match event.data.u64() {
                    LISTENER => accepts = true,
                    WAKE => self.take_wake(now),
                    // It is looked at in any case.
                    DISK => {}
                    key => self.on_event(key as usize, event.flags, now),
                }
            }
            self.take_reads(now);
            for _ in 0..self.ready.len() {
                if let Some(key) = self.ready.pop_front() {
                    if let Some(connection) = self.connections.get_mut(key) {
                        connection.is_ready = false;
                    }
                    self.go_on(key, now);
                }
            }
            while let Some(key) = self.timers.pop(now) {
                self.on_time(key, now);
            }
            // Last, as a new connection may get the key of one that was closed just now.
            if accepts {
                self.accept(now);
            }
            if self.delivery.start().is_err() {
                self.go_on_without_ring();
            }
        }
        for key in self.keys() {
            self.close(key);
        }
        Ok(())
    }

    /// Puts connections in line whose bytes have come from the disk.
    fn take_reads(&mut self, now: Instant) {
        let mut goes_on = std::mem::take(&mut self.goes_on);
        let taken = self.delivery.finished(now, &mut goes_on);
        for key in goes_on.drain(..) {
            self.get_in_line(key);
        }
        self.goes_on = goes_on;
        if taken.is_err() {
            self.go_on_without_ring();
        }
    }

    /// Goes on where io_uring_enter(2) failed: from now on each read waits in its turn, and holds
    /// up the others, as it does in other servers. Those who waited for the ring go on.
    fn go_on_without_ring(&mut self) {
        if let Some(disk) = self.delivery.disk() {
            let _ = epoll::delete(&self.epoll, disk);
        }
        self.delivery = delivery::plain();
        self.shared.counters.rings_lost.fetch_add(1, Ordering::Relaxed);
        for key in self.keys() {
            self.get_in_line(key);
        }
    }

    fn timeout(&self, now: Instant) -> Option<rustix::event::Timespec> {
        let wait = if self.ready.is_empty() {
            let looks_again = self.delivery.is_short().then_some(now + SHORT_LOOK);
            let times = [self.timers.next(), self.accepts_again, looks_again];
            let next = times.into_iter().flatten().min()?;
            next.saturating_duration_since(now)
        } else {
            Duration::ZERO
        };
        wait.try_into().ok()
    }

    fn keys(&self) -> Vec<usize> {
        self.connections.iter().map(|(key, _)| key).collect()
    }

    fn take_wake(&mut self, now: Instant) {
        let _ = rustix::io::read(&*self.mailbox.wake, &mut [0_u8; 8]);
        for key in self.mailbox.take_known() {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            if let Some(request) = connection.asked.take() {
                self.begin(key, request, now);
                self.go_on(key, now);
            }
        }
        for ask in self.mailbox.take() {
            let sessions = self.connections.iter().filter_map(|(_, one)| one.session());
            ask.answer(LoopPart {
                slack: self.slack,
                reads: self.delivery.reads(),
                sessions_count: self.connections.iter().filter(|(_, one)| one.streams()).count()
                    as u64,
                sessions: sessions.take(ask.sessions_max).collect(),
            });
        }
    }

    fn drains(&self) -> bool {
        self.shared.drains.load(Ordering::Relaxed)
    }

    /// Lets in clients that have come, and none after them; no connection waits for another
    /// request.
    fn drain(&mut self, now: Instant) {
        if self.listener.is_none() {
            return;
        }
        // They make room for those who have come.
        self.let_all_go(now);
        // Their clients take them for connected: to close the listener alone would reset them.
        for _ in 0..BACKLOG as usize / ACCEPTS_MAX {
            if !self.accept(now) {
                break;
            }
        }
        if let Some(listener) = self.listener.take() {
            let _ = epoll::delete(&self.epoll, &listener);
            self.accepts_again = None;
        }
        self.let_all_go(now);
    }

    fn let_all_go(&mut self, now: Instant) {
        for key in self.keys() {
            if self.connections[key].phase == Phase::Idle {
                self.let_go(key, now);
            }
        }
    }

    /// Lets an idle connection go, as the server drains: what has come by now is still heard, and
    /// one that was let in just now has a moment to ask.
    fn let_go(&mut self, key: usize, now: Instant) {
        let until = self.connections[key].since + self.time_max(Phase::Idle);
        let connection = &mut self.connections[key];
        if connection.read(&mut self.scratch).is_err() {
            return self.close(key);
        }
        if connection.waits_for_more() {
            return self.get_in_line(key);
        }
        if connection.requests > 0 || connection.has_heard_all || until <= now {
            return self.close(key);
        }
        self.timers.set(key, until);
        self.ask(key);
    }

    /// Tells epoll what to watch of the listener: nothing while it pauses, or epoll would tell of
    /// it without end.
    fn listen(&self, flags: epoll::EventFlags) {
        if let Some(listener) = &self.listener {
            let data = epoll::EventData::new_u64(LISTENER);
            let _ = epoll::modify(&self.epoll, listener, data, flags);
        }
    }

    /// Accepts connections, and says whether there may be more of them.
    fn accept(&mut self, now: Instant) -> bool {
        if self.accepts_again.take().is_some() {
            self.listen(epoll::EventFlags::IN);
        }
        for _ in 0..ACCEPTS_MAX {
            let Some(listener) = &self.listener else { return false };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match acceptfrom_with(listener, flags) {
                Ok((socket, peer)) => {
                    let Some(peer) =
                        peer.and_then(|peer| std::net::SocketAddr::try_from(peer).ok())
                    else {
                        continue;
                    };
                    self.shared.counters.accepted.fetch_add(1, Ordering::Relaxed);
                    let counted = self.shared.addresses.count(peer.ip());
                    if counted.is_err() || !self.make_room() {
                        self.shared.counters.turned_away.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    let certificate = self.shared.options.certificate.as_deref();
                    let Ok(transport) = Transport::new(certificate) else { continue };
                    let socket = TcpStream::from(socket);
                    let mut connection =
                        Connection::new(socket, transport, peer.ip().to_canonical(), now);
                    connection.counted = counted.ok().flatten();
                    self.add(connection, now);
                }
                Err(Errno::AGAIN) => return false,
                // The client is gone already (accept(2)).
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::PERM) => {}
                // No descriptor or no memory is left: those who wait for nothing make room.
                Err(_) => {
                    self.close_idlest();
                    self.listen(epoll::EventFlags::empty());
                    self.accepts_again = Some(now + ACCEPT_PAUSE);
                    return false;
                }
            }
        }
        // The listener tells of them again.
        true
    }

    /// Makes room for one more connection, and says whether there is any.
    fn make_room(&mut self) -> bool {
        self.connections.len() < self.shared.options.limits.connections_max || self.close_idlest()
    }

    /// Closes the connection that waits longest for its next request, if there is one.
    fn close_idlest(&mut self) -> bool {
        let Self { idlest, connections, .. } = self;
        let found = idlest.pop(|key, since| is_idle(connections, key, since));
        if let Some(key) = found {
            self.close(key);
        }
        found.is_some()
    }

    /// Counts a connection as idle: it waits for a request, the first or another.
    fn count_as_idle(&mut self, key: usize, now: Instant) {
        let Self { idlest, connections, .. } = self;
        idlest.push(key, now, |key, since| is_idle(connections, key, since));
    }

    fn add(&mut self, connection: Connection, now: Instant) {
        let _ = sockopt::set_tcp_nodelay(&connection.socket, true);
        let key = self.connections.insert(connection);
        let connection = &mut self.connections[key];
        connection.interest = Interest { reads: true, writes: false };
        let flags = epoll::EventFlags::IN;
        let data = epoll::EventData::new_u64(key as u64);
        if epoll::add(&self.epoll, &connection.socket, data, flags).is_err() {
            self.connections.remove(key);
            return;
        }
        self.shared.counters.connections.fetch_add(1, Ordering::Relaxed);
        self.timers.set(key, now + self.time_max(Phase::Idle));
        self.count_as_idle(key, now);
    }

    fn close(&mut self, key: usize) {
        let Some(mut connection) = self.connections.try_remove(key) else { return };
        self.timers.clear(key);
        connection.say_goodbye();
        let _ = epoll::delete(&self.epoll, &connection.socket);
        self.shared.counters.connections.fetch_sub(1, Ordering::Relaxed);
        if let Some(answer) = connection.take_answer() {
            self.delivery.forget(key);
            self.log(&connection, &answer, Instant::now());
        }
    }

    fn on_event(&mut self, key: usize, flags: epoll::EventFlags, now: Instant) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if flags.contains(epoll::EventFlags::ERR) {
            return self.close(key);
        }
        if flags.contains(epoll::EventFlags::OUT) && connection.flush().is_err() {
            return self.close(key);
        }
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP)
            && connection.read(&mut self.scratch).is_err()
        {
            return self.close(key);
        }
        // Both directions are shut: nobody is there to be answered. Nor where a player goes on with
        // another answer.
        let is_gone = flags.contains(epoll::EventFlags::HUP) || connection.is_in_the_way();
        if is_gone && connection.has_heard_all {
            return self.close(key);
        }
        self.go_on(key, now);
    }

    fn time_max(&self, phase: Phase) -> Duration {
        let limits = &self.shared.options.limits;
        match phase {
            Phase::Idle if self.drains() => limits.idle_time_max.min(DRAIN_GRACE),
            Phase::Idle => limits.idle_time_max,
            Phase::Head => limits.head_time_max,
            Phase::Asking | Phase::Answering => limits.stall_time_max,
            Phase::Lingering => LINGER,
        }
    }

    /// Looks at a connection whose timer has run out: its time is over, unless something moved
    /// since it was set; or a period of its stream is.
    fn on_time(&mut self, key: usize, now: Instant) {
        let Some(connection) = self.connections.get(key) else { return };
        let over = connection.since + self.time_max(connection.phase);
        let is_paced = connection.answer.as_ref().is_some_and(|answer| answer.schedule.is_some());
        // What is released comes only with its period: to send nothing meanwhile is no stall.
        if is_paced && (over > now || !connection.interest.writes) {
            // A client whose small buffer is full takes nothing either.
            let stall_time_max = self.time_max(Phase::Answering);
            return match self.connections[key].has_stalled(stall_time_max, now) {
                true => self.close(key),
                false => self.go_on(key, now),
            };
        }
        if over > now {
            return self.timers.set(key, over);
        }
        if connection.phase == Phase::Head && !connection.is_greeting() {
            return self.refuse(key, 408, now);
        }
        self.close(key);
    }

    fn enter(&mut self, key: usize, phase: Phase, now: Instant) {
        let connection = &mut self.connections[key];
        if connection.phase == phase && phase != Phase::Answering {
            return;
        }
        connection.phase = phase;
        connection.since = now;
        self.timers.set(key, now + self.time_max(phase));
        if phase == Phase::Idle {
            self.count_as_idle(key, now);
        }
    }

    /// Goes on with a connection as far as it comes: requests out of bytes, answers out of
    /// requests.
    fn go_on(&mut self, key: usize, now: Instant) {
        let mut turn_bytes = TURN_BYTES_MAX;
        for _ in 0..REQUESTS_A_TURN {
            let Some(connection) = self.connections.get_mut(key) else { return };
            match connection.phase {
                Phase::Idle | Phase::Head => match connection.hear(&self.shared.options.limits) {
                    Heard::Request(request) => self.begin(key, request, now),
                    Heard::Refused(refused) => {
                        return self.refuse(key, Refused::status(refused), now);
                    }
                    // Blank lines were all that there was room for.
                    Heard::Nothing if connection.has_plaintext() => {
                        if connection.read(&mut self.scratch).is_err() {
                            return self.close(key);
                        }
                    }
                    Heard::Nothing if connection.has_heard_all => return self.close(key),
                    Heard::Nothing => {
                        let begun = connection.waits_for_more();
                        self.enter(key, if begun { Phase::Head } else { Phase::Idle }, now);
                        return match !begun && self.drains() {
                            true => self.let_go(key, now),
                            false => self.ask(key),
                        };
                    }
                },
                Phase::Answering => match self.send(key, &mut turn_bytes, now) {
                    Ok(Sent::All) => {
                        if !self.finish(key, now) {
                            return;
                        }
                    }
                    Ok(sent) => return self.wait(key, &sent, now),
                    Err(_) => return self.close(key),
                },
                Phase::Asking => return self.ask(key),
                Phase::Lingering if connection.has_heard_all => return self.close(key),
                Phase::Lingering => return self.ask(key),
            }
        }
        self.get_in_line(key);
    }

    /// Puts a connection in line, to go on when the others had their turn.
    fn get_in_line(&mut self, key: usize) {
        if let Some(connection) = self.connections.get_mut(key)
            && !std::mem::replace(&mut connection.is_ready, true)
        {
            self.ready.push_back(key);
        }
    }

    fn send(&mut self, key: usize, turn_bytes: &mut u64, now: Instant) -> io::Result<Sent> {
        let connection = &mut self.connections[key];
        let counters = &self.shared.counters;
        if connection.has_no_place(now) {
            connection.turn_away();
            return Err(io::ErrorKind::TimedOut.into());
        }
        if let Some(judged) = connection.judge(now) {
            if judged.verdict != Verdict::HeldBack {
                self.slack.tell(judged.slack_ms);
            }
            counters.periods.fetch_add(1, Ordering::Relaxed);
            match judged.verdict {
                Verdict::Met | Verdict::Over => {}
                Verdict::Missed => {
                    counters.misses.fetch_add(1, Ordering::Relaxed);
                }
                Verdict::MissedHere => {
                    counters.misses.fetch_add(1, Ordering::Relaxed);
                    counters.misses_here.fetch_add(1, Ordering::Relaxed);
                    let is_wish = connection.answer.as_ref().is_some_and(|one| one.is_wish);
                    self.shared.admission.missed(is_wish, now);
                }
                Verdict::HeldBack => {
                    counters.held_back.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        let sent_bytes = |connection: &Connection| {
            connection.answer.as_ref().map_or(0, |answer| answer.sent_bytes)
        };
        let before = sent_bytes(connection);
        let sent = connection.send(key, &mut *self.delivery, turn_bytes, now);
        connection.is_reading = matches!(sent, Ok(Sent::Reading));
        let sent_now = sent_bytes(connection) - before;
        if sent_now > 0 {
            connection.since = now;
            counters.sent_bytes.fetch_add(sent_now, Ordering::Relaxed);
        }
        sent
    }

    /// Sets what wakes an answer that does not go on now.
    fn wait(&mut self, key: usize, sent: &Sent, now: Instant) {
        if *sent == Sent::Turn {
            self.get_in_line(key);
        }
        let connection = &mut self.connections[key];
        if *sent == Sent::Blocked && !connection.interest.writes {
            // Until now it was not the client that was waited for.
            connection.since = now;
        }
        let connection = &self.connections[key];
        if let Some(schedule) = connection.answer.as_ref().and_then(|one| one.schedule.as_ref()) {
            let mut at = self.on_tick(schedule.next(now));
            if connection.waits_for_place() {
                at = at.min(now + BORROWED_LOOK);
            }
            if *sent == Sent::Blocked {
                at = at.min(connection.since + self.time_max(Phase::Answering));
            }
            self.timers.set(key, at);
        }
        self.ask_of(key, *sent == Sent::Blocked);
    }

    /// Rounds a time up, so that periods that begin at about the same time are looked at together:
    /// a wake-up for each would cost as much as what it does. A period's bytes have the whole
    /// period to arrive.
    fn on_tick(&self, at: Instant) -> Instant {
        let since = at.saturating_duration_since(self.shared.started);
        let left = since.as_nanos() % TICK.as_nanos();
        let wait = (TICK.as_nanos() - left) % TICK.as_nanos();
        at + Duration::from_nanos(u64::try_from(wait).unwrap_or(0))
    }

    fn begin(&mut self, key: usize, request: Box<Request>, now: Instant) {
        let is_kept = request.is_kept && !self.drains();
        let client = Client { peer: self.connections[key].peer, mailbox: &self.mailbox, key, now };
        let Some(reply) = answer(&self.shared, &request, is_kept, &client) else {
            self.connections[key].asked = Some(request);
            return self.enter(key, Phase::Asking, now);
        };
        if reply.pace.is_some() {
            self.shared.counters.streams.fetch_add(1, Ordering::Relaxed);
        }
        let Request { line, referer, user_agent, .. } = *request;
        self.answer(key, reply, LogLine { request: line, referer, user_agent }, now);
    }

    fn answer(&mut self, key: usize, reply: Reply, line: LogLine, now: Instant) {
        self.answers += 1;
        let id = self.answers << LOOP_BITS | self.number as u64;
        let answer = Answer::new(id, reply, &mut self.files, line, now);
        let connection = &mut self.connections[key];
        connection.answer = Some(answer);
        connection.pace();
        self.enter(key, Phase::Answering, now);
    }

    /// Answers something that is no request; the connection ends with it.
    fn refuse(&mut self, key: usize, status: u16, now: Instant) {
        let response = of_status(status, None, &common(&self.shared.options, false), &[]);
        let request = self.connections[key].first_line();
        let line = LogLine { request, ..LogLine::default() };
        self.answer(key, Reply::short(response), line, now);
        self.go_on(key, now);
    }

    /// Ends an answer that is sent, and says whether there may be another.
    fn finish(&mut self, key: usize, now: Instant) -> bool {
        let connection = &mut self.connections[key];
        let is_kept = connection.answer.as_ref().is_some_and(|answer| answer.response.is_kept);
        let answer = connection.take_answer();
        if let Some(answer) = &answer {
            self.delivery.forget(key);
            self.log(&self.connections[key], answer, now);
        }
        let connection = &mut self.connections[key];
        if is_kept {
            self.enter(key, Phase::Idle, now);
            return true;
        }
        if connection.has_unread() && shutdown(&connection.socket, Shutdown::Write).is_ok() {
            self.enter(key, Phase::Lingering, now);
            return true;
        }
        self.close(key);
        false
    }

    fn ask(&mut self, key: usize) {
        self.ask_of(key, false);
    }

    /// Tells epoll what this connection waits for, if that is another thing than before.
    fn ask_of(&mut self, key: usize, writes: bool) {
        let connection = &mut self.connections[key];
        let writes = writes || connection.wants_write();
        let interest = Interest { reads: connection.wants_bytes(), writes };
        if interest == connection.interest {
            return;
        }
        connection.interest = interest;
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, interest.reads);
        flags.set(epoll::EventFlags::OUT, interest.writes);
        let data = epoll::EventData::new_u64(key as u64);
        if epoll::modify(&self.epoll, &connection.socket, data, flags).is_err() {
            self.close(key);
        }
    }

    fn log(&self, connection: &Connection, answer: &Answer, now: Instant) {
        let counters = &self.shared.counters;
        counters.requests.fetch_add(1, Ordering::Relaxed);
        let Some(log) = &self.shared.options.access_log else { return };
        log(&Access {
            time: SystemTime::now(),
            peer: connection.peer,
            request: &answer.line.request,
            status: answer.response.status,
            body_bytes: answer.sent_bytes.saturating_sub(answer.response.head_bytes),
            is_whole: answer.response.pieces.is_empty(),
            took: now.saturating_duration_since(answer.begun),
            referer: answer.line.referer.as_deref(),
            user_agent: answer.line.user_agent.as_deref(),
        });
    }
}

fn is_idle(connections: &Slab<Connection>, key: usize, since: Instant) -> bool {
    connections.get(key).is_some_and(|one| one.phase == Phase::Idle && one.since == since)
}
