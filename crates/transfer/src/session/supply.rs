//! Where a session's data streams come from: the client opens them, and others in place of those
//! that broke; the server is given them.

use super::{
    SessionEnd,
    streams::{StreamSetup, Streams},
};
use crate::transport::tcp::{self, Early};
use haul_protocol::{StreamId, wire};
use std::{
    io::{self, Write},
    net::TcpStream,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Streams that break within this time of each other broke for one reason.
const ROUND: Duration = Duration::from_millis(200);
/// So many rounds of broken streams, and the session is given up for another.
const ROUNDS_MAX: u32 = 12;
const REOPEN_DELAY: Duration = Duration::from_millis(50);

/// Where data connections come from.
pub enum Source {
    /// This side is the client and opens them; some may be there early.
    Connect { server: String, count: u32, early: Option<Early> },
    /// This side is the server and is given them.
    Attach(mpsc::Receiver<(StreamId, TcpStream)>),
}

/// Brings a stream's connection, on the stream's own thread.
pub type Connect = Box<dyn FnOnce() -> io::Result<TcpStream> + Send>;

pub struct Supply {
    source: Source,
    streams: Arc<Streams>,
    setup: StreamSetup,
    opened: bool,
    breaks: Breaks,
    /// Streams that were opened in the place of others.
    pub reconnections: u64,
}

impl Supply {
    #[must_use]
    pub fn new(source: Source, streams: Arc<Streams>, setup: StreamSetup) -> Self {
        Self { source, streams, setup, opened: false, breaks: Breaks::new(), reconnections: 0 }
    }

    /// Whether this side opens the connections, and watches over them.
    #[must_use]
    pub fn connects(&self) -> bool {
        matches!(self.source, Source::Connect { .. })
    }

    /// The streams to start now: a client's all at once, as soon as they are `wanted`.
    pub fn next(&mut self, wanted: bool) -> Vec<(StreamId, Connect)> {
        if let Source::Connect { early, .. } = &mut self.source {
            // Those that nobody took are closed.
            early.take_if(|early| early.is_over());
        }
        match &self.source {
            Source::Connect { count, .. } if wanted && !self.opened => {
                let count = *count;
                self.opened = true;
                (0..count).filter_map(|_| self.connection(Duration::ZERO)).collect()
            }
            Source::Connect { .. } => Vec::new(),
            Source::Attach(attached) => {
                let given = |(stream, socket)| (stream, Box::new(move || Ok(socket)) as Connect);
                attached.try_iter().map(given).collect()
            }
        }
    }

    /// A stream in the place of one that broke; a server waits to be given one.
    ///
    /// # Errors
    /// If they break again and again.
    pub fn replace(&mut self, why: &str) -> Result<Option<(StreamId, Connect)>, SessionEnd> {
        if !self.connects() {
            return Ok(None);
        }
        self.reconnections += 1;
        match self.breaks.another(Instant::now()) {
            Some(delay) => Ok(self.connection(delay)),
            None => Err(SessionEnd::Lost(format!("the data streams break again and again: {why}"))),
        }
    }

    /// Something got through: streams that break from now on are counted anew.
    pub fn works(&mut self) {
        self.breaks.forget();
    }

    fn connection(&self, delay: Duration) -> Option<(StreamId, Connect)> {
        let Source::Connect { server, early, .. } = &self.source else { return None };
        let (server, setup, early) = (server.clone(), self.setup.clone(), early.clone());
        let stream = self.streams.next_id();
        let early = early.filter(|_| delay.is_zero());
        let connect = move || connect(&server, stream, &setup, (delay, early));
        Some((stream, Box::new(connect)))
    }
}

/// What the other side's user is told when an engine gave up.
#[must_use]
pub fn fallback_notice(stream: StreamId, from_to: &str, why: &str) -> wire::Notice {
    wire::Notice { what: from_to.into(), why: why.into(), stream: stream.0, fault: None }
}

/// Counts how often streams broke without a byte in between. Streams that break together, because
/// of one outage, count once.
#[derive(Debug)]
struct Breaks {
    rounds: u32,
    last: Option<Instant>,
}

impl Breaks {
    fn new() -> Self {
        Self { rounds: 0, last: None }
    }

    /// Something got through.
    fn forget(&mut self) {
        self.rounds = 0;
    }

    /// A stream broke: how long to wait before another is opened, or `None` when it is no use.
    fn another(&mut self, now: Instant) -> Option<Duration> {
        if self.last.is_none_or(|last| now.saturating_duration_since(last) > ROUND) {
            self.rounds += 1;
            self.last = Some(now);
        }
        (self.rounds <= ROUNDS_MAX).then(|| REOPEN_DELAY * self.rounds)
    }
}

impl Default for Breaks {
    fn default() -> Self {
        Self::new()
    }
}

/// Opens a data connection as a client and shows its preface.
fn connect(
    server: &str,
    stream: StreamId,
    setup: &StreamSetup,
    (delay, early): (Duration, Option<Early>),
) -> io::Result<TcpStream> {
    thread::sleep(delay);
    let mut socket = match early.and_then(|early| early.take()) {
        Some(socket) => socket,
        None => tcp::connect(server, setup.congestion.control.as_deref())?,
    };
    let preface = setup.keys.sign_preface(stream, setup.session);
    socket.write_all(&preface.encode())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_break_together_count_once() {
        let (mut breaks, now) = (Breaks::new(), Instant::now());
        assert!((0..100).all(|_| breaks.another(now).is_some()));
        let later = |round: u32| now + ROUND * 2 * round;
        let gave_up = (1..=ROUNDS_MAX).find(|round| breaks.another(later(*round)).is_none());
        assert_eq!(gave_up, Some(ROUNDS_MAX));
        breaks.forget();
        assert!(breaks.another(later(ROUNDS_MAX + 1)).is_some());
    }
}
