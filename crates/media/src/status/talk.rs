//! Heads in and answers out of one connection of the status listener, each within a time.
//!
//! Bytes that come or go one by one do not make it longer.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    time::{Duration, Instant},
};

use crate::http::request::{HEAD_BYTES_MAX, Parsed, Refused, Request, parse};

/// Longest time from the connection's beginning to the last byte of the head.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest time to write an answer, or one event.
const WRITE_TIME_MAX: Duration = Duration::from_secs(10);
/// Time after the answer, so that the client reads it before it hears that its bytes are refused.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES_MAX: usize = 1 << 20;

/// Outcome of waiting for a client's request.
#[derive(Debug)]
pub(super) enum Heard {
    Request(Box<Request>),
    Refused(Refused),
    /// Answer 408: the head did not come in time.
    TooSlow,
    /// The client left, or said nothing.
    Nothing,
}

/// Hears the first request of a connection; there is no second.
pub(super) fn hear(mut socket: &TcpStream) -> Heard {
    let deadline = Instant::now() + HEAD_TIME_MAX;
    let (mut incoming, mut buffer) = (Vec::new(), [0; 4 << 10]);
    loop {
        match parse(&incoming) {
            Ok(Parsed::Whole(request, _)) => return Heard::Request(request),
            Ok(Parsed::Incomplete) if incoming.len() <= HEAD_BYTES_MAX => {}
            Ok(Parsed::Incomplete) => return Heard::Refused(Refused::HeadTooLong),
            Err(refused) => return Heard::Refused(refused),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return if incoming.is_empty() { Heard::Nothing } else { Heard::TooSlow };
        }
        let read = socket.set_read_timeout(Some(left)).and_then(|()| socket.read(&mut buffer));
        match read {
            Ok(0) => return Heard::Nothing,
            Ok(count) => incoming.extend_from_slice(&buffer[..count]),
            Err(error) if is_timeout(&error) => {}
            Err(_) => return Heard::Nothing,
        }
    }
}

/// Sends all bytes, or nothing more is to be sent.
///
/// # Errors
/// If the client is gone, or did not take it in time.
pub(super) fn say(mut socket: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + WRITE_TIME_MAX;
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_write_timeout(Some(left))?;
        match socket.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Closes a connection once nothing comes from its client: to close with bytes unread would make
/// the client lose the answer (RFC 9112, 9.6).
pub(super) fn close(mut socket: &TcpStream) {
    let deadline = Instant::now() + LINGER;
    if socket.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let (mut buffer, mut read_bytes) = ([0; 4 << 10], 0);
    while read_bytes < LINGER_BYTES_MAX {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || socket.set_read_timeout(Some(left)).is_err() {
            return;
        }
        match socket.read(&mut buffer) {
            Ok(count @ 1..) => read_bytes += count,
            _ => return,
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
