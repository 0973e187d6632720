//! Sending and receiving whole runs of bytes on a blocking socket.
//!
//! Another thread ends a call that waits by shutdown(2).

use std::{
    io::{self, IoSlice},
    os::fd::OwnedFd,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{RecvFlags, SendAncillaryBuffer, SendFlags},
};

use haul_sys::tcp_info::TcpInfo;

use crate::{Boundary, EngineError, Remedy, Wire};

/// Sends all of `bytes`: frame headers and trailers.
///
/// With [`Boundary::MoreFollows`] the kernel holds back a last, not full segment for up to 200 ms
/// or until more follows (MSG_MORE, send(2)).
///
/// # Errors
/// With [`Remedy::Reconnect`]; `moved_bytes` says how many went.
pub fn send_all(
    engine: &'static str,
    wire: &mut Wire,
    bytes: &[u8],
    boundary: Boundary,
) -> Result<(), EngineError> {
    send_whole(wire, bytes, boundary)
        .map_err(|(sent, source)| header_error(engine, "send", sent, source))
}

/// Fills `buffer`: frame headers and trailers.
///
/// # Errors
/// With [`Remedy::Reconnect`]; `moved_bytes` says how many came.
pub fn receive_all(
    engine: &'static str,
    wire: &mut Wire,
    buffer: &mut [u8],
) -> Result<(), EngineError> {
    receive_whole(wire, buffer).map_err(|(got, source)| header_error(engine, "recv", got, source))
}

/// Sends all of `bytes`, or says how many went before the error.
pub(crate) fn send_whole(
    wire: &mut Wire,
    bytes: &[u8],
    boundary: Boundary,
) -> Result<(), (usize, io::Error)> {
    let Some(end) = wire.tls_send_end() else {
        return send_whole_to(bare(wire).map_err(|error| (0, error))?, bytes, boundary);
    };
    end.send(bytes).map_err(|error| (0, error))?;
    match boundary {
        Boundary::Flush => end.flush(boundary).map_err(|error| (0, error)),
        Boundary::MoreFollows => Ok(()),
    }
}

/// Sends all of `bytes`, or says how many went before the error; a wire that this process encrypts
/// leaves them encrypted where they lay.
pub(crate) fn send_in_place(
    wire: &mut Wire,
    bytes: &mut [u8],
    boundary: Boundary,
) -> Result<(), (usize, io::Error)> {
    match wire.tls_send_end() {
        Some(end) => end.send_in_place(bytes, boundary),
        None => send_whole_to(bare(wire).map_err(|error| (0, error))?, bytes, boundary),
    }
}

/// The socket of a wire on which bytes go as they are; an error for the end of TLS that goes the
/// other way, so that nothing is ever sent or taken there without its key.
fn bare(wire: &Wire) -> io::Result<&OwnedFd> {
    match wire {
        Wire::Tls(_) => {
            let why = "this end of TLS goes the other way";
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
        Wire::Tcp(_) | Wire::KernelTls(_) | Wire::Fabric(_) => Ok(wire.socket()),
    }
}

/// Sends all of these parts on this socket, one behind the other.
pub(crate) fn send_parts(
    socket: &OwnedFd,
    mut parts: &mut [IoSlice<'_>],
    boundary: Boundary,
) -> io::Result<()> {
    let flags = send_flags(boundary);
    while !parts.is_empty() {
        match rustix::net::sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags) {
            Ok(moved) => IoSlice::advance_slices(&mut parts, moved),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Sends all of `bytes` on this socket, or says how many went before the error.
pub(crate) fn send_whole_to(
    socket: &OwnedFd,
    bytes: &[u8],
    boundary: Boundary,
) -> Result<(), (usize, io::Error)> {
    let flags = send_flags(boundary);
    let mut sent = 0;
    while sent < bytes.len() {
        match rustix::net::send(socket, &bytes[sent..], flags) {
            Ok(moved) => sent += moved,
            Err(Errno::INTR) => {}
            Err(errno) => return Err((sent, errno.into())),
        }
    }
    Ok(())
}

/// Fills `buffer`, or says how many bytes came before the error or the end.
pub(crate) fn receive_whole(wire: &mut Wire, buffer: &mut [u8]) -> Result<(), (usize, io::Error)> {
    if let Some(end) = wire.tls_receive_end() {
        return end.receive_whole(buffer);
    }
    receive_whole_from(bare(wire).map_err(|error| (0, error))?, buffer)
}

/// Fills `buffer` from this socket, or says how many bytes came before the error or the end.
pub(crate) fn receive_whole_from(
    socket: &OwnedFd,
    buffer: &mut [u8],
) -> Result<(), (usize, io::Error)> {
    let mut got = 0;
    while got < buffer.len() {
        match rustix::net::recv(socket, &mut buffer[got..], RecvFlags::WAITALL) {
            Ok((0, _)) => return Err((got, closed())),
            Ok((moved, _)) => got += moved,
            Err(Errno::INTR) => {}
            Err(errno) => return Err((got, errno.into())),
        }
    }
    Ok(())
}

/// Bytes that wake a sleeping receiver, instead of each segment: a wake-up costs more than the copy
/// of a segment. Half of the smallest block that an engine receives.
const WAKE_BYTES: u64 = 128 << 10;
/// Smallest window in which a receiver waits for more: one below is still growing, by how much is
/// read in a round trip, and a receiver that lets it fill up first keeps it small. Over 40 ms 8 MiB
/// took 3.1 s so, for 0.6.
const WINDOW_BYTES_MIN: u64 = 8 * WAKE_BYTES;

/// The payload of one span while it comes in.
///
/// Headers and trailers are shorter than what a sleeper waits for in here, so [`Self::end`] comes
/// before them, and before another engine gets the wire, whatever happened.
pub(crate) struct Payload {
    left_bytes: u64,
    waits_for_more: bool,
}

impl Payload {
    pub(crate) fn begin(wire: &Wire, left_bytes: u64) -> Self {
        Self::with_window(wire, left_bytes, || {
            TcpInfo::of(wire.socket()).map_or(0, |tcp| tcp.own_window_bytes.into())
        })
    }

    /// Begins a payload in a window of this size, which is looked at where it matters.
    fn with_window(wire: &Wire, left_bytes: u64, window_bytes: impl FnOnce() -> u64) -> Self {
        // Kernel TLS counts records below and bytes above them.
        let pays = left_bytes >= 4 * WAKE_BYTES && matches!(wire, Wire::Tcp(_));
        let waits_for_more = pays
            && window_bytes() >= WINDOW_BYTES_MIN
            && haul_sys::low_water::set_receive_low_water(wire.socket(), WAKE_BYTES as u32).is_ok();
        Self { left_bytes, waits_for_more }
    }

    /// Receives one byte at least; fewer than there is room for when they are enough.
    ///
    /// # Errors
    /// What recv(2) says; [`closed`] when the peer closed.
    pub(crate) fn receive_some(&mut self, wire: &Wire, buffer: &mut [u8]) -> io::Result<usize> {
        let socket = bare(wire)?;
        if self.left_bytes < WAKE_BYTES {
            self.end(wire);
        }
        loop {
            let flags = if self.waits_for_more {
                // Only poll(2) waits rightly: recv(2) takes what is there and then sleeps until as
                // many again have come, which may be more than the peer will ever send.
                match poll(&mut [PollFd::new(socket, PollFlags::IN)], None) {
                    Ok(_) => RecvFlags::DONTWAIT,
                    Err(Errno::INTR) => continue,
                    Err(errno) => return Err(errno.into()),
                }
            } else {
                RecvFlags::WAITALL
            };
            match rustix::net::recv(socket, &mut *buffer, flags) {
                Ok((0, _)) => return Err(closed()),
                Ok((moved, _)) => {
                    self.left_bytes = self.left_bytes.saturating_sub(moved as u64);
                    return Ok(moved);
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Waits until bytes are there, or the connection has ended.
    ///
    /// # Errors
    /// What poll(2) says.
    pub(crate) fn wait(&mut self, wire: &Wire) -> io::Result<()> {
        if self.left_bytes < WAKE_BYTES {
            self.end(wire);
        }
        loop {
            match poll(&mut [PollFd::new(wire.socket(), PollFlags::IN)], None) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Counts bytes of the payload that were taken in another way.
    pub(crate) fn took(&mut self, bytes: usize) {
        self.left_bytes = self.left_bytes.saturating_sub(bytes as u64);
    }

    /// Fills `buffer`.
    ///
    /// # Errors
    /// As [`Self::receive_some`].
    pub(crate) fn receive(&mut self, wire: &mut Wire, buffer: &mut [u8]) -> io::Result<()> {
        if let Some(end) = wire.tls_receive_end() {
            return end.receive_whole(buffer).map_err(|(_, error)| error);
        }
        let mut got = 0;
        while got < buffer.len() {
            got += self.receive_some(wire, &mut buffer[got..])?;
        }
        Ok(())
    }

    pub(crate) fn end(&mut self, wire: &Wire) {
        if std::mem::take(&mut self.waits_for_more) {
            // It cannot fail: the same call has worked on this socket.
            let _ = haul_sys::low_water::set_receive_low_water(wire.socket(), 1);
        }
    }
}

/// Flags of a send, which never raises SIGPIPE: a peer that is gone is an error like others.
pub(crate) fn send_flags(boundary: Boundary) -> SendFlags {
    match boundary {
        Boundary::MoreFollows => SendFlags::MORE.union(SendFlags::NOSIGNAL),
        Boundary::Flush => SendFlags::NOSIGNAL,
    }
}

/// The error of a peer that has closed its side.
pub(crate) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed the connection")
}

fn header_error(
    engine: &'static str,
    call: &'static str,
    moved: usize,
    source: io::Error,
) -> EngineError {
    EngineError {
        engine,
        call,
        span: None,
        offset_bytes: 0,
        moved_bytes: moved as u64,
        remedy: Remedy::Reconnect,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_close_between_frames_differs_from_one_inside() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut near, mut far) = (Wire::Tcp(near.into()), Wire::Tcp(far.into()));
        send_all("test", &mut far, b"heads", Boundary::Flush).unwrap();
        drop(far);
        let mut header = [0; 4];
        receive_all("test", &mut near, &mut header).unwrap();
        assert_eq!(&header, b"head");
        let inside = receive_all("test", &mut near, &mut header).unwrap_err();
        assert_eq!((inside.moved_bytes, inside.source.kind()), (1, io::ErrorKind::UnexpectedEof));
        let between = receive_all("test", &mut near, &mut header).unwrap_err();
        assert_eq!((between.moved_bytes, between.remedy), (0, Remedy::Reconnect));
    }

    /// Bytes that a sleeper waits for, and the smallest window in which it does.
    const WAKE: u64 = 131_072;
    const WINDOW: u64 = 1 << 20;

    #[test]
    fn a_payload_waits_for_more_while_as_much_is_to_come() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut near, mut far) = (Wire::Tcp(near.into()), Wire::Tcp(far.into()));
        let mut ask = |payload: &mut Payload, by_waiting: bool| {
            send_all("test", &mut far, &[1; 10], Boundary::Flush).unwrap();
            if by_waiting {
                payload.wait(&near).unwrap();
                receive_all("test", &mut near, &mut [0; 10]).unwrap();
                payload.took(10);
            } else {
                payload.receive(&mut near, &mut [0; 10]).unwrap();
            }
            (payload.left_bytes, payload.waits_for_more)
        };
        for by_waiting in [true, false] {
            let mut payload = Payload { left_bytes: WAKE + 10, waits_for_more: true };
            assert_eq!(ask(&mut payload, by_waiting), (WAKE, true));
            assert_eq!(ask(&mut payload, by_waiting), (WAKE - 10, true), "as much is to come");
            assert_eq!(ask(&mut payload, by_waiting), (WAKE - 20, false), "it is not any more");
        }
    }

    /// A peer that sends a whole span, in pieces of any size, and then waits for an answer.
    #[test]
    fn a_payload_never_waits_for_bytes_beyond_its_own() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let (mut near, mut far) = (Wire::Tcp(near.into()), Wire::Tcp(far.into()));
        let lens = [4 * WAKE - 1, 4 * WAKE, 9 * WAKE + 424];
        let windows = [WINDOW, WINDOW - 1];
        for (len, window) in lens.into_iter().flat_map(|len| windows.map(|window| (len, window))) {
            let sent: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let mut got = vec![0; len as usize];
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for part in sent.chunks(WAKE as usize - 24) {
                        send_all("test", &mut far, part, Boundary::Flush).unwrap();
                        std::thread::sleep(std::time::Duration::from_millis(2));
                    }
                });
                let mut payload = Payload::with_window(&near, len, || window);
                // A window that is still small would stay so.
                let waits = len >= 4 * WAKE && window >= WINDOW;
                assert_eq!(payload.waits_for_more, waits, "{len} bytes, a window of {window}");
                for block in got.chunks_mut(200_000) {
                    payload.receive(&mut near, block).unwrap();
                }
                payload.end(&near);
            });
            assert!(got == sent, "{len} bytes");
            // What is shorter than a sleeper waited for gets through again.
            send_all("test", &mut far, b"head", Boundary::Flush).unwrap();
            receive_all("test", &mut near, &mut [0; 4]).unwrap();
        }
    }
}
