//! A window on a file's pages, which are read without a copy.
//!
//! The program itself reads them, for a digest, or a library or a card that is given the address.
//!
//! A file that is truncated while it is mapped raises SIGBUS at the pages that are gone (mmap(2)).
//! While a window is open such a page is replaced by zeros, by a handler that knows the windows,
//! and the look at the bytes ends with an error. Any other SIGBUS goes to whoever had it before.

use std::{
    io,
    ops::Range,
    os::fd::AsFd,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use rustix::mm::{MapFlags, ProtFlags};

/// Windows open at a time in one process, at most.
const WINDOWS_MAX: usize = 256;
/// The `start` of a slot that is just being filled in.
const TAKEN: usize = 1;

struct Slot {
    /// The address at which a window begins; 0: the slot is free. Written last when a window opens,
    /// first when it closes.
    start: AtomicUsize,
    end: AtomicUsize,
    lost_a_page: AtomicBool,
}

static SLOTS: [Slot; WINDOWS_MAX] = [const {
    Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        lost_a_page: AtomicBool::new(false),
    }
}; WINDOWS_MAX];

/// The action of SIGBUS before the first window, and the size of a page.
static BEFORE: OnceLock<Option<(libc::sigaction, usize)>> = OnceLock::new();

/// A part of a file, mapped read-only until it is dropped.
#[derive(Debug)]
pub struct Window {
    start: *mut core::ffi::c_void,
    /// Bytes between `start` and what was asked for: the mapping begins at a page.
    skip_bytes: usize,
    len_bytes: usize,
    slot: &'static Slot,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slot")
    }
}

// SAFETY: the value alone owns the mapping, which is not bound to a thread.
unsafe impl Send for Window {}

impl Window {
    /// Maps `len_bytes` of `file` from `offset_bytes` on; pages come in as they are looked at.
    ///
    /// # Errors
    /// What mmap(2) says; `OutOfMemory` when too many windows are open or no handler can be set.
    pub fn open(file: impl AsFd, offset_bytes: u64, len_bytes: usize) -> io::Result<Self> {
        let Some((_, page_bytes)) = guard() else {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "no handler for SIGBUS"));
        };
        let skip_bytes = (offset_bytes % *page_bytes as u64) as usize;
        let free = |slot: &&Slot| {
            let order = Ordering::SeqCst;
            slot.start.compare_exchange(0, TAKEN, order, order).is_ok()
        };
        let Some(slot) = SLOTS.iter().find(free) else {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "too many windows"));
        };
        // SAFETY: a null hint lets the kernel choose the place, so no live memory is replaced.
        let mapped = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                len_bytes + skip_bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                offset_bytes - skip_bytes as u64,
            )
        };
        let start = match mapped {
            Ok(start) => start,
            Err(errno) => {
                slot.start.store(0, Ordering::SeqCst);
                return Err(errno.into());
            }
        };
        slot.lost_a_page.store(false, Ordering::SeqCst);
        slot.end.store(start as usize + skip_bytes + len_bytes, Ordering::SeqCst);
        slot.start.store(start as usize, Ordering::SeqCst);
        Ok(Self { start, skip_bytes, len_bytes, slot })
    }

    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Shows a range of the window to `look`.
    ///
    /// The bytes may change while they are looked at, when another process writes to the file:
    /// `look` must read each once and draw no conclusion from it but a digest.
    ///
    /// # Errors
    /// `UnexpectedEof` when a page was gone: `look` saw zeros in its place, and the window is of
    /// no more use.
    ///
    /// # Panics
    /// If the range leaves the window.
    pub fn see(&self, range: Range<usize>, look: impl FnOnce(&[u8])) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= self.len_bytes, "outside the window");
        let first = self.start.cast::<u8>().wrapping_add(self.skip_bytes + range.start);
        // SAFETY: the range is mapped readable until `drop`, and a page that the file has lost is
        // replaced by the handler. Bytes that another process changes meanwhile are plain numbers
        // to `look`, which only computes a digest of them.
        let bytes = unsafe { core::slice::from_raw_parts(first, range.len()) };
        look(bytes);
        if self.has_lost_a_page() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file lost a page"));
        }
        Ok(())
    }

    /// The address of the first byte that was asked for, for a library or a card that reads the
    /// window while it is open.
    #[must_use]
    pub fn address_of_first(&self) -> *const core::ffi::c_void {
        self.start.wrapping_byte_add(self.skip_bytes).cast_const()
    }

    /// Whether some page was gone when it was read: zeros were seen in its place. A card that has
    /// pinned the pages, and a call that the kernel answers with EFAULT, do not show here.
    #[must_use]
    pub fn has_lost_a_page(&self) -> bool {
        self.slot.lost_a_page.load(Ordering::SeqCst)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // First, so that the handler never touches what is mapped there next.
        self.slot.start.store(0, Ordering::SeqCst);
        let len_bytes = self.skip_bytes + self.len_bytes;
        // SAFETY: `open` mapped this range; it is unmapped once and no reference outlives it.
        let _ = unsafe { rustix::mm::munmap(self.start, len_bytes) };
    }
}

/// Sets the handler that windows need before the first of them is opened, where somebody keeps the
/// handlers that he finds. It is set once.
pub fn set_handler() {
    guard();
}

fn guard() -> Option<&'static (libc::sigaction, usize)> {
    BEFORE.get_or_init(install).as_ref()
}

fn install() -> Option<(libc::sigaction, usize)> {
    // SAFETY: all-zero is a valid sigaction: no flags, an empty mask, the default action.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction =
        on_sigbus as extern "C" fn(_, *mut libc::siginfo_t, _) as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: as above.
    let mut before: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: both point to live structures, and the handler keeps to what a handler may do.
    let result = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) };
    (result == 0).then(|| (before, rustix::param::page_size()))
}

/// Replaces a lost page of a window by zeros. Only atomics and system calls: signal-safety(7).
extern "C" fn on_sigbus(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    let Some(Some((before, page_bytes))) = BEFORE.get() else { return };
    // SAFETY: the kernel hands a valid siginfo to a SA_SIGINFO handler.
    let info = unsafe { &*info };
    // SAFETY: for SIGBUS the union holds the address of the fault (sigaction(2)).
    let address = unsafe { info.si_addr() } as usize;
    for slot in &SLOTS {
        let (start, end) = (slot.start.load(Ordering::SeqCst), slot.end.load(Ordering::SeqCst));
        if start > TAKEN && (start..end).contains(&address) {
            slot.lost_a_page.store(true, Ordering::SeqCst);
            let page = address / page_bytes * page_bytes;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            // SAFETY: the page is one of an open window, which nothing else refers to.
            let replaced =
                unsafe { libc::mmap(page as *mut _, *page_bytes, libc::PROT_READ, flags, -1, 0) };
            if replaced != libc::MAP_FAILED {
                return;
            }
        }
    }
    // Not ours: the fault happens again, with what SIGBUS did before.
    // SAFETY: `before` is what sigaction(2) gave us.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const *before, core::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file_of(len_bytes: usize) -> std::fs::File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; len_bytes]).unwrap();
        file
    }

    #[test]
    fn a_window_shows_the_files_bytes() {
        let file = file_of(100_000);
        let window = Window::open(&file, 5_000, 90_000).unwrap();
        assert_eq!(window.address_of_first() as usize % 4096, 5_000 % 4096);
        assert!(!window.has_lost_a_page());
        let mut sum = 0;
        let see = |bytes: &[u8]| sum = bytes.iter().map(|byte| u64::from(*byte)).sum();
        window.see(1..90_000, see).unwrap();
        assert_eq!(sum, 7 * 89_999);
    }

    #[test]
    fn a_file_that_was_truncated_is_an_error_and_no_crash() {
        let file = file_of(100_000);
        let window = Window::open(&file, 0, 100_000).unwrap();
        file.set_len(10).unwrap();
        let mut last = 9;
        let lost = window.see(0..100_000, |bytes| last = bytes[99_999]).unwrap_err();
        assert_eq!((lost.kind(), last), (io::ErrorKind::UnexpectedEof, 0));
        assert!(window.has_lost_a_page());
        drop(window);
        // The slot is free again, and clean.
        let file = file_of(10);
        Window::open(&file, 0, 10).unwrap().see(0..10, |_| ()).unwrap();
    }
}
