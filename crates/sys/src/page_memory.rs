//! Memory for buffers that the kernel reads and writes: in huge pages where the host has them.
//!
//! A disk that writes to memory, and a network card that reads it, are given an address for each
//! page; one huge page of 2 MiB stands for 512 small ones. Memory costs nothing before it is
//! touched. It comes from mmap(2) and goes by munmap(2), so its pages are never used for something
//! else in this process while the kernel still holds them.

use std::{io, num::NonZeroUsize};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The size of a huge page of x86-64, and of aarch64 with pages of 4 KiB.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The kind of pages behind the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Pages from the host's reserve of huge ones (vm.nr_hugepages).
    ReservedHugePages,
    /// Pages at a huge page's border: the kernel was asked to use huge pages where it can
    /// (MADV_HUGEPAGE).
    TransparentHugePages,
    /// Ordinary pages: too little for a huge page, or a kernel without them.
    Pages,
}

/// Zeroed memory that begins at a page and is unmapped when dropped.
#[derive(Debug)]
pub struct PageMemory {
    start: *mut core::ffi::c_void,
    len_bytes: usize,
    /// The length as mapped: at least `len_bytes`, in whole pages.
    mapped_bytes: usize,
    kind: MemoryKind,
}

// SAFETY: the value alone owns the memory, which is not bound to a thread.
unsafe impl Send for PageMemory {}
// SAFETY: a shared reference only lets the bytes be read.
unsafe impl Sync for PageMemory {}

impl PageMemory {
    /// Maps memory, in huge pages where it is large enough for one and the host has them.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(len_bytes: usize) -> io::Result<Self> {
        if len_bytes >= HUGE_PAGE_BYTES {
            if let Some(memory) = Self::reserved(len_bytes) {
                return Ok(memory);
            }
            return Self::aligned(len_bytes);
        }
        let mapped_bytes = in_pages(len_bytes.max(1), rustix::param::page_size())?;
        let start = map(mapped_bytes, MapFlags::PRIVATE)?;
        Ok(Self { start, len_bytes, mapped_bytes, kind: MemoryKind::Pages })
    }

    /// Maps memory in reserved huge pages; `None` where none are reserved, or too few.
    fn reserved(len_bytes: usize) -> Option<Self> {
        let mapped_bytes = in_pages(len_bytes, HUGE_PAGE_BYTES).ok()?;
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        let start = map(mapped_bytes, flags).ok()?;
        let kind = MemoryKind::ReservedHugePages;
        let memory = Self { start, len_bytes, mapped_bytes, kind };
        // A cgroup may have fewer than the host, and says so by SIGBUS at the first touch, or here
        // by an error (Documentation/admin-guide/cgroup-v2.rst, HugeTLB). Linux 5.14.
        let advice = Advice::LinuxPopulateWrite;
        // SAFETY: the range was just mapped and nothing refers to it; its zeros stay zeros.
        let populated = unsafe { rustix::mm::madvise(start, mapped_bytes, advice) };
        populated.ok().map(|()| memory)
    }

    /// Maps memory at a huge page's border: a huge page more than is needed, of which what lies
    /// before the first border and behind the memory is given back.
    fn aligned(len_bytes: usize) -> io::Result<Self> {
        let mapped_bytes = in_pages(len_bytes, rustix::param::page_size())?;
        let room_bytes = mapped_bytes.checked_add(HUGE_PAGE_BYTES).ok_or(too_much())?;
        let room = map(room_bytes, MapFlags::PRIVATE)?;
        let before_bytes = (room as usize).wrapping_neg() % HUGE_PAGE_BYTES;
        let start = room.wrapping_byte_add(before_bytes);
        unmap(room, before_bytes);
        let behind_bytes = room_bytes - before_bytes - mapped_bytes;
        unmap(start.wrapping_byte_add(mapped_bytes), behind_bytes);
        // SAFETY: the range is mapped and nothing refers to it; the advice changes no byte.
        let advised = unsafe { rustix::mm::madvise(start, mapped_bytes, Advice::LinuxHugepage) };
        let kind = match advised {
            Ok(()) => MemoryKind::TransparentHugePages,
            Err(_) => MemoryKind::Pages,
        };
        Ok(Self { start, len_bytes, mapped_bytes, kind })
    }

    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// The address at which the memory begins, for the kernel.
    pub(crate) fn start(&self) -> *mut core::ffi::c_void {
        self.start
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped as long as `self` is, and zeroed at first.
        unsafe { core::slice::from_raw_parts(self.start.cast(), self.len_bytes) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; and `&mut self` makes this the only reference to it.
        unsafe { core::slice::from_raw_parts_mut(self.start.cast(), self.len_bytes) }
    }

    /// Never unmaps the memory: the kernel may use it at any time.
    pub(crate) fn leak(&mut self) {
        self.mapped_bytes = 0;
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        unmap(self.start, self.mapped_bytes);
    }
}

fn in_pages(len_bytes: usize, page_bytes: usize) -> io::Result<usize> {
    let page_bytes = NonZeroUsize::new(page_bytes).ok_or(too_much())?;
    let mapped = len_bytes.checked_next_multiple_of(page_bytes.get());
    mapped.filter(|mapped| *mapped < isize::MAX as usize - HUGE_PAGE_BYTES).ok_or(too_much())
}

fn too_much() -> io::Error {
    io::ErrorKind::OutOfMemory.into()
}

fn map(len_bytes: usize, flags: MapFlags) -> io::Result<*mut core::ffi::c_void> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a null hint lets the kernel choose the place, so no live memory is replaced.
    let start =
        unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), len_bytes, protection, flags) }?;
    Ok(start)
}

/// Unmaps a part of a mapping that belongs to the caller and that nothing refers to any more.
fn unmap(start: *mut core::ffi::c_void, len_bytes: usize) {
    if len_bytes > 0 {
        // SAFETY: private to this file, whose callers own the range and unmap it once.
        let _ = unsafe { rustix::mm::munmap(start, len_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A figure in KiB of the mapping at `memory`, from its `smaps` (proc(5)).
    fn smaps_kib(memory: &PageMemory, key: &str) -> Option<u64> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let address = memory.bytes().as_ptr() as u64;
        let holds = |line: &&str| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            range.is_some_and(|(from, to)| {
                let bound = |text| u64::from_str_radix(text, 16).unwrap_or(0);
                (bound(from)..bound(to)).contains(&address)
            })
        };
        let figures = smaps.lines().skip_while(|line| !holds(line));
        let line = figures.skip(1).find(|line| line.starts_with(key))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    #[test]
    fn little_memory_has_small_pages_and_is_not_touched_before_its_time() {
        for len_bytes in [0, 1, 5000, HUGE_PAGE_BYTES - 1] {
            let mut memory = PageMemory::new(len_bytes).unwrap();
            assert_eq!((memory.kind(), memory.len_bytes()), (MemoryKind::Pages, len_bytes));
            assert_eq!(memory.bytes().as_ptr().align_offset(4096), 0);
            memory.bytes_mut().iter_mut().for_each(|byte| *byte = 9);
            assert!(memory.bytes().iter().all(|byte| *byte == 9));
        }
    }

    #[test]
    fn much_memory_begins_at_a_huge_page_and_none_of_it_is_touched() {
        let memory = PageMemory::aligned(3 * HUGE_PAGE_BYTES + 4096).unwrap();
        assert_eq!(memory.bytes().as_ptr().align_offset(HUGE_PAGE_BYTES), 0);
        assert_eq!(memory.bytes().len(), 3 * HUGE_PAGE_BYTES + 4096);
        if let Some(resident) = smaps_kib(&memory, "Rss:") {
            assert_eq!(resident, 0);
        }
        assert!(memory.bytes().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn transparent_huge_pages_are_really_there_where_the_kernel_gives_them() {
        let setting = "/sys/kernel/mm/transparent_hugepage/enabled";
        let setting = std::fs::read_to_string(setting).unwrap_or_default();
        let mut memory = PageMemory::aligned(4 * HUGE_PAGE_BYTES).unwrap();
        if setting.is_empty() || setting.contains("[never]") {
            return haul_testkit::skip::skip("transparent huge pages", setting.trim());
        }
        assert_eq!(memory.kind(), MemoryKind::TransparentHugePages);
        memory.bytes_mut()[HUGE_PAGE_BYTES] = 1;
        let huge = smaps_kib(&memory, "AnonHugePages:").unwrap();
        if huge == 0 {
            return haul_testkit::skip::skip("a free huge page", "none");
        }
        assert_eq!(huge, 2048, "one byte was touched");
    }

    #[test]
    fn reserved_huge_pages_are_used_where_there_are_some() {
        let free = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let free = free.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
        let free = free.and_then(|free| free.trim().parse::<u64>().ok()).unwrap_or(0);
        let mut memory = PageMemory::new(HUGE_PAGE_BYTES + 1).unwrap();
        assert_eq!(memory.bytes().as_ptr().align_offset(HUGE_PAGE_BYTES), 0);
        memory.bytes_mut()[HUGE_PAGE_BYTES] = 7;
        if memory.kind() != MemoryKind::ReservedHugePages {
            // Tests that run at the same time may have taken a few.
            assert!(free < 64, "{free} are free");
            return haul_testkit::skip::skip("64 huge pages in reserve", free.to_string());
        }
        assert_eq!(smaps_kib(&memory, "KernelPageSize:"), Some(2048));
    }

    #[test]
    fn more_than_there_is_is_an_error() {
        for len_bytes in [usize::MAX, usize::MAX / 2, 1 << 50] {
            assert!(PageMemory::new(len_bytes).is_err(), "{len_bytes}");
        }
    }
}
