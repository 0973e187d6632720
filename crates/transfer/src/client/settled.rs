//! Outcome of each name of a run, over all its sessions.
//!
//! A later session finds what an earlier one brought, or, where a move has removed it, does not
//! meet it any more.

use crate::{
    events::{Event, FileCounts},
    file_status::FileStatus,
    session::moved_earlier::MovedEarlier,
};
use std::{collections::HashMap, hash::BuildHasher, hash::RandomState};

/// Most names that are kept, each in 32 bytes; beyond them the counts are estimates.
const NAMES_MAX: usize = 1 << 17;

struct Settled {
    session: u32,
    bytes: u64,
    is_directory: bool,
    /// Whether this run brought the file.
    is_done: bool,
    /// Whether the last session found there what an earlier one brought.
    is_found: bool,
}

/// Names that were settled, by their hashes.
#[derive(Default)]
pub(super) struct SettledNames {
    session: u32,
    hashes: RandomState,
    names: HashMap<u64, Settled>,
    /// Whether not all names are kept, as there are too many.
    pub is_full: bool,
}

/// Counts of what the last session does not count, or counts otherwise than the run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Earlier {
    /// Names that the last session has not met: its sources do not have them any more.
    pub gone: FileCounts,
    pub gone_done_bytes: u64,
    pub gone_skipped_bytes: u64,
    /// Names that the last session skipped, as an earlier one had brought them.
    pub found: FileCounts,
    pub found_bytes: u64,
}

impl SettledNames {
    pub(super) fn begin_session(&mut self) {
        self.session += 1;
    }

    pub(super) fn heard(&mut self, event: &Event) {
        let Event::File(file) = event else { return };
        let name = self.hashes.hash_one(&file.path.0);
        let is_done = match file.status {
            FileStatus::Done => true,
            FileStatus::Skipped => false,
            FileStatus::Failed => {
                self.names.remove(&name);
                return;
            }
            _ => return,
        };
        let before = self.names.get(&name);
        if before.is_none() && self.names.len() >= NAMES_MAX {
            self.is_full = true;
            return;
        }
        let was_done = before.is_some_and(|before| before.is_done);
        let settled = Settled {
            session: self.session,
            bytes: file.bytes,
            is_directory: file.is_directory,
            is_done: is_done || was_done,
            is_found: was_done && !is_done,
        };
        self.names.insert(name, settled);
    }

    /// Names of a move that were settled so far, whose sources may be gone; `sources` are the paths
    /// of the sources, as the user named them.
    pub(super) fn moved(&self, sources: Vec<Vec<u8>>) -> MovedEarlier {
        let names = self.names.keys().copied().collect();
        MovedEarlier { hashes: self.hashes.clone(), names, sources }
    }

    /// Counts, at the end of the last session, what earlier ones settled.
    pub(super) fn earlier(&self) -> Earlier {
        let mut earlier = Earlier::default();
        for settled in self.names.values() {
            let is_gone = settled.session < self.session;
            let count = match (is_gone, settled.is_done) {
                (true, true) => {
                    earlier.gone_done_bytes += settled.bytes;
                    pick(&mut earlier.gone, settled)
                }
                (true, false) => {
                    earlier.gone_skipped_bytes += settled.bytes;
                    pick(&mut earlier.gone, settled)
                }
                (false, _) if settled.is_found => {
                    earlier.found_bytes += settled.bytes;
                    pick(&mut earlier.found, settled)
                }
                (false, _) => continue,
            };
            *count += 1;
        }
        earlier
    }
}

fn pick<'counts>(counts: &'counts mut FileCounts, settled: &Settled) -> &'counts mut u64 {
    match (settled.is_done, settled.is_directory) {
        (true, false) => &mut counts.done,
        (true, true) => &mut counts.done_directories,
        (false, false) => &mut counts.skipped,
        (false, true) => &mut counts.skipped_directories,
    }
}
