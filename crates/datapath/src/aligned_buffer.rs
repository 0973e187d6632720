//! Memory buffers for O_DIRECT.

use haul_sys::{MemoryKind, PageMemory};

/// Alignment that O_DIRECT asks of offsets, lengths and memory: a page suits every disk in use
/// (open(2)).
pub const ALIGN_BYTES: u64 = 4096;

/// Memory that begins at a page; from 2 MiB on in huge pages, where the host has them.
#[derive(Debug)]
pub struct AlignedBuffer {
    memory: PageMemory,
}

impl AlignedBuffer {
    /// Makes a buffer. Without memory for it the process ends, as with any other buffer.
    #[must_use]
    pub fn new(len_bytes: usize) -> Self {
        let Ok(memory) = PageMemory::new(len_bytes) else {
            let layout = std::alloc::Layout::array::<u8>(len_bytes);
            std::alloc::handle_alloc_error(layout.unwrap_or(std::alloc::Layout::new::<u8>()));
        };
        Self { memory }
    }

    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.memory.kind()
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_of_many_pages_begins_at_a_huge_one() {
        let mut little = AlignedBuffer::new(12_345);
        assert_eq!((little.bytes().len(), little.kind()), (12_345, MemoryKind::Pages));
        assert_eq!(little.bytes_mut().as_ptr().align_offset(ALIGN_BYTES as usize), 0);
        let much = AlignedBuffer::new(4 << 20);
        assert_eq!(much.bytes().len(), 4 << 20);
        assert_eq!(much.bytes().as_ptr().align_offset(2 << 20), 0);
    }
}
