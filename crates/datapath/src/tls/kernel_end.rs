//! The end of a wire of kernel TLS: the name of what is no data, which the kernel only refuses.

use std::{io, os::fd::OwnedFd};

use haul_sys::ktls;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{NewKeys, records::ContentType};
use crate::EngineError;

/// Names the end of a stream whose kernel came upon a record that holds no data: recv(2) says EIO
/// of one, splice(2) EINVAL, and the record waits for who asks for its kind (tls_sw.c).
#[must_use]
pub fn named_end(error: EngineError, socket: &OwnedFd) -> EngineError {
    let number = error.source.raw_os_error();
    let may_be_a_record =
        [Errno::IO, Errno::INVAL].iter().any(|e| number == Some(e.raw_os_error()));
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if !may_be_a_record || !poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0) {
        return error;
    }
    let mut record = [0; 64];
    let source = match ktls::receive(socket, &mut record) {
        Ok((_, Some(kind))) if kind == ContentType::Handshake.number() => NewKeys.error(),
        Ok((2, Some(ktls::ALERT))) => {
            let why = format!("the peer ended TLS with alert {} (RFC 8446, 6.2)", record[1]);
            io::Error::new(io::ErrorKind::InvalidData, why)
        }
        _ => return error,
    };
    EngineError { source, ..error }
}
