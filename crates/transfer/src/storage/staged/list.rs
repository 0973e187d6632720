//! List of the files of a hidden directory that are durable.
//!
//! It begins with a line that names the layout. A batch follows for each sync: a count (u32), so
//! many hashes of paths below the directory (16 bytes each, of BLAKE3), and 8 bytes of a BLAKE3
//! over both. Numbers are little-endian. A batch that a crash cut off is the end.

use super::super::locked::try_lock;
use rustix::{
    fs::{AtFlags, FallocateFlags, Mode, OFlags, fallocate, fstat, openat, statat},
    io::Errno,
};
use std::{
    fs::File,
    io::{self, Read},
    os::{fd::OwnedFd, unix::fs::FileExt},
};

const LAYOUT: &[u8; 16] = b"haul durable 1\n\0";
const NOFOLLOW: AtFlags = AtFlags::SYMLINK_NOFOLLOW;
const HASH_BYTES: usize = 16;
const SUM_BYTES: usize = 8;
/// Most names in a batch: more are told in several.
const BATCH_MAX: usize = 1 << 16;

/// Space that is taken for names that are to come: those of all files that may be written and not
/// told of fit in less. A full disk must not lose what came before it was full.
const RESERVED_BYTES: u64 = 512 << 10;
const RESERVED_MIN_BYTES: u64 = 384 << 10;

/// Hash of a path below the directory.
pub type PathHash = [u8; HASH_BYTES];

pub fn hash(path: &[u8]) -> PathHash {
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(&blake3::hash(path).as_bytes()[..HASH_BYTES]);
    hash
}

/// The list that a session writes.
#[derive(Debug)]
pub struct List {
    file: File,
    end_bytes: u64,
    /// End of the space that was taken.
    reserved_bytes: u64,
}

impl List {
    /// Takes up a list that is locked, and gives the sorted hashes that it tells of.
    pub fn of(file: File) -> io::Result<(Self, Vec<PathHash>)> {
        let mut told = Vec::new();
        (&file).read_to_end(&mut told)?;
        let (mut durable, mut end) = (Vec::new(), 0);
        if told.starts_with(LAYOUT) {
            end = LAYOUT.len();
            while let Some((hashes, behind)) = batch(&told, end) {
                durable.extend_from_slice(hashes);
                end = behind;
            }
        }
        durable.sort_unstable();
        // What a crash left behind the last whole batch is written over.
        file.set_len(end as u64)?;
        Ok((Self { file, end_bytes: end as u64, reserved_bytes: 0 }, durable))
    }

    /// Whether the list tells of nothing.
    pub fn is_empty(&self) -> bool {
        self.end_bytes <= LAYOUT.len() as u64
    }

    /// Takes space for more names, where little is left of it.
    ///
    /// # Errors
    /// If there is none.
    pub fn reserve(&mut self) -> io::Result<()> {
        if self.end_bytes + RESERVED_MIN_BYTES <= self.reserved_bytes {
            return Ok(());
        }
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.end_bytes, RESERVED_BYTES) {
            Ok(()) => self.reserved_bytes = self.end_bytes + RESERVED_BYTES,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    /// Number and device of the list's inode.
    pub fn inode(&self) -> io::Result<(u64, u64)> {
        let stat = fstat(&self.file)?;
        Ok((stat.st_ino, stat.st_dev))
    }

    /// Adds names, and syncs them where they are to outlive a crash of the host.
    pub fn append(&mut self, names: &[PathHash], syncs: bool) -> io::Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        if self.end_bytes == 0 {
            bytes.extend_from_slice(LAYOUT);
        }
        for part in names.chunks(BATCH_MAX) {
            let begin = bytes.len();
            bytes.extend_from_slice(&u32::try_from(part.len()).unwrap_or_default().to_le_bytes());
            part.iter().for_each(|hash| bytes.extend_from_slice(hash));
            let sum = sum(&bytes[begin..]);
            bytes.extend_from_slice(&sum);
        }
        self.file.write_all_at(&bytes, self.end_bytes)?;
        if syncs {
            self.file.sync_data()?;
        }
        self.end_bytes += bytes.len() as u64;
        // The files that come next fail too where there is no more room.
        let _ = self.reserve();
        Ok(())
    }
}

/// The batch that begins at `at`, and where the next begins.
fn batch(told: &[u8], at: usize) -> Option<(&[PathHash], usize)> {
    let count = u32::from_le_bytes(told.get(at..at + 4)?.try_into().ok()?) as usize;
    let hashes = at + 4;
    let behind = hashes.checked_add(count.checked_mul(HASH_BYTES)?)?;
    let (of_hashes, of_sum) = (told.get(hashes..behind)?, told.get(behind..behind + SUM_BYTES)?);
    if count == 0 || sum(&told[at..behind]) != of_sum {
        return None;
    }
    Some((of_hashes.as_chunks().0, behind + SUM_BYTES))
}

fn sum(bytes: &[u8]) -> [u8; SUM_BYTES] {
    let mut sum = [0; SUM_BYTES];
    sum.copy_from_slice(&blake3::hash(bytes).as_bytes()[..SUM_BYTES]);
    sum
}

/// Opens a list and locks it, if nobody holds it; one that is missing is made, so that nobody comes
/// between.
pub fn open_free(parent: &OwnedFd, list_name: &[u8]) -> Option<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let flags = flags | OFlags::NONBLOCK;
    let file = openat(parent, list_name, flags, Mode::from_raw_mode(0o600)).ok()?;
    try_lock(&file).ok()?;
    // Its holder may have removed it before it let go, and another session have made its own.
    let (ours, there) = (fstat(&file).ok()?, statat(parent, list_name, NOFOLLOW).ok()?);
    ((ours.st_ino, ours.st_dev) == (there.st_ino, there.st_dev)).then(|| file.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Seek, os::unix::fs::MetadataExt};

    fn hashes(names: &[&str]) -> Vec<PathHash> {
        names.iter().map(|name| hash(name.as_bytes())).collect()
    }

    fn sorted(names: &[&str]) -> Vec<PathHash> {
        let mut all = hashes(names);
        all.sort_unstable();
        all
    }

    #[test]
    fn a_list_tells_the_next_session_what_it_was_told_up_to_a_batch_that_was_cut_off() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        let open = || {
            File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap()
        };
        let (mut list, durable) = List::of(open()).unwrap();
        assert!(durable.is_empty());
        list.append(&hashes(&["a", "b/c"]), true).unwrap();
        list.append(&hashes(&["d"]), true).unwrap();
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(List::of(open()).unwrap().1, sorted(&["a", "b/c", "d"]));
        for kept in 0..whole.len() {
            std::fs::write(&path, &whole[..kept]).unwrap();
            let first = LAYOUT.len() + 4 + 2 * HASH_BYTES + SUM_BYTES;
            let wanted = if kept < first { Vec::new() } else { sorted(&["a", "b/c"]) };
            assert_eq!(List::of(open()).unwrap().1, wanted, "{kept} bytes");
        }
        // The next batch stands where the one that was cut off did.
        let (mut list, _) = List::of(open()).unwrap();
        list.append(&hashes(&["e"]), true).unwrap();
        assert_eq!(List::of(open()).unwrap().1, sorted(&["a", "b/c", "e"]));
    }

    #[test]
    fn no_list_is_made_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let parent = File::open(directory.path()).unwrap().into();
        std::os::unix::fs::symlink("elsewhere", directory.path().join("link")).unwrap();
        assert!(open_free(&parent, b"link").is_none());
        assert!(!directory.path().join("elsewhere").exists());
        let held = open_free(&parent, b"list").unwrap();
        assert!(open_free(&parent, b"list").is_none());
        drop(held);
        assert!(open_free(&parent, b"list").is_some());
    }

    #[test]
    fn a_flipped_bit_ends_the_list_before_its_batch() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        let open = || {
            File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap()
        };
        let (mut list, _) = List::of(open()).unwrap();
        list.append(&hashes(&["a"]), true).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            assert!(List::of(open()).unwrap().1.is_empty(), "byte {at}");
        }
    }

    #[test]
    fn a_list_of_many_names_is_told_in_batches_and_one_of_none_is_empty() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(LAYOUT, 0).unwrap();
        let (mut list, _) = List::of(file.try_clone().unwrap()).unwrap();
        assert!(list.is_empty());
        list.append(&[], true).unwrap();
        assert!(list.is_empty());
        let mut names: Vec<PathHash> =
            (0..=BATCH_MAX as u32).map(|number| hash(&number.to_le_bytes())).collect();
        list.append(&names, false).unwrap();
        assert!(!list.is_empty());
        let batches = 2 * (4 + SUM_BYTES) + names.len() * HASH_BYTES;
        assert_eq!(file.metadata().unwrap().len(), (LAYOUT.len() + batches) as u64);
        let mut again = file.try_clone().unwrap();
        again.rewind().unwrap();
        names.sort_unstable();
        assert_eq!(List::of(again).unwrap().1, names);
    }

    #[test]
    fn space_is_taken_before_the_names_need_it_and_is_no_part_of_the_list() {
        let file = tempfile::tempfile().unwrap();
        let (mut list, _) = List::of(file.try_clone().unwrap()).unwrap();
        list.reserve().unwrap();
        let there = || file.metadata().unwrap();
        assert_eq!((there().len(), list.reserved_bytes), (0, RESERVED_BYTES));
        assert!(there().blocks() * 512 >= RESERVED_BYTES);
        let mut append = |count: u32| {
            let names: Vec<PathHash> = (0..count).map(|at| hash(&at.to_le_bytes())).collect();
            list.append(&names, false).unwrap();
            (list.end_bytes, list.reserved_bytes)
        };
        for count in [8185, 1, 1] {
            append(count);
        }
        // What must be left is left, to the byte.
        let most = RESERVED_BYTES - RESERVED_MIN_BYTES;
        assert_eq!(append(1), (most, RESERVED_BYTES));
        let next = most + 4 + HASH_BYTES as u64 + SUM_BYTES as u64;
        assert_eq!(append(1), (next, next + RESERVED_BYTES));
    }
}
