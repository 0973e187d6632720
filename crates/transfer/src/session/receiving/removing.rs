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
    let mut batch = Batch::default();
    let tell = |event| {
        lock(&shared.events).push(event);
        streams.wake();
    };
    let swept = mirror.sweep(&shared.ending, &mut |swept| batch.take(swept, &tell));
    batch.end(&tell);
    if let Err(fault) = swept {
        tell(RemovingEvent::Failed(fault));
    }
    shared.is_over.store(true, Ordering::SeqCst);
    streams.wake();
}

/// Names that were removed and are not told yet.
#[derive(Default)]
struct Batch {
    names: Vec<Vec<u8>>,
    bytes: usize,
    /// Count of the names that could not be removed.
    failures: usize,
}

impl Batch {
    /// Takes what came of a name, and tells of full batches, and of the first failures.
    fn take(&mut self, swept: Swept, tell: &dyn Fn(RemovingEvent)) {
        match swept {
            Swept::Removed(name) => {
                self.bytes += name.len();
                self.names.push(name);
                if self.names.len() == REMOVED_MAX || self.bytes > BATCH_BYTES_MAX {
                    self.end(tell);
                }
            }
            Swept::Failed(fault) => {
                self.failures += 1;
                if self.failures <= FAILURES_MAX {
                    tell(RemovingEvent::Failed(fault));
                }
            }
        }
    }

    fn end(&mut self, tell: &dyn Fn(RemovingEvent)) {
        self.bytes = 0;
        let names = std::mem::take(&mut self.names);
        if !names.is_empty() {
            tell(RemovingEvent::Removed(names));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{file_options::FileOptions, session::receiving::without_peer};
    use haul_protocol::Message;
    use std::{
        fs,
        path::Path,
        time::{Duration, Instant},
    };

    fn removing(directory: &Path) -> (TargetPlace, Removing) {
        let removal = Some(Removal { names_max: None, of_base: true });
        let file_options = FileOptions { removal, ..FileOptions::default() };
        let place = without_peer::place(directory, file_options);
        let streams = Streams::new(crate::transport::waker::Waker::new().unwrap());
        let removing = Removing::new(&place, streams).expect("a removal is asked for");
        (place, removing)
    }

    /// Sizes of the messages with names that went, and what went wrong.
    struct Told {
        batches: Vec<usize>,
        problems: Vec<String>,
        removed_files: u64,
    }

    fn finish(place: TargetPlace, removing: &mut Removing, failed_files: u64) -> Told {
        let (mut problems, mut removed) = (Vec::new(), 0);
        let mut hear = |event| match event {
            Event::Error(problem) => problems.push(problem.to_string()),
            Event::File(file) if file.status == crate::file_status::FileStatus::Removed => {
                removed += 1;
            }
            other => panic!("{other:?}"),
        };
        let mut context = without_peer::begin(place, &mut hear).context;
        context.tally.failed_files = failed_files;
        let end = Message::OffersEnd(Default::default());
        lock(&context.shared.machine).handle(end).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !removing.finish(&mut context) {
            assert!(Instant::now() < deadline, "no end");
            std::thread::sleep(Duration::from_millis(5));
        }
        removing.stop();
        assert!(removing.thread.is_none() && removing.shared.ending.load(Ordering::SeqCst));
        let mut machine = lock(&context.shared.machine);
        let batch = |message| match message {
            Message::Removed(names) => Some(names.names.len()),
            _ => None,
        };
        let messages = std::iter::from_fn(|| machine.poll_message());
        let batches = messages.filter_map(batch).collect();
        drop(machine);
        let removed_files = context.tally.removed_files;
        drop(context);
        assert_eq!(removed, removed_files, "each is told");
        Told { batches, problems, removed_files }
    }

    #[test]
    fn names_that_go_are_told_in_messages_of_limited_length() {
        // With the directory's it has 256 bytes.
        let long = "n".repeat(247);
        for (count, name, batches) in [
            (REMOVED_MAX + 9, "", &[REMOVED_MAX, 9][..]),
            // As many as fit into the bytes, and the one that is too many.
            (1500, &long, &[BATCH_BYTES_MAX / 256 + 1, 475]),
            (0, "", &[]),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let tree = directory.path().join("tree");
            fs::create_dir(&tree).unwrap();
            (0..count).for_each(|number| {
                fs::write(tree.join(format!("{name}{number:04}")), "").unwrap();
            });
            fs::write(tree.join("kept"), "").unwrap();
            let (place, mut removing) = removing(directory.path());
            ["tree", "tree/kept"].iter().for_each(|name| removing.keep(name.as_bytes()));
            let told = finish(place, &mut removing, 0);
            assert_eq!((&told.batches[..], &told.problems[..]), (batches, &[][..]));
            assert_eq!(told.removed_files, count as u64);
            assert_eq!(haul_testkit::tree::names(&tree).unwrap(), [Path::new("kept")]);
        }
    }

    #[test]
    fn of_many_names_that_cannot_be_removed_the_first_are_told() {
        let told = std::cell::RefCell::new(Vec::new());
        let tell = |event| told.borrow_mut().push(event);
        let mut batch = Batch::default();
        for _ in 0..FAILURES_MAX + 2 {
            batch.take(Swept::Failed(Fault::default()), &tell);
            batch.take(Swept::Removed(b"gone".to_vec()), &tell);
        }
        assert_eq!(told.borrow().len(), FAILURES_MAX);
        batch.end(&tell);
        let all = told.take();
        let Some(RemovingEvent::Removed(names)) = all.last() else { panic!("{:?}", all.last()) };
        assert_eq!((names.len(), all.len()), (FAILURES_MAX + 2, FAILURES_MAX + 1));
    }

    #[test]
    fn nothing_goes_where_something_failed_but_by_what_is_in_its_way() {
        for (failed_files, in_the_way, goes) in [(1, 0, false), (1, 1, true), (2, 1, false)] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("gone"), "").unwrap();
            let (place, mut removing) = removing(directory.path());
            (0..in_the_way).for_each(|_| removing.gives_way(b"other"));
            let told = finish(place, &mut removing, failed_files);
            assert_eq!(told.removed_files, u64::from(goes), "{:?}", told.problems);
            assert_eq!(directory.path().join("gone").exists(), !goes);
            assert_eq!(told.problems.len(), usize::from(!goes));
            assert!(told.problems.iter().all(|it| it.contains("nothing was removed")));
        }
    }

    #[test]
    fn no_more_directories_give_way_than_may() {
        let directory = tempfile::tempdir().unwrap();
        let (_, mut removing) = removing(directory.path());
        for number in 0..=GIVING_WAY_MAX {
            removing.gives_way(number.to_string().as_bytes());
        }
        assert_eq!(removing.giving_way.len(), GIVING_WAY_MAX);
    }

    #[test]
    fn the_first_name_tells_what_the_source_calls_the_component_that_is_renamed() {
        let directory = tempfile::tempdir().unwrap();
        let (_, mut removing) = removing(directory.path());
        removing.keep(b"tree/leaf");
        assert_eq!(removing.renamed_from, None, "it keeps its name");
        removing.rename = Some(b"new".to_vec());
        ["tree/leaf", "other"].iter().for_each(|name| removing.keep(name.as_bytes()));
        assert_eq!(removing.renamed_from.as_deref(), Some(&b"tree"[..]));
    }
}
