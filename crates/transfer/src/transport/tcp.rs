//! Connecting and setting up TCP sockets.

use std::{
    io,
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

/// How long one address may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to the first address of `server` (`host:port`) that answers.
///
/// # Errors
/// If the name has no address or none of them answers: the last error.
pub fn connect(server: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in server.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}
