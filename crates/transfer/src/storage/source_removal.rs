//! Removal of the sources of a move. What is written to one while it is moved is not lost with it.
//!
//! A write moves the ctime of its file, and a file whose ctime moved stays. Two writes do not. One
//! comes after the last look: a read lease keeps writers away from that look until the name is
//! gone. The other goes through a mapping to a page that was dirty before: it is written out first,
//! so that the next such write is told by a fault. tmpfs tells of no write through a mapping.

use super::{
    root::Links,
    source::{Ctime, Location, SourceEntry, changed_fault},
};
use crate::error::io_fault;
use haul_protocol::message::{Fault, FaultCode, FileKind, Side};
use haul_sys::{
    lease::{Asked, ReadLease, is_overlay},
    write_back,
};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, fdatasync, fstat, fstatfs, open, unlinkat},
    io::Errno,
};
use std::{fs::File, io};

/// Values of f_type for file systems in memory (statfs(2)): no write through a mapping moves a
/// time.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Sees to it that each later write to an open source moves its times.
///
/// # Errors
/// If somebody may write to it through a mapping, of which its file system would not tell.
pub(super) fn before_reading(file: &File, name: &[u8]) -> Result<(), Fault> {
    let failed = |error: io::Error| io_fault(Side::Source, name, "cannot be read", &error);
    let is_written = match ReadLease::ask(file) {
        Asked::Granted(_) => return Ok(()),
        Asked::IsWritten => true,
        Asked::Unknown => false,
    };
    let magic = fstatfs(file).map_err(|errno| failed(errno.into()))?.f_type;
    if is_written && IN_MEMORY.contains(&(magic.cast_unsigned() & 0xffff_ffff)) {
        return Err(written_fault(name, "its file system does not tell of all that is written"));
    }
    // sync_file_range(2) looks at the pages of overlayfs's own inode, which has none.
    let written_out = match is_overlay(file) {
        true => fdatasync(file).map_err(io::Error::from),
        false => write_back::write_out(file),
    };
    written_out.map_err(failed)
}

fn written_fault(name: &[u8], found: &str) -> Fault {
    Fault::new(FaultCode::SourceChanged, Side::Source, "is open for writing by another program")
        .at(name)
        .needs("for --move a source that nobody writes to")
        .found(found.to_owned())
        .hint("run the same command again when that program has closed it")
}

impl SourceEntry {
    /// Removes the source, if it still is what was offered. A directory only when it is empty.
    ///
    /// To remove one name of an inode gives it another ctime: `then` is the one that it had after
    /// this function removed another name of it. The new one is returned, where names are left.
    ///
    /// # Errors
    /// The fault to tell the user.
    pub fn remove(&self, then: Option<Ctime>) -> Result<Option<Ctime>, Fault> {
        let failed = |error: io::Error| {
            io_fault(Side::Source, &self.offer.name, "was moved and cannot be removed", &error)
        };
        let then = then.unwrap_or_else(|| Ctime::of_offer(&self.offer));
        if self.offer.kind == FileKind::Directory {
            return match self.unlink() {
                // Another run that moves a part of it was first.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                unlinked => unlinked.map(|()| None).map_err(failed),
            };
        }
        let Some(file) = self.open_for_removal().map_err(failed)? else { return Ok(None) };
        let lease = ReadLease::ask(&file);
        if matches!(lease, Asked::IsWritten) {
            return Err(written_fault(&self.offer.name, "it is at the target, and stays here too"));
        }
        let looked_at = fstat(&file).map_err(|errno| failed(errno.into()))?;
        // The file that the lease is for, and then its name: of one inode the later look sees what
        // the earlier one saw, and more.
        self.compare(&looked_at)?;
        if self.check()?.differs(then) {
            let found = "its inode changed after the last look: it stays";
            return Err(changed_fault(&self.offer.name, found.into()));
        }
        self.unlink().map_err(failed)?;
        let after = fstat(&file).map_err(|errno| failed(errno.into()))?;
        Ok((after.st_nlink > 0).then(|| Ctime::of(&after)))
    }

    /// Opens the source's inode, for reading where it can be; `None` where it has no name to be
    /// removed.
    fn open_for_removal(&self) -> io::Result<Option<File>> {
        let opened = match self.offer.kind {
            FileKind::Symlink => Err(io::ErrorKind::Unsupported.into()),
            _ => self.open_as_is(),
        };
        let itself = match self.links() {
            Links::Refuse => OFlags::NOFOLLOW,
            Links::Follow => OFlags::empty(),
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC | itself;
        Ok(match (&self.location, opened) {
            (Location::Zero | Location::Held(_), _) => None,
            (_, Ok(file)) => Some(file),
            (Location::Named(path), Err(_)) => Some(open(path, flags, Mode::empty())?.into()),
            (Location::Beneath(root, path), Err(_)) => {
                Some(root.open_beneath(path, flags, Mode::empty(), self.links())?.into())
            }
        })
    }

    fn unlink(&self) -> io::Result<()> {
        let is_directory = self.offer.kind == FileKind::Directory;
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let removed = match &self.location {
            Location::Zero | Location::Held(_) => return Ok(()),
            Location::Named(path) => unlinkat(CWD, path, flags),
            // The top of a tree is no entry of its own root.
            Location::Beneath(_, path) if path.is_empty() => return Ok(()),
            Location::Beneath(root, path) => {
                let (parent, last) = root.parent_of(path)?;
                unlinkat(parent, last, flags)
            }
        };
        match removed {
            // Only of a directory is that said: something came into it.
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            removed => Ok(removed?),
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
            root::Root,
            source::stat_offer,
            walk::{Listed, WalkOptions},
        },
    };
    use haul_sys::mapping::{Access, Mapping, Populate};
    use rustix::net::RecvFlags;
    use std::{
        fs,
        io::Write,
        os::unix::{
            fs::{PermissionsExt, symlink},
            net::UnixStream,
        },
        path::Path,
        thread,
        time::Duration,
    };

    /// Writes into a file without a call that tells the file system.
    fn write_mapped(mapping: &Mapping, bytes: &[u8]) {
        let (reader, mut writer) = UnixStream::pair().unwrap();
        writer.write_all(bytes).unwrap();
        let read = mapping.receive_from(&reader, 0..bytes.len(), RecvFlags::empty()).unwrap();
        assert_eq!(read, bytes.len());
        // Longer than the clock that gives files their times takes for a step.
        thread::sleep(Duration::from_millis(20));
    }

    fn mapped(path: &Path) -> Mapping {
        fs::write(path, [b'-'; 4096]).unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        Mapping::new(&file, 0, 4096, Access::ReadAndWrite, Populate::OnUse).unwrap()
    }

    fn listed(path: &Path) -> Box<SourceEntry> {
        let options = WalkOptions { is_moved: true, ..WalkOptions::default() };
        match walk_named(&[SourceSpec::Path(path.to_path_buf().into())], options).next() {
            Some(Listed::Entry(entry)) => entry,
            other => panic!("{other:?}"),
        }
    }

    fn is_in_memory(path: &Path) -> bool {
        let magic = rustix::fs::statfs(path).unwrap().f_type;
        IN_MEMORY.contains(&(magic.cast_unsigned() & 0xffff_ffff))
    }

    #[test]
    fn what_is_written_through_a_dirty_mapping_after_the_reading_keeps_the_source() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("data");
        let mapping = mapped(&path);
        write_mapped(&mapping, b"old");
        let entry = listed(&path);
        if is_in_memory(&path) {
            return assert!(entry.open().is_err());
        }
        entry.open().unwrap();
        write_mapped(&mapping, b"new");
        drop(mapping);
        let fault = entry.remove(None).unwrap_err();
        assert_eq!(fault.found, "was written to");
        assert!(fs::read(&path).unwrap().starts_with(b"new"));
        // The next run lists it anew.
        let entry = listed(&path);
        entry.open().unwrap();
        entry.remove(None).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_source_that_is_open_for_writing_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        fs::write(&path, "bytes").unwrap();
        let writer = File::options().append(true).open(&path).unwrap();
        let entry = listed(&path);
        let fault = entry.remove(None).unwrap_err();
        assert_eq!(fault.what, "is open for writing by another program");
        assert!(path.exists());
        drop(writer);
        entry.remove(None).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_file_system_that_tells_of_no_mapped_write_gives_nothing_that_is_open_for_writing() {
        let memory = Path::new("/dev/shm");
        if !is_in_memory(memory) {
            return;
        }
        let directory = tempfile::tempdir_in(memory).unwrap();
        let path = directory.path().join("data");
        let mapping = mapped(&path);
        let entry = listed(&path);
        assert_eq!(entry.open().unwrap_err().code, FaultCode::SourceChanged);
        drop(mapping);
        entry.open().unwrap();
        entry.remove(None).unwrap();
    }

    fn beneath(root: &std::sync::Arc<Root>, name: &[u8]) -> SourceEntry {
        let stat = root.stat(name, Links::Refuse).unwrap();
        let offer = stat_offer(&stat, name).unwrap();
        let size_bytes = offer.size_bytes;
        let location = Location::Beneath(root.clone(), name.to_vec());
        SourceEntry { offer, location, links: 1, size_bytes, is_moved: true }
    }

    fn wait_for_another_time() {
        thread::sleep(Duration::from_millis(20));
    }

    #[test]
    fn a_source_whose_inode_changed_after_the_last_look_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        fs::write(&path, "bytes").unwrap();
        let root = Root::open(directory.path()).unwrap();
        let entries = [*listed(&path), beneath(&root, b"data")];
        wait_for_another_time();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for entry in &entries {
            let fault = entry.remove(None).unwrap_err();
            assert_eq!((fault.code, &*fault.path), (FaultCode::SourceChanged, &b"data"[..]));
            assert!(fault.found.contains("its inode changed"), "{fault:?}");
        }
        // Whoever changed it was this session.
        let now = Ctime::of(&rustix::fs::stat(&path).unwrap());
        assert_eq!(entries[0].remove(Some(now)), Ok(None));
        assert!(!path.exists());
    }

    #[test]
    fn names_of_one_inode_go_one_by_one() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (directory.path().join("one"), directory.path().join("other"));
        fs::write(&one, "bytes").unwrap();
        fs::hard_link(&one, &other).unwrap();
        let (first, second) = (listed(&one), listed(&other));
        wait_for_another_time();
        let now = first.remove(None).unwrap();
        assert!(!one.exists() && now == Some(Ctime::of(&rustix::fs::stat(&other).unwrap())));
        assert!(second.remove(None).is_err(), "another ctime is a change of somebody");
        assert_eq!(second.remove(now), Ok(None));
        assert!(!other.exists());
    }

    #[test]
    fn a_link_goes_itself_and_a_directory_once_it_is_empty() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("d")).unwrap();
        fs::write(at("d/data"), "bytes").unwrap();
        symlink("data", at("d/link")).unwrap();
        let root = Root::open(directory.path()).unwrap();
        let (link, made) = (beneath(&root, b"d/link"), beneath(&root, b"d"));
        let named = SourceEntry { location: Location::Named(at("d/link")), ..link.clone() };
        let opened = named.open_for_removal().unwrap().unwrap();
        let inode = fstat(opened).unwrap().st_ino;
        assert_eq!(inode, link.offer.inode, "the link, not what it leads to");
        assert_eq!(link.remove(None), Ok(None));
        assert!(fs::symlink_metadata(at("d/link")).is_err() && at("d/data").exists());
        assert_eq!(made.remove(None), Ok(None));
        assert!(at("d/data").exists(), "somebody made something in it");
        fs::remove_file(at("d/data")).unwrap();
        assert_eq!(made.remove(None), Ok(None));
        assert!(!at("d").exists());
        assert_eq!(made.remove(None), Ok(None), "another run was first");
        let top = beneath(&Root::open(directory.path()).unwrap(), b"");
        assert_eq!(top.remove(None), Ok(None));
        assert!(directory.path().exists());
        let file = std::sync::Arc::new(File::open(directory.path()).unwrap());
        for location in [Location::Zero, Location::Held(file)] {
            let nameless = SourceEntry { location, ..link.clone() };
            assert_eq!(nameless.remove(None), Ok(None));
        }
    }
}
