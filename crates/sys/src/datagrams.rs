//! Many UDP datagrams in one call: cut by the kernel when sent, joined by it when received.
//!
//! `UDP_SEGMENT` (Linux 4.18) sends one buffer as datagrams of one size, `UDP_GRO` (Linux 5.0)
//! gives datagrams of one size that came together as one buffer (udp(7)). recvmmsg(2) takes several
//! of those in one call, and is all there is on an older kernel.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::{AsFd, AsRawFd},
};

/// The socket option that cuts a send into datagrams (include/uapi/linux/udp.h).
const UDP_SEGMENT: libc::c_int = 103;
/// The socket option that joins received datagrams (include/uapi/linux/udp.h).
const UDP_GRO: libc::c_int = 104;
/// Bytes that one receive may hold: the largest datagram of IP, or as many joined bytes.
const BUFFER_BYTES: usize = 64 << 10;
/// Receives of one call, at most.
const BATCH: usize = 16;
/// Room for a control message's header and a number, aligned.
const CONTROL_BYTES: usize = 64;
/// Room for an address, longer than that of any internet family.
const NAME_BYTES: usize = 32;

/// Sends on this socket go out as datagrams of this size from now on, the last one shorter; 0 sends
/// each as it is.
///
/// # Errors
/// What setsockopt(2) says: an older kernel does not know it.
pub fn cut_sends(socket: impl AsFd, segment_bytes: u16) -> io::Result<()> {
    set(socket, UDP_SEGMENT, i32::from(segment_bytes))
}

/// Lets datagrams that came together be received as one buffer from now on.
///
/// # Errors
/// What setsockopt(2) says: an older kernel does not know it.
pub fn join_receives(socket: impl AsFd) -> io::Result<()> {
    set(socket, UDP_GRO, 1)
}

fn set(socket: impl AsFd, option: libc::c_int, value: i32) -> io::Result<()> {
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: `value` lives across the call and the length given is its own.
    let result = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_UDP,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Memory for several datagrams, filled by [`Batch::receive`].
pub struct Batch {
    bytes: Vec<u8>,
    names: Vec<[u64; NAME_BYTES / 8]>,
    controls: Vec<[u64; CONTROL_BYTES / 8]>,
    arrived: Vec<Arrived>,
}

#[derive(Clone, Copy, Debug)]
struct Arrived {
    len: usize,
    /// The length of each datagram but the last.
    segment_bytes: usize,
    from: Option<SocketAddr>,
}

impl Batch {
    #[must_use]
    pub fn new() -> Self {
        Self {
            bytes: vec![0; BATCH * BUFFER_BYTES],
            names: vec![[0; NAME_BYTES / 8]; BATCH],
            controls: vec![[0; CONTROL_BYTES / 8]; BATCH],
            arrived: Vec::with_capacity(BATCH),
        }
    }

    /// Waits for a datagram as long as the socket's timeout says, takes what else is there, and
    /// returns the number of buffers filled.
    ///
    /// # Errors
    /// What recvmmsg(2) says, such as `WouldBlock` after the timeout.
    pub fn receive(&mut self, socket: impl AsFd) -> io::Result<usize> {
        self.arrived.clear();
        let mut vectors: Vec<libc::iovec> = self
            .bytes
            .chunks_exact_mut(BUFFER_BYTES)
            .map(|buffer| libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: BUFFER_BYTES,
            })
            .collect();
        let mut headers: Vec<libc::mmsghdr> = Vec::with_capacity(BATCH);
        for (at, vector) in vectors.iter_mut().enumerate() {
            // SAFETY: zeros are a valid value of each field, pointers included.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_name = self.names[at].as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = NAME_BYTES as libc::socklen_t;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = self.controls[at].as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
            headers.push(header);
        }
        // SAFETY: each header points to a name, a vector and a control buffer of its own, with
        // their lengths, and each vector to a buffer of its own; all live across the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_WAITFORONE as _,
                core::ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for (at, header) in headers[..count].iter().enumerate() {
            let len = (header.msg_len as usize).min(BUFFER_BYTES);
            let control_bytes: usize = header.msg_hdr.msg_controllen as _;
            let joined = segment_bytes_of(&bytes_of(&self.controls[at]), control_bytes);
            self.arrived.push(Arrived {
                len,
                segment_bytes: joined.unwrap_or(len).clamp(1, len.max(1)),
                from: address_of(&bytes_of(&self.names[at])),
            });
        }
        Ok(count)
    }

    /// The datagrams of the last receive, each with the address that it came from.
    pub fn datagrams(&self) -> impl Iterator<Item = (&[u8], Option<SocketAddr>)> {
        let buffers = self.bytes.chunks_exact(BUFFER_BYTES).zip(&self.arrived);
        buffers.flat_map(|(buffer, arrived)| {
            let datagrams = buffer[..arrived.len].chunks(arrived.segment_bytes);
            datagrams.map(|datagram| (datagram, arrived.from))
        })
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("arrived", &self.arrived).finish_non_exhaustive()
    }
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The number in the message `UDP_GRO` among control messages (cmsg(3)): a length of a machine word
/// and two numbers of 32 bits stand before each, and each begins at a whole word.
fn segment_bytes_of(control: &[u8], len_bytes: usize) -> Option<usize> {
    const WORD: usize = size_of::<usize>();
    let mut rest = control.get(..len_bytes)?;
    loop {
        let message_bytes = usize::from_ne_bytes(rest.get(..WORD)?.try_into().ok()?);
        let level = i32::from_ne_bytes(rest.get(WORD..WORD + 4)?.try_into().ok()?);
        let kind = i32::from_ne_bytes(rest.get(WORD + 4..WORD + 8)?.try_into().ok()?);
        if (level, kind) == (libc::SOL_UDP, UDP_GRO) {
            let number = i32::from_ne_bytes(rest.get(WORD + 8..WORD + 12)?.try_into().ok()?);
            return usize::try_from(number).ok();
        }
        if message_bytes < WORD + 8 {
            return None;
        }
        rest = rest.get(message_bytes.checked_next_multiple_of(WORD)?..)?;
    }
}

/// The address in a `sockaddr_in` or `sockaddr_in6` (ip(7), ipv6(7)).
fn address_of(name: &[u8]) -> Option<SocketAddr> {
    let number = |at: usize| Some(u32::from_ne_bytes(name.get(at..at + 4)?.try_into().ok()?));
    let family = u16::from_ne_bytes(name.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(name.get(2..4)?.try_into().ok()?);
    match i32::from(family) {
        libc::AF_INET => {
            let address: [u8; 4] = name.get(4..8)?.try_into().ok()?;
            Some((Ipv4Addr::from(address), port).into())
        }
        libc::AF_INET6 => {
            let address: [u8; 16] = name.get(8..24)?.try_into().ok()?;
            let address = Ipv6Addr::from(address);
            Some(SocketAddrV6::new(address, port, number(4)?, number(24)?).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::UdpSocket, time::Duration};

    fn pair(address: &str) -> Option<(UdpSocket, UdpSocket)> {
        let receiver = UdpSocket::bind((address, 0)).ok()?;
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let sender = UdpSocket::bind((address, 0)).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        Some((sender, receiver))
    }

    fn received(receiver: &UdpSocket, bytes: usize) -> Vec<(usize, Option<SocketAddr>)> {
        let (mut batch, mut all, mut sum) = (Batch::new(), Vec::new(), 0);
        while sum < bytes {
            batch.receive(receiver).unwrap();
            for (datagram, from) in batch.datagrams() {
                assert!(datagram.iter().all(|byte| *byte == 7));
                sum += datagram.len();
                all.push((datagram.len(), from));
            }
        }
        all
    }

    #[test]
    fn one_send_becomes_datagrams_of_one_size_and_each_is_told_apart_again() {
        for address in ["127.0.0.1", "::1"] {
            let Some((sender, receiver)) = pair(address) else { continue };
            if cut_sends(&sender, 1000).is_err() || join_receives(&receiver).is_err() {
                return;
            }
            sender.send(&[7; 3500]).unwrap();
            let from = Some(sender.local_addr().unwrap());
            let expected = [1000, 1000, 1000, 500].map(|len| (len, from));
            assert_eq!(received(&receiver, 3500), expected);
            cut_sends(&sender, 0).unwrap();
            sender.send(&[7; 3500]).unwrap();
            assert_eq!(received(&receiver, 3500), [(3500, from)]);
        }
    }

    #[test]
    fn several_datagrams_come_by_one_call_and_a_silent_socket_ends_it() {
        let (sender, receiver) = pair("127.0.0.1").unwrap();
        for len in [1, 40, 9000] {
            sender.send(&vec![7; len]).unwrap();
        }
        let lens: Vec<_> = received(&receiver, 9041).iter().map(|datagram| datagram.0).collect();
        assert_eq!(lens, [1, 40, 9000]);
        receiver.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let error = Batch::new().receive(&receiver).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn control_messages_that_make_no_sense_are_no_size() {
        assert_eq!(segment_bytes_of(&[0; 64], 64), None);
        assert_eq!(segment_bytes_of(&[0xff; 64], 64), None);
        assert_eq!(segment_bytes_of(&[0; 64], 0), None);
        assert_eq!(segment_bytes_of(&[0; 8], 64), None);
    }
}
