//! Free space of a target's file system, and what may be done there.

use crate::storage::{root::Links, target_place::TargetPlace};
use haul_host::FileSystem;
use haul_protocol::message::TargetFacts;
use rustix::fs::{Access, AtFlags, accessat};

/// Value of `TargetFacts.free_bytes` for a file system that does not say (SPEC: 2^64 - 1).
pub(crate) const NOT_KNOWN: u64 = u64::MAX;

/// Bytes that are free where `place` receives; `None` where that is not known.
#[must_use]
pub fn free_bytes_of(place: &TargetPlace) -> Option<u64> {
    free_bytes(&target_facts(place)?)
}

pub(crate) fn target_facts(place: &TargetPlace) -> Option<TargetFacts> {
    let TargetPlace::Below { root, base, .. } = place else { return None };
    // The target may not be there yet: then it is made in the last directory that is.
    let mut directory = &base[..];
    let opened = loop {
        match root.open_directory(directory, Links::Refuse) {
            Ok(opened) => break opened,
            Err(_) if directory.is_empty() => return None,
            Err(_) => directory = crate::storage::root::split_last(directory).0,
        }
    };
    let system = FileSystem::of(&opened).ok()?;
    Some(TargetFacts {
        file_system: system.kind.name().into(),
        free_bytes: system.free_bytes.unwrap_or(NOT_KNOWN),
        free_inodes: system.free_inodes,
        read_only: system.read_only,
        may_write: accessat(&opened, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
            .is_ok(),
    })
}

/// Free bytes that a target tells; `None` where its file system counts nothing.
#[must_use]
pub fn free_bytes(target: &TargetFacts) -> Option<u64> {
    (target.free_bytes != NOT_KNOWN).then_some(target.free_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file_options::FileOptions,
        storage::{root::Root, target_place::PathMeans},
    };
    use haul_testkit::{mount::Mount, skip::skip};

    #[test]
    fn free_space_is_that_of_the_nearest_directory_that_is_there() {
        let directory = tempfile::tempdir().unwrap();
        // File systems of the test's own: nobody else writes to them between two looks.
        let _outer = match Mount::tmpfs(directory.path(), "16m") {
            Ok(mount) => mount,
            Err(why) => return skip("root, to mount a tmpfs", &why),
        };
        let mounted = directory.path().join("small");
        std::fs::create_dir(&mounted).unwrap();
        let mount = Mount::tmpfs(&mounted, "8m").unwrap();
        let root = Root::open(directory.path()).unwrap();
        let options = FileOptions { dry_run: true, ..FileOptions::default() };
        let facts = |path: &[u8]| {
            let place = TargetPlace::resolve(&root, path, PathMeans::Directory, options).unwrap();
            let facts = target_facts(&place).unwrap();
            assert_eq!(free_bytes_of(&place), free_bytes(&facts));
            facts
        };
        let small = facts(b"small/not/there");
        assert_eq!((&*small.file_system, small.free_bytes), ("tmpfs", 8 << 20));
        assert!(small.may_write && !small.read_only);
        assert_eq!(facts(b"other").free_bytes, 16 << 20, "of the one below");
        mount.make_read_only().unwrap();
        let small = facts(b"small");
        assert!(!small.may_write && small.read_only);
        assert!(target_facts(&TargetPlace::Null).is_none());
        let path = directory.path();
        let closed = Root::open_without(path, &[path.to_owned()]).unwrap();
        let place = TargetPlace::resolve(&closed, b"x", PathMeans::Directory, options).unwrap();
        assert!(target_facts(&place).is_none(), "nothing of it may be opened");
        assert_eq!(free_bytes_of(&TargetPlace::Null), None);
        let unknown = TargetFacts { free_bytes: NOT_KNOWN, ..small };
        assert_eq!(free_bytes(&unknown), None);
        let full = TargetFacts { free_bytes: 0, ..unknown };
        assert_eq!(free_bytes(&full), Some(0));
    }
}
