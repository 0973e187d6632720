//! Watch of source directories: a session that does not end, and sends what appears in them.
//!
//! A file is sent when its writer closes it, when it is renamed into place, or when nothing was
//! written to it for `--idle`; what is followed is sent from the beginning on. A file that changes
//! afterwards is sent anew. What was sent is remembered as far as a bounded memory goes; beyond it
//! the target says that it has it.

use super::{
    context::Context,
    stage::{Found, Offered, Settled, Stage},
};
use crate::{
    events::Event,
    file_options::Recording,
    locks::{Lock, lock},
    problem::Side,
    storage::{
        walk::Walk,
        watch::{Change, DirectoryWatch},
    },
};
use haul_protocol::{
    file_life::NextStep,
    message::{Fault, FaultCode, FileKind, FileOffer, Growth, Side as MessageSide},
};
use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// The most files that were sent and are remembered, 16 bytes each.
const SENT_MAX: usize = 1 << 18;
/// The most changes that are taken from the kernel at a time.
const CHANGES_MAX: usize = 1024;
/// The most names remembered of files that are too young to be sent.
const YOUNG_MAX: usize = 1000;
/// Interval between two looks at the source directories themselves.
const TREES_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pause after a look through the trees, as a multiple of how long it took: looking takes at most
/// about a tenth of the time.
const SCAN_SHARE: u32 = 10;

pub struct Watching {
    recording: Recording,
    watch: Arc<Lock<DirectoryWatch>>,
    changes: VecDeque<Change>,
    sent: HashSet<[u8; 16]>,
    /// Files whose writers may still write to them, as of the last look.
    young: BTreeSet<Vec<u8>>,
    /// The file that is looked at because it is complete.
    complete: Option<Vec<u8>>,
    /// The change for which the walk is where it is; `None`: it looks through everything.
    looking_at: Option<Change>,
    /// Files that were offered and are not settled, with what was heard of each meanwhile.
    under_way: HashMap<Vec<u8>, Heard>,
    trees_looked_at: Instant,
    scan_begun: Option<Instant>,
    rescan_at: Option<Instant>,
    /// Earliest time of the next look through the trees, whoever wants it: not more than half of
    /// the time is for looking.
    no_rescan_before: Instant,
    /// Time when there was last something new.
    new_at: Instant,
    ending: bool,
}

/// A change that was heard of a file while it was under way.
#[derive(Debug, Default)]
enum Heard {
    #[default]
    Nothing,
    /// A change told the file's name.
    Change(Change),
    /// The walk found that the file is another by now.
    IsOther,
}

/// The next step when the walk has come to its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// The walk goes on: there is more of it now.
    Walk,
    /// The walk rests: nothing is new.
    Rest,
    /// The watch is over, and with it the walk.
    End,
}

impl Watching {
    #[must_use]
    pub fn new(recording: Recording, watch: Arc<Lock<DirectoryWatch>>, now: Instant) -> Self {
        Self {
            recording,
            watch,
            changes: VecDeque::new(),
            sent: HashSet::new(),
            young: BTreeSet::new(),
            complete: None,
            looking_at: None,
            under_way: HashMap::new(),
            trees_looked_at: now,
            scan_begun: Some(now),
            rescan_at: None,
            no_rescan_before: now,
            new_at: now,
            ending: false,
        }
    }

    /// Ends the watch: what is under way is the last. Returns a fault for each file that was seen
    /// and is not sent, once.
    pub fn end(&mut self) -> Vec<Fault> {
        self.ending = true;
        let left = std::mem::take(&mut self.young).into_iter();
        let fault = |name: Vec<u8>| {
            let what = "was not sent: the watch ended before its writer was done with it";
            Fault::new(FaultCode::SourceChanged, MessageSide::Source, what)
                .at(name)
                .needs(format!(
                    "{} s in which nothing is written to it",
                    self.recording.idle.as_secs()
                ))
                .hint("run the same command again: it sends what is missing")
        };
        left.map(fault).collect()
    }

    /// Goes on with a walk that is at its end: gives it what changed since, or all of it once more.
    /// `is_open`: files are under way.
    pub fn next(&mut self, walk: &mut Walk, is_open: bool, now: Instant) -> Next {
        if let Some(begun) = self.scan_begun.take() {
            let took = now.saturating_duration_since(begun);
            let every = lock(&self.watch).rescan_every().max(took * SCAN_SHARE);
            self.rescan_by(now + every);
            self.no_rescan_before = now + took;
        }
        (self.complete, self.looking_at) = (None, None);
        if self.ending || !walk.has_trees() {
            return Next::End;
        }
        if self.lost_trees(walk, now) {
            return Next::Walk;
        }
        if self.changes.is_empty() {
            self.changes.extend(lock(&self.watch).take(CHANGES_MAX));
        }
        if let Some(change) = self.changes.pop_front() {
            self.looking_at = Some(change.clone());
            match change {
                Change::Name { tree, included, is_complete } => {
                    self.complete = is_complete.then(|| tree.name.clone());
                    walk.look_at(tree, included);
                }
                Change::Everything => {
                    self.changes.clear();
                    self.rescan(walk, now);
                }
            }
            return Next::Walk;
        }
        if self.rescan_at.is_some_and(|at| now >= at.max(self.no_rescan_before)) {
            self.rescan(walk, now);
            return Next::Walk;
        }
        if is_open {
            self.new_at = self.new_at.max(now);
        }
        let still = now.saturating_duration_since(self.new_at);
        if self.recording.watch_for.is_some_and(|time| still >= time) {
            self.ending = true;
            return Next::End;
        }
        Next::Rest
    }

    /// Drops the source directories that have another name now, or none; true if there were any.
    fn lost_trees(&mut self, walk: &mut Walk, now: Instant) -> bool {
        if now.saturating_duration_since(self.trees_looked_at) < TREES_LOOK_EVERY {
            return false;
        }
        self.trees_looked_at = now;
        let lost = walk.lose_trees();
        for tree in &lost {
            lock(&self.watch).forget(tree);
            self.changes.retain(|change| !change.is_of(tree));
        }
        !lost.is_empty()
    }

    fn rescan(&mut self, walk: &mut Walk, now: Instant) {
        self.rescan_at = None;
        // It comes to all of them again.
        self.young.clear();
        self.scan_begun = Some(now);
        walk.begin_again();
    }

    fn rescan_by(&mut self, at: Instant) {
        self.rescan_at = Some(self.rescan_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Whether an entry has to wait until its earlier offer is settled: then it is looked at again.
    fn waits(&mut self, offer: &FileOffer) -> bool {
        let Some(heard) = self.under_way.get_mut(&offer.name) else { return false };
        match (&self.looking_at, &heard) {
            (Some(change @ Change::Name { .. }), _) => *heard = Heard::Change(change.clone()),
            (_, Heard::Nothing) if !self.sent.contains(&fingerprint(offer)) => {
                *heard = Heard::IsOther;
            }
            _ => {}
        }
        true
    }

    /// Notes that a file was offered.
    fn begins(&mut self, name: &[u8]) {
        self.under_way.entry(name.to_vec()).or_default();
    }

    /// Notes that a name is settled, or will be offered later.
    fn ends(&mut self, name: &[u8], now: Instant) {
        match self.under_way.remove(name) {
            Some(Heard::Change(change)) => self.changes.push_back(change),
            Some(Heard::IsOther) => self.rescan_by(now),
            Some(Heard::Nothing) | None => {}
        }
    }

    /// Whether the file's writer has said that it is complete.
    #[must_use]
    fn is_complete(&self, name: &[u8]) -> bool {
        self.complete.as_deref() == Some(name)
    }

    /// Whether an entry that the walk came to is to be sent now.
    fn wants(&mut self, offer: &FileOffer, now: Instant) -> bool {
        let print = fingerprint(offer);
        if self.sent.contains(&print) {
            return false;
        }
        let may_grow = offer.kind == FileKind::Regular && !self.recording.follow;
        if may_grow && !self.is_complete(&offer.name) {
            let left = self.recording.idle.saturating_sub(age_of(offer));
            if !left.is_zero() {
                self.rescan_by(now + left);
                // Until it is known to be complete, the watch does not end.
                self.new_at = self.new_at.max(now + left);
                if self.young.len() < YOUNG_MAX {
                    self.young.insert(offer.name.clone());
                }
                return false;
            }
        }
        self.young.remove(&offer.name);
        self.new_at = self.new_at.max(now);
        if !self.recording.follow || offer.kind != FileKind::Regular {
            self.remember(offer);
        }
        true
    }

    /// Remembers a file that was sent, so that this very file is not sent again.
    fn remember(&mut self, offer: &FileOffer) {
        if self.sent.len() >= SENT_MAX {
            // The target knows what it has.
            self.sent.clear();
        }
        self.sent.insert(fingerprint(offer));
    }

    /// Forgets a file that failed: it is no longer the one that was sent.
    fn forget(&mut self, offer: &FileOffer) {
        self.sent.remove(&fingerprint(offer));
    }

    /// Plans another look for a file that changed or went away before it was sent.
    fn comes_later(&mut self, fault: &Fault, now: Instant) {
        if fault.code == FaultCode::SourceChanged {
            self.rescan_by(now + self.recording.idle);
        }
    }

    /// Makes the event, once, that changes may go unheard.
    pub fn take_deafness(&mut self) -> Option<Event> {
        let mut watch = lock(&self.watch);
        let why = watch.take_deafness()?;
        let every = watch.rescan_every().as_secs();
        let from_to = format!("inotify -> a look at everything about every {every} s");
        Some(Event::Fallback { side: Side::Source, from_to, why })
    }
}

impl Stage for Watching {
    /// Lets through the sources that are to be sent now.
    fn met(&mut self, mut found: Found, _context: &mut Context<'_>) -> Option<Found> {
        let offer = &found.entry.offer;
        found.is_complete = self.is_complete(&offer.name);
        let is_wanted = !self.waits(offer) && self.wants(offer, found.now);
        is_wanted.then_some(found)
    }

    fn offered(&mut self, offered: &Offered<'_>, _context: &mut Context<'_>) {
        let offer = &offered.entry.offer;
        if offer.kind != FileKind::Regular || offer.growth != Growth::NotGrowing {
            return;
        }
        self.begins(&offer.name);
        if self.recording.follow {
            self.remember(offer);
        }
    }

    fn settled(&mut self, settled: &mut Settled, _context: &mut Context<'_>) {
        let offer = &settled.entry.offer;
        match &settled.step {
            NextStep::ComesLater(fault) => {
                self.forget(offer);
                self.comes_later(fault, settled.now);
            }
            // Whatever came of what grew, it has come to its end.
            NextStep::Ends(_) if offer.growth != Growth::NotGrowing => self.remember(offer),
            NextStep::Ends(_) if settled.has_failed() => self.forget(offer),
            NextStep::Ends(_) => {}
            _ => return,
        }
        self.ends(&offer.name, settled.now);
    }
}

/// Age of a file's last write; the longest if it is in the future, as its clock is wrong then.
fn age_of(offer: &FileOffer) -> Duration {
    let seconds = u64::try_from(offer.mtime_s).unwrap_or(0);
    let written = SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, offer.mtime_ns));
    written.map_or(Duration::MAX, |written| {
        SystemTime::now().duration_since(written).unwrap_or(Duration::MAX)
    })
}

/// Fingerprint of a file that was sent: one of another size, time or inode is another.
fn fingerprint(offer: &FileOffer) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[offer.kind as u8]);
    for number in [offer.inode, offer.device] {
        hasher.update(&number.to_le_bytes());
    }
    // What is in a directory changes its time.
    if offer.kind != FileKind::Directory {
        hasher.update(&offer.size_bytes.to_le_bytes());
        hasher.update(&offer.mtime_s.to_le_bytes());
        hasher.update(&offer.mtime_ns.to_le_bytes());
    }
    hasher.update(&offer.name);
    *hasher.finalize().as_bytes().first_chunk().expect("it has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file_options::FileOptions,
        options::SourceSpec,
        session::sending::without_peer,
        storage::{
            named_sources::walk_named,
            root::Root,
            source::SourceEntry,
            tree::Tree,
            walk::{Listed, WalkOptions},
        },
    };
    use haul_protocol::{
        FileId,
        file_life::{EndResult, FileEnd},
    };

    fn offer(name: &[u8], size_bytes: u64, mtime_s: i64) -> FileOffer {
        let kind = FileKind::Regular;
        FileOffer { name: name.to_vec(), kind, size_bytes, mtime_s, ..FileOffer::default() }
    }

    #[test]
    fn what_was_sent_is_wanted_again_when_it_changed_and_not_before() {
        let now = Instant::now();
        let recording = Recording { watch: true, ..Recording::default() };
        let mut watching = Watching::new(recording, Arc::default(), now);
        assert!(watching.wants(&offer(b"a", 1, 5), now));
        assert!(!watching.wants(&offer(b"a", 1, 5), now));
        assert!(watching.wants(&offer(b"a", 1, 6), now));
        assert!(watching.wants(&offer(b"b", 1, 5), now));
        // Too young, unless its writer closed it.
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let young = offer(b"young", 1, i64::try_from(time.as_secs()).unwrap() - 1);
        assert!(!watching.wants(&young, now));
        assert!(watching.rescan_at.unwrap() <= now + recording.idle);
        watching.complete = Some(b"young".to_vec());
        assert!(watching.wants(&young, now));
    }

    #[test]
    fn of_a_file_under_way_only_another_version_makes_it_look_again() {
        let now = Instant::now();
        let mut watching = Watching::new(Recording::default(), Arc::default(), now);
        assert!(!watching.waits(&offer(b"a", 1, 5)));
        assert!(watching.wants(&offer(b"a", 1, 5), now));
        watching.begins(b"a");
        assert!(watching.waits(&offer(b"a", 1, 5)));
        watching.ends(b"a", now);
        assert_eq!(watching.rescan_at, None);
        watching.begins(b"a");
        assert!(watching.waits(&offer(b"a", 2, 6)));
        watching.ends(b"a", now);
        assert_eq!(watching.rescan_at, Some(now));
        assert!(watching.wants(&offer(b"a", 2, 6), now));
    }

    const MOMENT: Duration = Duration::from_nanos(1);
    const SECOND: Duration = Duration::from_secs(1);

    /// A watch of a directory, and the walk through it, which is at its end.
    fn watched(recording: Recording, now: Instant) -> (Watching, Walk, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let watch: Arc<Lock<DirectoryWatch>> = Arc::default();
        let options = WalkOptions { watch: Some(watch.clone()), ..WalkOptions::default() };
        let source = SourceSpec::Path(directory.path().join("").into());
        let mut walk = walk_named(&[source], options);
        assert_eq!(walk.by_ref().count(), 0);
        (Watching::new(recording, watch, now), walk, directory)
    }

    /// A watch whose first look through a directory took so long.
    fn looked_through(took: Duration) -> (Watching, Walk, Instant, tempfile::TempDir) {
        let begun = Instant::now();
        let (mut watching, mut walk, directory) = watched(Recording::default(), begun);
        assert_eq!(watching.next(&mut walk, false, begun + took), Next::Rest);
        (watching, walk, begun + took, directory)
    }

    fn idle_for(idle: Duration) -> Recording {
        Recording { watch: true, idle, ..Recording::default() }
    }

    #[test]
    fn all_is_looked_through_again_after_a_minute_or_ten_times_as_long_as_that_took() {
        for (took_s, after_s) in [(1, 60), (6, 60), (7, 70), (30, 300)] {
            let took = SECOND * took_s;
            let (mut watching, mut walk, now, _directory) = looked_through(took);
            let mut next = |after| watching.next(&mut walk, false, now + after);
            assert_eq!(next(SECOND * after_s - MOMENT), Next::Rest, "{took_s}");
            assert_eq!(next(SECOND * after_s), Next::Walk, "{took_s}");
            assert_eq!(walk.next().map(drop), None, "an empty directory");
        }
    }

    #[test]
    fn a_look_that_is_wanted_earlier_waits_for_as_long_as_the_last_one_took() {
        let (mut watching, mut walk, now, _directory) = looked_through(SECOND * 5);
        watching.rescan_by(now + SECOND * 2);
        watching.rescan_by(now + SECOND * 3);
        let mut next = |after| watching.next(&mut walk, false, now + after);
        assert_eq!(next(SECOND * 5 - MOMENT), Next::Rest);
        assert_eq!(next(SECOND * 5), Next::Walk);
        let (mut watching, mut walk, now, _directory) = looked_through(SECOND);
        watching.rescan_by(now + SECOND * 3);
        watching.rescan_by(now + SECOND * 2);
        let mut next = |after| watching.next(&mut walk, false, now + after);
        assert_eq!(next(SECOND * 2 - MOMENT), Next::Rest);
        assert_eq!(next(SECOND * 2), Next::Walk);
    }

    #[test]
    fn a_watch_ends_with_its_user_and_without_directories() {
        let now = Instant::now();
        let (mut watching, mut walk, _directory) = watched(Recording::default(), now);
        assert_eq!(watching.next(&mut walk, false, now), Next::Rest);
        watching.end();
        assert_eq!(watching.next(&mut walk, true, now), Next::End);
        let mut files = Walk::new([], WalkOptions::default());
        let mut watching = Watching::new(Recording::default(), Arc::default(), now);
        assert_eq!(watching.next(&mut files, false, now), Next::End);
    }

    #[test]
    fn a_watch_ends_when_nothing_is_new_or_under_way_for_as_long_as_was_said() {
        let recording = Recording { watch_for: Some(SECOND * 10), ..Recording::default() };
        let begun = Instant::now();
        let (mut watching, mut walk, _directory) = watched(recording, begun);
        let mut next = |is_open, after| watching.next(&mut walk, is_open, begun + after);
        assert_eq!(next(false, SECOND * 10 - MOMENT), Next::Rest);
        assert_eq!(next(true, SECOND * 12), Next::Rest);
        assert_eq!(next(false, SECOND * 22 - MOMENT), Next::Rest);
        assert_eq!(next(false, SECOND * 22), Next::End);
        assert_eq!(next(true, SECOND * 22), Next::End, "for good");
        let (mut for_ever, mut walk, _directory) = watched(Recording::default(), begun);
        assert_eq!(for_ever.next(&mut walk, false, begun + SECOND * 59), Next::Rest);
    }

    /// Entries that the walk comes to, until nothing is new, each with whether it is wanted.
    fn news(watching: &mut Watching, walk: &mut Walk, now: Instant) -> Vec<(String, bool, bool)> {
        let mut news = Vec::new();
        while watching.next(walk, false, now) == Next::Walk {
            for listed in walk.by_ref() {
                let Listed::Entry(entry) = listed else { panic!("{listed:?}") };
                let name = String::from_utf8(entry.offer.name.clone()).unwrap();
                let is_complete = watching.is_complete(&entry.offer.name);
                news.push((name, is_complete, watching.wants(&entry.offer, now)));
            }
        }
        news
    }

    #[test]
    fn a_new_file_is_sent_once_its_writer_has_closed_it() {
        let now = Instant::now();
        let (mut watching, mut walk, directory) = watched(idle_for(SECOND * 3600), now);
        assert_eq!(news(&mut watching, &mut walk, now), []);
        std::fs::write(directory.path().join("new"), "bytes").unwrap();
        let heard = news(&mut watching, &mut walk, now);
        assert_eq!(heard, [("new".into(), false, false), ("new".into(), true, true)]);
        assert!(watching.young.is_empty() && !watching.is_complete(b"new"));
    }

    #[test]
    fn where_it_is_not_known_what_changed_all_is_looked_through() {
        let now = Instant::now();
        let (mut watching, mut walk, directory) = watched(idle_for(SECOND * 3600), now);
        std::fs::write(directory.path().join("new"), "bytes").unwrap();
        assert_eq!(watching.next(&mut walk, false, now), Next::Walk);
        assert!(watching.changes.len() == 1 && walk.by_ref().count() == 1);
        watching.young.insert(b"gone".to_vec());
        watching.changes = [Change::Everything, Change::Everything].into();
        let heard = news(&mut watching, &mut walk, now);
        assert_eq!(heard, [("new".into(), false, false)], "once");
        assert_eq!(watching.young, BTreeSet::from([b"new".to_vec()]));
    }

    fn change_of(directory: &std::path::Path) -> Change {
        let root = Root::open_without(directory, &[]).unwrap();
        let tree = Tree { root, path: b"x".to_vec(), name: b"x".to_vec() };
        Change::Name { tree, included: false, is_complete: true }
    }

    #[test]
    fn a_directory_that_is_gone_is_lost_with_all_that_was_heard_of_it() {
        let begun = Instant::now();
        let (mut watching, mut walk, directory) = watched(Recording::default(), begun);
        let other = tempfile::tempdir().unwrap();
        assert_eq!(watching.next(&mut walk, false, begun + TREES_LOOK_EVERY), Next::Rest);
        std::fs::write(directory.path().join("new"), "bytes").unwrap();
        assert_eq!(watching.next(&mut walk, false, begun), Next::Walk);
        assert_eq!(walk.by_ref().count(), 1);
        assert_eq!(watching.changes.len(), 1);
        watching.changes.push_back(change_of(other.path()));
        drop(directory);
        let since = begun + TREES_LOOK_EVERY;
        assert!(!watching.lost_trees(&mut walk, since + TREES_LOOK_EVERY - MOMENT));
        assert!(watching.lost_trees(&mut walk, since + TREES_LOOK_EVERY));
        let [Change::Name { tree, .. }] = watching.changes.make_contiguous() else {
            panic!("that of another stays")
        };
        assert_eq!(tree.name, b"x");
        assert!(matches!(walk.next(), Some(Listed::Failed(_))));
        assert!(!watching.lost_trees(&mut walk, since + TREES_LOOK_EVERY * 2), "once");
        assert_eq!(watching.next(&mut walk, false, since + TREES_LOOK_EVERY * 3), Next::End);
    }

    #[test]
    fn what_is_heard_of_a_file_under_way_is_looked_at_when_that_is_settled() {
        let now = Instant::now();
        let directory = tempfile::tempdir().unwrap();
        let mut watching = Watching::new(Recording::default(), Arc::default(), now);
        watching.begins(b"a");
        watching.looking_at = Some(change_of(directory.path()));
        assert!(watching.waits(&offer(b"a", 1, 5)));
        watching.looking_at = None;
        assert!(watching.waits(&offer(b"a", 1, 5)), "the walk comes to it, too");
        watching.ends(b"a", now);
        assert_eq!((watching.changes.len(), watching.rescan_at), (1, None));
        assert!(!watching.waits(&offer(b"a", 1, 5)), "it is settled");
        // A look at everything, for whatever reason, says what the walk finds.
        watching.begins(b"a");
        watching.looking_at = Some(Change::Everything);
        assert!(watching.waits(&offer(b"a", 1, 5)));
        watching.ends(b"a", now);
        assert_eq!((watching.changes.len(), watching.rescan_at), (1, Some(now)));
    }

    /// A file of this kind that was just written.
    fn young(kind: FileKind) -> FileOffer {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        FileOffer { kind, ..offer(b"young", 1, i64::try_from(time.as_secs()).unwrap() - 1) }
    }

    #[test]
    fn only_files_that_are_not_followed_have_to_be_complete() {
        let now = Instant::now();
        for (kind, follow, is_wanted, is_remembered) in [
            (FileKind::Regular, false, false, false),
            (FileKind::Regular, true, true, false),
            (FileKind::Symlink, false, true, true),
            (FileKind::Symlink, true, true, true),
        ] {
            let recording = Recording { follow, ..idle_for(SECOND * 3600) };
            let mut watching = Watching::new(recording, Arc::default(), now);
            assert_eq!(watching.wants(&young(kind), now), is_wanted, "{kind:?} {follow}");
            assert_eq!(watching.sent.len() == 1, is_remembered, "{kind:?} {follow}");
            assert_eq!(watching.wants(&young(kind), now), is_wanted && !is_remembered);
        }
        let mut watching = Watching::new(idle_for(SECOND), Arc::default(), now);
        assert!(watching.wants(&offer(b"a", 1, 5), now));
        assert_eq!(watching.sent.len(), 1);
    }

    #[test]
    fn a_young_file_is_looked_at_when_it_is_idle_and_until_then_the_watch_goes_on() {
        let now = Instant::now();
        let mut watching = Watching::new(idle_for(SECOND * 3600), Arc::default(), now);
        assert!(!watching.wants(&young(FileKind::Regular), now));
        let at = watching.rescan_at.unwrap();
        assert!((now + SECOND * 3500..now + SECOND * 3600).contains(&at), "{:?}", at - now);
        let new_at = watching.new_at;
        assert!((now + SECOND * 3500..now + SECOND * 3600).contains(&new_at));
        assert_eq!(watching.young.len(), 1);
        watching.complete = Some(b"young".to_vec());
        assert!(watching.wants(&young(FileKind::Regular), now) && watching.young.is_empty());
    }

    #[test]
    fn what_is_not_sent_by_the_end_is_named_once_and_as_far_as_a_bounded_memory_goes() {
        let now = Instant::now();
        let mut watching = Watching::new(idle_for(SECOND * 3600), Arc::default(), now);
        for number in 0..=YOUNG_MAX {
            let name = number.to_string().into_bytes();
            let offer = FileOffer { name, ..young(FileKind::Regular) };
            assert!(!watching.wants(&offer, now));
        }
        let faults = watching.end();
        assert_eq!(faults.len(), YOUNG_MAX);
        assert!(faults.iter().any(|fault| fault.path == b"7"), "{:?}", faults[0]);
        assert!(faults[0].needs.contains("3600 s"), "{:?}", faults[0]);
        assert_eq!(watching.end(), []);
    }

    #[test]
    fn a_fingerprint_tells_one_version_of_a_file_from_another() {
        let file = offer(b"a", 1, 5);
        let directory = FileOffer { kind: FileKind::Directory, ..file.clone() };
        let changes: [fn(&mut FileOffer); 7] = [
            |offer| offer.size_bytes += 1,
            |offer| offer.mtime_s += 1,
            |offer| offer.mtime_ns += 1,
            |offer| offer.inode += 1,
            |offer| offer.device += 1,
            |offer| offer.name.push(b'b'),
            |offer| offer.kind = FileKind::Symlink,
        ];
        for (number, one) in changes.into_iter().enumerate() {
            let changed = |offer: &FileOffer| {
                let mut other = offer.clone();
                one(&mut other);
                fingerprint(offer) != fingerprint(&other)
            };
            assert!(changed(&file));
            // What is in a directory changes its size and time.
            assert_eq!(changed(&directory), number > 2);
        }
    }

    #[test]
    fn a_time_in_the_future_is_as_old_as_any() {
        assert_eq!(age_of(&offer(b"a", 1, i64::MAX / 2)), Duration::MAX);
        let old = age_of(&offer(b"a", 1, -5));
        assert!(old > SECOND * 1_000_000_000 && old < Duration::MAX, "{old:?}");
        assert!(age_of(&young(FileKind::Regular)) < SECOND * 60);
    }

    #[test]
    fn changes_that_may_go_unheard_are_told_once() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), "bytes").unwrap();
        let watch: Arc<Lock<DirectoryWatch>> = Arc::default();
        let mut watching = Watching::new(Recording::default(), watch.clone(), Instant::now());
        assert!(watching.take_deafness().is_none());
        let root = Root::open_without(directory.path(), &[]).unwrap();
        let tree = Tree { root, path: b"file".to_vec(), name: b"file".to_vec() };
        lock(&watch).add(&tree, false, true);
        let Some(Event::Fallback { side: Side::Source, from_to, why }) = watching.take_deafness()
        else {
            panic!("a file is no directory")
        };
        assert!(from_to.ends_with("about every 3 s") && !why.is_empty(), "{from_to} {why}");
        assert!(watching.take_deafness().is_none());
    }

    /// A watch as a stage of a session, and the session.
    struct Stages<'a> {
        watching: Watching,
        context: Context<'a>,
        now: Instant,
    }

    fn entry(offer: FileOffer) -> SourceEntry {
        use crate::storage::source::Location;
        SourceEntry { offer, location: Location::Zero, links: 1, size_bytes: 1, is_moved: false }
    }

    impl<'a> Stages<'a> {
        fn begin(recording: Recording, hear: &'a mut dyn FnMut(Event)) -> Self {
            let now = Instant::now();
            let watching = Watching::new(recording, Arc::default(), now);
            let context = without_peer::begin(FileOptions::default(), hear).context;
            Self { watching, context, now }
        }

        fn met(&mut self, offer: FileOffer) -> Option<bool> {
            let found = Found { entry: Box::new(entry(offer)), is_complete: false, now: self.now };
            self.watching.met(found, &mut self.context).map(|found| found.is_complete)
        }

        fn offered(&mut self, offer: FileOffer) {
            let entry = entry(offer);
            let offered = Offered { file: FileId(0), entry: &entry, before: None };
            self.watching.offered(&offered, &mut self.context);
        }

        fn settled(&mut self, offer: FileOffer, step: NextStep) {
            let (file, content, stored_as, is_told) = (FileId(0), None, None, true);
            let (entry, now) = (entry(offer), self.now);
            let mut settled = Settled { file, entry, step, content, stored_as, is_told, now };
            self.watching.settled(&mut settled, &mut self.context);
        }

        fn is_under_way(&self) -> bool {
            !self.watching.under_way.is_empty()
        }
    }

    fn ends(result: EndResult) -> NextStep {
        NextStep::Ends(FileEnd { result, frees_source: false })
    }

    fn failed() -> NextStep {
        ends(EndResult::Failed(Fault::default()))
    }

    fn comes_later(code: FaultCode) -> NextStep {
        NextStep::ComesLater(Fault::new(code, MessageSide::Source, "it changed"))
    }

    #[test]
    fn a_file_goes_on_if_it_is_new_and_not_under_way() {
        let mut hear = |_| {};
        let mut stages = Stages::begin(idle_for(SECOND), &mut hear);
        let file = offer(b"a", 1, 5);
        assert_eq!(stages.met(file.clone()), Some(false));
        assert_eq!(stages.met(file.clone()), None, "it was sent");
        stages.offered(file.clone());
        assert_eq!(stages.met(offer(b"a", 1, 6)), None, "its earlier version is under way");
        stages.settled(file, ends(EndResult::Done));
        assert_eq!(stages.watching.rescan_at, Some(stages.now));
        stages.watching.complete = Some(b"a".to_vec());
        assert_eq!(stages.met(offer(b"a", 1, 6)), Some(true));
    }

    #[test]
    fn only_whole_files_are_under_way_until_they_are_settled() {
        for (kind, growth, follow, is_under_way, is_remembered) in [
            (FileKind::Regular, Growth::NotGrowing, false, true, false),
            (FileKind::Regular, Growth::NotGrowing, true, true, true),
            (FileKind::Regular, Growth::Growing, true, false, false),
            (FileKind::Directory, Growth::NotGrowing, true, false, false),
        ] {
            let mut hear = |_| {};
            let recording = Recording { follow, ..Recording::default() };
            let mut stages = Stages::begin(recording, &mut hear);
            let file = FileOffer { kind, growth, ..offer(b"a", 1, 5) };
            stages.offered(file);
            assert_eq!(stages.is_under_way(), is_under_way, "{kind:?} {growth:?} {follow}");
            assert_eq!(!stages.watching.sent.is_empty(), is_remembered, "{kind:?} {growth:?}");
        }
    }

    #[test]
    fn what_failed_is_sent_again_and_what_came_to_its_end_is_not() {
        let grown = Growth::Grown;
        for (growth, step, is_remembered, is_settled, comes_again) in [
            (Growth::NotGrowing, ends(EndResult::Done), true, true, false),
            (Growth::NotGrowing, failed(), false, true, false),
            (Growth::NotGrowing, comes_later(FaultCode::SourceChanged), false, true, true),
            (Growth::NotGrowing, comes_later(FaultCode::NotFound), false, true, false),
            (Growth::NotGrowing, NextStep::NextRound, true, false, false),
            (grown, failed(), true, true, false),
            (grown, NextStep::NextRound, true, false, false),
        ] {
            let mut hear = |_| {};
            let mut stages = Stages::begin(idle_for(SECOND * 7), &mut hear);
            let file = offer(b"a", 1, 5);
            stages.offered(file.clone());
            stages.watching.remember(&file);
            let case = format!("{growth:?} {step:?}");
            stages.settled(FileOffer { growth, ..file.clone() }, step);
            assert_eq!(!stages.watching.sent.is_empty(), is_remembered, "{case}");
            assert_eq!(!stages.is_under_way(), is_settled, "{case}");
            let again = comes_again.then_some(stages.now + SECOND * 7);
            assert_eq!(stages.watching.rescan_at, again, "{case}");
        }
    }

    #[test]
    fn the_memory_of_what_was_sent_is_bounded() {
        let now = Instant::now();
        let mut watching = Watching::new(Recording::default(), Arc::default(), now);
        for number in 0..SENT_MAX as u64 + 10 {
            watching.remember(&offer(b"a", number, 1));
        }
        assert_eq!(watching.sent.len(), 10);
    }
}
