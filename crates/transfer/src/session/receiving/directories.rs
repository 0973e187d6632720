//! Modes and times of a session's directories, which are set at the end.
//!
//! Nothing is made in the directories any more by then.

use super::{
    context::Context,
    stage::{Settled, Stage},
};
use crate::storage::prepare::OWN_BITS;
use haul_protocol::message::{FileKind, FileOffer};
use std::sync::Arc;

/// The most memory of directories whose mode and time are set at the end, in bytes: of more, those
/// that come later keep new ones. For those that would stay wider than the source it is twice that.
const DIRECTORY_BYTES_MAX: usize = 32 << 20;

#[derive(Default)]
pub(super) struct Directories {
    offers: Vec<Arc<FileOffer>>,
    bytes: usize,
}

impl Stage for Directories {
    fn settled(&mut self, settled: &mut Settled, context: &mut Context<'_>) {
        let is_made = !settled.has_failed() && !context.place.file_options().leaves_nothing();
        if settled.offer.kind == FileKind::Directory && is_made {
            self.bytes += size_of::<FileOffer>() + settled.offer.name.len();
            // One that its user may write into meanwhile, and not behind that, comes first.
            let is_narrow = settled.offer.mode & OWN_BITS != OWN_BITS;
            let most = if is_narrow { 2 * DIRECTORY_BYTES_MAX } else { DIRECTORY_BYTES_MAX };
            if self.bytes < most {
                self.offers.push(settled.offer.clone());
            }
        }
    }

    /// Sets modes and times, children first: setting a child's entry changes its directory's time.
    fn finish(&mut self, context: &mut Context<'_>) -> bool {
        for offer in std::mem::take(&mut self.offers).iter().rev() {
            if let Err(fault) = context.place.finish_directory(offer) {
                context.failed_late(fault);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file_options::FileOptions, file_status::FileStatus, session::receiving::without_peer,
    };
    use haul_protocol::FileId;
    use std::{
        fs,
        os::unix::fs::{MetadataExt, PermissionsExt},
        path::Path,
    };

    fn directory(name: &[u8]) -> Settled {
        Settled {
            file: FileId(0),
            offer: Arc::new(FileOffer {
                name: name.to_vec(),
                kind: FileKind::Directory,
                mode: 0o750,
                mtime_s: 1_000_000_000,
                ..FileOffer::default()
            }),
            stored_as: None,
            status: FileStatus::Done,
            fault: None,
            content: None,
        }
    }

    fn place(at: &Path, dry_run: bool) -> crate::storage::target_place::TargetPlace {
        let file_options = FileOptions { dry_run, ..FileOptions::default() };
        without_peer::place(at, file_options)
    }

    #[test]
    fn directories_that_are_there_get_mode_and_time_at_the_end() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("tree/leaf")).unwrap();
        let mut faults = 0;
        let mut hear = |_| faults += 1;
        let mut context = without_peer::begin(place(root.path(), false), &mut hear).context;
        let mut directories = Directories::default();
        for name in ["tree", "tree/leaf", "gone"] {
            directories.settled(&mut directory(name.as_bytes()), &mut context);
        }
        let mut failed = Settled { status: FileStatus::Failed, ..directory(b"failed") };
        directories.settled(&mut failed, &mut context);
        let mut file = directory(b"file");
        Arc::make_mut(&mut file.offer).kind = FileKind::Regular;
        directories.settled(&mut file, &mut context);
        assert!(directories.finish(&mut context));
        for name in ["tree", "tree/leaf"] {
            let is = fs::metadata(root.path().join(name)).unwrap();
            assert_eq!((is.permissions().mode() & 0o7777, is.mtime()), (0o750, 1_000_000_000));
        }
        assert_eq!(context.tally.failed_files, 1, "the one that is gone");
        drop(context);
        assert_eq!(faults, 1);
    }

    #[test]
    fn a_dry_run_has_no_directories_to_finish() {
        let root = tempfile::tempdir().unwrap();
        let mut hear = |_| {};
        let mut context = without_peer::begin(place(root.path(), true), &mut hear).context;
        let mut directories = Directories::default();
        directories.settled(&mut directory(b"tree"), &mut context);
        assert!(directories.offers.is_empty());
    }

    #[test]
    fn directories_beyond_their_memory_keep_new_modes_and_times() {
        let root = tempfile::tempdir().unwrap();
        let mut hear = |_| {};
        let mut context = without_peer::begin(place(root.path(), false), &mut hear).context;
        let name = |rest_bytes: usize| vec![b'd'; rest_bytes - size_of::<FileOffer>()];
        let mut kept = |sizes: &[usize], mode: u32| {
            let mut directories = Directories::default();
            for size in sizes {
                let mut settled = directory(&name(*size));
                Arc::make_mut(&mut settled.offer).mode = mode;
                directories.settled(&mut settled, &mut context);
            }
            directories.offers.len()
        };
        let half = DIRECTORY_BYTES_MAX / 2;
        assert_eq!(kept(&[half, half - 1], 0o750), 2);
        assert_eq!(kept(&[half, half, 1 << 20], 0o750), 1);
        assert_eq!(kept(&[half, half, 1 << 20], 0o550), 3, "they would stay wider than the source");
        assert_eq!(kept(&[half, half, half, half], 0o550), 3);
    }
}
