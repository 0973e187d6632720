//! Check that a file is there under the name it was given. A directory may have been moved
//! meanwhile.
//!
//! A file is entered in the directory that was opened for it, wherever that has gone since. So
//! before a file is told to be there, the path of its directory is followed once more, from the
//! root, and must lead to the same inode.

use super::{
    root::{Links, Root, split_last},
    target::{Shape, TargetFile},
};
use crate::error::io_fault;
use haul_protocol::message::{Fault, FaultCode, Side};
use rustix::{
    fs::{Mode, OFlags, fstat},
    io::Errno,
};
use std::{
    collections::{HashMap, hash_map::Entry},
    io,
    os::fd::AsFd,
    sync::Arc,
};

/// The directories that were looked at, for the files of one sync.
#[derive(Debug)]
pub struct Looked {
    root: Arc<Root>,
    /// Device and inode of each directory by its path, or why there is none.
    directories: HashMap<Vec<u8>, Result<(u64, u64), Errno>>,
}

impl Looked {
    #[must_use]
    pub fn below(root: Arc<Root>) -> Self {
        Self { root, directories: HashMap::new() }
    }

    fn inode_of(&mut self, path: &[u8]) -> Result<(u64, u64), Errno> {
        match self.directories.entry(path.to_vec()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                let opened = self.root.open_beneath(path, flags, Mode::empty(), Links::Refuse);
                let found = opened.and_then(inode);
                *new.insert(
                    found.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)),
                )
            }
        }
    }
}

/// Whether an error says that a path leads elsewhere than it did. All else says nothing of it, as a
/// lack of descriptors.
fn leads_elsewhere(why: Errno) -> bool {
    matches!(why, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV)
}

fn inode(directory: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}

impl TargetFile {
    /// Fails if the file is not where its name says, which is asked once it has its name.
    ///
    /// # Errors
    /// If the path of its directory leads somewhere else.
    pub fn check_in_place(&self, looked: &mut Looked) -> Result<(), Fault> {
        let Shape::Named(named) = &self.shape else { return Ok(()) };
        if named.discarded {
            return Ok(());
        }
        let found = match (inode(&*named.directory), looked.inode_of(split_last(&self.name).0)) {
            (Ok(entered), Ok(found)) if entered == found => return Ok(()),
            (Ok(_), Ok(_)) => "another directory in its place".to_owned(),
            (Ok(_), Err(why)) if leads_elsewhere(why) => why.to_string(),
            (Err(error), _) => return Err(self.not_looked_at(&error)),
            (Ok(_), Err(why)) => return Err(self.not_looked_at(&why.into())),
        };
        let what = "its directory was moved or replaced while it arrived";
        Err(Fault::new(FaultCode::IoFailed, Side::Target, what)
            .at(&*self.name)
            .needs("the path that it had")
            .found(found)
            .hint("run the same command again when nobody renames directories there"))
    }

    fn not_looked_at(&self, error: &io::Error) -> Fault {
        let what = "cannot be looked for under its name";
        io_fault(Side::Target, &self.name, what, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file_options::FileOptions,
        storage::{
            fresh::Fresh,
            prepare::Prepared,
            target_place::{PathMeans, TargetPlace},
        },
    };
    use haul_protocol::message::{Digest, FileKind, FileOffer};
    use std::{fs, path::Path};

    /// A file of a few bytes that has its name, `d/x`.
    fn named(directory: &Path) -> (Arc<Root>, TargetFile) {
        fs::create_dir(directory.join("d")).unwrap();
        let root = Root::open(directory).unwrap();
        let means = PathMeans::Directory;
        let place = TargetPlace::resolve(&root, b"", means, FileOptions::default()).unwrap();
        let (name, kind) = (b"d/x".to_vec(), FileKind::Regular);
        let offer = FileOffer { name, kind, size_bytes: 5, ..FileOffer::default() };
        let prepared = place.prepare(&offer, 64 << 10, Digest::AesGmac, &mut Fresh::default());
        let Prepared::Ready { mut target, .. } = prepared.unwrap() else { panic!("it is new") };
        target.write_whole(b"bytes", None).unwrap();
        target.seal().unwrap();
        target.publish().unwrap();
        (root, *target)
    }

    #[test]
    fn a_file_whose_directory_went_elsewhere_is_not_in_place() {
        let changes: [fn(&Path); 4] = [
            |_| {},
            |name| fs::create_dir(name).unwrap(),
            |name| std::os::unix::fs::symlink("moved", name).unwrap(),
            |name| fs::write(name, b"a file").unwrap(),
        ];
        let told = ["No such file", "another directory", "symbolic link", "Not a directory"];
        for (change, found) in changes.into_iter().zip(told) {
            let directory = tempfile::tempdir().unwrap();
            let (root, target) = named(directory.path());
            target.check_in_place(&mut Looked::below(root.clone())).unwrap();
            fs::rename(directory.path().join("d"), directory.path().join("moved")).unwrap();
            change(&directory.path().join("d"));
            let fault = target.check_in_place(&mut Looked::below(root)).unwrap_err();
            assert!(fault.what.contains("moved or replaced"), "{fault:?}");
            assert!(fault.found.contains(found), "{fault:?}");
            assert_eq!(fs::read(directory.path().join("moved/x")).unwrap(), b"bytes");
        }
    }

    /// Case of a lack of descriptors, which says nothing of where a path leads.
    #[test]
    fn a_directory_that_cannot_be_looked_at_was_not_moved() {
        let directory = tempfile::tempdir().unwrap();
        let (root, target) = named(directory.path());
        let mut looked = Looked::below(root);
        looked.directories.insert(b"d".to_vec(), Err(Errno::MFILE));
        let fault = target.check_in_place(&mut looked).unwrap_err();
        assert!(fault.what.contains("cannot be looked for"), "{fault:?}");
        assert_eq!(fault.path, b"d/x", "{fault:?}");
    }
}
