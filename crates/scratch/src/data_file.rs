//! A file to move: random bytes, so that nothing can be compressed away, and a plain comparison.

use anyhow::{Context, Result, ensure};
use std::{
    fs::File,
    io::{Read, Write},
    path::Path,
    time::{Duration, Instant},
};

/// Longest time that a file grows on a slow disk.
pub const MAKE_TIME_MAX: Duration = Duration::from_secs(8);
/// The least size of a file, in bytes, however slow the disk is.
pub const MADE_BYTES_MIN: u64 = 64 << 20;
/// The size of a piece, in bytes, of which a file is made and by which it is compared.
const PIECE_BYTES: usize = 4 << 20;
/// Pieces after which the file is synced, so that a slow disk shows early.
const SYNC_PIECES: u64 = 16;

/// Makes a file of random bytes, at most `len_bytes` long, and returns its length.
pub fn make(
    path: &Path,
    len_bytes: u64,
    time_max: Option<Duration>,
    go_on: impl Fn() -> Result<()>,
) -> Result<u64> {
    let what = || format!("cannot write {}", path.display());
    let directory = path.parent().context("the file has no directory")?;
    std::fs::create_dir_all(directory).with_context(what)?;
    let mut file = File::create(path).with_context(what)?;
    let mut numbers = fastrand::Rng::new();
    let mut piece = vec![0; PIECE_BYTES];
    let started = Instant::now();
    let (mut made_bytes, mut pieces) = (0, 0);
    while made_bytes < len_bytes {
        go_on()?;
        if time_max.is_some_and(|max| started.elapsed() > max) && made_bytes >= MADE_BYTES_MIN {
            break;
        }
        let piece_bytes = (len_bytes - made_bytes).min(PIECE_BYTES as u64);
        numbers.fill(&mut piece);
        file.write_all(&piece[..piece_bytes as usize]).with_context(what)?;
        made_bytes += piece_bytes;
        pieces += 1;
        if time_max.is_some() && pieces % SYNC_PIECES == 0 {
            file.sync_data().with_context(what)?;
        }
    }
    Ok(made_bytes)
}

/// Fails where the files differ, with the first byte that does.
pub fn compare(one: &Path, other: &Path, go_on: impl Fn() -> Result<()>) -> Result<()> {
    let open =
        |path: &Path| File::open(path).with_context(|| format!("cannot read {}", path.display()));
    let (mut first, mut second) = (open(one)?, open(other)?);
    let lengths = (first.metadata()?.len(), second.metadata()?.len());
    ensure!(lengths.0 == lengths.1, "the lengths differ: {} and {} bytes", lengths.0, lengths.1);
    let (mut here, mut there) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut offset_bytes = 0;
    while offset_bytes < lengths.0 {
        go_on()?;
        let piece_bytes = (lengths.0 - offset_bytes).min(PIECE_BYTES as u64) as usize;
        first.read_exact(&mut here[..piece_bytes]).context("cannot read the source")?;
        second.read_exact(&mut there[..piece_bytes]).context("cannot read the target")?;
        if here[..piece_bytes] != there[..piece_bytes] {
            let at = here.iter().zip(&there).position(|(a, b)| a != b).unwrap_or(0);
            ensure!(false, "byte {} differs: this is a bug", offset_bytes + at as u64);
        }
        offset_bytes += piece_bytes as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_file_has_its_length_and_one_changed_byte_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (directory.path().join("one"), directory.path().join("other"));
        let len_bytes = PIECE_BYTES as u64 + 5;
        assert_eq!(make(&one, len_bytes, None, || Ok(())).unwrap(), len_bytes);
        let mut bytes = std::fs::read(&one).unwrap();
        assert!(bytes.chunks(8).take(1000).collect::<std::collections::HashSet<_>>().len() > 990);
        std::fs::write(&other, &bytes).unwrap();
        compare(&one, &other, || Ok(())).unwrap();
        bytes[PIECE_BYTES + 2] ^= 1;
        std::fs::write(&other, &bytes).unwrap();
        let found = compare(&one, &other, || Ok(())).unwrap_err().to_string();
        assert!(found.contains(&format!("byte {}", PIECE_BYTES + 2)), "{found}");
    }
}
