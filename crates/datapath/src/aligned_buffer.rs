//! Memory for O_DIRECT.

/// What O_DIRECT asks of offsets, lengths and memory: a page suits every disk in use (open(2)).
pub const ALIGN_BYTES: u64 = 4096;

/// Memory that begins at a page, without any unsafe code: a little more is taken than is used.
#[derive(Debug)]
pub struct AlignedBuffer {
    memory: Vec<u8>,
    skip: usize,
    len: usize,
}

impl AlignedBuffer {
    /// # Panics
    /// Never: every address can be rounded up to a page.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let memory = vec![0; len + ALIGN_BYTES as usize];
        let skip = memory.as_ptr().align_offset(ALIGN_BYTES as usize);
        assert!(skip < ALIGN_BYTES as usize, "every address can be rounded up to a page");
        Self { memory, skip, len }
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.skip..self.skip + self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.skip..self.skip + self.len]
    }
}
