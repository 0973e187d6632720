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
/// that come later keep new ones.
const DIRECTORY_BYTES_MAX: usize = 32 << 20;

/// Directories of a session in the order in which they came, parents first.
#[derive(Default)]
pub(super) struct Directories {
    /// `None` for one that made room for a narrow one.
    offers: Vec<Option<Arc<FileOffer>>>,
    /// The places of those that may make room.
    wide: Vec<usize>,
    bytes: usize,
}

impl Directories {
    /// Keeps one if there is memory for it. A narrow one, which its own user may write into now and
    /// not behind that, would stay wider than the source: the latest of the others make room.
    fn keep(&mut self, offer: &Arc<FileOffer>) {
        let is_narrow = offer.mode & OWN_BITS != OWN_BITS;
        let bytes = bytes_of(offer);
        while is_narrow && self.bytes + bytes >= DIRECTORY_BYTES_MAX {
            let Some(wide) = self.wide.pop().and_then(|at| self.offers[at].take()) else { return };
            self.bytes -= bytes_of(&wide);
        }
        if self.bytes + bytes < DIRECTORY_BYTES_MAX {
            self.bytes += bytes;
            if !is_narrow {
                self.wide.push(self.offers.len());
            }
            self.offers.push(Some(offer.clone()));
        }
    }
}

fn bytes_of(offer: &FileOffer) -> usize {
    size_of::<FileOffer>() + offer.name.len()
}

impl Stage for Directories {
    fn settled(&mut self, settled: &mut Settled, context: &mut Context<'_>) {
        let is_made = !settled.has_failed() && !context.place.file_options().leaves_nothing();
        if settled.offer.kind == FileKind::Directory && is_made {
            self.keep(&settled.offer);
        }
    }

    /// Sets modes and times, children first: setting a child's entry changes its directory's time.
    fn finish(&mut self, context: &mut Context<'_>) -> bool {
        for offer in std::mem::take(&mut self.offers).iter().flatten().rev() {
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
        let mut kept = |directories_of: &[(usize, u32)]| {
            let mut directories = Directories::default();
            for (size, mode) in directories_of {
                let mut settled = directory(&name(*size));
                Arc::make_mut(&mut settled.offer).mode = *mode;
                directories.settled(&mut settled, &mut context);
            }
            let kept: Vec<_> = directories.offers.iter().flatten().collect();
            assert_eq!(directories.bytes, kept.iter().map(|offer| bytes_of(offer)).sum::<usize>());
            assert!(directories.bytes < DIRECTORY_BYTES_MAX);
            kept.iter().map(|offer| offer.mode).collect::<Vec<_>>()
        };
        let half = DIRECTORY_BYTES_MAX / 2;
        assert_eq!(kept(&[(half, 0o750), (half - 1, 0o750)]), [0o750; 2]);
        assert_eq!(kept(&[(half, 0o750), (half, 0o750)]), [0o750]);
        // Narrow ones would stay wider than the source, so that others make room: the latest first.
        let third = DIRECTORY_BYTES_MAX / 3;
        let wide = [(third, 0o750), (third, 0o755)];
        assert_eq!(kept(&[&wide[..], &[(third, 0o550)]].concat()), [0o750, 0o755, 0o550]);
        assert_eq!(kept(&[&wide[..], &[(half, 0o550)]].concat()), [0o750, 0o550]);
        assert_eq!(
            kept(&[&wide[..], &[(half, 0o550), (half - 1, 0o500)]].concat()),
            [0o550, 0o500]
        );
        assert_eq!(kept(&[(half, 0o550), (half, 0o500), (8 << 10, 0o555)]), [0o550, 0o555]);
    }
}
