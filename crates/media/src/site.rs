//! The files below the root of a server, and nothing above it.
//!
//! Every path is resolved by the kernel with `RESOLVE_BENEATH` (openat2(2), Linux 5.6): neither
//! `..` nor a symbolic link leads out, whatever is renamed meanwhile. A link that stays within is
//! followed.

use std::{
    cmp::Ordering,
    ffi::CStr,
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, statat},
    io::Errno,
};

use crate::http::{condition::Validators, content_type};

/// Name of the page of a directory that its owner wrote.
pub const INDEX: &str = "index.html";
/// Most names of a directory that are shown; one with more shows these, and says so.
pub const LISTED_MAX: usize = 2_000;
/// Most names of a directory that are looked at.
const SCANNED_MAX: usize = 2 * LISTED_MAX;
/// Latest time that HTTP can say, in seconds since 1970: the end of the year 9999.
const SECONDS_MAX: u64 = 253_402_300_799;
/// Most calls of openat2(2) for one path: a rename next to a path with `..` makes it ask to be
/// called again.
const ATTEMPTS_MAX: u32 = 8;

#[derive(Debug)]
pub struct Site {
    path: PathBuf,
    root: OwnedFd,
}

/// The identity of an open file: its file system and its number there.
pub type Identity = (u64, u64);

/// A file that is open for an answer.
#[derive(Debug)]
pub struct OpenFile {
    pub file: Arc<File>,
    /// The file opened once more with O_DIRECT, where somebody asked for it.
    direct: OnceLock<Arc<File>>,
    pub len_bytes: u64,
    pub content_type: &'static str,
    pub validators: Validators,
    pub identity: Identity,
}

impl OpenFile {
    /// The file past the page cache; as it is where its file system knows no O_DIRECT.
    #[must_use]
    pub fn direct(&self) -> Arc<File> {
        let open = || {
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOCTTY;
            let opened = rustix::fs::open(path, flags, Mode::empty());
            opened.map_or_else(|_| self.file.clone(), |opened| Arc::new(File::from(opened)))
        };
        self.direct.get_or_init(open).clone()
    }

    /// Share of the file's bytes that is in the page cache, 0 to 1; 0 where the kernel does not
    /// say.
    #[must_use]
    pub fn cached_share(&self) -> f64 {
        let cached = haul_sys::cachestat::cached_bytes(&self.file, 0, self.len_bytes);
        cached.unwrap_or(0) as f64 / self.len_bytes.max(1) as f64
    }

    /// Whether nobody wrote to the file in between, as far as its times and its length tell.
    #[must_use]
    pub fn is_same_version(&self, other: &Self) -> bool {
        self.identity == other.identity
            && self.validators == other.validators
            && self.content_type == other.content_type
    }
}

#[derive(Debug)]
pub enum Found {
    File(OpenFile),
    /// A directory without a page of its own.
    Directory(Directory),
    /// A directory, asked for without the slash at its end.
    NeedsSlash,
    Missing,
    Forbidden,
    /// The disk, or this process, could not open it.
    Failed(io::Error),
}

/// A directory that is open, and not looked into yet.
#[derive(Debug)]
pub struct Directory {
    opened: OwnedFd,
    name: Vec<u8>,
    pub identity: Identity,
}

#[derive(Debug, Default)]
pub struct Listing {
    /// Entries of a directory: directories first, each by name.
    pub entries: Vec<Entry>,
    pub has_more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name as the file system has it: any bytes but a slash.
    pub name: Vec<u8>,
    pub is_directory: bool,
    pub len_bytes: u64,
    pub modified: SystemTime,
}

impl Site {
    /// Opens the root of a site.
    ///
    /// # Errors
    /// If it is no directory that can be opened, or the kernel has no openat2(2).
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        let site = Self { path: path.to_owned(), root };
        site.openat(b".", OFlags::PATH | OFlags::DIRECTORY)?;
        Ok(site)
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Finds what the path of a request names, which begins with a slash and has no dots.
    #[must_use]
    pub fn find(&self, path: &[u8]) -> Found {
        let below = path.strip_prefix(b"/").unwrap_or(path);
        let found = match below {
            b"" => self.directory(b"."),
            [name @ .., b'/'] => self.directory(name),
            name => self.file(name),
        };
        found.unwrap_or_else(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => Found::Missing,
            // A link that leads out, or round in a circle; a socket.
            Errno::XDEV | Errno::LOOP | Errno::ACCESS | Errno::PERM | Errno::NXIO => {
                Found::Forbidden
            }
            errno => Found::Failed(errno.into()),
        })
    }

    fn file(&self, name: &[u8]) -> rustix::io::Result<Found> {
        // What is opened with O_PATH is left alone: a pipe whose reader comes and goes would end
        // who writes into it, and some devices do something when they are opened.
        let looked_at = self.openat(name, OFlags::PATH)?;
        match FileType::from_raw_mode(fstat(&looked_at)?.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Ok(Found::NeedsSlash),
            _ => return Ok(Found::Forbidden),
        }
        // Another may have its name by now.
        let opened = self.openat(name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let stat = fstat(&opened)?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Found::File(OpenFile {
                file: Arc::new(File::from(opened)),
                direct: OnceLock::new(),
                len_bytes: u64::try_from(stat.st_size).unwrap_or(0),
                content_type: content_type::of_name(name),
                validators: validators(&stat),
                identity: (stat.st_dev, stat.st_ino),
            }),
            FileType::Directory => Found::NeedsSlash,
            _ => Found::Forbidden,
        })
    }

    fn directory(&self, name: &[u8]) -> rustix::io::Result<Found> {
        let index = [name, b"/", INDEX.as_bytes()].concat();
        match self.file(&index) {
            Ok(found @ Found::File(_)) => return Ok(found),
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        let opened = self.openat(name, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let stat = fstat(&opened)?;
        let identity = (stat.st_dev, stat.st_ino);
        Ok(Found::Directory(Directory { opened, name: name.to_vec(), identity }))
    }

    /// Lists a directory; takes milliseconds where it holds much.
    ///
    /// # Errors
    /// What the disk says.
    pub fn list(&self, directory: Directory) -> io::Result<Listing> {
        let Directory { opened, name, .. } = directory;
        let behind_link = |entry: &CStr| {
            let path = [&name[..], b"/", entry.to_bytes()].concat();
            fstat(self.openat(&path, OFlags::PATH)?)
        };
        Ok(listing(opened, behind_link)?)
    }

    fn openat(&self, name: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        let mut opened = Err(Errno::AGAIN);
        for _ in 0..ATTEMPTS_MAX {
            opened = openat2(self.root.as_fd(), name, flags, Mode::empty(), resolve);
            if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        opened
    }
}

/// Validators by the time to the nanosecond and the length: two versions of a file within a second
/// differ.
fn validators(stat: &Stat) -> Validators {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0).min(SECONDS_MAX);
    let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    let modified = UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    let entity_tag = format!("\"{seconds:x}.{nanoseconds:x}-{:x}\"", stat.st_size);
    Validators { entity_tag, modified }
}

/// Lists a directory without names that begin with a dot, and without what is neither a file nor a
/// directory; of links it says what `behind_link` says of where they lead.
fn listing(
    directory: OwnedFd,
    behind_link: impl Fn(&CStr) -> rustix::io::Result<Stat>,
) -> rustix::io::Result<Listing> {
    let mut listing = Listing::default();
    let mut entries = Dir::read_from(&directory)?;
    for scanned in 0.. {
        let Some(entry) = entries.read() else { break };
        let entry = entry?;
        if scanned == SCANNED_MAX {
            listing.has_more = true;
            break;
        }
        let name = entry.file_name();
        if name.to_bytes().starts_with(b".") {
            continue;
        }
        let mut stat = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
        if stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink) {
            stat = behind_link(name);
        }
        // Gone since, a link to nothing, or one that leads out of what is served.
        let Ok(stat) = stat else { continue };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_directory = kind == FileType::Directory;
        if !is_directory && kind != FileType::RegularFile {
            continue;
        }
        if listing.entries.len() == LISTED_MAX {
            listing.has_more = true;
            break;
        }
        listing.entries.push(Entry {
            name: name.to_bytes().to_vec(),
            is_directory,
            len_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified: validators(&stat).modified,
        });
    }
    listing.entries.sort_by(|one, other| {
        let by_kind = other.is_directory.cmp(&one.is_directory);
        by_kind.then_with(|| by_number(&one.name, &other.name))
    });
    Ok(listing)
}

/// Compares names so that `lecture 2` is before `lecture 10`: runs of digits count as numbers.
fn by_number(one: &[u8], other: &[u8]) -> Ordering {
    let (mut left, mut right) = (one, other);
    while let ([first, ..], [second, ..]) = (left, right) {
        if !(first.is_ascii_digit() && second.is_ascii_digit()) {
            match first.cmp(second) {
                Ordering::Equal => (left, right) = (&left[1..], &right[1..]),
                unequal => return unequal,
            }
            continue;
        }
        let (number, left_rest) = number(left);
        let (against, right_rest) = self::number(right);
        match number.len().cmp(&against.len()).then_with(|| number.cmp(against)) {
            Ordering::Equal => (left, right) = (left_rest, right_rest),
            unequal => return unequal,
        }
    }
    // The rest, and then leading zeros, so that no two names are the same.
    left.len().cmp(&right.len()).then_with(|| one.cmp(other))
}

/// Digits at the beginning without zeros before them, and what follows.
fn number(text: &[u8]) -> (&[u8], &[u8]) {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let zeros = text[..digits].iter().take_while(|byte| **byte == b'0').count();
    (&text[zeros..digits], &text[digits..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        ffi::OsStr,
        fs,
        os::unix::{ffi::OsStrExt, fs::symlink},
    };

    fn site() -> (tempfile::TempDir, Site) {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        fs::create_dir_all(root.join("films/b")).unwrap();
        fs::create_dir(root.join("own")).unwrap();
        fs::write(root.join("films/a.mp4"), "film").unwrap();
        fs::write(root.join("films/.hidden"), "").unwrap();
        fs::write(root.join("own/index.html"), "<p>").unwrap();
        fs::write(root.join(OsStr::from_bytes(b"f\xfcr")), "").unwrap();
        fs::write(place.path().join("secret"), "secret").unwrap();
        symlink("films/a.mp4", root.join("within")).unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink("/etc/passwd", root.join("far")).unwrap();
        symlink("circle", root.join("circle")).unwrap();
        let site = Site::open(&root).unwrap();
        (place, site)
    }

    #[test]
    fn files_and_directories_are_found_and_nothing_above_them() {
        let (place, site) = site();
        let is = |path: &str| match site.find(path.as_bytes()) {
            Found::File(file) => format!("file {} {}", file.len_bytes, file.content_type),
            Found::Directory(directory) => {
                let listing = site.list(directory).unwrap();
                let names = listing.entries.iter().map(|entry| &entry.name[..]);
                let names = names.collect::<Vec<_>>().join(&b' ');
                String::from_utf8_lossy(&names).into_owned()
            }
            Found::NeedsSlash => "needs slash".to_owned(),
            Found::Missing => "missing".to_owned(),
            Found::Forbidden => "forbidden".to_owned(),
            Found::Failed(error) => error.to_string(),
        };
        let pipe = place.path().join("root/pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        for (path, expected) in [
            ("/films/a.mp4", "file 4 video/mp4"),
            ("/within", "file 4 application/octet-stream"),
            ("/films/", "b a.mp4"),
            // Neither the pipe nor links that lead out or nowhere.
            ("/", "films own f\u{fffd}r within"),
            ("/films", "needs slash"),
            ("/own/", "file 3 text/html"),
            ("/films/a.mp4/", "missing"),
            ("/films/c.mp4", "missing"),
            ("/out", "forbidden"),
            ("/far", "forbidden"),
            ("/circle", "forbidden"),
            ("/pipe", "forbidden"),
            ("/../secret", "forbidden"),
            (&format!("/{}", "a".repeat(300)), "missing"),
        ] {
            assert_eq!(is(path), expected, "{path}");
        }
    }

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let sorted = ["a", "a 2", "a 02", "a 10", "a 10b", "a 99999999999999999999", "b1", "b1a"];
        for (at, one) in sorted.iter().enumerate() {
            for (against, other) in sorted.iter().enumerate() {
                let expected = match (at, against) {
                    // The same number.
                    (1, 2) => Ordering::Greater,
                    (2, 1) => Ordering::Less,
                    _ => at.cmp(&against),
                };
                assert_eq!(by_number(one.as_bytes(), other.as_bytes()), expected, "{one} {other}");
            }
        }
    }

    /// HTTP has no words for the year 10000; on file systems that know it, the server ended.
    #[test]
    fn a_time_beyond_what_http_can_say_is_the_last_that_it_can() {
        let shared_memory = Path::new("/dev/shm");
        let place = if shared_memory.is_dir() {
            tempfile::tempdir_in(shared_memory)
        } else {
            tempfile::tempdir()
        };
        let place = place.unwrap();
        fs::write(place.path().join("a.mp4"), "film").unwrap();
        let file = fs::File::options().write(true).open(place.path().join("a.mp4")).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(SECONDS_MAX + 7)).unwrap();
        let site = Site::open(place.path()).unwrap();
        let Found::File(found) = site.find(b"/a.mp4") else { panic!("no file") };
        assert!(httpdate::fmt_http_date(found.validators.modified).ends_with(" GMT"));
        let Found::Directory(directory) = site.find(b"/") else { panic!("no directory") };
        let listing = site.list(directory).unwrap();
        assert!(!crate::index_page::html(b"/", &listing).is_empty());
    }

    #[test]
    fn another_version_has_another_tag() {
        let (place, site) = site();
        let tag = || match site.find(b"/films/a.mp4") {
            Found::File(file) => file.validators.entity_tag,
            other => panic!("{other:?}"),
        };
        let before = tag();
        assert_eq!(before, tag());
        let file = fs::File::options().write(true).open(place.path().join("root/films/a.mp4"));
        let later = SystemTime::now() + Duration::from_nanos(1);
        file.unwrap().set_modified(later).unwrap();
        assert_ne!(before, tag());
    }
}
