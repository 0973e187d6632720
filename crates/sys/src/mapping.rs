//! A file mapped into memory, read and written by the kernel only.
//!
//! Rust code never touches the mapped bytes: they are handed to send(2) and recv(2) by address. So
//! a file that is truncated meanwhile is an error (EFAULT) and never a SIGBUS, and a file that
//! another process changes breaks no rule of the language.

use std::{
    io,
    ops::Range,
    os::fd::{AsFd, AsRawFd},
};

use rustix::{
    mm::{MapFlags, ProtFlags},
    net::{RecvFlags, SendFlags},
};

/// Access to the mapped bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    /// Reading and writing: received bytes go to the file, which must be open for both.
    ReadAndWrite,
}

/// Whether the pages are mapped at once or one by one as they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Populate {
    AtOnce,
    OnUse,
}

/// A part of a file, mapped until it is dropped.
#[derive(Debug)]
pub struct Mapping {
    start: *mut core::ffi::c_void,
    /// Bytes between `start` and what was asked for: the mapping begins at a page.
    skip_bytes: usize,
    len_bytes: usize,
}

// SAFETY: the value alone owns the mapping, which is not bound to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len_bytes` of `file` from `offset_bytes` on, which need not be at a page.
    ///
    /// # Errors
    /// What mmap(2) says; ENODEV or EINVAL where the file cannot be mapped.
    pub fn new(
        file: impl AsFd,
        offset_bytes: u64,
        len_bytes: usize,
        access: Access,
        populate: Populate,
    ) -> io::Result<Self> {
        let skip_bytes = (offset_bytes % rustix::param::page_size() as u64) as usize;
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadAndWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        let flags = match populate {
            Populate::AtOnce => MapFlags::SHARED | MapFlags::POPULATE,
            Populate::OnUse => MapFlags::SHARED,
        };
        // SAFETY: a null hint lets the kernel choose the place, so no live memory is replaced.
        let start = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                len_bytes + skip_bytes,
                protection,
                flags,
                file,
                offset_bytes - skip_bytes as u64,
            )
        }?;
        Ok(Self { start, skip_bytes, len_bytes })
    }

    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Sends mapped bytes; returns how many went.
    ///
    /// # Errors
    /// EFAULT where the file has become shorter, else what send(2) says.
    ///
    /// # Panics
    /// If `range` leaves the mapping.
    pub fn send_to(
        &self,
        socket: impl AsFd,
        range: Range<usize>,
        flags: SendFlags,
    ) -> io::Result<usize> {
        let first = self.address(&range);
        let socket = socket.as_fd().as_raw_fd();
        // SAFETY: the range is inside the mapping, which lives across the call; the kernel checks
        // each page and answers EFAULT for one that is gone.
        crate::uninterrupted(|| unsafe {
            libc::send(socket, first, range.len(), flags.bits().cast_signed())
        })
    }

    /// Receives into the mapped bytes, and so into the file; returns how many came.
    ///
    /// # Errors
    /// EFAULT where the file has become shorter, has no room for a page, or is mapped for reading;
    /// the bytes are then still to be received. Else what recv(2) says.
    ///
    /// # Panics
    /// If `range` leaves the mapping.
    pub fn receive_from(
        &self,
        socket: impl AsFd,
        range: Range<usize>,
        flags: RecvFlags,
    ) -> io::Result<usize> {
        let first = self.address(&range);
        let socket = socket.as_fd().as_raw_fd();
        // SAFETY: as in `send_to`; no Rust reference to the mapped bytes ever exists, so that the
        // kernel may write them.
        crate::uninterrupted(|| unsafe {
            libc::recv(socket, first, range.len(), flags.bits().cast_signed())
        })
    }

    fn address(&self, range: &Range<usize>) -> *mut core::ffi::c_void {
        assert!(range.start <= range.end && range.end <= self.len_bytes, "outside of the mapping");
        self.start.wrapping_byte_add(self.skip_bytes + range.start)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the range that `new` mapped, unmapped once; nothing refers to it.
        let _ = unsafe { rustix::mm::munmap(self.start, self.len_bytes + self.skip_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
    };

    const FLAGS: SendFlags = SendFlags::NOSIGNAL;

    #[test]
    fn an_unaligned_part_of_a_file_is_sent() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&(0..40_000_u32).map(|i| (i % 251) as u8).collect::<Vec<_>>()).unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        let mapping = Mapping::new(&file, 5001, 9000, Access::Read, Populate::AtOnce).unwrap();
        assert_eq!(mapping.send_to(&near, 1000..3000, FLAGS).unwrap(), 2000);
        let mut got = [0; 2000];
        far.read_exact(&mut got).unwrap();
        assert!((0..2000).all(|i| u32::from(got[i]) == (6001 + i as u32) % 251));
    }

    #[test]
    fn what_is_received_is_in_the_file() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(10_000).unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"through the mapping").unwrap();
        let mapping =
            Mapping::new(&file, 4090, 100, Access::ReadAndWrite, Populate::OnUse).unwrap();
        assert_eq!(mapping.receive_from(&near, 0..100, RecvFlags::empty()).unwrap(), 19);
        let mut content = Vec::new();
        file.read_to_end(&mut content).unwrap();
        assert_eq!(&content[4090..4109], b"through the mapping");
    }

    #[test]
    fn a_truncated_file_is_an_error_and_no_signal() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"waiting").unwrap();
        for access in [Access::Read, Access::ReadAndWrite] {
            let mapping = Mapping::new(&file, 0, 8192, access, Populate::AtOnce).unwrap();
            file.set_len(0).unwrap();
            let error = mapping.send_to(&near, 4096..8192, FLAGS).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
            let error = mapping.receive_from(&near, 0..7, RecvFlags::empty()).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
            file.set_len(8192).unwrap();
        }
    }
}
