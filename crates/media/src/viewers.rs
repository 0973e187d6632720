//! A crowd of viewers: it takes streams as players do, and tells how late each period came.
//!
//! For any HTTP server. A viewer sends one request and takes what comes. Its player begins after
//! `prebuffer` and then plays at the rate, so the bytes of period k have to be there at the
//! beginning + prebuffer + k periods; what comes later is late by so much. Bytes are thrown away by
//! the kernel (MSG_TRUNC, tcp(7)), so that a crowd costs little beside the server it looks at.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use rustix::{
    event::epoll,
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send,
        socket_with,
    },
};

use crate::pace::Rate;

const EVENTS_MAX: usize = 512;
const CALL_BYTES_MAX: usize = 1 << 20;
/// The longest head of an answer.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How often is looked who has seen enough.
const SWEEP: Duration = Duration::from_millis(250);

#[derive(Clone, Debug)]
pub struct Crowd {
    pub address: SocketAddr,
    /// In turn; paths with their query.
    pub targets: Vec<String>,
    pub viewers: usize,
    pub rate: Rate,
    pub period: Duration,
    pub prebuffer: Duration,
    /// The viewers begin one after the other within this time.
    pub ramp: Duration,
    /// Each leaves after this time.
    pub time: Duration,
}

/// What the crowd saw.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Answered with 200 or 206.
    pub streams: u64,
    /// Answered with 503.
    pub refused: u64,
    /// Not answered, or with something else, or broken off.
    pub failed: u64,
    /// The first reason of these.
    pub why_failed: Option<String>,
    pub periods: u64,
    /// Periods that were not there in time.
    pub misses: u64,
    /// Of all periods, in microseconds; 0 where it was in time.
    pub lateness_us: Histogram<u64>,
    pub received_bytes: u64,
}

/// What a viewer is at.
#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    /// What came of the head.
    Head(Vec<u8>),
    Watching,
    Over,
}

struct Viewer {
    socket: TcpStream,
    request: String,
    phase: Phase,
    begun: Instant,
    received_bytes: u64,
    /// The whole body, where its length is known.
    body_bytes: Option<u64>,
    /// Periods that were there.
    periods: u64,
}

/// Runs the crowd, until the last has seen enough.
///
/// # Errors
/// If epoll(7) or a socket cannot be had.
pub fn watch(crowd: &Crowd) -> io::Result<Seen> {
    Watch::new(crowd)?.run()
}

struct Watch<'a> {
    crowd: &'a Crowd,
    epoll: OwnedFd,
    viewers: Vec<Viewer>,
    seen: Seen,
    scratch: Vec<u8>,
}

impl<'a> Watch<'a> {
    fn new(crowd: &'a Crowd) -> io::Result<Self> {
        // An hour late is late enough.
        let lateness_us =
            Histogram::new_with_bounds(1, 3_600_000_000, 3).map_err(io::Error::other)?;
        let seen = Seen {
            streams: 0,
            refused: 0,
            failed: 0,
            why_failed: None,
            periods: 0,
            misses: 0,
            lateness_us,
            received_bytes: 0,
        };
        Ok(Self {
            crowd,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            viewers: Vec::with_capacity(crowd.viewers),
            seen,
            scratch: vec![0; CALL_BYTES_MAX],
        })
    }

    fn run(mut self) -> io::Result<Seen> {
        let start = Instant::now();
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut sweep = start;
        loop {
            let now = Instant::now();
            let come = self.come_by(now.saturating_duration_since(start));
            while self.viewers.len() < come {
                self.come(now)?;
            }
            if now >= sweep {
                sweep = now + SWEEP;
                let everybody_came = self.viewers.len() == self.crowd.viewers;
                if self.let_go(now) == 0 && everybody_came {
                    return Ok(self.seen);
                }
            }
            events.clear();
            let patience = Duration::from_millis(if come < self.crowd.viewers { 1 } else { 50 });
            let timeout = patience.try_into().ok();
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

    /// How many shall have come after this time.
    fn come_by(&self, since: Duration) -> usize {
        let share = since.as_secs_f64() / self.crowd.ramp.as_secs_f64().max(1e-9);
        ((share * self.crowd.viewers as f64) as usize + 1).min(self.crowd.viewers)
    }

    fn come(&mut self, now: Instant) -> io::Result<()> {
        let address = self.crowd.address;
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno.into()),
        }
        let key = self.viewers.len();
        let target = &self.crowd.targets[key % self.crowd.targets.len()];
        let request = format!("GET {target} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let socket = TcpStream::from(socket);
        let data = epoll::EventData::new_u64(key as u64);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::OUT)?;
        self.viewers.push(Viewer {
            socket,
            request,
            phase: Phase::Connecting,
            begun: now,
            received_bytes: 0,
            body_bytes: None,
            periods: 0,
        });
        Ok(())
    }

    fn on_event(&mut self, key: usize, now: Instant) {
        let viewer = &mut self.viewers[key];
        let outcome = match viewer.phase {
            Phase::Connecting => viewer.ask(&self.epoll, key, now),
            Phase::Head(_) | Phase::Watching => viewer.take(&mut self.scratch, &mut self.seen),
            Phase::Over => Ok(()),
        };
        if let Err(why) = outcome {
            self.seen.failed += 1;
            self.seen.why_failed.get_or_insert(why);
            return self.end(key, now);
        }
        self.count(key, now);
        let viewer = &self.viewers[key];
        if viewer.body_bytes.is_some_and(|bytes| viewer.received_bytes >= bytes) {
            self.end(key, now);
        }
    }

    /// The periods that are there by now.
    fn count(&mut self, key: usize, now: Instant) {
        let of_period = self.crowd.rate.bytes_in(self.crowd.period).max(1);
        let viewer = &mut self.viewers[key];
        while viewer.received_bytes >= of_period.saturating_mul(viewer.periods + 1) {
            let late = now.saturating_duration_since(viewer.due(self.crowd, viewer.periods));
            viewer.periods += 1;
            self.seen.tell(late);
        }
    }

    /// Those who have seen enough leave; how many stay.
    fn let_go(&mut self, now: Instant) -> usize {
        let mut staying = 0;
        for key in 0..self.viewers.len() {
            let viewer = &self.viewers[key];
            if viewer.phase == Phase::Over {
                continue;
            }
            if now >= viewer.begun + self.crowd.time {
                self.end(key, now);
            } else {
                staying += 1;
            }
        }
        staying
    }

    /// What had to be there and never came is as late as it is now.
    fn end(&mut self, key: usize, now: Instant) {
        self.count(key, now);
        let viewer = &mut self.viewers[key];
        if viewer.phase == Phase::Watching
            && viewer.body_bytes.is_none_or(|bytes| viewer.received_bytes < bytes)
        {
            loop {
                let due = viewer.due(self.crowd, viewer.periods);
                if due > now {
                    break;
                }
                viewer.periods += 1;
                self.seen.tell(now - due);
            }
        } else if viewer.phase != Phase::Watching && now >= viewer.begun + self.crowd.time {
            self.seen.failed += 1;
            self.seen.why_failed.get_or_insert_with(|| "no answer came".to_owned());
        }
        viewer.phase = Phase::Over;
        let _ = epoll::delete(&self.epoll, &viewer.socket);
        let _ = viewer.socket.shutdown(std::net::Shutdown::Both);
    }
}

impl Seen {
    fn tell(&mut self, late: Duration) {
        self.periods += 1;
        self.misses += u64::from(!late.is_zero());
        self.lateness_us.saturating_record(u64::try_from(late.as_micros()).unwrap_or(u64::MAX));
    }
}

impl Viewer {
    /// When the player comes to this period.
    fn due(&self, crowd: &Crowd, period: u64) -> Instant {
        let periods = u32::try_from(period).unwrap_or(u32::MAX);
        self.begun + crowd.prebuffer + crowd.period.saturating_mul(periods)
    }

    fn ask(&mut self, epoll: &OwnedFd, key: usize, now: Instant) -> Result<(), String> {
        // A short request fits the empty buffer of a new socket.
        let sent = send(&self.socket, self.request.as_bytes(), SendFlags::NOSIGNAL);
        match sent {
            Ok(count) if count == self.request.len() => {}
            Ok(_) => return Err("a request was sent in part".to_owned()),
            Err(errno) => return Err(format!("no connection: {errno}")),
        }
        self.begun = now;
        self.request = String::new();
        self.phase = Phase::Head(Vec::new());
        let data = epoll::EventData::new_u64(key as u64);
        epoll::modify(epoll, &self.socket, data, epoll::EventFlags::IN)
            .map_err(|errno| errno.to_string())
    }

    fn take(&mut self, scratch: &mut [u8], seen: &mut Seen) -> Result<(), String> {
        let (room, flags) = match self.phase {
            Phase::Watching => (scratch.len(), RecvFlags::TRUNC),
            _ => (HEAD_BYTES_MAX, RecvFlags::empty()),
        };
        let count = match recv(&self.socket, &mut scratch[..room], flags) {
            Ok((_, 0)) => return Err("the server closed".to_owned()),
            Ok((_, count)) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.to_string()),
        };
        seen.received_bytes += count as u64;
        let Phase::Head(head) = &mut self.phase else {
            self.received_bytes += count as u64;
            return Ok(());
        };
        head.extend_from_slice(&scratch[..count]);
        let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") else {
            return match head.len() > HEAD_BYTES_MAX {
                true => Err("the head of an answer has no end".to_owned()),
                false => Ok(()),
            };
        };
        let text = String::from_utf8_lossy(&head[..end]).into_owned();
        self.received_bytes = (head.len() - end - 4) as u64;
        let status = text.split(' ').nth(1).unwrap_or_default();
        match status {
            "200" | "206" => seen.streams += 1,
            "503" => {
                seen.refused += 1;
                self.body_bytes = Some(0);
                self.phase = Phase::Watching;
                return Ok(());
            }
            status => return Err(format!("status {status}")),
        }
        self.body_bytes = text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        self.phase = Phase::Watching;
        Ok(())
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
            viewers: 20,
            rate: Rate { bits_per_s: 800_000 },
            period: Duration::from_millis(200),
            prebuffer: Duration::from_millis(200),
            ramp: Duration::from_millis(100),
            time: Duration::from_millis(900),
        }
    }

    fn server() -> (tempfile::TempDir, Server) {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("film.mp4"), vec![0; 1_000_000]).unwrap();
        let server = Server::start(root.path(), Options::default(), Policy::default()).unwrap();
        (root, server)
    }

    /// 100,000 bytes a second, of which a player of 0.9 s needs periods 0 to 3 and perhaps 4.
    #[test]
    fn each_period_of_each_viewer_is_counted() {
        let (_root, server) = server();
        let seen = watch(&crowd(server.local_addr(), "/film.mp4")).unwrap();
        assert_eq!((seen.streams, seen.refused, seen.failed), (20, 0, 0), "{seen:?}");
        // It was not paced: all of it was there.
        assert_eq!(seen.periods, 20 * 50, "{seen:?}");
        assert!(seen.received_bytes > 20 * 1_000_000);
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
}
