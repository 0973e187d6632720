//! Writes of files by io_uring, out of memory that comes back with the outcome.
//!
//! [`crate::Ring`] owns its slots; here memory comes from elsewhere, as from a network card that
//! has filled it. It belongs to the ring while it is written, so nobody can change or free it.

use std::{fs::File, io, ops::Range, os::fd::AsRawFd, ptr::NonNull, sync::Arc};

use io_uring::{IoUring, opcode, types::Fd};

use crate::ring::passes;

/// A write under way.
struct Flight<T> {
    /// Memory that was leaked from its box, so that nobody else has a way to it.
    memory: NonNull<T>,
    _file: Arc<File>,
}

/// An io_uring that writes memory of the type `T`.
pub struct WriteRing<T: AsRef<[u8]>> {
    ring: IoUring,
    in_flight: Vec<Option<Flight<T>>>,
}

// SAFETY: the pointers are to memory that the ring alone owns, and `T` may be sent.
unsafe impl<T: AsRef<[u8]> + Send> Send for WriteRing<T> {}

impl<T: AsRef<[u8]>> std::fmt::Debug for WriteRing<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteRing").field("depth", &self.in_flight.len()).finish_non_exhaustive()
    }
}

impl<T: AsRef<[u8]>> WriteRing<T> {
    /// Makes a ring for at most `depth` writes at a time.
    ///
    /// # Errors
    /// EPERM where io_uring is disabled, ENOSYS where the kernel has none, ENOMEM.
    pub fn new(depth: u32) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .build(depth)
            .or_else(|_| IoUring::new(depth))?;
        Ok(Self { ring, in_flight: (0..depth).map(|_| None).collect() })
    }

    /// Count of writes under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.iter().flatten().count()
    }

    /// Starts writing `part` of the memory's bytes to the file, from `offset_bytes` on.
    ///
    /// # Errors
    /// What io_uring_enter(2) says: the write may then be done or not, and its memory comes back by
    /// [`Self::finished`] or never. The write's own errors come with its outcome.
    ///
    /// # Panics
    /// If as many writes as the ring is deep are under way, or `part` leaves the bytes.
    pub fn start(
        &mut self,
        memory: T,
        part: Range<usize>,
        file: Arc<File>,
        offset_bytes: u64,
    ) -> io::Result<()> {
        let slot = self.in_flight.iter().position(Option::is_none).expect("the ring is not full");
        let memory = NonNull::from(Box::leak(Box::new(memory)));
        // SAFETY: just leaked, and nobody else has it.
        let bytes = &unsafe { memory.as_ref() }.as_ref()[part];
        let len = u32::try_from(bytes.len()).expect("far less than 4 GiB");
        let entry = opcode::Write::new(Fd(file.as_raw_fd()), bytes.as_ptr(), len);
        let entry = entry.offset(offset_bytes).build().user_data(slot as u64);
        self.in_flight[slot] = Some(Flight { memory, _file: file });
        // SAFETY: file and memory are held until the completion is taken; the memory has no other
        // owner and stays where it is, as it was leaked.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the queue has an entry for every write");
        match self.ring.submit() {
            Err(error) if !passes(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes a write that is over: its memory, and the bytes that were written or its error. `None`
    /// if there is none yet; with `block` only if nothing is under way.
    ///
    /// # Errors
    /// What io_uring_enter(2) says.
    pub fn finished(&mut self, block: bool) -> io::Result<Option<(T, io::Result<usize>)>> {
        loop {
            let next = self.ring.completion().next();
            if let Some(event) = next {
                let flight = self.in_flight[event.user_data() as usize].take();
                let flight = flight.expect("an event for each write");
                // SAFETY: the box that `start` leaked, with which the kernel is done.
                let memory = *unsafe { Box::from_raw(flight.memory.as_ptr()) };
                let written = usize::try_from(event.result())
                    .map_err(|_| io::Error::from_raw_os_error(-event.result()));
                return Ok(Some((memory, written)));
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
}

impl<T: AsRef<[u8]>> Drop for WriteRing<T> {
    /// Waits for what is under way. Memory that the kernel does not give back is never freed.
    fn drop(&mut self) {
        while self.finished(true).is_ok_and(|finished| finished.is_some()) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// Makes a ring; `None` where io_uring is forbidden.
    fn ring() -> Option<WriteRing<Vec<u8>>> {
        match WriteRing::new(4) {
            Ok(ring) => Some(ring),
            Err(error) => {
                haul_testkit::skip::skip("io_uring", error.to_string());
                None
            }
        }
    }

    #[test]
    fn memory_is_written_and_comes_back() {
        let Some(mut ring) = ring() else { return };
        let file = Arc::new(tempfile::tempfile().unwrap());
        for number in 0..4_u8 {
            let offset_bytes = u64::from(number) * 6;
            ring.start(vec![number + 1; 10], 2..8, file.clone(), offset_bytes).unwrap();
        }
        assert!(ring.in_flight() > 0);
        let mut back = Vec::new();
        while let Some((memory, written)) = ring.finished(true).unwrap() {
            assert_eq!(written.unwrap(), 6);
            back.push(memory);
        }
        back.sort_unstable();
        assert_eq!(back, [1, 2, 3, 4].map(|byte| vec![byte; 10]));
        let mut content = [0; 24];
        file.read_exact_at(&mut content, 0).unwrap();
        assert!(content.chunks(6).zip(1..).all(|(part, byte)| part == [byte; 6]));
    }

    #[test]
    fn an_error_comes_with_the_memory() {
        let Some(mut ring) = ring() else { return };
        let unwritable = Arc::new(File::open("/dev/zero").unwrap());
        ring.start(vec![7; 3], 0..3, unwritable, 0).unwrap();
        let (memory, written) = ring.finished(true).unwrap().unwrap();
        assert_eq!((memory, written.unwrap_err().raw_os_error()), (vec![7; 3], Some(libc::EBADF)));
        assert!(ring.finished(true).unwrap().is_none());
    }

    #[test]
    fn dropping_a_busy_ring_waits_for_its_writes() {
        let Some(mut ring) = ring() else { return };
        let file = Arc::new(tempfile::tempfile().unwrap());
        for number in 0..4_u8 {
            let offset_bytes = u64::from(number) * 100_000;
            ring.start(vec![number + 1; 100_000], 0..100_000, file.clone(), offset_bytes).unwrap();
        }
        drop(ring);
        let mut content = vec![0; 400_000];
        file.read_exact_at(&mut content, 0).unwrap();
        assert!(content.chunks(100_000).zip(1..).all(|(part, byte)| part == vec![byte; 100_000]));
    }
}
