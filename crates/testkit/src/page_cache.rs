//! Eviction of files, or parts of them, from the page cache.

use std::{fs::File, io, num::NonZeroU64, ops::Range, path::Path};

use crate::Unavailable;
use rustix::fs::{Advice, fadvise};

/// Makes the page cache forget a part of a file, once that is on its disk.
///
/// # Errors
/// Where more than a tenth of it stays: a tmpfs has no other place for it.
pub fn forget(path: &Path, part: Range<u64>) -> Result<(), Unavailable> {
    let len_bytes = part.end - part.start;
    let left_bytes = try_to_forget(path, part)?;
    if left_bytes > len_bytes / 10 {
        return Err(Unavailable::StillCached { left_bytes, len_bytes });
    }
    Ok(())
}

fn try_to_forget(path: &Path, part: Range<u64>) -> io::Result<u64> {
    let file = File::open(path)?;
    file.sync_all()?;
    let len_bytes = part.end - part.start;
    fadvise(&file, part.start, NonZeroU64::new(len_bytes), Advice::DontNeed)?;
    haul_sys::cachestat::cached_bytes(&file, part.start, len_bytes)
}
