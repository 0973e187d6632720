//! io_uring: reads and writes of files that run beside the caller, in slots of memory.
//!
//! The ring owns its slots, so that no caller can free memory that the kernel still uses, and
//! holds each file until its operation is over. A slot can be looked at only while nothing is in
//! flight for it.

use std::{
    fs::File,
    io,
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::Arc,
};

use io_uring::{IoUring, opcode, squeue, types::Fd};

use crate::{MemoryKind, PageMemory};

/// Slots of a ring, at most: IORING_REGISTER_BUFFERS takes no more (io_uring_register(2)).
const SLOTS_MAX: u32 = 1 << 14;

/// The least part of a warm range. The kernel cuts one POSIX_FADV_WILLNEED off at the device's
/// readahead or its largest request, whichever is more (mm/readahead.c): by default no less than
/// this.
const WARM_PART_BYTES_MIN: u64 = 128 << 10;
/// The mark of completions that nobody waits for.
const NOBODY: u64 = u64::MAX;

/// An io_uring and its slots.
///
/// It is not bound to the thread that made it (so no IORING_SETUP_SINGLE_ISSUER): an engine is
/// opened by one thread and then run by another.
pub struct Ring {
    ring: IoUring,
    memory: SlotMemory,
    /// Whether the kernel holds the slots' pages, so that no operation has to look them up.
    registered: bool,
    /// The file of the operation in flight for each slot.
    in_flight: Vec<Option<Arc<File>>>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("slots", &self.in_flight.len())
            .field("slot_bytes", &self.memory.slot_bytes)
            .field("registered", &self.registered)
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// Makes a ring with slots that begin at a page; `slot_bytes` is rounded up to whole pages.
    ///
    /// # Errors
    /// EPERM where io_uring is disabled, ENOSYS where the kernel has none, ENOMEM.
    ///
    /// # Panics
    /// If there are no slots, or more than 16384.
    pub fn new(slot_count: u32, slot_bytes: usize) -> io::Result<Self> {
        let mut ring = Self::unregistered(slot_count, slot_bytes)?;
        let memory = &ring.memory;
        let slots = (0..slot_count as usize).map(|slot| memory.iovec(slot)).collect::<Vec<_>>();
        // SAFETY: `memory` is unmapped only after the ring is closed: it is the later field.
        let outcome = unsafe { ring.ring.submitter().register_buffers(&slots) };
        // Refused where RLIMIT_MEMLOCK is too low for the slots; they work unregistered as well.
        ring.registered = outcome.is_ok();
        Ok(ring)
    }

    /// Makes a ring as `new` does, but the slots' pages are not held by the kernel: they count for
    /// RLIMIT_MEMLOCK only while they are used, and those of slots that are never used are never
    /// touched.
    ///
    /// # Errors
    /// As `new`.
    ///
    /// # Panics
    /// As `new`.
    pub fn unregistered(slot_count: u32, slot_bytes: usize) -> io::Result<Self> {
        Self::with_queue(slot_count, slot_bytes, slot_count)
    }

    /// Makes a ring for `start_warm` alone: slots of one page, and room for all parts of
    /// `range_bytes_max`.
    ///
    /// # Errors
    /// As `new`.
    ///
    /// # Panics
    /// As `new`.
    pub fn for_warming(slot_count: u32, range_bytes_max: u64) -> io::Result<Self> {
        let parts =
            u32::try_from(range_bytes_max.div_ceil(WARM_PART_BYTES_MIN) + 1).unwrap_or(u32::MAX);
        Self::with_queue(slot_count, 1, slot_count.saturating_mul(parts).min(1 << 15))
    }

    fn with_queue(slot_count: u32, slot_bytes: usize, entries: u32) -> io::Result<Self> {
        assert!((1..=SLOTS_MAX).contains(&slot_count), "{slot_count} slots");
        let memory = SlotMemory::new(slot_count as usize, slot_bytes)?;
        // Completions wait for the next system call instead of interrupting the thread; Linux 5.19.
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .build(entries)
            .or_else(|_| IoUring::new(entries))?;
        let in_flight = (0..slot_count).map(|_| None).collect();
        Ok(Self { ring, memory, registered: false, in_flight })
    }

    /// The kind of pages behind the slots.
    #[must_use]
    pub fn memory_kind(&self) -> MemoryKind {
        self.memory.pages.kind()
    }

    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.in_flight.len()
    }

    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.memory.slot_bytes
    }

    /// Whether the slots' memory is registered with the kernel.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.registered
    }

    #[must_use]
    pub fn is_idle(&self, slot: usize) -> bool {
        self.in_flight[slot].is_none()
    }

    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.iter().flatten().count()
    }

    /// The bytes of an idle slot.
    ///
    /// # Panics
    /// If an operation is in flight for the slot.
    #[must_use]
    pub fn slot(&self, slot: usize) -> &[u8] {
        assert!(self.is_idle(slot), "slot {slot} belongs to the kernel now");
        let first = self.memory.address(slot).cast::<u8>();
        // SAFETY: the slot is mapped as long as `self` is, zeroed at first, and idle: the kernel
        // does not write it before a method that takes `&mut self` starts a read.
        unsafe { core::slice::from_raw_parts(first, self.memory.slot_bytes) }
    }

    /// The bytes of an idle slot, to be written.
    ///
    /// # Panics
    /// If an operation is in flight for the slot.
    #[must_use]
    pub fn slot_mut(&mut self, slot: usize) -> &mut [u8] {
        assert!(self.is_idle(slot), "slot {slot} belongs to the kernel now");
        let first = self.memory.address(slot).cast::<u8>();
        // SAFETY: as in `slot`; and `&mut self` makes this the only reference to it.
        unsafe { core::slice::from_raw_parts_mut(first, self.memory.slot_bytes) }
    }

    /// Starts reading the file from `offset_bytes` on into `part` of an idle slot.
    ///
    /// # Errors
    /// What io_uring_enter(2) says; the operation's own errors come with its completion.
    ///
    /// # Panics
    /// If an operation is in flight for the slot, or `part` leaves it.
    pub fn start_read(
        &mut self,
        slot: usize,
        part: Range<usize>,
        file: Arc<File>,
        offset_bytes: u64,
    ) -> io::Result<()> {
        let (first, len_bytes) = self.idle_part(slot, part);
        let fd = Fd(file.as_raw_fd());
        let entry = if self.registered {
            opcode::ReadFixed::new(fd, first, len_bytes, slot as u16).offset(offset_bytes).build()
        } else {
            opcode::Read::new(fd, first, len_bytes).offset(offset_bytes).build()
        };
        self.start(slot, file, entry)
    }

    /// Starts reading the range into the page cache; it is over when the range's last page is
    /// there. Nothing is copied but one byte, and no call waits for the disk: readahead is asked
    /// for by the kernel's own workers (IORING_OP_FADVISE, Linux 5.6), in parts of `part_bytes`, at
    /// least 128 KiB: of longer ones than the device takes they read the beginning alone.
    ///
    /// # Errors
    /// As of `start_read`; with EBUSY nothing was started.
    ///
    /// # Panics
    /// If an operation is in flight for the slot, or the range is empty.
    pub fn start_warm(
        &mut self,
        slot: usize,
        file: Arc<File>,
        range: Range<u64>,
        part_bytes: u64,
    ) -> io::Result<()> {
        assert!(!range.is_empty(), "an empty range");
        let (first, _) = self.idle_part(slot, 0..1);
        let part_bytes = part_bytes.max(WARM_PART_BYTES_MIN);
        let parts = (range.end - range.start).div_ceil(part_bytes) as usize;
        let queue = self.ring.submission();
        if queue.capacity() - queue.len() < parts + 1 {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        drop(queue);
        let fd = Fd(file.as_raw_fd());
        for start in range.clone().step_by(part_bytes as usize) {
            let len_bytes = (range.end - start).min(part_bytes) as libc::off_t;
            let entry = opcode::Fadvise::new(fd, len_bytes, libc::POSIX_FADV_WILLNEED)
                .offset(start)
                .build()
                .flags(squeue::Flags::IO_LINK)
                .user_data(NOBODY);
            // SAFETY: the entry points to no memory; the file is held until the read after it,
            // which the kernel begins later, is over.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("there is room for all parts");
        }
        let entry = opcode::Read::new(fd, first, 1).offset(range.end - 1).build();
        self.start(slot, file, entry)
    }

    /// Starts writing `part` of an idle slot to the file from `offset_bytes` on.
    ///
    /// # Errors
    /// As of `start_read`.
    ///
    /// # Panics
    /// As `start_read`.
    pub fn start_write(
        &mut self,
        slot: usize,
        part: Range<usize>,
        file: Arc<File>,
        offset_bytes: u64,
    ) -> io::Result<()> {
        let (first, len_bytes) = self.idle_part(slot, part);
        let fd = Fd(file.as_raw_fd());
        let entry = if self.registered {
            opcode::WriteFixed::new(fd, first, len_bytes, slot as u16).offset(offset_bytes).build()
        } else {
            opcode::Write::new(fd, first, len_bytes).offset(offset_bytes).build()
        };
        self.start(slot, file, entry)
    }

    /// Takes the next operation that is over: its slot, now idle, and the bytes moved or its error.
    ///
    /// `None` if there is none yet; with `block` only if nothing is in flight.
    ///
    /// # Errors
    /// What io_uring_enter(2) says. The operations are still in flight then.
    pub fn finished(&mut self, block: bool) -> io::Result<Option<(usize, io::Result<usize>)>> {
        loop {
            if let Some(event) = self.ring.completion().next() {
                if event.user_data() == NOBODY {
                    continue;
                }
                let slot = event.user_data() as usize;
                self.in_flight[slot] = None;
                let moved = usize::try_from(event.result())
                    .map_err(|_| io::Error::from_raw_os_error(-event.result()));
                return Ok(Some((slot, moved)));
            }
            if !block || self.in_flight() == 0 {
                return Ok(None);
            }
            match self.ring.submit_and_wait(1) {
                Err(error) if !passes(&error) => return Err(error),
                _ => {}
            }
        }
    }

    fn idle_part(&self, slot: usize, part: Range<usize>) -> (*mut u8, u32) {
        assert!(self.is_idle(slot), "slot {slot} belongs to the kernel now");
        assert!(part.start <= part.end && part.end <= self.memory.slot_bytes, "outside the slot");
        let first = self.memory.address(slot).wrapping_byte_add(part.start).cast();
        (first, u32::try_from(part.len()).expect("a slot is far smaller than 4 GiB"))
    }

    fn start(&mut self, slot: usize, file: Arc<File>, entry: squeue::Entry) -> io::Result<()> {
        self.in_flight[slot] = Some(file);
        let entry = entry.user_data(slot as u64);
        // SAFETY: the entry points into an idle slot of `memory`, and the file is held in
        // `in_flight`; both stay until the completion is taken, or for ever (see `drop`).
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the queue has an entry for every slot");
        match self.ring.submit() {
            Err(error) if !passes(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

/// The ring's descriptor for poll(2) and epoll(7): readable while completions are there to be
/// taken.
impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's descriptor is open as long as `self` is.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

/// Whether an error passes: the kernel is short of something for a moment, or a signal came; the
/// entry is still queued, and waiting for completions submits it.
pub(crate) fn passes(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            if self.finished(true).is_err() {
                // The kernel may write the slots at any time: they are given up for ever.
                self.memory.pages.leak();
                return;
            }
        }
    }
}

/// The slots, one behind the other, each at a page.
struct SlotMemory {
    pages: PageMemory,
    slot_bytes: usize,
}

impl SlotMemory {
    fn new(slot_count: usize, slot_bytes: usize) -> io::Result<Self> {
        let slot_bytes = slot_bytes.max(1).next_multiple_of(rustix::param::page_size());
        let len_bytes = slot_bytes.checked_mul(slot_count).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { pages: PageMemory::new(len_bytes)?, slot_bytes })
    }

    fn address(&self, slot: usize) -> *mut core::ffi::c_void {
        assert!((slot + 1) * self.slot_bytes <= self.pages.len_bytes(), "there is no slot {slot}");
        self.pages.start().wrapping_byte_add(slot * self.slot_bytes)
    }

    fn iovec(&self, slot: usize) -> libc::iovec {
        libc::iovec { iov_base: self.address(slot), iov_len: self.slot_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// Makes a ring; `None` where io_uring is forbidden.
    fn ring() -> Option<Ring> {
        match Ring::new(4, 5000) {
            Ok(ring) => Some(ring),
            Err(error) => {
                haul_testkit::skip::skip("io_uring", error.to_string());
                None
            }
        }
    }

    #[test]
    fn what_is_written_from_one_slot_is_read_into_another() {
        let Some(mut ring) = ring() else { return };
        assert_eq!((ring.slot_count(), ring.slot_bytes()), (4, 8192));
        let file = Arc::new(tempfile::tempfile().unwrap());
        ring.slot_mut(2)[..7].copy_from_slice(b"slotted");
        ring.start_write(2, 0..7, file.clone(), 100).unwrap();
        assert_eq!(ring.finished(true).unwrap().map(|(s, n)| (s, n.unwrap())), Some((2, 7)));
        ring.start_read(0, 10..8192, file.clone(), 103).unwrap();
        drop(file);
        assert_eq!(ring.finished(true).unwrap().map(|(s, n)| (s, n.unwrap())), Some((0, 4)));
        assert_eq!(&ring.slot(0)[10..14], b"tted");
        assert!(ring.finished(true).unwrap().is_none(), "nothing is in flight");
    }

    #[test]
    #[should_panic(expected = "belongs to the kernel now")]
    fn a_slot_in_flight_cannot_be_looked_at() {
        let Some(mut ring) = ring() else { panic!("belongs to the kernel now") };
        let file = Arc::new(tempfile::tempfile().unwrap());
        ring.start_write(1, 0..10, file, 0).unwrap();
        let _ = ring.slot(1);
    }

    #[test]
    fn dropping_a_busy_ring_waits_for_its_writes() {
        let Some(mut ring) = ring() else { return };
        let file = Arc::new(tempfile::tempfile().unwrap());
        for slot in 0..4 {
            ring.slot_mut(slot).fill(slot as u8 + 1);
            ring.start_write(slot, 0..8192, file.clone(), slot as u64 * 8192).unwrap();
        }
        drop(ring);
        let mut content = vec![0; 4 * 8192];
        file.read_exact_at(&mut content, 0).unwrap();
        assert!(content.chunks(8192).zip(1_u8..).all(|(part, b)| part.iter().all(|c| *c == b)));
    }

    #[test]
    fn many_slots_lie_in_huge_pages_and_few_do_not() {
        let Some(few) = ring() else { return };
        assert_eq!(few.memory_kind(), MemoryKind::Pages);
        let mut many = Ring::unregistered(8, 1 << 20).unwrap();
        println!("8 MiB of slots in {:?}", many.memory_kind());
        assert_eq!(many.slot(0).as_ptr().align_offset(crate::page_memory::HUGE_PAGE_BYTES), 0);
        assert!(!many.is_registered());
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.write_all_at(&[5; 1 << 20], 0).unwrap();
        for slot in [7, 0] {
            many.start_read(slot, 0..1 << 20, file.clone(), 0).unwrap();
            assert_eq!(many.finished(true).unwrap().unwrap().1.unwrap(), 1 << 20);
            assert!(many.slot(slot).iter().all(|byte| *byte == 5));
        }
    }

    #[test]
    fn a_range_that_is_warmed_is_in_the_page_cache() {
        let Ok(mut ring) = Ring::for_warming(2, 1 << 20) else {
            haul_testkit::skip::skip("io_uring", "none");
            return;
        };
        let file = Arc::new(tempfile::tempfile_in(".").unwrap());
        file.write_all_at(&[7; 1 << 20], 0).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let range = 300_000..900_000;
        let cached = |range: &Range<u64>| {
            crate::cachestat::cached_bytes(&*file, range.start, range.end - range.start).unwrap()
        };
        for round in 0..3 {
            for slot in 0..2 {
                ring.start_warm(slot, file.clone(), range.clone(), 128 << 10).unwrap();
            }
            for _ in 0..2 {
                let (_, moved) = ring.finished(true).unwrap().unwrap();
                assert_eq!(moved.unwrap(), 1, "{round}");
            }
            assert_eq!(cached(&range), 600_000, "{round}");
        }
    }

    #[test]
    fn an_operations_error_comes_with_its_completion() {
        let Some(mut ring) = ring() else { return };
        let file = Arc::new(File::open("/dev/null").unwrap());
        ring.start_write(3, 0..1, file, 0).unwrap();
        let (slot, moved) = ring.finished(true).unwrap().unwrap();
        assert_eq!((slot, moved.unwrap_err().raw_os_error()), (3, Some(libc::EBADF)));
    }

    #[test]
    fn a_ring_may_move_to_another_thread() {
        let Some(mut ring) = ring() else { return };
        let file = Arc::new(tempfile::tempfile().unwrap());
        ring.start_write(0, 0..10, file.clone(), 0).unwrap();
        std::thread::spawn(move || {
            ring.finished(true).unwrap().unwrap().1.unwrap();
            ring.start_read(0, 0..10, file, 0).unwrap();
            assert_eq!(ring.finished(true).unwrap().unwrap().1.unwrap(), 10);
        })
        .join()
        .unwrap();
    }
}
