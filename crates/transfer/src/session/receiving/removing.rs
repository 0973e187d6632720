//! Removal of what was not offered from the target.
//!
//! It runs on a thread of its own, once all else is in place.

use super::{context::Context, stage::Stage};
use crate::{
    error::io_fault,
    events::{Event, FileEnded},
    file_options::Removal,
    locks::{Lock, lock},
    selection::Matcher,
    session::streams::Streams,
    storage::{
        mirror::{Mirror, Swept},
        name_at_target::final_name,
        name_sorter::NameSorter,
        root::Root,
        target_place::TargetPlace,
    },
};
use haul_protocol::{
    limits::REMOVED_MAX,
    message::{Fault, FaultCode, FileOffer, Side},
};
use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

/// The most bytes of names in a batch: one message holds them.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// The most directories in the way of files that are removed in one run.
const GIVING_WAY_MAX: usize = 10_000;
/// The most names that are told of those that cannot be removed.
const FAILURES_MAX: usize = 100;

#[derive(Debug)]
enum RemovingEvent {
    Removed(Vec<Vec<u8>>),
    Failed(Fault),
}

#[derive(Debug, Default)]
struct Shared {
    events: Lock<Vec<RemovingEvent>>,
    is_over: AtomicBool,
    ending: AtomicBool,
}

/// The stage that gathers the names that were offered, and then removes others.
pub(super) struct Removing {
    root: Arc<Root>,
    base: Vec<u8>,
    rename: Option<Vec<u8>>,
    /// The source's name of the component that is renamed.
    renamed_from: Option<Vec<u8>>,
    removal: Removal,
    dry_run: bool,
    names: Option<NameSorter>,
    /// Offered files in whose way a directory is, which goes too.
    giving_way: BTreeSet<Vec<u8>>,
    /// The error because of which the names are not complete.
    failed: Option<io::Error>,
    streams: Arc<Streams>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Removing {
    /// Starts to gather names; `None` when nothing is to be removed.
    pub fn new(place: &TargetPlace, streams: Arc<Streams>) -> Option<Self> {
        let TargetPlace::Below { root, base, rename, rules, .. } = place else { return None };
        Some(Self {
            root: root.clone(),
            base: base.clone(),
            rename: rename.clone(),
            renamed_from: None,
            removal: rules.file_options.removal?,
            dry_run: rules.file_options.dry_run,
            names: Some(NameSorter::default()),
            giving_way: BTreeSet::new(),
            failed: None,
            streams,
            shared: Arc::default(),
            thread: None,
        })
    }

    /// Keeps a name of which the source has a file: what has it here stays.
    pub fn keep(&mut self, name: &[u8]) {
        let Some(names) = &mut self.names else { return };
        if self.rename.is_some() && self.renamed_from.is_none() {
            self.renamed_from = name.split(|&byte| byte == b'/').next().map(<[u8]>::to_vec);
        }
        let relative = final_name(b"", self.rename.as_deref(), name);
        if let Err(error) = names.push(&relative, &self.root) {
            self.failed.get_or_insert(error);
        }
    }

    /// Notes a file that failed as a directory is in its way, which goes with what was not offered.
    pub fn gives_way(&mut self, name: &[u8]) {
        if self.giving_way.len() < GIVING_WAY_MAX {
            self.giving_way.insert(final_name(b"", self.rename.as_deref(), name));
        }
    }

    fn begin(
        &mut self,
        names: NameSorter,
        failed_files: u64,
        matcher: Option<Matcher>,
    ) -> Result<(), Fault> {
        let failed_files = failed_files.saturating_sub(self.giving_way.len() as u64);
        if failed_files > 0 {
            let what = "nothing was removed, as not everything else succeeded";
            return Err(Fault::new(FaultCode::IoFailed, Side::Target, what)
                .found(format!("{failed_files} that failed"))
                .hint("mend that, then run the same command again"));
        }
        let cannot = |error: io::Error| {
            io_fault(Side::Target, &self.base, "what was not offered cannot be found out", &error)
        };
        if let Some(error) = self.failed.take() {
            return Err(cannot(error));
        }
        let mirror = Mirror {
            root: self.root.clone(),
            base: self.base.clone(),
            renamed: self.renamed_from.clone().zip(self.rename.clone()),
            removal: self.removal,
            matcher,
            offered: names.sorted().map_err(cannot)?,
            giving_way: std::mem::take(&mut self.giving_way),
            dry_run: self.dry_run,
        };
        let (shared, streams) = (self.shared.clone(), self.streams.clone());
        let thread = thread::Builder::new().name("haul-remover".into());
        let thread = thread.spawn(move || sweep(&mirror, &shared, &streams)).map_err(cannot)?;
        self.thread = Some(thread);
        Ok(())
    }
}

impl Stage for Removing {
    fn offered(&mut self, offer: &FileOffer, _context: &mut Context<'_>) {
        self.keep(&offer.name);
    }

    /// Removes what was not offered, once all else is in place.
    fn finish(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(names) = self.names.take()
            && let Err(fault) =
                self.begin(names, context.tally.failed_files, context.matcher.take())
        {
            lock(&self.shared.events).push(RemovingEvent::Failed(fault));
            self.shared.is_over.store(true, Ordering::SeqCst);
        }
        // Before its events are taken: it says so after the last.
        let is_over = self.shared.is_over.load(Ordering::SeqCst);
        // Not in the head of the loop, where they would stay locked until its end.
        let events = std::mem::take(&mut *lock(&self.shared.events));
        for event in events {
            match event {
                RemovingEvent::Removed(names) => {
                    context.tally.removed_files += names.len() as u64;
                    let status = context.place.file_options().removal_status();
                    for name in &names {
                        let ended = FileEnded::new(name.clone(), status.clone(), 0);
                        context.tell(Event::File(ended));
                    }
                    lock(&context.shared.machine).removed(names);
                }
                RemovingEvent::Failed(fault) => context.failed_late(fault),
            }
        }
        is_over
    }

    fn stop(&mut self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn sweep(mirror: &Mirror, shared: &Shared, streams: &Streams) {
    let mut batch = Vec::new();
    let mut batch_bytes = 0;
    let mut failures = 0;
    let tell = |event| {
        lock(&shared.events).push(event);
        streams.wake();
    };
    let swept = mirror.sweep(&shared.ending, &mut |swept| match swept {
        Swept::Removed(name) => {
            batch_bytes += name.len();
            batch.push(name);
            if batch.len() == REMOVED_MAX || batch_bytes > BATCH_BYTES_MAX {
                batch_bytes = 0;
                tell(RemovingEvent::Removed(std::mem::take(&mut batch)));
            }
        }
        Swept::Failed(fault) => {
            failures += 1;
            if failures <= FAILURES_MAX {
                tell(RemovingEvent::Failed(fault));
            }
        }
    });
    if !batch.is_empty() {
        tell(RemovingEvent::Removed(batch));
    }
    if let Err(fault) = swept {
        tell(RemovingEvent::Failed(fault));
    }
    shared.is_over.store(true, Ordering::SeqCst);
    streams.wake();
}
