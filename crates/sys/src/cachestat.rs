//! `cachestat(2)`: how much of a file is in the page cache, without reading it.
//!
//! Linux 6.5 and newer answer for any range at once. Older kernels are asked page by page, by
//! mincore(2) over a mapping.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use rustix::mm::{MapFlags, ProtFlags};

/// The number of cachestat(2), which is one on every architecture (all system calls are since 424).
const SYS_CACHESTAT: libc::c_long = 451;

/// The range of a call of mincore(2), which writes one byte a page: a quarter of a MiB for each
/// window.
const MINCORE_WINDOW_BYTES: u64 = 1 << 30;

/// A range of a file for cachestat(2): `struct cachestat_range` of include/uapi/linux/mman.h.
#[repr(C)]
struct CachestatRange {
    offset_bytes: u64,
    len_bytes: u64,
}

/// The answer of cachestat(2): `struct cachestat` of include/uapi/linux/mman.h.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached_pages: u64,
    dirty_pages: u64,
    writeback_pages: u64,
    evicted_pages: u64,
    recently_evicted_pages: u64,
}

/// Bytes of the file's range that are in the page cache, in whole pages but never more than
/// `len_bytes`.
///
/// # Errors
/// EBADF and EPERM of cachestat(2), ENODEV where a file cannot be mapped.
pub fn cached_bytes(file: impl AsFd, offset_bytes: u64, len_bytes: u64) -> io::Result<u64> {
    if len_bytes == 0 {
        // The kernel takes 0 for "to the end of the file".
        return Ok(0);
    }
    let file = file.as_fd();
    let pages = match by_cachestat(file, offset_bytes, len_bytes) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP)) => {
            by_mincore(file, offset_bytes, len_bytes)?
        }
        other => other?,
    };
    Ok((pages * page_bytes()).min(len_bytes))
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

fn by_cachestat(file: impl AsFd, offset_bytes: u64, len_bytes: u64) -> io::Result<u64> {
    let range = CachestatRange { offset_bytes, len_bytes };
    let mut found = Cachestat::default();
    let file = file.as_fd().as_raw_fd();
    // SAFETY: both structures have the kernel's layout and live across the call.
    let result =
        unsafe { libc::syscall(SYS_CACHESTAT, file, &raw const range, &raw mut found, 0_u32) };
    if result == 0 { Ok(found.cached_pages) } else { Err(io::Error::last_os_error()) }
}

fn by_mincore(file: impl AsFd, offset_bytes: u64, len_bytes: u64) -> io::Result<u64> {
    let file = file.as_fd();
    let mut at = offset_bytes - offset_bytes % page_bytes();
    let end = offset_bytes.saturating_add(len_bytes);
    let mut pages = 0;
    while at < end {
        let window_bytes = (end - at).min(MINCORE_WINDOW_BYTES);
        pages += resident_pages(file, at, window_bytes as usize)?;
        at += window_bytes;
    }
    Ok(pages)
}

/// Pages in the page cache, of a range that begins at a page.
fn resident_pages(file: impl AsFd, offset_bytes: u64, len_bytes: usize) -> io::Result<u64> {
    let mut resident = vec![0_u8; len_bytes.div_ceil(rustix::param::page_size())];
    // SAFETY: a null hint lets the kernel choose the place; nothing reads through the mapping.
    let start = unsafe {
        rustix::mm::mmap(
            core::ptr::null_mut(),
            len_bytes,
            ProtFlags::READ,
            MapFlags::SHARED,
            file,
            offset_bytes,
        )
    }?;
    // SAFETY: the range was just mapped and `resident` has one byte for each of its pages.
    let result = unsafe { libc::mincore(start, len_bytes, resident.as_mut_ptr()) };
    let outcome = if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the range mapped above, unmapped once.
    unsafe { rustix::mm::munmap(start, len_bytes) }?;
    outcome?;
    Ok(resident.iter().filter(|page| **page & 1 == 1).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn both_ways_see_what_was_just_written_and_miss_a_hole() {
        let mut file = tempfile::tempfile().unwrap();
        let page = page_bytes();
        file.write_all(&vec![1; 3 * page as usize]).unwrap();
        file.set_len(100 * page).unwrap();
        assert_eq!(cached_bytes(&file, 0, 100 * page).unwrap(), 3 * page);
        assert_eq!(by_mincore(&file, 0, 100 * page).unwrap(), 3);
        assert_eq!(by_mincore(&file, page + 1, 100).unwrap(), 1);
        assert_eq!(cached_bytes(&file, 10 * page, 5 * page).unwrap(), 0);
        assert_eq!(cached_bytes(&file, 0, 10).unwrap(), 10, "no more than was asked for");
        assert_eq!(cached_bytes(&file, 0, 0).unwrap(), 0);
    }
}
