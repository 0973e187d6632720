//! `MSG_ZEROCOPY`: a TCP socket sends the program's own pages, and says when it has let them go.
//!
//! The kernel holds the pages of each such send until the peer has acknowledged them, and numbers
//! the sends from 0 on. The socket's error queue brings notices: which sends are over, and whether
//! the kernel copied them after all (Documentation/networking/msg_zerocopy.rst).
//!
//! The pages are held by the kernel itself, so freeing them early breaks nothing in memory. But
//! what is written to them before the notice may reach the peer instead of what was sent.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use rustix::net::SendFlags;

/// The origin of a notice of zero-copy sends (include/uapi/linux/errqueue.h).
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
/// The bit of `ee_code` that says the bytes were copied (include/uapi/linux/errqueue.h).
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;

/// A notice of sends that are over, by their numbers, which start again at 0 after 2^32 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    pub first: u32,
    /// The last send of the notice, inclusive.
    pub last: u32,
    /// Whether the kernel copied the bytes of at least one of the sends.
    pub copied: bool,
}

/// Allows zero-copy sends on the socket. Linux 4.14.
///
/// # Errors
/// What setsockopt(2) says: another kind of socket, or an older kernel.
pub fn allow(socket: impl AsFd) -> io::Result<()> {
    let value: libc::c_int = 1;
    // SAFETY: `value` lives across the call and the length given is its own.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ZEROCOPY,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether zero-copy sends were allowed before, so that the next one may not have the number 0.
///
/// # Errors
/// What getsockopt(2) says.
pub fn is_allowed(socket: impl AsFd) -> io::Result<bool> {
    let mut value: libc::c_int = 0;
    let mut len_bytes = size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` is writable for `len_bytes` bytes and both live across the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ZEROCOPY,
            (&raw mut value).cast(),
            &raw mut len_bytes,
        )
    };
    if result == 0 { Ok(value != 0) } else { Err(io::Error::last_os_error()) }
}

/// Sends without a copy, from the beginning of `bytes`; returns how many bytes went. Each call that
/// sends something has the next number.
///
/// # Errors
/// ENOBUFS when notices wait to be taken or the pages may not be locked (RLIMIT_MEMLOCK): nothing
/// was sent. Else what send(2) says.
pub fn send(socket: impl AsFd, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
    let flags = flags.bits().cast_signed() | libc::MSG_ZEROCOPY;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the bytes are readable across the call; afterwards the kernel reads pages that it
    // holds itself, wherever the memory is by then.
    crate::uninterrupted(|| unsafe {
        libc::send(socket, bytes.as_ptr().cast(), bytes.len(), flags)
    })
}

/// Room for a notice and the control messages that may come beside it.
const CONTROL_BYTES: usize = 256;

/// Memory for control messages, aligned as they have to be (cmsg(3)).
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Takes the next notice, without waiting; other messages of the error queue are dropped.
///
/// # Errors
/// What recvmsg(2) says.
pub fn take_notice(socket: impl AsFd) -> io::Result<Option<Notice>> {
    let socket = socket.as_fd().as_raw_fd();
    loop {
        let mut control = Control([0; CONTROL_BYTES]);
        // SAFETY: all-zero is a valid msghdr: no name, no data, no control messages.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: `message` and the memory it points to live across the call.
        let result = unsafe { libc::recvmsg(socket, &raw mut message, flags) };
        match crate::counted(result) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        let len_bytes = (message.msg_controllen as usize).min(CONTROL_BYTES);
        if let Some(notice) = parse(&control.0[..len_bytes]) {
            return Ok(Some(notice));
        }
    }
}

/// The length of `struct cmsghdr`: the length with the header, the level, the type.
const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();

/// Finds the notice among control messages. The layout is that of `struct cmsghdr` (cmsg(3)) and
/// `struct sock_extended_err` (include/uapi/linux/errqueue.h).
fn parse(mut control: &[u8]) -> Option<Notice> {
    const LENGTH_BYTES: usize = size_of::<usize>();
    while control.len() >= HEADER_BYTES {
        let length = control.first_chunk::<LENGTH_BYTES>().map(|b| usize::from_ne_bytes(*b))?;
        let level = u32_at(control, LENGTH_BYTES)?.cast_signed();
        let kind = u32_at(control, LENGTH_BYTES + 4)?.cast_signed();
        let error = control.get(HEADER_BYTES..length)?;
        let of_ip = (level, kind) == (libc::SOL_IP, libc::IP_RECVERR)
            || (level, kind) == (libc::SOL_IPV6, libc::IPV6_RECVERR);
        if of_ip && u32_at(error, 0)? == 0 && *error.get(4)? == SO_EE_ORIGIN_ZEROCOPY {
            let copied = *error.get(6)? & SO_EE_CODE_ZEROCOPY_COPIED != 0;
            return Some(Notice { first: u32_at(error, 8)?, last: u32_at(error, 12)?, copied });
        }
        control = control.get(length.next_multiple_of(LENGTH_BYTES)..)?;
    }
    None
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::{
        io::Read,
        net::{TcpListener, TcpStream},
    };

    #[test]
    fn each_send_is_noticed_once_and_loopback_says_that_it_copied() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                haul_testkit::skip::skip(&format!("the address {address}"), "none");
                continue;
            };
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            assert!(!is_allowed(&near).unwrap());
            allow(&near).unwrap();
            assert!(is_allowed(&near).unwrap());
            assert_eq!(take_notice(&near).unwrap(), None);
            let bytes = vec![7; 20_000];
            for _ in 0..3 {
                assert_eq!(send(&near, &bytes, SendFlags::NOSIGNAL).unwrap(), bytes.len());
            }
            far.read_exact(&mut vec![0; 3 * bytes.len()]).unwrap();
            let mut noticed = Vec::new();
            while noticed.len() < 3 {
                poll(&mut [PollFd::new(&near, PollFlags::empty())], None).unwrap();
                while let Some(notice) = take_notice(&near).unwrap() {
                    assert!(notice.copied, "loopback copies every byte");
                    noticed.extend(notice.first..=notice.last);
                }
            }
            noticed.sort_unstable();
            assert_eq!(noticed, [0, 1, 2]);
        }
    }

    #[test]
    fn a_notice_is_found_behind_other_control_messages() {
        let message = |level: i32, kind: i32, body: &[u8]| {
            let mut message = (HEADER_BYTES + body.len()).to_ne_bytes().to_vec();
            message.extend(level.to_ne_bytes());
            message.extend(kind.to_ne_bytes());
            message.extend(body);
            message.resize(message.len().next_multiple_of(size_of::<usize>()), 0);
            message
        };
        let mut error = [0; 16];
        error[4] = SO_EE_ORIGIN_ZEROCOPY;
        error[8..12].copy_from_slice(&5_u32.to_ne_bytes());
        error[12..].copy_from_slice(&9_u32.to_ne_bytes());
        let notice = message(libc::SOL_IPV6, libc::IPV6_RECVERR, &error);
        let other = message(libc::SOL_SOCKET, libc::SCM_TIMESTAMP, &[1; 13]);
        let both = [other.clone(), notice].concat();
        assert_eq!(parse(&both), Some(Notice { first: 5, last: 9, copied: false }));
        assert_eq!(parse(&other), None);
        for cut in 0..both.len() - 1 {
            assert_eq!(parse(&both[..cut]), None, "cut to {cut} bytes");
        }
    }

    #[test]
    fn a_socket_without_zero_copy_says_so() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(allow(&near).is_err());
    }
}
