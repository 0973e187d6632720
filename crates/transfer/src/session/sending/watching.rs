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
