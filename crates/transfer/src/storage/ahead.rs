//! Reading sources ahead: their bytes are asked of the disk before anybody reads them.
//!
//! Several are asked for at a time, in one call where the kernel has io_uring: the disk gets one
//! request for those that lie side by side on it. Nothing is reported here, and nothing is opened
//! but the regular file that the walk saw: what is wrong with a source is said by whoever reads it.

use super::source::{Location, SourceEntry};
use haul_datapath::SpanFile;
use haul_host::{BlockDevice, Storage, block_device::DeviceKind};
use haul_sys::{BatchedReadahead, batched_readahead::Asked as Told, cachestat, extents};
use rustix::{
    fs::{Advice, FileType, Mode, OFlags, fadvise, fstat, major, minor, openat},
    io::{Errno, ReadWriteFlags, preadv2},
};
use std::{
    fs::File,
    io::{self, IoSliceMut},
    num::NonZeroU64,
    path::{Path, PathBuf},
};

/// Fewest files that are asked for ahead of the streams.
const FILES_MIN: usize = 64;
/// Most files that are asked for ahead of the streams.
const FILES_MAX: usize = 512;
/// Requests that a disk is taken to hold where the kernel does not tell (`nr_requests` of virtual
/// and SATA disks).
const REQUESTS_UNKNOWN: u64 = 64;

/// The way in which a disk likes to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Most files that are asked for and that no stream has taken.
    pub files: usize,
    /// Files of a batch are asked for in the order of their extents, for which each is asked; where
    /// no head moves the numbers of the inodes do.
    pub by_extent: bool,
}

impl Depth {
    /// Finds the depth for the disk that a source lies on.
    #[must_use]
    pub fn of(entry: &SourceEntry) -> Self {
        let path = entry.whereabouts().and_then(|path| std::fs::canonicalize(path).ok());
        let device = entry.offer.device;
        let storage =
            path.map(|path| Storage::of(Path::new("/"), &path, major(device), minor(device)));
        Self::of_disk(storage.as_ref().and_then(Storage::device))
    }

    fn of_disk(disk: Option<&BlockDevice>) -> Self {
        let requests = disk.and_then(|disk| disk.requests_max).unwrap_or(REQUESTS_UNKNOWN);
        // While the one half is taken by the streams, the disk has the other.
        let files = usize::try_from(requests.saturating_mul(2)).unwrap_or(FILES_MAX);
        let by_extent = disk.is_some_and(has_heads);
        Self { files: files.clamp(FILES_MIN, FILES_MAX), by_extent }
    }
}

/// Whether a disk has heads to move: what is said of a virtual one, or of a file that is one, is
/// often wrong, and asking for extents costs a call for each file.
fn has_heads(disk: &BlockDevice) -> bool {
    if disk.members.is_empty() {
        return disk.kind == DeviceKind::Scsi && disk.rotational == Some(true);
    }
    disk.members.iter().any(has_heads)
}

/// Outcome of asking for a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// All of the file is in the page cache.
    Cached,
    /// The disk was asked for it.
    OnItsWay,
}

/// A source that is open to be read ahead.
#[derive(Debug)]
pub struct Ahead {
    file: File,
    len_bytes: u64,
    place: Place,
    /// Whether the file is what was offered, so that whoever sends it need not open it again.
    is_as_offered: bool,
}

/// Place of a file on its disk; files are asked for in the order of their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub device: u64,
    /// Begin of the first extent, in bytes, where that is known.
    pub extent: Option<u64>,
    pub inode: u64,
}

impl Place {
    /// The place as far as the walk has seen it.
    #[must_use]
    pub fn of(entry: &SourceEntry) -> Self {
        Self { device: entry.offer.device, extent: None, inode: entry.offer.inode }
    }
}

impl Ahead {
    /// Opens a source to read it ahead; `None` where its name leads to anything but the regular
    /// file that was offered.
    #[must_use]
    pub fn open(entry: &SourceEntry) -> Option<Self> {
        // A FIFO that took the file's place would hold this call up, a link lead elsewhere.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
        let flags = flags | OFlags::CLOEXEC;
        let opened = match &entry.location {
            Location::Zero | Location::Held(_) => return None,
            Location::Named(path) => rustix::fs::open(path, flags, Mode::empty()),
            Location::Beneath(root, path) => {
                let (parent, last) = root.parent_of(path).ok()?;
                openat(&parent, last, flags, Mode::empty())
            }
        };
        let file = File::from(opened.ok()?);
        let stat = fstat(&file).ok()?;
        let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let is_it = (stat.st_ino, stat.st_dev) == (entry.offer.inode, entry.offer.device);
        let len_bytes = entry.offer.size_bytes;
        // One that is moved is opened by whoever sends it, under a lease.
        let is_as_offered = !entry.is_moved && entry.compare(&stat).is_ok();
        let place = Place::of(entry);
        (is_regular && is_it).then(|| Self { file, len_bytes, place, is_as_offered })
    }

    /// Asks the file system where the file lies.
    pub fn find_extent(&mut self) {
        self.place.extent = extents::first_place(&self.file).ok().flatten();
    }

    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// The open file, for whoever sends it; `None` where it has to be opened anew.
    #[must_use]
    pub fn into_opened(self) -> Option<SpanFile> {
        self.is_as_offered.then(|| SpanFile::new(self.file))
    }

    /// Asks for the file's bytes by a call for it alone, without waiting for them.
    fn ask(&self) -> Asked {
        let (file, len_bytes) = (&self.file, self.len_bytes);
        if is_cached(file, len_bytes, cachestat::cached_bytes(file, 0, len_bytes)) {
            return Asked::Cached;
        }
        // A disk that fails says so to whoever reads.
        let _ = fadvise(file, 0, NonZeroU64::new(len_bytes), Advice::WillNeed);
        Asked::OnItsWay
    }
}

/// Most files that are asked for in one call.
pub const CALL_FILES_MAX: usize = BatchedReadahead::FILES_MAX;

/// The way in which files are asked for: by one call for several, or by one for each.
#[derive(Debug)]
pub struct Asking(Option<BatchedReadahead>);

impl Asking {
    /// Prepares for files of at most so many bytes.
    #[must_use]
    pub fn new(len_bytes_max: usize) -> Self {
        Self(BatchedReadahead::new(len_bytes_max).ok())
    }

    /// Asks for the bytes of files, without waiting for them: what is told of each.
    ///
    /// # Panics
    /// If there are more than [`CALL_FILES_MAX`].
    pub fn ask(&mut self, files: &[&Ahead]) -> Vec<Asked> {
        let all: Vec<_> = files.iter().map(|ahead| (&ahead.file, ahead.len_bytes)).collect();
        let Some(told) = self.0.as_mut().map(|ring| ring.ask(&all)) else {
            return files.iter().map(|ahead| ahead.ask()).collect();
        };
        let Ok(told) = told else {
            self.0 = None;
            return self.ask(files);
        };
        let asked = told.into_iter().zip(files).map(|(told, ahead)| match told {
            Told::Cached { bytes } if bytes >= ahead.len_bytes => Asked::Cached,
            Told::Cached { .. } | Told::OnItsWay => Asked::OnItsWay,
            // The file system takes no such reads.
            Told::Refused => ahead.ask(),
        });
        asked.collect()
    }
}

/// Whether all of a file is in the page cache, of which the kernel told so many bytes.
fn is_cached(file: &File, len_bytes: u64, told: io::Result<u64>) -> bool {
    match told {
        Ok(cached_bytes) => cached_bytes >= len_bytes,
        // The kernel tells the file's owner only.
        Err(_) => !would_wait(file, len_bytes.saturating_sub(1), &mut [0]),
    }
}

fn would_wait(file: &File, offset_bytes: u64, bytes: &mut [u8]) -> bool {
    let mut parts = [IoSliceMut::new(bytes)];
    preadv2(file, &mut parts, offset_bytes, ReadWriteFlags::NOWAIT) == Err(Errno::AGAIN)
}

impl SourceEntry {
    /// Path of the source, as far as it has one.
    fn whereabouts(&self) -> Option<PathBuf> {
        match &self.location {
            Location::Zero | Location::Held(_) => None,
            Location::Named(path) => Some(path.clone()),
            Location::Beneath(root, path) => Some(root.show(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        options::SourceSpec,
        storage::{
            named_sources::walk_named,
            walk::{Listed, WalkOptions},
        },
    };
    use haul_testkit::{page_cache, skip::skip};
    use std::{os::unix::fs::symlink, process::Command};

    fn entries(path: &Path) -> Vec<SourceEntry> {
        let sources = [SourceSpec::Path(path.to_owned().into())];
        let listed = walk_named(&sources, WalkOptions::default());
        let entry = |listed| match listed {
            Listed::Entry(entry) => Some(*entry),
            Listed::LeftOut(_) | Listed::Failed(_) => None,
        };
        listed.filter_map(entry).filter(|entry| entry.offer.size_bytes > 0).collect()
    }

    #[test]
    fn places_sort_by_device_then_extent_then_inode() {
        let place = |device, extent, inode| Place { device, extent, inode };
        let sorted = [
            place(1, None, 2),
            place(1, None, 9),
            place(1, Some(4096), 7),
            place(1, Some(8192), 1),
            place(2, None, 1),
        ];
        let mut places = [sorted[3], sorted[4], sorted[1], sorted[2], sorted[0]];
        places.sort();
        assert_eq!(places, sorted);
    }

    #[test]
    fn what_took_the_place_of_a_source_is_not_read_ahead() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["file", "fifo", "link", "gone", "other", "directory", "way"] {
            std::fs::write(at(name), b"bytes").unwrap();
        }
        let entries = entries(directory.path());
        assert_eq!(entries.len(), 7);
        assert!(entries.iter().all(|entry| Ahead::open(entry).is_some()));
        for name in ["fifo", "link", "gone", "directory"] {
            std::fs::remove_file(at(name)).unwrap();
        }
        assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
        symlink("file", at("link")).unwrap();
        // Not even where a link leads to the very file.
        std::fs::rename(at("way"), at("moved")).unwrap();
        symlink("moved", at("way")).unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        std::fs::write(at("new"), b"bytes").unwrap();
        std::fs::rename(at("new"), at("other")).unwrap();
        let is_opened = |entry: &&SourceEntry| Ahead::open(entry).is_some();
        let opened: Vec<&SourceEntry> = entries.iter().filter(is_opened).collect();
        assert_eq!(opened.len(), 1);
        assert!(opened[0].offer.name.ends_with(b"/file"));
    }

    #[test]
    fn a_cold_file_comes_into_the_cache_and_is_not_asked_for_again() {
        const LEN_BYTES: u64 = 100 << 10;
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![7; LEN_BYTES as usize]).unwrap();
        if let Err(why) = page_cache::forget(&path, 0..LEN_BYTES) {
            return skip("a disk below this directory", why);
        }
        let entries = entries(&path);
        assert!(Depth::of(&entries[0]).files >= FILES_MIN);
        let cached = || cachestat::cached_bytes(File::open(&path).unwrap(), 0, LEN_BYTES).unwrap();
        // By a call for each file, and by one for several where the kernel has that.
        for mut asking in [Asking(None), Asking::new(LEN_BYTES as usize)] {
            page_cache::forget(&path, 0..LEN_BYTES).unwrap();
            let mut ask = || asking.ask(&[&Ahead::open(&entries[0]).unwrap()])[0];
            assert_eq!(ask(), Asked::OnItsWay);
            assert_eq!(cached(), LEN_BYTES);
            std::fs::read(&path).unwrap();
            assert_eq!(ask(), Asked::Cached);
        }
        // Of a file that is longer than what a ring reads, nobody knows whether the rest is there.
        let mut asking = Asking::new(4096);
        if asking.0.is_some() {
            assert_eq!(asking.ask(&[&Ahead::open(&entries[0]).unwrap()]), [Asked::OnItsWay]);
        }
    }

    #[test]
    fn a_file_is_kept_open_where_it_is_as_offered_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, b"bytes").unwrap();
        let entry = entries(&path).remove(0);
        let is_kept = |entry: &SourceEntry| Ahead::open(entry).unwrap().into_opened().is_some();
        assert!(is_kept(&entry));
        assert!(!is_kept(&SourceEntry { is_moved: true, ..entry.clone() }), "a lease comes first");
        std::fs::write(&path, b"other bytes").unwrap();
        assert!(!is_kept(&entry), "whoever sends it says that it changed");
    }

    fn disk(kind: DeviceKind, rotational: bool, requests_max: Option<u64>) -> BlockDevice {
        BlockDevice {
            name: "disk".into(),
            kind,
            model: None,
            level: None,
            degraded: None,
            size_bytes: None,
            rotational: Some(rotational),
            scheduler: None,
            readahead_bytes: None,
            write_cache: None,
            request_bytes_max: None,
            requests_max,
            logical_block_bytes: None,
            members: Vec::new(),
        }
    }

    #[test]
    fn a_disk_is_asked_for_twice_what_it_holds_and_by_extents_where_heads_move() {
        let depth = |disk: &BlockDevice| {
            let Depth { files, by_extent } = Depth::of_disk(Some(disk));
            (files, by_extent)
        };
        let of = |requests| disk(DeviceKind::Scsi, true, requests);
        assert_eq!(depth(&of(Some(100))), (200, true));
        assert_eq!(depth(&of(None)), (128, true));
        assert_eq!(depth(&of(Some(1))), (FILES_MIN, true));
        assert_eq!(depth(&of(Some(u64::MAX))), (FILES_MAX, true));
        assert!(!depth(&disk(DeviceKind::Scsi, false, None)).1);
        assert!(!depth(&disk(DeviceKind::Virtio, true, None)).1, "often wrong");
        let raid = |members| BlockDevice { members, ..disk(DeviceKind::Raid, true, None) };
        let (still, moving) = (disk(DeviceKind::Nvme, false, None), of(None));
        assert!(depth(&raid(vec![still.clone(), moving])).1);
        assert!(!depth(&raid(vec![still.clone(), still])).1);
        assert_eq!(Depth::of_disk(None), Depth { files: 128, by_extent: false });
    }

    #[test]
    fn a_place_is_told_by_the_look_of_the_walk_and_found_where_the_file_has_a_path() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![7; 100 << 10]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let entry = entries(&path).remove(0);
        let mut ahead = Ahead::open(&entry).unwrap();
        let (device, inode) = (entry.offer.device, entry.offer.inode);
        assert_eq!(ahead.place(), Place { device, extent: None, inode });
        ahead.find_extent();
        let found = extents::first_place(File::open(&path).unwrap()).ok().flatten();
        assert_eq!(ahead.place().extent, found);
        assert_eq!(entry.whereabouts(), Some(path.clone()));
        let root = crate::storage::root::Root::open(directory.path()).unwrap();
        let at = |location| SourceEntry { location, ..entry.clone() };
        let beneath = at(Location::Beneath(root, b"file".to_vec()));
        assert_eq!(beneath.whereabouts(), Some(path.clone()));
        let held = at(Location::Held(std::sync::Arc::new(File::open(&path).unwrap())));
        for nowhere in [&at(Location::Zero), &held] {
            assert!(nowhere.whereabouts().is_none() && Ahead::open(nowhere).is_none());
        }
        // Who is not the file's owner is not told how much is cached: a read that would wait is.
        let file = File::open(&path).unwrap();
        let refused = || Err(io::ErrorKind::PermissionDenied.into());
        assert!(is_cached(&file, 100 << 10, refused()));
        if page_cache::forget(&path, 0..100 << 10).is_ok() {
            assert!(!is_cached(&file, 100 << 10, refused()));
        }
        assert!(is_cached(&file, 5, Ok(5)) && !is_cached(&file, 5, Ok(4)));
    }
}
