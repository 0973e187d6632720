//! Takes one file from a server as fast as it comes, and times its first byte and its last.

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use super::{
    CALL_BYTES_MAX,
    answer::{self, HEAD_BYTES_MAX},
};

/// Times from the request on, and the bytes that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    pub first_byte: Duration,
    pub whole: Duration,
    pub body_bytes: u64,
}

/// Takes a whole file over a connection of its own, whose making is not part of the times.
///
/// # Errors
/// What the socket says; `TimedOut` where nothing comes for `patience`; `InvalidData` where the
/// answer is not 200 or does not say how long it is.
pub fn take(address: SocketAddr, target: &str, patience: Duration) -> io::Result<Taken> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(patience))?;
    let begun = Instant::now();
    write!(socket, "GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut buffer = vec![0; CALL_BYTES_MAX];
    let mut bytes = Vec::new();
    let head = loop {
        let count = receive(&socket, &mut buffer[..HEAD_BYTES_MAX], RecvFlags::empty())?;
        bytes.extend_from_slice(&buffer[..count]);
        if let Some(head) = answer::read(&bytes).map_err(invalid)? {
            break head;
        }
    };
    if head.status != 200 {
        return Err(invalid(format!("status {}", head.status)));
    }
    let len_bytes = head.body_bytes.ok_or_else(|| invalid("a film without a length"))?;
    let mut body_bytes = (bytes.len() - head.len_bytes) as u64;
    let mut first_byte = (body_bytes > 0).then(|| begun.elapsed());
    while body_bytes < len_bytes {
        body_bytes += receive(&socket, &mut buffer, RecvFlags::TRUNC)? as u64;
        first_byte.get_or_insert_with(|| begun.elapsed());
    }
    let whole = begun.elapsed();
    Ok(Taken { first_byte: first_byte.unwrap_or(whole), whole, body_bytes })
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn receive(socket: &TcpStream, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    loop {
        match recv(socket, &mut *buffer, flags) {
            Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, count)) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(errno) => return Err(errno.into()),
        }
    }
}
