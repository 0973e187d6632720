//! A crowd of viewers: it takes streams as players do, and tells how late each period came.
//!
//! For any HTTP server. A viewer sends one request and takes what comes. Its player begins after
//! `prebuffer` and then plays at the rate, so the bytes of period k have to be there at the
//! beginning + prebuffer + k periods; what comes later is late by so much. A server that gives a
//! start-up at once is held to it: each period is due earlier by `start_up`. Bytes are thrown away
//! by the kernel (MSG_TRUNC, tcp(7)), so that a crowd costs little beside the server it looks at.

mod answer;
pub mod arrivals;
mod seen;
pub mod single;
mod viewer;

pub use seen::{Quantiles, Seen};

use std::{
    collections::VecDeque,
    io,
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rustix::{
    event::epoll,
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt},
};

use crate::pace::Rate;
use arrivals::Arrival;
use viewer::{Phase, Viewer};

const EVENTS_MAX: usize = 512;
const CALL_BYTES_MAX: usize = 1 << 20;
/// Interval between checks for finished viewers.
const SWEEP: Duration = Duration::from_millis(250);
/// Interval at which viewers whose buffer was full look whether they have room again.
const ROOM_SWEEP: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub struct Crowd {
    pub address: SocketAddr,
    /// The films: paths with their query.
    pub targets: Vec<String>,
    /// Arrivals of the viewers, in the order of their times.
    pub arrivals: Vec<Arrival>,
    pub rate: Rate,
    pub period: Duration,
    pub prebuffer: Duration,
    /// Film that the server gives at once beside the first period, in time that it plays: so much
    /// earlier is each period due, though never before `prebuffer`. Without it a server that is
    /// late by less would not be seen.
    pub start_up: Duration,
    /// Time after which a refused viewer comes again.
    pub asks_again: Option<Duration>,
    /// Most film that a viewer takes ahead of what it plays, in time that it plays. Without it all
    /// is taken that comes: then it is the server that paces.
    pub buffer: Option<Duration>,
    /// Time after which each viewer leaves.
    pub time: Duration,
    /// Time from the crowd's beginning after which all leave.
    pub until: Duration,
}

/// Runs the crowd, until the last has seen enough.
///
/// # Errors
/// If epoll(7) or a socket cannot be had.
pub fn watch(crowd: &Crowd) -> io::Result<Seen> {
    watch_unless(crowd, &AtomicBool::new(false))
}

/// Watches as `watch` does; all leave when `stops` is set.
///
/// # Errors
/// As `watch`.
pub fn watch_unless(crowd: &Crowd, stops: &AtomicBool) -> io::Result<Seen> {
    Watch::new(crowd, stops)?.run()
}

struct Watch<'a> {
    crowd: &'a Crowd,
    stops: &'a AtomicBool,
    epoll: OwnedFd,
    viewers: Vec<Viewer>,
    /// Number of arrivals that have come.
    come: usize,
    /// Time and film of viewers that were refused and come again.
    returns: VecDeque<(Instant, usize)>,
    seen: Seen,
    scratch: Vec<u8>,
}

impl<'a> Watch<'a> {
    fn new(crowd: &'a Crowd, stops: &'a AtomicBool) -> io::Result<Self> {
        Ok(Self {
            crowd,
            stops,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            viewers: Vec::with_capacity(crowd.arrivals.len()),
            come: 0,
            returns: VecDeque::new(),
            seen: Seen::nothing()?,
            scratch: vec![0; CALL_BYTES_MAX],
        })
    }

    fn run(mut self) -> io::Result<Seen> {
        let start = Instant::now();
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let (mut sweep, mut room_sweep) = (start, start);
        loop {
            let now = Instant::now();
            let since = now.saturating_duration_since(start);
            let is_over = since >= self.crowd.until || self.stops.load(Ordering::Relaxed);
            if !is_over {
                self.let_come(since, now)?;
            }
            if now >= sweep || is_over {
                sweep = now + SWEEP;
                let everybody_came =
                    self.come == self.crowd.arrivals.len() && self.returns.is_empty();
                if self.let_go(now, is_over) == 0 && everybody_came || is_over {
                    return Ok(self.seen);
                }
            }
            if self.crowd.buffer.is_some() && now >= room_sweep {
                room_sweep = now + ROOM_SWEEP;
                self.make_room(now);
            }
            events.clear();
            let timeout = self.patience(since).try_into().ok();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let now = Instant::now();
            for event in &events {
                self.on_event(event.data.u64() as usize, now);
            }
        }
    }

    /// Time until the next viewer comes, or something is to be looked at.
    fn patience(&self, since: Duration) -> Duration {
        let next = self.crowd.arrivals.get(self.come);
        let look = if self.crowd.buffer.is_some() { ROOM_SWEEP } else { SWEEP / 5 };
        let next = next.map_or(look, |next| next.at.saturating_sub(since));
        next.min(look).min(self.crowd.until.saturating_sub(since)).max(Duration::from_millis(1))
    }

    /// Lets viewers in whose time has come, for the first time or again.
    fn let_come(&mut self, since: Duration, now: Instant) -> io::Result<()> {
        while let Some(arrival) = self.crowd.arrivals.get(self.come)
            && arrival.at <= since
        {
            self.enter(arrival.film, now)?;
            self.come += 1;
        }
        while let Some(&(at, film)) = self.returns.front()
            && at <= now
        {
            self.returns.pop_front();
            self.enter(film, now)?;
        }
        Ok(())
    }

    fn enter(&mut self, film: usize, now: Instant) -> io::Result<()> {
        let address = self.crowd.address;
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        if let Some(buffer) = self.crowd.buffer {
            // What a player does not take must not wait in its kernel either: it would have it.
            let bytes = usize::try_from(self.crowd.rate.bytes_in(buffer)).unwrap_or(usize::MAX);
            let _ = sockopt::set_socket_recv_buffer_size(&socket, bytes);
        }
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno.into()),
        }
        let key = self.viewers.len();
        let target = &self.crowd.targets[film];
        let request = format!("GET {target} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let socket = TcpStream::from(socket);
        let data = epoll::EventData::new_u64(key as u64);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::OUT)?;
        self.viewers.push(Viewer::new(socket, request, film, now));
        Ok(())
    }

    fn on_event(&mut self, key: usize, now: Instant) {
        let viewer = &mut self.viewers[key];
        let outcome = match viewer.phase {
            Phase::Connecting => viewer.ask(&self.epoll, key, now),
            Phase::Head(_) | Phase::Watching => viewer.take(&mut self.scratch, &mut self.seen, now),
            Phase::Over => Ok(()),
        };
        if let Err(why) = outcome {
            self.seen.fail(why.to_string());
            return self.end(key, now);
        }
        self.count(key, now);
        let viewer = &self.viewers[key];
        if viewer.body_bytes.is_some_and(|bytes| viewer.received_bytes >= bytes) {
            if let (true, Some(patience)) = (viewer.is_refused, self.crowd.asks_again) {
                self.returns.push_back((now + patience, viewer.film));
            }
            return self.end(key, now);
        }
        if viewer.has_all_it_may(self.crowd, now) {
            self.listen(key, epoll::EventFlags::empty());
        }
    }

    /// Lets viewers take again whose buffers were full.
    fn make_room(&mut self, now: Instant) {
        for key in 0..self.viewers.len() {
            if self.viewers[key].is_full && !self.viewers[key].has_all_it_may(self.crowd, now) {
                self.listen(key, epoll::EventFlags::IN);
            }
        }
    }

    fn listen(&mut self, key: usize, flags: epoll::EventFlags) {
        let viewer = &mut self.viewers[key];
        let is_full = flags.is_empty();
        if viewer.is_full != is_full {
            viewer.is_full = is_full;
            let data = epoll::EventData::new_u64(key as u64);
            let _ = epoll::modify(&self.epoll, &viewer.socket, data, flags);
        }
    }

    /// Counts the periods that are there by now.
    fn count(&mut self, key: usize, now: Instant) {
        let of_period = self.crowd.rate.bytes_in(self.crowd.period).max(1);
        let viewer = &mut self.viewers[key];
        viewer.count_start_up(self.crowd, &mut self.seen, now);
        let there_bytes = viewer.there_bytes(self.crowd);
        while there_bytes >= of_period.saturating_mul(viewer.periods + 1) {
            let late = now.saturating_duration_since(viewer.due(self.crowd, viewer.periods));
            viewer.periods += 1;
            self.seen.tell(late);
        }
    }

    /// Ends viewers who have seen enough, and says how many stay.
    fn let_go(&mut self, now: Instant, all: bool) -> usize {
        let mut staying = 0;
        for key in 0..self.viewers.len() {
            let viewer = &self.viewers[key];
            if viewer.phase == Phase::Over {
                continue;
            }
            if all || now >= viewer.begun + self.crowd.time {
                self.end(key, now);
            } else {
                staying += 1;
            }
        }
        staying
    }

    /// Ends a viewer: what had to be there and never came is as late as it is now.
    fn end(&mut self, key: usize, now: Instant) {
        if self.viewers[key].phase == Phase::Watching {
            self.count(key, now);
        }
        let viewer = &mut self.viewers[key];
        let is_whole = viewer.body_bytes.is_some_and(|bytes| viewer.received_bytes >= bytes);
        let waits = matches!(viewer.phase, Phase::Connecting | Phase::Head(_));
        // Who left before anything was due was not kept waiting.
        if waits && now >= viewer.due(self.crowd, 0) && !viewer.has_failed {
            self.seen.fail("no answer came".to_owned());
        }
        while !is_whole && !viewer.has_failed {
            let due = viewer.due(self.crowd, viewer.periods);
            if due > now {
                break;
            }
            viewer.periods += 1;
            self.seen.tell(now - due);
        }
        self.seen.watched += now.saturating_duration_since(viewer.begun);
        viewer.phase = Phase::Over;
        viewer.is_full = false;
        let _ = epoll::delete(&self.epoll, &viewer.socket);
        let _ = viewer.socket.shutdown(std::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        policy::Policy,
        server::{Options, Server},
    };

    fn crowd(address: SocketAddr, target: &str) -> Crowd {
        Crowd {
            address,
            targets: vec![target.to_owned()],
            arrivals: arrivals::evenly(20, Duration::from_millis(100), 1),
            rate: Rate { bits_per_s: 800_000 },
            period: Duration::from_millis(200),
            prebuffer: Duration::from_millis(200),
            start_up: Duration::ZERO,
            asks_again: None,
            buffer: None,
            time: Duration::from_millis(900),
            until: Duration::MAX,
        }
    }

    fn server() -> (tempfile::TempDir, Server) {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("film.mp4"), vec![0; 1_000_000]).unwrap();
        let server = Server::start(root.path(), Options::default(), Policy::default()).unwrap();
        (root, server)
    }

    /// A film of 100,000 bytes a second, of which a player of 0.9 s needs periods 0 to 3 and
    /// perhaps 4.
    #[test]
    fn each_period_of_each_viewer_is_counted() {
        let (_root, server) = server();
        let seen = watch(&crowd(server.local_addr(), "/film.mp4")).unwrap();
        assert_eq!((seen.streams, seen.refused, seen.failed), (20, 0, 0), "{seen:?}");
        // It was not paced: all of it was there.
        assert_eq!(seen.periods, 20 * 50, "{seen:?}");
        assert!(seen.received_bytes > 20 * 1_000_000);
        assert_eq!((seen.first_byte_us.len(), seen.start_up_us.len()), (20, 20));
        assert!(seen.watched > Duration::ZERO);
    }

    #[test]
    fn what_never_comes_is_late_and_a_missing_film_has_failed() {
        let (_root, server) = server();
        // 9000 bytes are there at once, and a period of the players has 20,000.
        let slow = crowd(server.local_addr(), "/film.mp4?rate=8k");
        let seen = watch(&slow).unwrap();
        assert_eq!((seen.streams, seen.failed), (20, 0), "{seen:?}");
        assert!(seen.periods >= 20 * 3 && seen.misses == seen.periods, "{seen:?}");
        let missing = crowd(server.local_addr(), "/nothing.mp4");
        let seen = watch(&missing).unwrap();
        assert_eq!((seen.streams, seen.failed), (0, 20), "{seen:?}");
        assert_eq!(seen.why_failed.as_deref(), Some("status 404"));
    }

    /// 90,000 bytes are there at once, and then no more than 10,000 a second: nine tenths of a
    /// second of film.
    #[test]
    fn a_server_is_held_to_its_start_up() {
        let (_root, server) = server();
        let of = |start_up| Crowd {
            start_up,
            // Whoever leaves is looked for now and then, and must not see the sixth period due.
            time: Duration::from_millis(650),
            ..crowd(server.local_addr(), "/film.mp4?rate=80k")
        };
        let lenient = watch(&of(Duration::ZERO)).unwrap();
        // On a busy machine some of them may be late by themselves.
        assert!(lenient.streams == 20 && lenient.misses < 20, "{}", lenient.misses);
        let strict = watch(&of(Duration::from_millis(400))).unwrap();
        assert!(strict.misses >= 20, "{}", strict.misses);
    }

    #[test]
    fn who_is_refused_comes_again_and_finds_the_place_of_who_left() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("film.mp4"), vec![0; 1_000_000]).unwrap();
        let mut policy = Policy::default();
        policy.terms.streams_max = Some(15);
        let server = Server::start(root.path(), Options::default(), policy).unwrap();
        let once = crowd(server.local_addr(), "/film.mp4?rate=800k");
        let seen = watch(&once).unwrap();
        assert_eq!((seen.streams, seen.refused), (15, 5));
        let until = Duration::from_secs(30);
        let asks_again = Some(Duration::from_millis(100));
        let patient = watch(&Crowd { asks_again, until, ..once }).unwrap();
        assert_eq!((patient.streams, patient.failed), (20, 0));
    }

    #[test]
    fn a_player_with_a_buffer_takes_no_more_than_it_holds() {
        let (_root, server) = server();
        let plain = crowd(server.local_addr(), "/film.mp4");
        let held = Crowd { buffer: Some(Duration::from_millis(400)), ..plain };
        let seen = watch(&held).unwrap();
        // 0.9 s of 100,000 bytes a second and the buffer, of a film of ten seconds.
        assert_eq!((seen.streams, seen.misses), (20, 0), "{seen:?}");
        assert!((20 * 4..=20 * 10).contains(&seen.periods), "{seen:?}");
    }

    /// A silent server must not look like one that met every deadline.
    #[test]
    fn a_server_that_says_nothing_has_missed_every_period() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let crowd = crowd(silent.local_addr().unwrap(), "/film.mp4");
        let seen = watch(&crowd).unwrap();
        assert_eq!((seen.streams, seen.failed), (0, 20), "{seen:?}");
        assert!(seen.periods >= 20 * 3 && seen.misses == seen.periods, "{seen:?}");
        assert_eq!(
            (seen.why_failed.as_deref(), seen.first_byte_us.len()),
            (Some("no answer came"), 0)
        );
    }

    #[test]
    fn all_leave_at_the_crowd_s_end_and_when_it_is_stopped() {
        let (_root, server) = server();
        let plain = crowd(server.local_addr(), "/film.mp4?rate=800k");
        let long = Crowd { time: Duration::from_secs(3600), ..plain };
        let short = Crowd { until: Duration::from_millis(500), ..long.clone() };
        let begun = Instant::now();
        assert_eq!(watch(&short).unwrap().streams, 20);
        assert!(begun.elapsed() >= Duration::from_millis(500));
        let stopped = watch_unless(&long, &AtomicBool::new(true)).unwrap();
        assert_eq!((stopped.streams, stopped.periods), (0, 0));
    }

    #[test]
    fn one_file_is_timed_from_its_request() {
        let (_root, server) = server();
        let patience = Duration::from_secs(60);
        let taken = single::take(server.local_addr(), "/film.mp4", patience).unwrap();
        assert_eq!(taken.body_bytes, 1_000_000);
        assert!(taken.first_byte > Duration::ZERO && taken.whole >= taken.first_byte);
        let missing = single::take(server.local_addr(), "/nothing", patience).unwrap_err();
        assert_eq!(missing.to_string(), "status 404");
    }
}
