//! A viewer of the crowd: its connection, and what has come over it.

use std::{
    net::TcpStream,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    event::epoll,
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};

use super::{
    Crowd,
    answer::{self, HEAD_BYTES_MAX, NoHead},
    seen::{Seen, record},
};

/// State of a viewer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Connecting,
    /// Bytes that came of the answer's head.
    Head(Vec<u8>),
    Watching,
    Over,
}

/// The end of a viewer that did not see its film to the end.
#[derive(Debug, thiserror::Error)]
pub(super) enum ViewerError {
    #[error("a request was sent in part")]
    RequestInPart,
    #[error("no connection: {0}")]
    NoConnection(Errno),
    #[error("the server closed")]
    Closed,
    #[error("status {0}")]
    Status(u16),
    #[error("{0}")]
    NoHead(#[from] NoHead),
    #[error("{0}")]
    System(#[from] Errno),
}

pub(super) struct Viewer {
    pub socket: TcpStream,
    request: String,
    pub film: usize,
    pub phase: Phase,
    pub begun: Instant,
    pub received_bytes: u64,
    /// Bytes of the answer's head.
    head_bytes: u64,
    /// Length of the whole body, where it is known.
    pub body_bytes: Option<u64>,
    /// Number of periods that were there.
    pub periods: u64,
    /// The viewer takes nothing until it has played some.
    pub is_full: bool,
    /// The server would not, or no server is there: no period was owed.
    pub has_failed: bool,
    /// The server had no place for the viewer.
    pub is_refused: bool,
    has_begun: bool,
}

impl Viewer {
    pub fn new(socket: TcpStream, request: String, film: usize, now: Instant) -> Self {
        Self {
            socket,
            request,
            film,
            phase: Phase::Connecting,
            begun: now,
            received_bytes: 0,
            head_bytes: 0,
            body_bytes: None,
            periods: 0,
            is_full: false,
            has_failed: false,
            is_refused: false,
            has_begun: false,
        }
    }

    /// Time at which the player comes to a period, or the server has promised it.
    pub fn due(&self, crowd: &Crowd, period: u64) -> Instant {
        let periods = u32::try_from(period).unwrap_or(u32::MAX);
        let earlier = crowd.period.saturating_mul(periods).saturating_sub(crowd.start_up);
        self.begun + crowd.prebuffer + earlier
    }

    /// Bytes that came, against what is owed: a server that gives a start-up counts its answer from
    /// its first byte, and so its first period is short by the head.
    pub fn there_bytes(&self, crowd: &Crowd) -> u64 {
        let of_head = if crowd.start_up.is_zero() { 0 } else { self.head_bytes };
        self.received_bytes + of_head
    }

    /// Whether the viewer's buffer is full, where it has one.
    pub fn has_all_it_may(&self, crowd: &Crowd, now: Instant) -> bool {
        let Some(buffer) = crowd.buffer else { return false };
        let played = now.saturating_duration_since(self.begun + crowd.prebuffer);
        let of_head = matches!(self.phase, Phase::Head(_));
        !of_head && self.received_bytes >= crowd.rate.bytes_in(played + buffer)
    }

    pub fn ask(&mut self, epoll: &OwnedFd, key: usize, now: Instant) -> Result<(), ViewerError> {
        // A short request fits the empty buffer of a new socket.
        let sent = send(&self.socket, self.request.as_bytes(), SendFlags::NOSIGNAL);
        if sent != Ok(self.request.len()) {
            self.has_failed = true;
            return Err(match sent {
                Ok(_) => ViewerError::RequestInPart,
                Err(errno) => ViewerError::NoConnection(errno),
            });
        }
        self.begun = now;
        self.request = String::new();
        self.phase = Phase::Head(Vec::new());
        let data = epoll::EventData::new_u64(key as u64);
        Ok(epoll::modify(epoll, &self.socket, data, epoll::EventFlags::IN)?)
    }

    pub fn take(
        &mut self,
        scratch: &mut [u8],
        seen: &mut Seen,
        now: Instant,
    ) -> Result<(), ViewerError> {
        let (room, flags) = match self.phase {
            Phase::Watching => (scratch.len(), RecvFlags::TRUNC),
            _ => (HEAD_BYTES_MAX, RecvFlags::empty()),
        };
        let count = match recv(&self.socket, &mut scratch[..room], flags) {
            Ok((_, 0)) => return Err(ViewerError::Closed),
            Ok((_, count)) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        seen.received_bytes += count as u64;
        let Phase::Head(bytes) = &mut self.phase else {
            self.come(count as u64, seen, now);
            return Ok(());
        };
        bytes.extend_from_slice(&scratch[..count]);
        let Some(head) = answer::read(bytes)? else { return Ok(()) };
        let of_body = (bytes.len() - head.len_bytes) as u64;
        self.head_bytes = head.len_bytes as u64;
        match head.status {
            200 | 206 => seen.streams += 1,
            503 => {
                seen.refused += 1;
                self.is_refused = true;
                self.body_bytes = Some(0);
                self.phase = Phase::Watching;
                return Ok(());
            }
            status => {
                self.has_failed = true;
                return Err(ViewerError::Status(status));
            }
        }
        self.body_bytes = head.body_bytes;
        self.phase = Phase::Watching;
        self.come(of_body, seen, now);
        Ok(())
    }

    fn come(&mut self, of_body: u64, seen: &mut Seen, now: Instant) {
        if self.received_bytes == 0 && of_body > 0 {
            record(&mut seen.first_byte_us, self.since_request(now));
        }
        self.received_bytes += of_body;
    }

    /// Counts the start-up once the player may begin: all of its first period is there, or the
    /// whole film.
    pub fn count_start_up(&mut self, crowd: &Crowd, seen: &mut Seen, now: Instant) {
        let needs_bytes = crowd.rate.bytes_in(crowd.period).max(1);
        let needs_bytes = self.body_bytes.map_or(needs_bytes, |bytes| bytes.min(needs_bytes));
        let is_there = self.received_bytes > 0 && self.received_bytes >= needs_bytes;
        if is_there && !self.has_begun {
            self.has_begun = true;
            record(&mut seen.start_up_us, self.since_request(now));
        }
    }

    fn since_request(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.begun)
    }
}
