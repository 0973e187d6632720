//! Removal of the sources of a move, once they are durable at the target.

use super::{
    context::Context,
    stage::{Settled, Stage},
};
use crate::storage::source::{Ctime, SourceEntry};
use haul_protocol::message::{Fault, FileKind};
use std::collections::HashMap;

/// Limit of the directories removed at the end of a move, in bytes of their names: of more, the
/// first.
const DIRECTORY_BYTES_MAX: usize = 8 << 20;

/// Limit of the names that wait for the others of their inode, in bytes: beyond that each goes by
/// itself.
const GATHERED_BYTES_MAX: usize = 8 << 20;

/// Memory of what was moved, as far as it matters for what comes.
#[derive(Debug, Default)]
pub(super) struct Moving {
    /// Directories that wait until they are empty.
    directories: Vec<SourceEntry>,
    directory_bytes: usize,
    /// Ctimes of inodes with several names, by device and inode, after one of them was removed.
    inodes: HashMap<(u64, u64), Ctime>,
    /// Names that are at the target, by device and inode, until all of their inode are: they go one
    /// right after the other. Had one gone before a kill, the next run would meet the rest as
    /// another file.
    gathered: HashMap<(u64, u64), Vec<SourceEntry>>,
    gathered_bytes: usize,
}

impl Moving {
    /// Removes the sources that waited, once all is settled.
    pub fn remove_rest(&mut self, context: &mut Context<'_>) {
        if context.file_options.dry_run {
            return;
        }
        for entry in self.take_gathered() {
            self.remove_and_tell(&entry, context);
        }
        for entry in self.take_directories() {
            if let Err(fault) = entry.remove(None) {
                context.not_offered(fault);
            }
        }
    }

    fn remove_and_tell(&mut self, entry: &SourceEntry, context: &mut Context<'_>) {
        match self.remove(entry) {
            Ok(()) => context.tally.sources_removed += 1,
            Err(fault) => context.not_offered(fault),
        }
    }

    /// Keeps a directory to be removed at the end, when all that was in it has gone.
    fn wait_until_empty(&mut self, directory: SourceEntry) {
        self.directory_bytes += directory.offer.name.len();
        if self.directory_bytes < DIRECTORY_BYTES_MAX {
            self.directories.push(directory);
        }
    }

    /// Takes the directories that wait, the deepest first.
    fn take_directories(&mut self) -> impl Iterator<Item = SourceEntry> + use<> {
        std::mem::take(&mut self.directories).into_iter().rev()
    }

    /// Takes the names that can be removed now that this one is at the target.
    fn gather(&mut self, entry: SourceEntry) -> Vec<SourceEntry> {
        let bytes_of = |entry: &SourceEntry| size_of::<SourceEntry>() + entry.offer.name.len();
        let (links, bytes) = (entry.links, bytes_of(&entry));
        if links < 2 || self.gathered_bytes + bytes > GATHERED_BYTES_MAX {
            return vec![entry];
        }
        let inode = (entry.offer.device, entry.offer.inode);
        let names = self.gathered.entry(inode).or_default();
        names.push(entry);
        self.gathered_bytes += bytes;
        if (names.len() as u64) < links {
            return Vec::new();
        }
        let names = self.gathered.remove(&inode).unwrap_or_default();
        self.gathered_bytes -= names.iter().map(bytes_of).sum::<usize>();
        names
    }

    /// Takes the names that still wait at the end: others of their inodes are no sources, or
    /// failed.
    fn take_gathered(&mut self) -> Vec<SourceEntry> {
        self.gathered_bytes = 0;
        std::mem::take(&mut self.gathered).into_values().flatten().collect()
    }

    fn remove(&mut self, entry: &SourceEntry) -> Result<(), Fault> {
        let inode = (entry.offer.device, entry.offer.inode);
        let after = entry.remove(self.inodes.get(&inode).copied())?;
        match after {
            Some(after) => self.inodes.insert(inode, after),
            None => self.inodes.remove(&inode),
        };
        Ok(())
    }
}

impl Stage for Moving {
    fn settled(&mut self, settled: &mut Settled, context: &mut Context<'_>) {
        if !settled.end().is_some_and(|end| end.frees_source) {
            return;
        }
        let mut entry = settled.entry.clone();
        entry.offer.xattrs.clear();
        if entry.offer.kind == FileKind::Directory {
            return self.wait_until_empty(entry);
        }
        if context.file_options.dry_run {
            context.tally.sources_removed += 1;
            return;
        }
        for entry in self.gather(entry) {
            self.remove_and_tell(&entry, context);
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
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    /// Lists the entries of a tree in which `a` and `b` are one file, but for its directory.
    fn listed(directory: &Path) -> Vec<SourceEntry> {
        fs::write(directory.join("a"), "what was offered").unwrap();
        fs::hard_link(directory.join("a"), directory.join("b")).unwrap();
        std::os::unix::fs::symlink("a", directory.join("link")).unwrap();
        let entry = |listed| match listed {
            Listed::Entry(entry) => *entry,
            other => panic!("{other:?}"),
        };
        let sources = [SourceSpec::Path(directory.to_path_buf().into())];
        let options = WalkOptions::default;
        let mut entries: Vec<_> = walk_named(&sources, options()).map(entry).collect();
        entries.retain(|entry| entry.offer.kind != FileKind::Directory);
        entries.sort_by(|one, two| one.offer.name.cmp(&two.offer.name));
        entries
    }

    /// Rewrites a file like a program that hides what it wrote: its time stays.
    fn rewrite(path: &Path) {
        let before = rustix::fs::stat(path).unwrap();
        fs::write(path, "PRECIOUS BYTES!!").unwrap();
        let (tv_sec, tv_nsec) = (before.st_mtime, before.st_mtime_nsec.cast_signed());
        let time = Timespec { tv_sec, tv_nsec };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
    }

    fn removed(moved: &mut Moving, entry: &SourceEntry) -> bool {
        moved.remove(entry).is_ok()
    }

    #[test]
    fn each_name_of_a_file_goes_while_nobody_else_changes_it() {
        let directory = tempfile::tempdir().unwrap();
        let entries = listed(directory.path());
        let mut moved = Moving::default();
        assert!(entries.iter().all(|entry| removed(&mut moved, entry)));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn names_of_one_file_wait_for_each_other_and_the_rest_for_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let entries = listed(directory.path());
        let mut moved = Moving::default();
        let count = |entries: Vec<SourceEntry>| entries.len();
        assert_eq!(count(moved.gather(entries[2].clone())), 1, "a symbolic link waits for nobody");
        assert_eq!(count(moved.gather(entries[0].clone())), 0);
        assert_eq!(count(moved.gather(entries[1].clone())), 2);
        assert_eq!((moved.gathered_bytes, count(moved.take_gathered())), (0, 0));
        moved.gather(entries[0].clone());
        assert_eq!(count(moved.take_gathered()), 1);
    }

    #[test]
    fn what_was_rewritten_before_a_name_of_it_went_keeps_that_name_and_all_others() {
        for changed_after in [0, 1] {
            let directory = tempfile::tempdir().unwrap();
            let entries = listed(directory.path());
            let path: PathBuf = directory.path().join("b");
            let mut moved = Moving::default();
            for (number, entry) in entries[..2].iter().enumerate() {
                if number == changed_after {
                    rewrite(&path);
                }
                assert_eq!(removed(&mut moved, entry), number < changed_after, "{entry:?}");
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), "PRECIOUS BYTES!!");
        }
    }

    #[test]
    fn what_took_the_place_of_a_link_stays() {
        let directory = tempfile::tempdir().unwrap();
        let entries = listed(directory.path());
        let path = directory.path().join("link");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(!removed(&mut Moving::default(), &entries[2]));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    /// A name of an inode with several, of which no file is.
    fn name_of(name_bytes: usize, inode: u64, links: u64) -> SourceEntry {
        use crate::storage::source::Location;
        use haul_protocol::message::FileOffer;
        let (name, kind) = (vec![b'n'; name_bytes], FileKind::Regular);
        let offer = FileOffer { name, inode, kind, ..FileOffer::default() };
        SourceEntry { offer, location: Location::Zero, links, size_bytes: 0, is_moved: true }
    }

    /// Bytes of a name that is gathered with so many bytes.
    fn gathered_bytes(bytes: usize) -> usize {
        bytes - size_of::<SourceEntry>()
    }

    #[test]
    fn names_beyond_the_memory_of_those_that_wait_go_by_themselves() {
        let mut moved = Moving::default();
        let (half, rest) = (GATHERED_BYTES_MAX / 2, GATHERED_BYTES_MAX / 4);
        let mut gather = |bytes: usize, inode, links| {
            moved.gather(name_of(gathered_bytes(bytes), inode, links)).len()
        };
        assert_eq!(gather(half, 1, 2), 0);
        assert_eq!(gather(half + 1, 2, 2), 1, "one byte too many");
        assert_eq!(gather(half, 3, 2), 0, "it fits exactly");
        assert_eq!(gather(1000, 1, 2), 1, "its own inode has no room either");
        assert_eq!(moved.take_gathered().len(), 2);
        let mut gather = |bytes: usize, inode, links| {
            moved.gather(name_of(gathered_bytes(bytes), inode, links)).len()
        };
        assert_eq!([gather(rest, 4, 2), gather(rest, 5, 1), gather(rest, 4, 2)], [0, 1, 2]);
        assert_eq!([gather(half, 6, 3), gather(half, 6, 3)], [0, 0], "all of the room is back");
    }

    #[test]
    fn directories_beyond_their_memory_stay() {
        for (second, kept) in [(DIRECTORY_BYTES_MAX / 2 - 1, 2), (DIRECTORY_BYTES_MAX / 2, 1)] {
            let mut moved = Moving::default();
            moved.wait_until_empty(name_of(DIRECTORY_BYTES_MAX / 2, 1, 1));
            moved.wait_until_empty(name_of(second, 2, 1));
            moved.wait_until_empty(name_of(100, 3, 1));
            let inodes: Vec<_> = moved.take_directories().map(|it| it.offer.inode).collect();
            assert_eq!(inodes, [2, 1][2 - kept..], "the deepest first");
        }
    }

    /// Settles every entry of a tree, and says which are left and what was told.
    fn settle_tree(
        dry_run: bool,
        frees_source: bool,
    ) -> (Vec<String>, crate::session::tally::Tally) {
        use crate::{file_options::FileOptions, session::sending::without_peer};
        use haul_protocol::{
            FileId,
            file_life::{EndResult, FileEnd, NextStep},
        };
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("leaf")).unwrap();
        fs::create_dir(tree.join("left")).unwrap();
        listed(&tree.join("leaf"));
        let mut hear = |_| {};
        let file_options = FileOptions { dry_run, ..FileOptions::default() };
        let mut context = without_peer::begin(file_options, &mut hear).context;
        let mut moved = Moving::default();
        let entries = without_peer::entries(&tree);
        // Made by somebody else meanwhile.
        fs::write(tree.join("left/file"), "new").unwrap();
        for entry in entries {
            let end = FileEnd { result: EndResult::Done, frees_source };
            let (content, stored_as, is_told) = (None, None, true);
            let (file, step, now) = (FileId(0), NextStep::Ends(end), std::time::Instant::now());
            let mut settled = Settled { file, entry, step, content, stored_as, is_told, now };
            moved.settled(&mut settled, &mut context);
        }
        moved.remove_rest(&mut context);
        let tally = std::mem::take(&mut context.tally);
        drop(context);
        let names = haul_testkit::tree::names(&tree).unwrap();
        (names.iter().map(|name| name.display().to_string()).collect(), tally)
    }

    #[test]
    fn a_move_removes_what_is_free_and_no_directory_in_which_something_is_left() {
        let (left, tally) = settle_tree(false, true);
        assert_eq!(left, ["left", "left/file"]);
        assert_eq!((tally.sources_removed, tally.failed_files), (3, 0));
        let (left, tally) = settle_tree(false, false);
        assert_eq!((left.len(), tally.sources_removed), (6, 0), "nothing is free");
        let (left, tally) = settle_tree(true, true);
        assert_eq!((left.len(), tally.sources_removed), (6, 3), "a dry run");
    }
}
