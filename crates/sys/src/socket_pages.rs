//! `TCP_ZEROCOPY_RECEIVE`: the pages that a network card filled, mapped where the program reads.
//!
//! The kernel maps whole pages of the socket's queue only: the card must put the payload into pages
//! of its own (header split), in segments whose payload is a multiple of a page. What lies between
//! two such pages is copied into a small buffer, or left to recv(2). Linux 5.11; see
//! `tcp_zerocopy_receive` in net/ipv4/tcp.c and tools/testing/selftests/net/tcp_mmap.c.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The request to the kernel, `struct tcp_zerocopy_receive` of include/uapi/linux/tcp.h, up to its
/// `flags`; later fields are left out, which the kernel allows.
#[repr(C)]
#[derive(Default)]
struct ZerocopyReceive {
    address: u64,
    length: u32,
    recv_skip_hint: u32,
    inq: u32,
    err: i32,
    copybuf_address: u64,
    copybuf_len: i32,
    flags: u32,
}

/// Bytes that one call took out of the socket's queue: first the mapped ones, then the copied ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Bytes that were mapped, in whole pages.
    pub mapped_bytes: usize,
    pub copied_bytes: usize,
    /// Bytes next in the queue that cannot be mapped: recv(2) takes them.
    pub skip_bytes: usize,
}

/// A range of addresses where a socket's pages appear.
#[derive(Debug)]
pub struct SocketPages {
    start: *mut core::ffi::c_void,
    len_bytes: usize,
    /// Bytes from `start` on that the last call filled.
    mapped_bytes: usize,
}

// SAFETY: the value alone owns the mapping, which is not bound to a thread.
unsafe impl Send for SocketPages {}

impl SocketPages {
    /// Makes room for `len_bytes`, rounded up to whole pages.
    ///
    /// # Errors
    /// What mmap(2) says: ENODEV for a socket that is not TCP.
    pub fn new(socket: impl AsFd, len_bytes: usize) -> io::Result<Self> {
        let len_bytes = len_bytes.max(1).next_multiple_of(rustix::param::page_size());
        // SAFETY: a null hint lets the kernel choose the place, so no live memory is replaced.
        let start = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                len_bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                socket,
                0,
            )
        }?;
        Ok(Self { start, len_bytes, mapped_bytes: 0 })
    }

    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Takes bytes out of the socket's queue, without waiting: pages by mapping them, up to
    /// `map_bytes_max`, and then into `copy` what fits there. Pages mapped before are gone.
    ///
    /// # Errors
    /// What getsockopt(2) says, EIO at the end of the connection; the error of the connection.
    pub fn take(
        &mut self,
        socket: impl AsFd,
        map_bytes_max: usize,
        copy: &mut [u8],
    ) -> io::Result<Taken> {
        self.let_go();
        let mut receive = ZerocopyReceive {
            address: self.start as u64,
            length: u32::try_from(map_bytes_max.min(self.len_bytes)).unwrap_or(u32::MAX),
            copybuf_address: copy.as_mut_ptr() as u64,
            copybuf_len: i32::try_from(copy.len()).unwrap_or(i32::MAX),
            ..ZerocopyReceive::default()
        };
        let mut receive_bytes = size_of_val(&receive) as libc::socklen_t;
        // SAFETY: `receive` is writable for `receive_bytes`; it names a mapping of this socket that
        // no reference points into, and `copy` with its own length. All live across the call.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_ZEROCOPY_RECEIVE,
                (&raw mut receive).cast(),
                &raw mut receive_bytes,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        self.mapped_bytes = (receive.length as usize).min(self.len_bytes);
        let taken = Taken {
            mapped_bytes: self.mapped_bytes,
            copied_bytes: usize::try_from(receive.copybuf_len).unwrap_or(0).min(copy.len()),
            skip_bytes: receive.recv_skip_hint as usize,
        };
        if taken.mapped_bytes + taken.copied_bytes == 0 && receive.err != 0 {
            return Err(io::Error::from_raw_os_error(receive.err.abs()));
        }
        Ok(taken)
    }

    /// The pages that the last call mapped.
    ///
    /// Where the sender is a process on the same host that still holds them, they may change while
    /// they are looked at: read each byte once, and conclude nothing from it.
    #[must_use]
    pub fn mapped(&self) -> &[u8] {
        // SAFETY: the kernel mapped this many bytes from `start` on for reading; they stay until
        // the next `&mut self` or `drop`. They are pages of socket buffers, which no file's end
        // can take away.
        unsafe { core::slice::from_raw_parts(self.start.cast(), self.mapped_bytes) }
    }

    /// Gives the pages back to the kernel.
    pub fn let_go(&mut self) {
        let mapped_bytes = std::mem::take(&mut self.mapped_bytes);
        if mapped_bytes > 0 {
            let advice = Advice::LinuxDontNeed;
            // SAFETY: the range is mapped, and `&mut self` proves that nothing refers to it.
            let _ = unsafe { rustix::mm::madvise(self.start, mapped_bytes, advice) };
        }
    }
}

impl Drop for SocketPages {
    fn drop(&mut self) {
        // SAFETY: the range mapped in `new`, unmapped once; no reference outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.start, self.len_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PageMemory, zero_copy};
    use rustix::{
        event::{PollFd, PollFlags, poll},
        net::SendFlags,
    };
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
    };

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn wait_for(socket: &TcpStream) {
        poll(&mut [PollFd::new(socket, PollFlags::IN)], None).unwrap();
    }

    /// Whole pages are mapped on loopback too: the kernel copies what is sent without a copy into
    /// whole pages of its own (`skb_copy_ubufs`), which is what a card with header split delivers.
    #[test]
    fn whole_pages_are_mapped_and_the_rest_is_copied() {
        const LEN: usize = 3 * 4096 + 100;
        let (near, far) = pair();
        let mut sent = PageMemory::new(LEN).unwrap();
        for (at, byte) in sent.bytes_mut().iter_mut().enumerate() {
            *byte = (at % 251) as u8;
        }
        zero_copy::allow(&near).unwrap();
        let flags = SendFlags::NOSIGNAL;
        assert_eq!(zero_copy::send(&near, sent.bytes(), flags).unwrap(), LEN);
        wait_for(&far);
        let mut pages = SocketPages::new(&far, 1 << 20).unwrap();
        let (mut copy, mut got, mut mapped_bytes) = ([0; 1000], Vec::new(), 0);
        while got.len() < LEN {
            let taken = pages.take(&far, LEN - got.len(), &mut copy).unwrap();
            assert!(taken.mapped_bytes + taken.copied_bytes > 0, "{taken:?}");
            got.extend_from_slice(pages.mapped());
            got.extend_from_slice(&copy[..taken.copied_bytes]);
            mapped_bytes += taken.mapped_bytes;
        }
        assert!(got == sent.bytes());
        if mapped_bytes == 0 {
            return haul_testkit::skip::skip("a kernel that copies to whole pages", "none");
        }
        assert_eq!(mapped_bytes, 3 * 4096);
    }

    #[test]
    fn what_cannot_be_mapped_is_left_to_recv() {
        let (mut near, far) = pair();
        near.write_all(&[7; 9000]).unwrap();
        wait_for(&far);
        let mut pages = SocketPages::new(&far, 1 << 20).unwrap();
        let taken = pages.take(&far, 1 << 20, &mut [0; 100]).unwrap();
        // A part may have been copied already.
        assert_eq!(taken.mapped_bytes, 0);
        assert_eq!(taken.copied_bytes + taken.skip_bytes, 9000);
        assert!(pages.mapped().is_empty());
    }

    #[test]
    fn never_more_is_taken_than_was_asked_for() {
        let (mut near, far) = pair();
        near.write_all(&[7; 9000]).unwrap();
        wait_for(&far);
        let mut pages = SocketPages::new(&far, 1 << 20).unwrap();
        let taken = pages.take(&far, 0, &mut [0; 10]).unwrap();
        assert!(taken.mapped_bytes == 0 && taken.copied_bytes <= 10, "{taken:?}");
        assert_eq!(pages.take(&far, 4096, &mut []).unwrap().copied_bytes, 0);
    }

    #[test]
    fn another_kind_of_socket_cannot_be_mapped() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(SocketPages::new(&near, 4096).is_err());
    }
}
