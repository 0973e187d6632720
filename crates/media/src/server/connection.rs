//! A connection of a client: bytes in, requests out of them; an answer, piece by piece.

use std::{
    io,
    net::{IpAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use haul_sys::{TcpInfo, pacing::set_max_pacing_rate};

use super::{
    addresses::Counted,
    answers::Reply,
    limits::{
        BORROWED_PERIODS, BURST_BYTES_PER_S_MIN, BURST_TIMES, CALL_BYTES_MIN, FIRST_BYTES, Limits,
        READS_A_TURN, RESPONSE, TOP_UP_BYTES,
    },
    open_files::OpenFiles,
    snapshot::{Session, State},
    transport::Transport,
};
use crate::{
    admission::Place,
    audience::Seat,
    delivery::{Delivery, Due, Owner, Sending, Wanted},
    http::{
        request::{self, HEAD_BYTES_MAX, Parsed, Refused, Request},
        response::{Piece, Response},
    },
    pace::{Judged, Schedule, There, Verdict},
    site::OpenFile,
    slack::{SlackHistogram, Trend},
    tls::Then,
};

#[derive(Debug)]
pub(super) struct Connection {
    pub socket: TcpStream,
    transport: Transport,
    pub peer: IpAddr,
    /// Place among the connections of its address, where these are counted.
    pub counted: Option<Counted>,
    /// Bytes that have come and are not read yet; their memory is given back while nothing is
    /// there.
    incoming: Vec<u8>,
    /// Bytes of a request's body that are still to come, and are thrown away.
    to_discard_bytes: u64,
    pub answer: Option<Answer>,
    /// A request for a film whose rate is being found.
    pub asked: Option<Box<Request>>,
    pub requests: u32,
    pub phase: Phase,
    /// Time at which the phase began, or something moved in it.
    pub since: Instant,
    /// The client says nothing more.
    pub has_heard_all: bool,
    pub interest: Interest,
    /// The connection is in line for another turn.
    pub is_ready: bool,
    /// The connection waits for the disk.
    pub is_reading: bool,
    /// The rest of a body is longer than anybody reads.
    ignores_body: bool,
    /// Bytes sent by all answers before this one.
    sent_before_bytes: u64,
    /// Pacing rate that the kernel was told, in bytes a second; `None`: none.
    pacing_rate: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The connection waits for a request, the first or another.
    Idle,
    /// A part of a request's head is there.
    Head,
    /// The rate of the film that is asked for is being found.
    Asking,
    Answering,
    /// All is sent; what the client still says is thrown away until it closes.
    Lingering,
}

/// Events that the loop asks epoll for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Interest {
    pub reads: bool,
    pub writes: bool,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub response: Response,
    /// Bytes sent of the first piece.
    piece_sent_bytes: u64,
    pub sent_bytes: u64,
    pub file: Option<Arc<OpenFile>>,
    pub line: LogLine,
    pub begun: Instant,
    /// The schedule of a paced answer.
    pub schedule: Option<Schedule>,
    /// The client named the stream's rate, and the film needs no such one.
    pub is_wish: bool,
    /// Bytes of a paced answer that the client's kernel had at the end of a period; `took` is when
    /// that last was more, or all.
    there_bytes: u64,
    took: Instant,
    id: u64,
    record: Record,
    /// Place of a stream that was admitted.
    place: Option<Place>,
    /// The place was another answer's so far.
    waits_for_place: bool,
    /// Seat of an answer with a file.
    seat: Option<Seat>,
}

/// Record of how the periods of an answer went.
#[derive(Debug, Default)]
struct Record {
    periods: u64,
    misses: u64,
    held_back: u64,
    slack: SlackHistogram,
    slack_ms: Option<i64>,
    trend: Trend,
}

/// Words of a request for the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogLine {
    pub request: String,
    pub referer: Option<String>,
    pub user_agent: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Request(Box<Request>),
    Refused(Refused),
    /// No whole request is there.
    Nothing,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    All,
    /// The socket is full.
    Blocked,
    /// The turn is over, and the other connections have theirs.
    Turn,
    /// All that is released by now is sent.
    Paced,
    /// The disk has not read yet what comes next.
    Reading,
}

impl Answer {
    pub fn new(
        id: u64,
        reply: Reply,
        files: &mut OpenFiles,
        line: LogLine,
        begun: Instant,
    ) -> Self {
        let Reply { response, file, pace, place, seat } = reply;
        let file = file.map(|file| files.shared(file));
        let schedule = pace.map(|pace| {
            Schedule::new(pace.rate, pace.pacing, response.len_bytes(), begun)
                .with_start_up_in(pace.start_up_periods)
                .later(pace.wait)
        });
        let waits_for_place = place.as_ref().is_some_and(Place::is_borrowed);
        let record = Record::default();
        Self {
            response,
            piece_sent_bytes: 0,
            sent_bytes: 0,
            file,
            line,
            begun,
            schedule,
            is_wish: pace.is_some_and(|pace| pace.is_wish),
            there_bytes: 0,
            took: begun + pace.map_or(Duration::ZERO, |pace| pace.wait),
            id,
            record,
            place,
            waits_for_place,
            seat,
        }
    }
}

impl Answer {
    /// Restarts the schedule when a borrowed place was let go of by the one who had it.
    fn look_for_place(&mut self, now: Instant) {
        let is_borrowed = self.place.as_ref().is_some_and(Place::is_borrowed);
        if self.waits_for_place && !is_borrowed {
            self.waits_for_place = false;
            self.took = now;
            if let Some(schedule) = &mut self.schedule {
                schedule.restart(now);
            }
        }
    }

    fn note_sent(&mut self, sent_bytes: u64) {
        self.sent_bytes += sent_bytes;
        self.piece_sent_bytes += sent_bytes;
        if let Some(place) = &self.place {
            place.note_sent(self.sent_bytes);
        }
    }

    /// Notes how much the client's kernel has said that it has.
    fn note_there(&mut self, there_bytes: u64, now: Instant) {
        if there_bytes > self.there_bytes || there_bytes >= self.sent_bytes {
            self.there_bytes = there_bytes;
            self.took = now;
        }
    }

    fn left_bytes(&self) -> u64 {
        self.response.len_bytes().saturating_sub(self.piece_sent_bytes)
    }
}

impl Record {
    fn tell(&mut self, judged: &Judged) {
        match judged.verdict {
            Verdict::Met | Verdict::Over => {}
            Verdict::Missed | Verdict::MissedHere => self.misses += 1,
            Verdict::HeldBack => {
                // A player that is paused has what it wants.
                self.held_back += 1;
                self.periods += 1;
                return;
            }
        }
        self.periods += 1;
        self.slack.tell(judged.slack_ms);
        self.slack_ms = Some(judged.slack_ms);
        self.trend.tell(judged.buffer_ms as f32 / 1e3);
    }
}

impl LogLine {
    /// The second word of a request's line.
    fn target(&self) -> &str {
        self.request.split(' ').nth(1).unwrap_or_default()
    }
}

impl Connection {
    pub fn new(socket: TcpStream, transport: Transport, peer: IpAddr, now: Instant) -> Self {
        Self {
            socket,
            transport,
            peer,
            counted: None,
            incoming: Vec::new(),
            to_discard_bytes: 0,
            answer: None,
            asked: None,
            requests: 0,
            phase: Phase::Idle,
            since: now,
            has_heard_all: false,
            interest: Interest::default(),
            is_ready: false,
            is_reading: false,
            ignores_body: false,
            sent_before_bytes: 0,
            pacing_rate: None,
        }
    }

    /// Takes what the socket has, as far as there is room for it.
    ///
    /// # Errors
    /// What recv(2) says, and what is no TLS.
    pub fn read(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        let mut reads = 0;
        // What is decrypted is taken as far as there is room: no event tells of it again.
        while self.wants_bytes() && (reads < READS_A_TURN || self.transport.has_plaintext()) {
            reads += 1;
            let room = match self.phase {
                Phase::Lingering => scratch.len(),
                _ => scratch.len().min(HEAD_BYTES_MAX + 1 - self.incoming.len()),
            };
            match self.transport.read(&self.socket, &mut scratch[..room]) {
                Ok(0) => self.has_heard_all = true,
                Ok(received) => self.take(&scratch[..received]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether there is room for more bytes: while an answer is sent, for one head in advance
    /// (pipelining).
    pub fn wants_bytes(&self) -> bool {
        let has_room = !self.ignores_body && self.incoming.len() <= HEAD_BYTES_MAX;
        !self.has_heard_all && (self.phase == Phase::Lingering || has_room)
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.phase == Phase::Lingering {
            return;
        }
        let discarded = self.to_discard_bytes.min(bytes.len() as u64);
        self.to_discard_bytes -= discarded;
        self.incoming.extend_from_slice(&bytes[discarded as usize..]);
    }

    /// Takes the next request, if it is whole.
    pub fn hear(&mut self, limits: &Limits) -> Heard {
        // A line feed before a request is a habit of old clients (RFC 9112, 2.2).
        let blank = self.incoming.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        self.incoming.drain(..blank);
        if self.incoming.is_empty() {
            self.incoming = Vec::new();
            return Heard::Nothing;
        }
        match request::parse(&self.incoming) {
            Ok(Parsed::Incomplete) => Heard::Nothing,
            Err(refused) => Heard::Refused(refused),
            Ok(Parsed::Whole(mut request, len_bytes)) => {
                self.incoming.drain(..len_bytes);
                let held = request.body_bytes.min(self.incoming.len() as u64);
                self.incoming.drain(..held as usize);
                self.to_discard_bytes = request.body_bytes - held;
                self.ignores_body = request.body_bytes > limits.body_bytes_max;
                self.requests += 1;
                request.is_kept &= self.requests < limits.requests_max
                    && request.body_bytes <= limits.body_bytes_max;
                if self.transport.has_plaintext() {
                    // Now there is room. Where it fails the socket tells of it again.
                    let _ = self.read(&mut [0; TOP_UP_BYTES]);
                }
                Heard::Request(request)
            }
        }
    }

    /// First line of what came and was not understood, for the log.
    pub fn first_line(&self) -> String {
        let mut lines = self.incoming.split(|&byte| byte == b'\n');
        String::from_utf8_lossy(lines.next().unwrap_or_default().trim_ascii_end()).into_owned()
    }

    /// Whether bytes are there of which no event tells.
    pub fn has_plaintext(&self) -> bool {
        self.transport.has_plaintext() && self.wants_bytes()
    }

    /// Whether a part of a head, of a body or of a TLS greeting is there and the rest is not.
    pub fn waits_for_more(&self) -> bool {
        !self.incoming.is_empty() || self.transport.is_greeting()
    }

    /// Says whether the client still greets and could not be answered yet.
    pub fn is_greeting(&self) -> bool {
        self.transport.is_greeting()
    }

    /// Whether encrypted bytes wait for room in the socket.
    pub fn wants_write(&self) -> bool {
        self.transport.wants_write()
    }

    /// Sends the encrypted bytes that wait for room in the socket.
    ///
    /// # Errors
    /// What the socket says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.transport.flush(&self.socket).map(|_| ())
    }

    /// Ends the connection with a word between two answers; within one the client sees that it is
    /// cut.
    pub fn say_goodbye(&mut self) {
        if self.answer.is_none() {
            self.transport.end();
            let _ = self.flush();
        }
    }

    /// Whether bytes that the client sent are not read: to close now would make it lose the answer,
    /// as the kernel then sends a reset (RFC 9112, 9.6).
    pub fn has_unread(&self) -> bool {
        !self.incoming.is_empty() || self.to_discard_bytes > 0 || !self.has_heard_all
    }

    /// Sends of the answer what the socket takes, and not more than is left of this connection's
    /// turn: each call takes something of it, however little it sends.
    ///
    /// # Errors
    /// What the socket or the file says: then the connection is of no use.
    pub fn send(
        &mut self,
        key: Owner,
        delivery: &mut dyn Delivery,
        turn_bytes: &mut u64,
        now: Instant,
    ) -> io::Result<Sent> {
        let Some(answer) = &mut self.answer else { return Ok(Sent::All) };
        answer.look_for_place(now);
        let schedule = answer.schedule.as_ref();
        let allowed_bytes = schedule.map_or(u64::MAX, |schedule| schedule.allowed_bytes(now));
        let allowed_bytes = match answer.waits_for_place {
            true => allowed_bytes.min(FIRST_BYTES),
            false => allowed_bytes,
        };
        let due = schedule.map_or(Due::Sometime, |schedule| {
            let end = schedule.next(now);
            // A player that begins has nothing in hand.
            Due::At(if answer.sent_bytes < FIRST_BYTES { end.min(now + RESPONSE) } else { end })
        });
        while let Some(piece) = answer.response.pieces.front() {
            let released_bytes = allowed_bytes.saturating_sub(answer.sent_bytes);
            if *turn_bytes == 0 {
                return Ok(Sent::Turn);
            }
            if released_bytes == 0 {
                return Ok(Sent::Paced);
            }
            let done = answer.piece_sent_bytes;
            let has_next = answer.response.pieces.len() > 1;
            let outcome = match piece {
                Piece::Text(_) | Piece::Page(_) => {
                    let then = if has_next { Then::More } else { Then::Nothing };
                    let text = piece.text();
                    let sent = self.transport.send_text(&self.socket, &text[done as usize..], then);
                    sent.map(|sent| Sending::Bytes(sent as u64))
                }
                Piece::File(range) => {
                    let file = answer.file.as_ref().ok_or_else(no_file)?;
                    let audience = answer.seat.as_ref().ok_or_else(no_file)?.audience();
                    let start = range.start + done;
                    let end =
                        range.end.min(start.saturating_add((*turn_bytes).min(released_bytes)));
                    let wanted = Wanted { owner: key, file, range: start..end, due, audience };
                    delivery.send_some(&mut self.transport.sink(&self.socket), &wanted)
                }
            };
            let sent = match outcome {
                Ok(Sending::Bytes(sent)) => sent,
                Ok(Sending::Reading) => return Ok(Sent::Reading),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Sent::Blocked);
                }
                Err(error) => return Err(error),
            };
            self.transport.note_sent(sent)?;
            *turn_bytes = turn_bytes.saturating_sub(sent.max(CALL_BYTES_MIN));
            let is_over = answer.piece_sent_bytes + sent == piece.len_bytes();
            answer.note_sent(sent);
            if is_over {
                answer.piece_sent_bytes = 0;
                answer.response.pieces.pop_front();
            }
        }
        if !answer.response.is_kept {
            self.transport.end();
        }
        Ok(if self.transport.flush(&self.socket)? { Sent::All } else { Sent::Blocked })
    }
}

impl Connection {
    /// Judges a paced answer by its schedule at the end of a period.
    pub fn judge(&mut self, now: Instant) -> Option<Judged> {
        let is_blocked = self.interest.writes;
        let answer = self.answer.as_mut().filter(|answer| !answer.waits_for_place)?;
        if !answer.schedule.as_ref()?.has_to_judge(now) {
            return None;
        }
        let tcp = TcpInfo::of(&self.socket).unwrap_or_default();
        // A player that is paused lets its window close; a slow network does not close it.
        let is_closed = tcp.peer_window_bytes < tcp.mss_bytes.saturating_mul(2);
        let there_bytes =
            self.transport.there_bytes(&self.socket, &tcp).saturating_sub(self.sent_before_bytes);
        answer.note_there(there_bytes, now);
        let there = There {
            bytes: there_bytes,
            ago: Duration::from_millis(tcp.last_ack_received_ms.into()),
            is_full: is_closed && (is_blocked || tcp.notsent_bytes > 0),
            // What the socket has no room for is not missed here.
            sent_bytes: if is_blocked { u64::MAX } else { answer.sent_bytes },
        };
        let judged = answer.schedule.as_mut()?.judge(now, there)?;
        answer.record.tell(&judged);
        Some(judged)
    }

    /// Whether the place is still that of another answer of the player.
    pub fn waits_for_place(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.waits_for_place)
    }

    /// Says whether the other answer has not ended in time, so that two watch.
    pub fn has_no_place(&self, now: Instant) -> bool {
        self.answer.as_ref().is_some_and(|answer| {
            let time_max = answer.schedule.as_ref().map_or(Duration::ZERO, Schedule::period);
            let is_borrowed = answer.place.as_ref().is_some_and(Place::is_borrowed);
            is_borrowed
                && now.saturating_duration_since(answer.begun) >= BORROWED_PERIODS * time_max
        })
    }

    /// Ends the answer for want of a place.
    pub fn turn_away(&self) {
        if let Some(place) = self.answer.as_ref().and_then(|answer| answer.place.as_ref()) {
            place.turn_away();
        }
    }

    /// Whether the player goes on with another answer, which waits for this one's end.
    pub fn is_in_the_way(&self) -> bool {
        let place = self.answer.as_ref().and_then(|answer| answer.place.as_ref());
        place.is_some_and(Place::is_lent)
    }

    /// Whether the client of a paced answer has taken nothing of what is on its way for `time_max`.
    pub fn has_stalled(&mut self, time_max: Duration, now: Instant) -> bool {
        let Some(answer) = self.answer.as_mut().filter(|answer| !answer.waits_for_place) else {
            return false;
        };
        let is_long = |answer: &Answer| now.saturating_duration_since(answer.took) >= time_max;
        if answer.schedule.is_none() || !is_long(answer) {
            return false;
        }
        // The ends of its periods may be further apart.
        let tcp = TcpInfo::of(&self.socket).unwrap_or_default();
        let there_bytes = self.transport.there_bytes(&self.socket, &tcp);
        answer.note_there(there_bytes.saturating_sub(self.sent_before_bytes), now);
        is_long(answer)
    }

    /// Whether a file is sent, or a part of one.
    pub fn streams(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.file.is_some())
    }

    pub fn session(&self) -> Option<Session> {
        let answer = self.answer.as_ref().filter(|answer| answer.file.is_some())?;
        let record = &answer.record;
        let state = match self.interest.writes {
            true => State::Blocked,
            false if self.is_reading => State::Reading,
            false if answer.schedule.is_some() => State::Waiting,
            false => State::Sending,
        };
        Some(Session {
            id: answer.id,
            peer: self.peer,
            target: answer.line.target().to_owned(),
            user_agent: answer.line.user_agent.clone(),
            since: SystemTime::now() - answer.begun.elapsed(),
            rate_bits_per_s: answer.schedule.as_ref().map(|one| one.rate().bits_per_s),
            state,
            len_bytes: answer.sent_bytes + answer.left_bytes(),
            sent_bytes: answer.sent_bytes,
            periods: record.periods,
            misses: record.misses,
            held_back: record.held_back,
            slack: record.slack,
            slack_ms: record.slack_ms,
            buffer_s: record.trend.buffer_s(),
            rebuffer_risk: record.trend.rebuffer_risk(),
        })
    }

    /// Lets the kernel send a period's bytes evenly and not as fast as the card can
    /// (SO_MAX_PACING_RATE, socket(7)): a burst would fill the buffers of slower links on its way.
    pub fn pace(&mut self) {
        let schedule = self.answer.as_ref().and_then(|answer| answer.schedule.as_ref());
        let wanted = schedule.map(|schedule| {
            let rate = schedule.rate().bits_per_s / 8;
            rate.saturating_mul(BURST_TIMES).max(BURST_BYTES_PER_S_MIN)
        });
        if wanted != self.pacing_rate {
            self.pacing_rate = wanted;
            // Without it all is sent all the same.
            let _ = set_max_pacing_rate(&self.socket, wanted.unwrap_or(u64::MAX));
        }
    }

    /// Takes the answer out that is over, sent or not.
    pub fn take_answer(&mut self) -> Option<Answer> {
        let answer = self.answer.take()?;
        self.is_reading = false;
        self.sent_before_bytes += answer.sent_bytes;
        Some(answer)
    }
}

fn no_file() -> io::Error {
    io::Error::other("an answer with a part of a file has no file")
}
