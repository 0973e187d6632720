//! Comparison of contents with files of the same size at the receiver.
//!
//! The source's content is hashed beside the session's thread, and another offer says whether the
//! two are the same.

use super::{
    context::Context,
    stage::{Settled, Stage},
};
use crate::{
    error::io_fault,
    session::hashing::{Content, Hashing},
    storage::source::{Ctime, SourceEntry},
};
use haul_protocol::{
    FileId,
    file_life::NextStep,
    message::{Compared, Side},
};
use std::{collections::BTreeMap, io, time::Instant};

/// The most files that are compared, beside those whose offers are open: no more are met before.
const FILES_MAX: usize = 1024;

pub(super) struct Comparing {
    /// Sources being compared, each with the content of the receiver's file.
    files: BTreeMap<FileId, (SourceEntry, Content)>,
    hashing: Hashing,
}

impl Comparing {
    /// Starts with no file; `wake` is called when one has been read.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { files: BTreeMap::new(), hashing: Hashing::new(wake) }
    }
}

impl Stage for Comparing {
    fn settled(&mut self, settled: &mut Settled, context: &mut Context<'_>) {
        let NextStep::Compare(compare) = &settled.step else { return };
        let theirs = compare.blake3;
        let Settled { file, entry, .. } = settled;
        let source = entry.clone();
        let begun = self.hashing.begin_hash(*file, entry.offer.size_bytes, move || {
            source.open().map_err(|fault| io::Error::other(fault.what))
        });
        match begun {
            Ok(()) => drop(self.files.insert(*file, (entry.clone(), theirs))),
            Err(error) => not_compared(*file, entry.clone(), &error, context),
        }
    }

    fn tick(&mut self, _now: Instant, context: &mut Context<'_>) {
        for (file, hashed) in self.hashing.take_results() {
            let Some((mut entry, theirs)) = self.files.remove(&file) else { continue };
            match hashed.and_then(|mine| still_the_same(&entry).map(|()| mine)) {
                Ok(mine) => {
                    let is_same = mine == theirs;
                    let compared =
                        if is_same { Compared::SameContent } else { Compared::OtherContent };
                    entry.offer.compared = compared;
                    context.offer(entry, Some(file));
                }
                Err(error) => not_compared(file, entry, &error, context),
            }
        }
    }

    fn keeps_some(&self) -> bool {
        !self.files.is_empty()
    }

    fn is_full(&self) -> bool {
        self.files.len() >= FILES_MAX
    }

    fn stop(&mut self) {
        self.hashing.stop();
    }
}

/// Checks that a source that was read is still what was offered.
fn still_the_same(entry: &SourceEntry) -> io::Result<()> {
    let now = entry.check().map_err(|fault| io::Error::other(fault.what))?;
    if now.differs(Ctime::of_offer(&entry.offer)) {
        return Err(io::Error::other("its inode changed while it was read"));
    }
    Ok(())
}

fn not_compared(file: FileId, entry: SourceEntry, error: &io::Error, context: &mut Context<'_>) {
    // What changed says more than how reading it failed.
    let fault = entry
        .check()
        .err()
        .unwrap_or_else(|| io_fault(Side::Source, &entry.offer.name, "cannot be compared", error));
    context.failed_here.push_back((file, entry, fault));
}
