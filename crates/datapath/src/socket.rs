//! Sending and receiving whole runs of bytes on a blocking socket.
//!
//! Another thread ends a call that waits by shutdown(2).

use std::io;

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags},
};

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
    wire: &Wire,
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
    wire: &Wire,
    buffer: &mut [u8],
) -> Result<(), EngineError> {
    receive_whole(wire, buffer).map_err(|(got, source)| header_error(engine, "recv", got, source))
}

/// Sends all of `bytes`, or says how many went before the error.
pub(crate) fn send_whole(
    wire: &Wire,
    bytes: &[u8],
    boundary: Boundary,
) -> Result<(), (usize, io::Error)> {
    let flags = send_flags(boundary);
    let mut sent = 0;
    while sent < bytes.len() {
        match rustix::net::send(wire.socket(), &bytes[sent..], flags) {
            Ok(moved) => sent += moved,
            Err(Errno::INTR) => {}
            Err(errno) => return Err((sent, errno.into())),
        }
    }
    Ok(())
}

/// Fills `buffer`, or says how many bytes came before the error or the end.
pub(crate) fn receive_whole(wire: &Wire, buffer: &mut [u8]) -> Result<(), (usize, io::Error)> {
    let mut got = 0;
    while got < buffer.len() {
        match rustix::net::recv(wire.socket(), &mut buffer[got..], RecvFlags::WAITALL) {
            Ok((0, _)) => return Err((got, closed())),
            Ok((moved, _)) => got += moved,
            Err(Errno::INTR) => {}
            Err(errno) => return Err((got, errno.into())),
        }
    }
    Ok(())
}

/// Never SIGPIPE: a peer that is gone is an error like others.
pub(crate) fn send_flags(boundary: Boundary) -> SendFlags {
    match boundary {
        Boundary::MoreFollows => SendFlags::MORE | SendFlags::NOSIGNAL,
        Boundary::Flush => SendFlags::NOSIGNAL,
    }
}

/// The peer has closed its side.
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
        let (near, far) = (Wire::Tcp(near.into()), Wire::Tcp(far.into()));
        send_all("test", &far, b"heads", Boundary::Flush).unwrap();
        drop(far);
        let mut header = [0; 4];
        receive_all("test", &near, &mut header).unwrap();
        assert_eq!(&header, b"head");
        let inside = receive_all("test", &near, &mut header).unwrap_err();
        assert_eq!((inside.moved_bytes, inside.source.kind()), (1, io::ErrorKind::UnexpectedEof));
        let between = receive_all("test", &near, &mut header).unwrap_err();
        assert_eq!((between.moved_bytes, between.remedy), (0, Remedy::Reconnect));
    }
}
