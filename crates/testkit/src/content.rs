//! Files and buffers full of bytes that are random but known.

use std::{fs::File, io, os::unix::fs::FileExt};

use crate::seed::Seed;

const CHUNK_BYTES: usize = 1 << 20;

/// Makes `len_bytes` bytes that depend on the seed alone.
#[must_use]
pub fn bytes(seed: Seed, len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    seed.random().fill(&mut bytes);
    bytes
}

/// Writes the bytes of a seed, which [`bytes`] makes too, to a file, from its beginning on.
///
/// # Errors
/// What pwrite(2) says.
pub fn fill(file: &File, seed: Seed, len_bytes: u64) -> io::Result<()> {
    let mut random = seed.random();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < len_bytes {
        let len = (len_bytes - at).min(CHUNK_BYTES as u64) as usize;
        random.fill(&mut chunk[..len]);
        file.write_all_at(&chunk[..len], at)?;
        at += len as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_a_buffer_of_one_seed_hold_the_same() {
        let path = std::env::temp_dir().join(format!("haul-content-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        fill(&file, Seed(3), 2_500_001).unwrap();
        let same = std::fs::read(&path).unwrap() == bytes(Seed(3), 2_500_001);
        std::fs::remove_file(&path).unwrap();
        assert!(same);
    }
}
