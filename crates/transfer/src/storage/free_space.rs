//! Free space of a target's file system, and what may be done there.

use crate::storage::{root::Links, target_place::TargetPlace};
use haul_host::FileSystem;
use haul_protocol::message::TargetFacts;
use rustix::fs::{Access, AtFlags, Mode, OFlags, accessat};

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
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let opened = loop {
        match root.open_beneath(directory, flags, Mode::empty(), Links::Refuse) {
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
