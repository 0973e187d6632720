//! Commits of small files in hidden directories, and the names of these directories.
//!
//! Such a file is under its own name once it is written, and the directory is not: one sync of the
//! file system makes thousands durable, and the list of their directory tells so.

use super::{Entry, Shared};
use crate::{
    error::io_fault,
    locks::lock,
    storage::{
        staged::{PathHash, StagedDirectory},
        target::TargetFile,
    },
};
use haul_protocol::{
    FileId,
    message::{FileKind, Side},
};
use std::{
    collections::{BTreeSet, VecDeque},
    io,
    sync::{Arc, atomic::Ordering},
};

/// Count of small files that share a sync where as many may be offered: on ext4 and xfs 20,000
/// files took longer with 1024 or 4096, and the more of them wait, the fewer fill a long path.
const STAGED_FILES: usize = 2048;
/// Part of the files that may be offered and not settled which share a sync, where these are few:
/// the others come meanwhile.
const STAGED_DIVISOR: u32 = 2;

/// Count of small files of hidden directories that share a sync, where `offers_max` files may be
/// offered and not settled.
#[must_use]
pub fn staged_max(offers_max: u32) -> usize {
    ((offers_max / STAGED_DIVISOR) as usize).clamp(1, STAGED_FILES)
}

/// Entries of one hidden directory.
struct OfDirectory {
    directory: Arc<StagedDirectory>,
    entries: usize,
    /// Names of the files among them: a directory is nothing that a list tells of.
    names: Vec<PathHash>,
}

impl OfDirectory {
    /// Whether the list that tells of these entries is synced. Not where the directory gets its
    /// name next: then nothing else of it is to come, or to be made durable.
    fn syncs_list(&self, has_all: bool) -> bool {
        let directory = &self.directory;
        !has_all || directory.stays_hidden() || directory.undurable() != self.entries
    }
}

impl Shared {
    /// Makes small files of hidden directories durable. `has_all`: no other file is to come, so
    /// that directories of which nothing else is missing get their names next.
    pub(super) fn commit_staged(&self, files: &VecDeque<FileId>, has_all: bool) {
        let begun = self.sync_begins();
        let mut batch: Vec<Entry> = files.iter().filter_map(|file| self.take(*file)).collect();
        self.each(&mut batch, TargetFile::seal);
        let directories = of_directories(&batch);
        if !sync_all(&directories) {
            // A write failed: each file tells of its own, and each directory of the names in it.
            self.each(&mut batch, TargetFile::sync);
            self.each(&mut batch, |target| target.sync_directory());
        }
        let directories = of_directories(&batch);
        let told = directories.iter().map(|of| {
            (of.directory.clone(), of.directory.tell_durable(&of.names, of.syncs_list(has_all)))
        });
        self.fail_untold(&mut batch, told.collect());
        self.sync_ended(begun);
        self.done(batch);
    }

    /// Tells the lists of hidden directories of files that got their names there by a rename or a
    /// link.
    pub(super) fn tell_lists(&self, named: &mut Vec<Entry>) {
        let told = of_directories(named).into_iter();
        let told =
            told.map(|of| (of.directory.clone(), of.directory.tell_durable(&of.names, true)));
        self.fail_untold(named, told.collect());
    }

    /// Fails the files whose list could not be written.
    fn fail_untold(
        &self,
        batch: &mut Vec<Entry>,
        told: Vec<(Arc<StagedDirectory>, io::Result<()>)>,
    ) {
        for (directory, result) in told {
            let Err(error) = result else { continue };
            let hidden = String::from_utf8_lossy(directory.hidden_name()).into_owned();
            let what = format!("the list of what is durable in {hidden} cannot be written");
            self.each(batch, |target| {
                let is_its =
                    target.hidden_directory().is_some_and(|it| Arc::ptr_eq(it, &directory));
                if is_its {
                    Err(io_fault(Side::Target, &target.name, &what, &error))
                } else {
                    Ok(())
                }
            });
        }
    }

    /// Gives hidden directories their names: those in which something has to be seen, and in the
    /// end `all`.
    pub(super) fn show_hidden(&self, all: bool) {
        let Some(root) = &self.root else { return };
        let hidden = root.hidden_directories();
        for directory in hidden.iter().filter(|it| it.is_due() || all && !it.stays_hidden()) {
            let begun = self.sync_begins();
            let shown = if all {
                directory.show(root).map(|()| true)
            } else {
                directory.show_before_end(root)
            };
            let forgotten = if let Ok(true) = shown { directory.forget() } else { Ok(()) };
            self.sync_ended(begun);
            let fault = |what: &str, error| io_fault(Side::Target, directory.name(), what, error);
            // Before the end it is tried again.
            if let Err(error) = &shown
                && all
            {
                let hidden = String::from_utf8_lossy(directory.hidden_name());
                let what = format!("all of it came as {hidden}, which cannot get its name");
                lock(&self.show_faults).push(fault(&what, error));
            }
            if let Err(error) = &forgotten {
                lock(&self.show_faults).push(fault("its directory cannot be synced", error));
            }
        }
        if all {
            self.has_shown.store(true, Ordering::Release);
        }
    }
}

/// The hidden directories of files, each with its files.
fn of_directories(entries: &[Entry]) -> Vec<OfDirectory> {
    let mut all: Vec<OfDirectory> = Vec::new();
    for entry in entries {
        let target = lock(&entry.target);
        let Some(target) = target.as_ref() else { continue };
        let Some(directory) = target.hidden_directory() else { continue };
        // Files of one directory mostly come one after the other.
        let at = all.iter().rposition(|of| Arc::ptr_eq(&of.directory, directory));
        let at = at.unwrap_or_else(|| {
            let directory = directory.clone();
            all.push(OfDirectory { directory, entries: 0, names: Vec::new() });
            all.len() - 1
        });
        all[at].entries += 1;
        if target.offer.kind != FileKind::Directory {
            all[at].names.push(directory.hash_of(&target.name));
        }
    }
    all
}

/// Syncs the file systems of these directories, and says whether each file there is durable.
fn sync_all(directories: &[OfDirectory]) -> bool {
    let mut synced = BTreeSet::new();
    directories
        .iter()
        .all(|of| !synced.insert(of.directory.device()) || of.directory.sync_file_system())
}

#[cfg(test)]
mod tests;
