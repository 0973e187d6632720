//! Sources that say that they are empty, and are not.
//!
//! They are files that the kernel makes up while they are read, as those below /proc.
//!
//! The size that is offered is what is sent, and a receiver holds the file to it. So such a file
//! would arrive empty, and be told as complete.

use super::source::SourceEntry;
use haul_host::FileSystem;
use haul_protocol::message::{Fault, FaultCode, Side};
use rustix::fs::{Stat, major};
use std::cell::Cell;

/// Whether devices tell sizes. The last one that was asked is kept: most empty files are on one.
#[derive(Debug, Default)]
pub struct ToldSizes {
    last: Cell<Option<(u64, bool)>>,
}

impl ToldSizes {
    /// Refuses a file that is said to be empty on a file system that does not tell sizes.
    ///
    /// # Errors
    /// The fault to tell.
    pub fn check(&self, stat: &Stat, entry: &SourceEntry) -> Result<(), Fault> {
        // Those have no disk, and a disk has a number above 0.
        if stat.st_size != 0 || major(stat.st_dev) != 0 || self.tells(stat.st_dev, entry) {
            return Ok(());
        }
        Err(Fault::new(FaultCode::IoFailed, Side::Source, "cannot be sent")
            .at(&*entry.offer.name)
            .needs("a file whose size is known before it is read")
            .found("0 bytes, on a file system that makes files up while they are read")
            .hint("write what it holds to a file, as `cat FILE >COPY` does, and send that"))
    }

    fn tells(&self, device: u64, entry: &SourceEntry) -> bool {
        if let Some((_, tells)) = self.last.get().filter(|(known, _)| *known == device) {
            return tells;
        }
        // Whoever reads it will say so, where it cannot be opened.
        let kind = entry.open_as_is().and_then(FileSystem::of).map(|system| system.kind);
        let Ok(kind) = kind else { return true };
        self.last.set(Some((device, kind.tells_sizes())));
        kind.tells_sizes()
    }
}

#[cfg(test)]
mod tests {
    use crate::storage::walk::{Listed, Top, Walk, WalkOptions};
    use crate::storage::{root::Root, tree::Tree};
    use std::path::Path;

    /// Names of entries, and of what is refused with the reason in brackets.
    fn walked(root: &Path) -> Vec<String> {
        let root = Root::open(root).unwrap();
        let tree = Tree { root, path: Vec::new(), name: Vec::new() };
        let listed = Walk::new([Top::Tree(tree)], WalkOptions::default());
        let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        listed
            .map(|listed| match listed {
                Listed::Entry(entry) => name(&entry.offer.name),
                Listed::LeftOut(fault) | Listed::Failed(fault) => {
                    format!("{} ({})", name(&fault.path), fault.found)
                }
            })
            .collect()
    }

    /// Case of /proc/cpuinfo, which arrived empty and was told as complete.
    #[test]
    fn a_file_that_the_kernel_makes_up_is_no_empty_file() {
        let found = walked(Path::new("/proc/sys/kernel/random"));
        let refused = "boot_id (0 bytes, on a file system that makes files up while they are read)";
        assert!(found.iter().any(|one| one == refused), "{found:?}");
        assert!(found.iter().all(|one| one.ends_with(')')), "{found:?}");
    }

    #[test]
    fn an_empty_file_in_memory_or_on_a_disk_is_one() {
        for place in [Path::new("/dev/shm"), &std::env::temp_dir()] {
            let directory = tempfile::tempdir_in(place).unwrap();
            std::fs::write(directory.path().join("empty"), "").unwrap();
            assert_eq!(walked(directory.path()), ["empty"]);
        }
    }
}
