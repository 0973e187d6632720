//! Files to be sent: what was offered, opening them, and whether they are still the same.

use super::{
    root::{Links, Root},
    source_removal,
};
use crate::{error::io_fault, file_ranges::Cut};
use haul_datapath::SpanFile;
use haul_protocol::message::{self, FaultCode, FileKind, Growth, Side};
use rustix::fs::{FileType, Mode, OFlags, Stat, openat};
use std::{fs::File, io, os::fd::OwnedFd, path::PathBuf, sync::Arc};

/// The place of a source.
#[derive(Clone, Debug)]
pub enum Location {
    /// A path as the user named it, symbolic links followed.
    Named(PathBuf),
    Beneath(Arc<Root>, Vec<u8>),
    /// An open file that is followed, for its name may change.
    Held(Arc<File>),
    Zero,
}

/// Change time of an inode, in seconds and nanoseconds, which changes with bytes, mode, owner and
/// links, and which nobody can set back. Zeros: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ctime(pub i64, pub u32);

impl Ctime {
    #[must_use]
    pub fn of_offer(offer: &message::FileOffer) -> Self {
        Self(offer.ctime_s, offer.ctime_ns)
    }

    pub(super) fn of(stat: &Stat) -> Self {
        Self(stat.st_ctime, u32::try_from(stat.st_ctime_nsec).unwrap_or(0))
    }

    /// Whether both change times are known, and not the same.
    #[must_use]
    pub fn differs(self, other: Self) -> bool {
        self != other && self != Self::default() && other != Self::default()
    }
}

#[derive(Clone, Debug)]
pub struct SourceEntry {
    pub offer: message::FileOffer,
    pub location: Location,
    /// Number of names that the inode has.
    pub links: u64,
    /// Size of the file, where the offer is a link to it.
    pub size_bytes: u64,
    /// Whether the source goes when it is at the target.
    pub is_moved: bool,
}

impl SourceEntry {
    /// Opens a regular file; fails when it is no longer what was offered.
    ///
    /// # Errors
    /// The fault to tell the receiver.
    pub fn open(&self) -> Result<Arc<SpanFile>, message::Fault> {
        let name = &self.offer.name;
        let failed = |error: &io::Error| io_fault(Side::Source, name, "cannot be read", error);
        if matches!(self.location, Location::Zero) {
            return SpanFile::zeros().map(Arc::new).map_err(|error| failed(&error));
        }
        let file = self.open_as_is().map_err(|error| failed(&error))?;
        if self.is_moved {
            source_removal::before_reading(&file, name)?;
        }
        let stat = rustix::fs::fstat(&file).map_err(|errno| failed(&errno.into()))?;
        self.compare(&stat)?;
        let base_bytes = self.offer.range.map_or(0, |range| range.offset_bytes);
        Ok(Arc::new(SpanFile::from_place(file, base_bytes)))
    }

    /// Opens a file that is to be followed, and takes its size and time as they are now.
    ///
    /// # Errors
    /// The fault to tell the receiver.
    pub fn hold(&mut self) -> Result<Arc<File>, message::Fault> {
        let name = &self.offer.name;
        let failed = |error: &io::Error| io_fault(Side::Source, name, "cannot be read", error);
        let file = self.open_as_is().map_err(|error| failed(&error))?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| failed(&errno.into()))?;
        let Some(now) = stat_offer(&stat, name).filter(|now| now.kind == FileKind::Regular) else {
            return Err(changed_fault(name, "is no file any more".to_owned()));
        };
        let offer = &mut self.offer;
        (offer.inode, offer.device, offer.mode) = (now.inode, now.device, now.mode);
        (offer.mtime_s, offer.mtime_ns) = (now.mtime_s, now.mtime_ns);
        // Each byte that is written gives it another.
        (offer.ctime_s, offer.ctime_ns) = (0, 0);
        (offer.size_bytes, self.size_bytes) = (now.size_bytes, now.size_bytes);
        Ok(Arc::new(file))
    }

    /// Whether the source's name still leads to the file that was looked at as `stat`.
    #[must_use]
    pub fn has_its_name(&self, stat: &Stat) -> bool {
        let there = match &self.location {
            Location::Zero | Location::Held(_) => return true,
            Location::Named(path) => rustix::fs::stat(path).map_err(io::Error::from),
            Location::Beneath(root, path) => root.stat(path, self.links()),
        };
        match there {
            Ok(there) => (there.st_ino, there.st_dev) == (stat.st_ino, stat.st_dev),
            // Only its absence says that it went elsewhere.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Opens whatever has the source's name now.
    pub(super) fn open_as_is(&self) -> io::Result<File> {
        // A FIFO that took the file's place would otherwise hold this call up.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(match &self.location {
            Location::Zero => return Err(io::ErrorKind::Unsupported.into()),
            Location::Held(file) => file.try_clone()?,
            Location::Named(path) => rustix::fs::open(path, flags, Mode::empty())?.into(),
            Location::Beneath(root, path) => match self.open_beside(root, path, flags) {
                Some(opened) => opened.into(),
                None => root.open_beneath(path, flags, Mode::empty(), self.links())?.into(),
            },
        })
    }

    /// Opens a file of a tree by the directory that the file before it was opened by. `None` where
    /// only its whole path tells: links lead to it, or it is not there.
    fn open_beside(&self, root: &Root, path: &[u8], flags: OFlags) -> Option<OwnedFd> {
        if !self.offer.name.contains(&b'/') {
            return None;
        }
        let flags = flags | OFlags::NOFOLLOW;
        root.in_parent(path, |parent, last| openat(parent, last, flags, Mode::empty())).ok()
    }

    /// Whether the source is still what was offered, after all of it was read: the ctime that it
    /// has now, which may be another.
    ///
    /// # Errors
    /// A fault that says what changed.
    pub fn check(&self) -> Result<Ctime, message::Fault> {
        let stat = match &self.location {
            Location::Zero => return Ok(Ctime::default()),
            Location::Named(path) => rustix::fs::stat(path).map_err(io::Error::from),
            Location::Beneath(root, path) => root.stat(path, self.links()),
            Location::Held(file) => rustix::fs::fstat(file).map_err(io::Error::from),
        };
        let stat = stat.map_err(|error| {
            io_fault(Side::Source, &self.offer.name, "went away meanwhile", &error)
        })?;
        match self.offer.kind {
            FileKind::Regular | FileKind::HardLink | FileKind::Symlink => self.compare(&stat),
            // What comes into a directory, or goes, changes it.
            _ => Ok(Ctime::default()),
        }
    }

    /// Checks as [`Self::check`] does, by the open file that all of it was read from: for one that
    /// is read in a moment.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_opened(&self, file: &SpanFile) -> Result<Ctime, message::Fault> {
        if matches!(self.location, Location::Zero) {
            return Ok(Ctime::default());
        }
        let stat = rustix::fs::fstat(file.file()).map_err(|errno| {
            io_fault(Side::Source, &self.offer.name, "went away meanwhile", &errno.into())
        })?;
        self.compare(&stat)
    }

    /// Whether links are followed: a source named by a client may be a link below the root; within
    /// a tree links stay links.
    pub(super) fn links(&self) -> Links {
        if self.offer.kind == FileKind::Symlink { Links::Refuse } else { Links::Follow }
    }

    pub(super) fn compare(&self, stat: &Stat) -> Result<Ctime, message::Fault> {
        if matches!(self.location, Location::Held(_)) {
            return check_held(stat, &self.offer).map(|()| Ctime::default());
        }
        let now = stat_offer(stat, &self.offer.name).unwrap_or_default();
        let then = &self.offer;
        let size_then = self.size_bytes;
        let what = if (now.inode, now.device) != (then.inode, then.device) {
            "was replaced by another file".to_owned()
        } else if now.size_bytes != size_then {
            format!("now has {} bytes, had {size_then}", now.size_bytes)
        } else if (now.mtime_s, now.mtime_ns) != (then.mtime_s, then.mtime_ns) {
            "was written to".to_owned()
        } else {
            return Ok(Ctime::of(stat));
        };
        Err(changed_fault(&then.name, what))
    }

    /// The range of a whole file that was found.
    ///
    /// # Errors
    /// If the file is not the one that was cut: ranges of two files make none.
    pub(super) fn cut(&self, cut: &Cut) -> Result<Self, message::Fault> {
        let Cut { offset_bytes, len_bytes, file_bytes, .. } = *cut;
        let now = &self.offer;
        let found = if now.size_bytes != file_bytes {
            format!("has {} bytes, had {file_bytes} when it was planned", now.size_bytes)
        } else if now.inode != cut.inode {
            "was replaced by another file since it was planned".to_owned()
        } else if (now.mtime_s, now.mtime_ns) != cut.mtime {
            "was written to since it was planned".to_owned()
        } else {
            String::new()
        };
        if !found.is_empty() {
            let hint = "plan the files as they are now, by `haul plan --again`";
            return Err(changed_fault(&now.name, found).hint(hint));
        }
        let range = Some(message::FileRange { offset_bytes, file_bytes });
        let holes = self.offer.holes.iter().filter_map(|hole| cut.within(hole)).collect();
        let offer =
            message::FileOffer { size_bytes: len_bytes, range, holes, ..self.offer.clone() };
        // Its other names are other files: none is a link to what has no name yet.
        Ok(Self { offer, links: 1, ..self.clone() })
    }

    /// Reads the link where the entry is one.
    pub(super) fn with_link(mut self) -> Result<Self, message::Fault> {
        if self.offer.kind == FileKind::Symlink
            && let Location::Beneath(root, path) = &self.location
        {
            let link = root
                .parent_of(path)
                .and_then(|(parent, last)| Ok(rustix::fs::readlinkat(parent, last, Vec::new())?))
                .map_err(|error| {
                    io_fault(Side::Source, &self.offer.name, "the link cannot be read", &error)
                })?;
            self.offer.link_target = link.into_bytes();
        }
        Ok(self)
    }
}

/// The fault of a source that changed while it was being moved.
#[must_use]
pub fn changed_fault(name: &[u8], what: String) -> message::Fault {
    message::Fault::new(FaultCode::SourceChanged, Side::Source, "changed while it was being moved")
        .at(name)
        .found(what)
        .hint("run the same command again when nothing writes to it")
}

/// Fails if a file that is held open is not what was offered of it any more.
///
/// # Errors
/// A fault that says what changed; of a file that grows, less than what was offered.
fn check_held(stat: &Stat, offer: &message::FileOffer) -> Result<(), message::Fault> {
    let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
    if stat.st_nlink == 0 {
        return Err(removed_fault(&offer.name));
    }
    let mtime = (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0));
    let is_end = offer.growth == Growth::Grown;
    if size_bytes < offer.size_bytes || (is_end && size_bytes != offer.size_bytes) {
        let found = format!("now has {size_bytes} bytes, had {}", offer.size_bytes);
        return Err(changed_fault(&offer.name, found));
    }
    if is_end && mtime != (offer.mtime_s, offer.mtime_ns) {
        return Err(changed_fault(&offer.name, "was written to".into()));
    }
    Ok(())
}

/// The fault of a file that went away while it was followed.
#[must_use]
pub fn removed_fault(name: &[u8]) -> message::Fault {
    message::Fault::new(FaultCode::NotFound, Side::Source, "was removed while it was being sent")
        .at(name)
        .needs("the file until its last byte is durable at the target")
        .found("no name of it any more")
        .hint("what came of it stays at the target, as a hidden temporary")
}

/// Offer of a file by a look at it; `None` for what is never moved.
pub(super) fn stat_offer(stat: &Stat, name: &[u8]) -> Option<message::FileOffer> {
    let (kind, size) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => (FileKind::Regular, stat.st_size),
        FileType::Directory => (FileKind::Directory, 0),
        FileType::Symlink => (FileKind::Symlink, 0),
        _ => return None,
    };
    Some(message::FileOffer {
        name: name.to_vec(),
        kind,
        size_bytes: u64::try_from(size).unwrap_or(0),
        mtime_s: stat.st_mtime,
        mtime_ns: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        inode: stat.st_ino,
        device: stat.st_dev,
        ctime_s: stat.st_ctime,
        ctime_ns: u32::try_from(stat.st_ctime_nsec).unwrap_or(0),
        ..message::FileOffer::default()
    })
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
    use std::{
        fs::{self, File, Permissions},
        os::unix::fs::{MetadataExt, PermissionsExt, symlink},
        path::Path,
        process::Command,
        sync::mpsc,
        thread,
        time::{Duration, SystemTime},
    };

    fn listed(source: SourceSpec) -> SourceEntry {
        match walk_named(&[source], WalkOptions::default()).next() {
            Some(Listed::Entry(entry)) => *entry,
            other => panic!("{other:?}"),
        }
    }

    fn named(path: &Path) -> SourceEntry {
        listed(SourceSpec::Path(path.to_owned().into()))
    }

    /// Entry of a tree, as a walk looks at it.
    fn beneath(root: &Arc<Root>, name: &[u8]) -> SourceEntry {
        let stat = root.stat(name, Links::Refuse).unwrap();
        let offer = stat_offer(&stat, name).unwrap();
        let size_bytes = offer.size_bytes;
        let location = Location::Beneath(root.clone(), name.to_vec());
        SourceEntry { offer, location, links: 1, size_bytes, is_moved: false }
    }

    #[test]
    fn a_range_has_its_part_of_the_holes_and_fails_where_the_file_is_not_the_one_that_was_cut() {
        let holes = [(0, 50), (90, 30), (180, 40), (300, 9)];
        let hole = |(offset_bytes, len_bytes)| message::Extent { offset_bytes, len_bytes };
        let holes = holes.map(hole).to_vec();
        let offer = message::FileOffer {
            size_bytes: 400,
            holes,
            inode: 7,
            mtime_s: 5,
            ..Default::default()
        };
        let (location, size_bytes) = (Location::Zero, 400);
        let whole = SourceEntry { offer, location, links: 2, size_bytes, is_moved: false };
        let (mtime, inode) = ((5, 0), 7);
        let cut = Cut { offset_bytes: 100, len_bytes: 100, file_bytes: 400, mtime, inode };
        let entry = whole.cut(&cut).unwrap();
        assert_eq!(entry.offer.holes, [hole((0, 20)), hole((80, 20))]);
        assert_eq!((entry.offer.size_bytes, entry.size_bytes, entry.links), (100, 400, 1));
        let range = message::FileRange { offset_bytes: 100, file_bytes: 400 };
        assert_eq!(entry.offer.range, Some(range));
        let others = [
            (Cut { file_bytes: 401, ..cut }, "401"),
            (Cut { inode: 8, ..cut }, "replaced"),
            (Cut { mtime: (5, 1), ..cut }, "written to"),
        ];
        for (other, why) in others {
            assert!(whole.cut(&other).is_err_and(|fault| fault.found.contains(why)), "{why}");
        }
    }

    fn found(checked: Result<Ctime, message::Fault>) -> String {
        checked.unwrap_err().found
    }

    fn time(seconds: u64, nanos: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos)
    }

    /// Makes a file of five bytes with a time of its own.
    fn make(path: &Path) {
        fs::write(path, b"bytes").unwrap();
        File::open(path).unwrap().set_modified(time(77, 5)).unwrap();
    }

    fn make_fifo(path: &Path) {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    /// Reason for O_NONBLOCK: opened for reading, a FIFO waits until somebody writes to it.
    #[test]
    fn a_fifo_in_place_of_a_source_is_an_error_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        fs::write(&path, b"bytes").unwrap();
        let entry = named(&path);
        fs::remove_file(&path).unwrap();
        make_fifo(&path);
        let (told, tells) = mpsc::channel();
        thread::spawn(move || told.send(entry.open().map(|_| ())));
        let opened = tells.recv_timeout(Duration::from_secs(10)).expect("it waits for a writer");
        assert_eq!(opened.unwrap_err().path, b"data");
    }

    #[test]
    fn change_times_differ_only_where_both_are_known() {
        let (known, unknown) = (Ctime(7, 1), Ctime::default());
        for (one, other, differ) in [
            (known, known, false),
            (known, Ctime(7, 2), true),
            (known, Ctime(8, 1), true),
            (known, unknown, false),
            (unknown, known, false),
            (unknown, unknown, false),
        ] {
            assert_eq!(one.differs(other), differ, "{one:?} {other:?}");
        }
        let offer = message::FileOffer { ctime_s: 7, ctime_ns: 1, ..Default::default() };
        assert_eq!(Ctime::of_offer(&offer), known);
    }

    #[test]
    fn an_offer_says_what_the_look_at_a_source_said() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("data"), directory.path().join("link"));
        make(&path);
        fs::set_permissions(&path, Permissions::from_mode(0o4751)).unwrap();
        symlink("data", &link).unwrap();
        make_fifo(&directory.path().join("fifo"));
        for (path, kind, size_bytes) in [
            (&*path, FileKind::Regular, 5),
            (directory.path(), FileKind::Directory, 0),
            (&*link, FileKind::Symlink, 0),
        ] {
            let there = fs::symlink_metadata(path).unwrap();
            let expected = message::FileOffer {
                name: b"its name".to_vec(),
                kind,
                size_bytes,
                mtime_s: there.mtime(),
                mtime_ns: there.mtime_nsec() as u32,
                mode: there.mode() & 0o7777,
                inode: there.ino(),
                device: there.dev(),
                ctime_s: there.ctime(),
                ctime_ns: there.ctime_nsec() as u32,
                ..message::FileOffer::default()
            };
            let stat = rustix::fs::lstat(path).unwrap();
            assert_eq!(stat_offer(&stat, b"its name"), Some(expected));
        }
        let fifo = rustix::fs::lstat(directory.path().join("fifo")).unwrap();
        assert_eq!(stat_offer(&fifo, b"its name"), None);
    }

    #[test]
    fn a_source_is_what_was_offered_until_its_inode_size_or_time_is_another() {
        let replace = |path: &Path| {
            fs::rename(path, path.with_extension("old")).unwrap();
            make(path);
        };
        let lengthen = |path: &Path| {
            fs::write(path, b"bytes.").unwrap();
            File::open(path).unwrap().set_modified(time(77, 5)).unwrap();
        };
        let touch_s = |path: &Path| File::open(path).unwrap().set_modified(time(78, 5)).unwrap();
        let touch_ns = |path: &Path| File::open(path).unwrap().set_modified(time(77, 6)).unwrap();
        type Change<'a> = (&'a dyn Fn(&Path), &'a str);
        let changes: [Change<'_>; 4] = [
            (&replace, "was replaced by another file"),
            (&lengthen, "now has 6 bytes, had 5"),
            (&touch_s, "was written to"),
            (&touch_ns, "was written to"),
        ];
        for (change, what) in changes {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("data");
            make(&path);
            let root = Root::open(directory.path()).unwrap();
            let entries = [named(&path), beneath(&root, b"data")];
            let opened = entries.each_ref().map(|entry| entry.open().unwrap());
            let there = fs::metadata(&path).unwrap();
            let ctime = Ctime(there.ctime(), there.ctime_nsec() as u32);
            for (entry, opened) in entries.iter().zip(&opened) {
                assert_eq!((entry.check(), entry.check_opened(opened)), (Ok(ctime), Ok(ctime)));
            }
            change(&path);
            for (entry, opened) in entries.iter().zip(&opened) {
                let fault = entry.check().unwrap_err();
                assert_eq!((fault.code, &*fault.found), (FaultCode::SourceChanged, what));
                assert_eq!((&*fault.path, fault.side), (&b"data"[..], Side::Source));
                assert_eq!(entry.open().unwrap_err().found, what);
                // The open file is another inode than the one that has the name now.
                let is_replaced = what == "was replaced by another file";
                match entry.check_opened(opened) {
                    Ok(_) => assert!(is_replaced, "{what}"),
                    Err(fault) => assert_eq!(fault.found, what),
                }
            }
        }
    }

    #[test]
    fn a_directory_may_change_while_it_is_sent_and_zeros_never_do() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("d")).unwrap();
        let root = Root::open(directory.path()).unwrap();
        let entry = beneath(&root, b"d");
        thread::sleep(Duration::from_millis(20));
        fs::write(directory.path().join("d/new"), b"bytes").unwrap();
        assert_eq!(entry.check(), Ok(Ctime::default()));
        let mut zeros = listed(SourceSpec::Zero(9));
        let opened = zeros.open().unwrap();
        assert_eq!(zeros.check(), Ok(Ctime::default()));
        assert_eq!(zeros.check_opened(&opened), Ok(Ctime::default()));
        assert!(zeros.hold().is_err());
    }

    #[test]
    fn a_link_in_a_tree_is_looked_at_itself_and_a_file_by_the_links_that_lead_to_it() {
        let directory = tempfile::tempdir().unwrap();
        make(&directory.path().join("data"));
        symlink("data", directory.path().join("link")).unwrap();
        let root = Root::open(directory.path()).unwrap();
        let link = beneath(&root, b"link").with_link().unwrap();
        assert_eq!((link.links(), &*link.offer.link_target), (Links::Refuse, &b"data"[..]));
        assert!(link.check().is_ok());
        fs::rename(directory.path().join("link"), directory.path().join("old")).unwrap();
        assert!(link.clone().with_link().is_err());
        symlink("elsewhere", directory.path().join("link")).unwrap();
        assert_eq!(found(link.check()), "was replaced by another file");
        let file = beneath(&root, b"data").with_link().unwrap();
        assert_eq!((file.links(), &*file.offer.link_target), (Links::Follow, &b""[..]));
        symlink("data", directory.path().join("way")).unwrap();
        let location = Location::Beneath(root, b"way".to_vec());
        let by_link = SourceEntry { location, ..file };
        assert!(by_link.open().is_ok() && by_link.check().is_ok());
    }

    /// Case of a source that is moved away while it is sent, with a link in its place.
    #[test]
    fn a_link_out_of_the_tree_is_not_followed_though_it_leads_to_the_very_file() {
        let outside = tempfile::tempdir().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d/data");
        fs::create_dir(directory.path().join("d")).unwrap();
        make(&path);
        let root = Root::open(directory.path()).unwrap();
        let entry = beneath(&root, b"d/data");
        assert!(entry.open().is_ok());
        fs::rename(&path, outside.path().join("data")).unwrap();
        symlink(outside.path().join("data"), &path).unwrap();
        assert!(entry.open().is_err());
    }

    #[test]
    fn a_name_is_lost_only_where_it_leads_to_another_file_or_nowhere() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        make(&path);
        let root = Root::open(directory.path()).unwrap();
        let entries = [named(&path), beneath(&root, b"data")];
        let stat = rustix::fs::stat(&path).unwrap();
        let have_names = || entries.each_ref().map(|entry| entry.has_its_name(&stat));
        assert_eq!(have_names(), [true; 2]);
        fs::rename(&path, directory.path().join("elsewhere")).unwrap();
        assert_eq!(have_names(), [false; 2], "nobody has it");
        make(&path);
        assert_eq!(have_names(), [false; 2], "another has it");
        fs::remove_file(&path).unwrap();
        symlink("data", &path).unwrap();
        assert_eq!(have_names(), [true; 2], "it cannot be told");
        let file = Arc::new(File::open(directory.path()).unwrap());
        let held = SourceEntry { location: Location::Held(file), ..entries[0].clone() };
        let zeros = SourceEntry { location: Location::Zero, ..entries[0].clone() };
        assert!(held.has_its_name(&stat) && zeros.has_its_name(&stat));
    }

    #[test]
    fn a_file_that_is_followed_is_held_as_it_is_now() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        make(&path);
        let mut entry = named(&path);
        fs::write(&path, b"more bytes").unwrap();
        File::open(&path).unwrap().set_modified(time(78, 6)).unwrap();
        let held = entry.hold().unwrap();
        assert_eq!(held.metadata().unwrap().ino(), entry.offer.inode);
        assert_eq!((entry.size_bytes, entry.offer.size_bytes), (10, 10));
        assert_eq!((entry.offer.mtime_s, entry.offer.mtime_ns), (78, 6));
        assert_eq!(Ctime::of_offer(&entry.offer), Ctime::default());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(entry.hold().unwrap_err().found, "is no file any more");
    }

    #[test]
    fn a_file_that_is_held_may_grow_until_its_end_and_never_become_shorter() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        make(&path);
        let file = Arc::new(File::options().write(true).open(&path).unwrap());
        let mut entry = SourceEntry { location: Location::Held(file.clone()), ..named(&path) };
        let cases = [
            (Growth::Growing, 5, 77, ""),
            (Growth::Growing, 6, 78, ""),
            (Growth::Growing, 4, 77, "now has 4 bytes, had 5"),
            (Growth::Grown, 5, 77, ""),
            (Growth::Grown, 6, 77, "now has 6 bytes, had 5"),
            (Growth::Grown, 4, 77, "now has 4 bytes, had 5"),
            (Growth::Grown, 5, 78, "was written to"),
        ];
        for (growth, len_bytes, seconds, what) in cases {
            file.set_len(len_bytes).unwrap();
            file.set_modified(time(seconds, 5)).unwrap();
            entry.offer.growth = growth;
            match entry.check() {
                Ok(ctime) => assert_eq!((ctime, what), (Ctime::default(), "")),
                Err(fault) => assert_eq!(fault.found, what, "{growth:?} {len_bytes}"),
            }
        }
        fs::remove_file(&path).unwrap();
        let fault = entry.check().unwrap_err();
        assert_eq!((fault.code, fault.side), (FaultCode::NotFound, Side::Source));
        assert_eq!(fault.path, b"data");
    }
}
