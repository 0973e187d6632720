//! Simulation of sessions that bring one file in ranges. They are scheduled by a seed, die at any
//! step, and their file system loses power and keeps what it likes of what was not synced.
//!
//! Where two plans are run, the source is now the file of one, now that of the other: of one size
//! and time. Or the plans are of one source and cut it at other places. A shard may be run by two
//! sessions at a time, and sessions may read back what is there.

mod runs;

use super::{register::Said, *};
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
};

/// Pages of the file, and of each page the bytes.
const PAGES: usize = 4;
const PAGE_BYTES: u64 = 1 << 20;
const FILE_BYTES: u64 = PAGES as u64 * PAGE_BYTES;
const WHOLE: Whole = Whole {
    size_bytes: FILE_BYTES,
    mtime_s: 5,
    mtime_ns: 0,
    source_inode: 7,
    source_device: 1,
    name_hash: [3; 16],
};
/// Pages that hold the bytes of a source.
const GOOD: [u8; 2] = [1, 2];
/// Page that holds others, which came damaged or in part.
const BAD: u8 = 3;
/// Number of the temporary's inode: file systems give one that was removed to the next file.
const TEMPORARY: u64 = 1;
/// Runs of a shard that fail before it is given up for a while.
const FAILURES_MAX: u32 = 40;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Entry {
    Register,
    Temporary,
    Name,
    Journal(u64),
}

/// A change of the directory that is not synced.
#[derive(Clone, Copy, Debug)]
enum Change {
    Set(Entry, u64),
    Remove(Entry),
    Rename,
}

#[derive(Clone, Default)]
struct Names(BTreeMap<Entry, u64>);

impl Names {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Set(entry, inode) => drop(self.0.insert(entry, inode)),
            Change::Remove(entry) => drop(self.0.remove(&entry)),
            Change::Rename => {
                if let Some(inode) = self.0.remove(&Entry::Temporary) {
                    self.0.insert(Entry::Name, inode);
                }
            }
        }
    }
}

#[derive(Clone, Default)]
struct Inode {
    bytes: Vec<u8>,
    synced: Vec<u8>,
}

/// Random numbers of a seed (xorshift64*, Vigna 2016).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
}

/// Faults of a run.
#[derive(Clone, Copy, Debug)]
struct Faults {
    /// A session dies at one in so many steps; 0: at none.
    kills: u64,
    /// At this step the power goes.
    cut_at: Option<u64>,
    /// At this step the session that runs dies.
    kill_at: Option<u64>,
    /// The source is replaced at one in so many steps; 0: at none, and only one plan is run.
    swaps: u64,
    /// Whether the sources are of two times, so that the file of one is not that of the other.
    are_two_files: bool,
    /// Somebody removes the temporary at one in so many steps; 0: at none.
    removals: u64,
    /// Sessions die now and then just when they have made the temporary anew.
    dies_remaking: bool,
    /// The power goes so many steps behind the first removal of a journal.
    cut_behind_removal: Option<u64>,
    /// Sessions that run each shard at a time.
    twins: usize,
    /// Whether two further plans cut the same source at other places.
    other_cuts: bool,
    /// A session is asked to read back what is there, one in so many; 0: none.
    rechecks: u64,
    /// When the power goes, one in so many pages of the temporary is lost that was synced; 0: none.
    losses: u64,
}

const NONE: Faults = Faults {
    kills: 0,
    cut_at: None,
    kill_at: None,
    swaps: 0,
    removals: 0,
    are_two_files: false,
    dies_remaking: false,
    cut_behind_removal: None,
    twins: 1,
    other_cuts: false,
    rechecks: 0,
    losses: 0,
};

impl Faults {
    /// Whether ranges that were told as durable may be written or read back again.
    fn reopens(&self) -> bool {
        self.other_cuts || self.rechecks > 0
    }
}

/// A plan: the source that it is of, and the pages of each of its ranges.
#[derive(Clone, Debug)]
struct Plan {
    source: usize,
    ranges: Vec<Range<usize>>,
}

impl Plan {
    /// A plan that cuts the file at the pages behind the bits.
    fn of(source: usize, bits: u64) -> Self {
        let mut ranges = Vec::new();
        let mut begin = 0;
        for end in 1..=PAGES {
            if end == PAGES || bits >> (end - 1) & 1 == 1 {
                ranges.push(begin..end);
                begin = end;
            }
        }
        Self { source, ranges }
    }

    fn all(seed: u64, faults: &Faults) -> Vec<Self> {
        let mut plans = vec![Self::of(0, 0b111)];
        if faults.swaps > 0 {
            plans.push(Self::of(1, 0b010));
        }
        if faults.other_cuts {
            plans.extend([Self::of(0, seed), Self::of(0, seed / 8)]);
        }
        plans
    }
}

struct World {
    chance: Chance,
    faults: Faults,
    plans: Vec<Plan>,
    /// Plan and range of each node.
    shards: Vec<(usize, usize)>,
    step: u64,
    boot: u64,
    /// Step at which the power went last.
    started_at: u64,
    running: usize,
    alive: Vec<bool>,
    names: Names,
    synced_names: Names,
    unsynced: Vec<Change>,
    inodes: BTreeMap<u64, Inode>,
    next: u64,
    /// Locks: the open register, the node, the bytes.
    locks: Vec<(u64, usize, Range<u64>)>,
    /// The source that is there.
    source: usize,
    /// The session that has just made the temporary.
    remaking: Option<usize>,
    /// Step at which the first journal was removed.
    removed_at: Option<u64>,
    /// Whether ranges that were told as durable may be thrown away.
    is_meddled: bool,
    /// Whether the register may be torn, so that it could have said anything.
    may_be_torn: bool,
    /// Whether a disk has lost what was durable.
    has_lost: bool,
    /// Pages of the temporary that were written or read back since the power went.
    seen: BTreeSet<usize>,
    /// Pages that were told as durable, and are.
    settled: BTreeSet<usize>,
    /// Ranges of each plan whose run has said that all is done.
    told: Vec<BTreeSet<usize>>,
    /// Journals: the number of the register's header, the boot in which they were written, and the
    /// end of the range.
    journals: BTreeMap<u64, (u64, u64, u64)>,
    renames: u32,
}

struct Killed;

/// The world, and for each node what wakes it at its turn: to wake all at each step would cost far
/// more than what they do.
struct Shared {
    world: Mutex<World>,
    turns: Vec<Condvar>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Chooses who goes on.
    fn hand_over(&self, world: &mut World) {
        world.choose();
        self.turns[world.running].notify_one();
    }
}

#[derive(Clone)]
struct Node {
    number: usize,
    plan: usize,
    range: usize,
    source: usize,
    pages: Range<usize>,
    world: Arc<Shared>,
    boot: Cell<u64>,
    /// Runs that follow the first that ends well.
    runs: Cell<u32>,
    /// Runs that failed.
    failures: Cell<u32>,
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        let plans = Plan::all(seed, &faults);
        let ranges = |plan: usize| (0..plans[plan].ranges.len()).map(move |range| (plan, range));
        let shards: Vec<_> = (0..plans.len()).flat_map(ranges).collect();
        let shards: Vec<_> = (0..faults.twins).flat_map(|_| shards.clone()).collect();
        Self {
            alive: vec![true; shards.len()],
            told: vec![BTreeSet::new(); plans.len()],
            plans,
            shards,
            chance: Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            faults,
            step: 0,
            boot: 1,
            started_at: 0,
            running: 0,
            names: Names::default(),
            synced_names: Names::default(),
            unsynced: Vec::new(),
            inodes: BTreeMap::new(),
            next: 0,
            locks: Vec::new(),
            source: 0,
            remaking: None,
            removed_at: None,
            is_meddled: faults.swaps + faults.removals > 0,
            may_be_torn: faults.cut_at.or(faults.cut_behind_removal).is_some(),
            has_lost: false,
            seen: BTreeSet::new(),
            settled: BTreeSet::new(),
            journals: BTreeMap::new(),
            renames: 0,
        }
    }

    /// Checks what is there when the plan has come to its end.
    fn check_end(&self, plan: usize, when: &str) {
        let source = self.plans[plan].source;
        self.check_name("at the end");
        let mut left: Vec<&Entry> = self.names.0.keys().collect();
        if self.faults.are_two_files {
            assert_eq!(self.named_time(), Some(self.time_of(source)), "{when}");
        } else {
            assert_eq!(self.told[plan].len(), self.plans[plan].ranges.len(), "{when}");
        }
        let register = self.names.0.get(&Entry::Register).filter(|_| self.is_meddled);
        if let Some(inode) = register {
            let register = Register::decode(&self.inodes[inode].bytes).unwrap();
            if register.header.whole.mtime_s != self.time_of(source) {
                // Ranges of the other file stay for those who go on with them.
                return;
            }
            // It speaks of ranges of another source that were thrown away, and of nothing else.
            assert!(register.is_bare() && register.lost() != 0, "{when}");
            left.retain(|entry| **entry != Entry::Register);
        }
        assert_eq!(left, [&Entry::Name], "{when}");
    }

    fn choose(&mut self) {
        let alive: Vec<usize> = (0..self.alive.len()).filter(|node| self.alive[*node]).collect();
        if !alive.is_empty() {
            self.running = alive[self.chance.next() as usize % alive.len()];
        }
    }

    fn cut_power(&mut self) {
        self.boot += 1;
        self.started_at = self.step;
        // What was told before is read back, and may be written again.
        self.settled.clear();
        self.seen.clear();
        self.locks.clear();
        let unsynced = std::mem::take(&mut self.unsynced);
        let kept: Vec<Change> = unsynced.into_iter().filter(|_| self.chance.one_in(2)).collect();
        kept.into_iter().for_each(|change| self.synced_names.apply(change));
        self.names = self.synced_names.clone();
        for inode in self.inodes.values_mut() {
            let was_cut = inode.bytes.len() < inode.synced.len();
            if was_cut && self.chance.one_in(2) {
                // It keeps that it was cut shorter, and not what was written before.
                inode.bytes = inode.synced[..inode.bytes.len()].to_vec();
            } else if self.chance.one_in(2) {
                inode.bytes = inode.synced.clone();
            } else {
                // Some of what was written, and of a register perhaps a part of a record.
                let keep = self.chance.next() as usize % (inode.bytes.len() + 1);
                inode.synced.resize(inode.bytes.len().max(inode.synced.len()), 0);
                let keep = keep.max(inode.synced.len().min(keep));
                inode.synced[..keep].copy_from_slice(&inode.bytes[..keep]);
                inode.bytes = inode.synced.clone();
            }
            inode.synced = inode.bytes.clone();
        }
        self.lose_pages();
        self.check_name("after the power was cut");
    }

    /// Loses pages of the temporary that a disk had said are durable.
    fn lose_pages(&mut self) {
        let losses = self.faults.losses;
        let Some(inode) = self.names.0.get(&Entry::Temporary).copied() else { return };
        if losses == 0 || self.names.0.get(&Entry::Name) == Some(&inode) {
            return;
        }
        for page in 0..PAGES {
            if self.chance.one_in(losses) {
                let inode = self.inodes.get_mut(&inode).unwrap();
                inode.synced.resize(PAGES, 0);
                (inode.bytes[page], inode.synced[page]) = (BAD, BAD);
                self.has_lost = true;
            }
        }
    }

    /// Checks that what has the file's name is the file.
    fn check_name(&self, when: &str) {
        let Some(inode) = self.names.0.get(&Entry::Name) else { return };
        let pages = &self.inodes[inode];
        let is_whole = |pages: &[u8]| GOOD.iter().any(|good| pages == [*good; PAGES]);
        assert!(is_whole(&pages.bytes), "{when}, at step {}: {:?}", self.step, pages.bytes);
        assert!(is_whole(&pages.synced), "{when}, at step {}: {:?}", self.step, pages.synced);
    }

    /// Time of the file that has the name.
    fn named_time(&self) -> Option<i64> {
        let inode = self.names.0.get(&Entry::Name)?;
        let source = GOOD.iter().position(|good| self.inodes[inode].bytes[0] == *good)?;
        Some(self.time_of(source))
    }

    fn time_of(&self, source: usize) -> i64 {
        WHOLE.mtime_s + if self.faults.are_two_files { source as i64 } else { 0 }
    }

    /// Takes in that the run of a range says that all is done. Where all runs of a plan have said
    /// so, the file has its name.
    fn tell(&mut self, (plan, range): (usize, usize)) {
        self.told[plan].insert(range);
        let source = self.plans[plan].source;
        let is_named = self.named_time() == Some(self.time_of(source));
        if is_named && self.faults.are_two_files {
            // Whoever takes the name from here on replaces a file that was there.
            self.told[plan].clear();
        }
        let step = self.step;
        let is_all_told = self.told[plan].len() == self.plans[plan].ranges.len();
        assert!(!is_all_told || is_named, "all done, at step {step}: no name");
    }

    /// Forgets what runs of a source's plans have said, as its file is there.
    fn forget_told(&mut self, source: usize) {
        for (plan, told) in self.plans.iter().zip(&mut self.told) {
            if plan.source == source {
                told.clear();
            }
        }
    }

    /// The journal of a range, where it speaks of what the register knows.
    fn is_journaled(&self, number: u64, part: &Range<u64>) -> bool {
        let is_there = self.names.0.contains_key(&Entry::Journal(part.start));
        is_there && self.journals.get(&part.start) == Some(&(number, self.boot, part.end))
    }

    /// Deeds of others: they replace the source, and remove what they should not.
    fn meddle(&mut self) {
        let Faults { swaps, removals, .. } = self.faults;
        if swaps > 0 && self.chance.one_in(swaps) {
            self.source = 1 - self.source;
        }
        if removals > 0 && self.chance.one_in(removals) {
            self.change(Change::Remove(Entry::Temporary));
        }
    }

    fn change(&mut self, change: Change) {
        // To remove what is not there changes nothing, on the disk either.
        if let Change::Remove(entry) = change
            && !self.names.0.contains_key(&entry)
        {
            return;
        }
        self.names.apply(change);
        self.unsynced.push(change);
    }

    fn inode(&mut self, bytes: Vec<u8>) -> u64 {
        self.next += 1;
        let synced = Vec::new();
        self.inodes.insert(self.next, Inode { bytes, synced });
        self.next
    }
}

impl Node {
    /// Waits for the node's turn; the node may die here.
    fn step(&self) -> MutexGuard<'_, World> {
        let mut world = self.world.lock();
        // Whoever runs until its next step is the one that hands over.
        if world.running == self.number {
            self.world.hand_over(&mut world);
        }
        while world.running != self.number {
            world = self.world.turns[self.number].wait(world).unwrap();
        }
        world.step += 1;
        let step = world.step;
        world.meddle();
        let Faults { dies_remaking, cut_behind_removal, .. } = world.faults;
        let behind = world.removed_at.map(|at| step - at);
        if world.faults.cut_at == Some(step) || (behind.is_some() && behind == cut_behind_removal) {
            world.cut_power();
        }
        let kills = world.faults.kills;
        let dies = (kills > 0 && world.chance.one_in(kills)) || world.faults.kill_at == Some(step);
        let remakes = dies_remaking && world.remaking.take() == Some(self.number);
        let dies = dies || (remakes && world.chance.one_in(2));
        if dies || world.boot != self.boot.get() {
            let number = self.number;
            world.locks.retain(|(_, node, _)| *node != number);
            drop(world);
            resume_unwind(Box::new(Killed));
        }
        world
    }

    fn new(number: usize, seed: u64, world: &Arc<Shared>) -> Self {
        let (plan, range) = world.lock().shards[number];
        let Plan { source, ranges } = world.lock().plans[plan].clone();
        let runs = Cell::new((seed as u32 + number as u32) % 3);
        let (boot, failures, pages) = (Cell::new(1), Cell::new(0), ranges[range].clone());
        Self { number, plan, range, source, pages, world: world.clone(), boot, runs, failures }
    }

    fn whole(&self) -> Whole {
        let mtime_s = self.world.lock().time_of(self.source);
        Whole { source_inode: 7 + self.source as u64, mtime_s, ..WHOLE }
    }

    fn write(&self, claim: &Claim<Node>, page: u8) {
        let mut world = self.step();
        let Some(inode) = world.names.0.get(&Entry::Temporary).copied() else { return };
        let is_settled = self.pages.clone().any(|page| world.settled.contains(&page));
        assert!(!is_settled, "a settled range is written again");
        let bytes = &claim.part.bytes;
        let holds =
            |(_, node, locked): &(u64, usize, Range<u64>)| *node == self.number && locked == bytes;
        assert!(world.locks.iter().any(holds), "without its lock");
        world.inodes.get_mut(&inode).unwrap().bytes[self.pages.clone()].fill(page);
    }

    fn run(&self) {
        loop {
            self.boot.set(self.world.lock().boot);
            match catch_unwind(AssertUnwindSafe(|| self.attempt())) {
                // Now and then the same shard is run once more.
                Ok(true) if self.runs.get() > 0 => self.runs.set(self.runs.get() - 1),
                Ok(true) => break,
                Ok(false) if self.is_given_up() => break,
                Ok(false) => self.failures.set(self.failures.get() + 1),
                Err(cause) if cause.is::<Killed>() => {}
                Err(cause) => {
                    self.end();
                    resume_unwind(cause);
                }
            }
        }
        self.end();
    }

    fn is_given_up(&self) -> bool {
        let world = self.world.lock();
        self.failures.get() >= FAILURES_MAX && (world.is_meddled || world.boot > 1)
    }

    fn end(&self) {
        let mut world = self.world.world.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let number = self.number;
        world.alive[number] = false;
        world.locks.retain(|(_, node, _)| *node != number);
        self.world.hand_over(&mut world);
    }

    fn is_there(&self) -> bool {
        let world = self.step();
        world.named_time() == Some(world.time_of(self.source))
    }

    /// Does what a run does of its range; true where it says that all is done.
    fn attempt(&self) -> bool {
        // The run finds another source than was planned.
        if self.step().source != self.source {
            return false;
        }
        if self.is_there() {
            remove_left(self);
            return self.say_done();
        }
        let Range { start, end } = self.pages;
        let bytes = start as u64 * PAGE_BYTES..end as u64 * PAGE_BYTES;
        let part = Part { bytes, ctime: (1, 1) };
        let how = (self.is_to_recheck(), Duration::ZERO);
        let claim = match claim(self.clone(), &self.whole(), part, how) {
            Ok(claim) => claim,
            Err(Refused::There) => {
                remove_left(self);
                return self.say_done();
            }
            Err(_) => return false,
        };
        if self.is_there() {
            claim.give_up();
            return self.say_done();
        }
        if !claim.is_done {
            self.bring(&claim);
        }
        let Ok(mut finished) = claim.finish() else { return false };
        if finished == Finished::StartedAnew {
            assert!(self.step().boot > 1);
            if !self.read_back_earlier(&claim) {
                return false;
            }
            let Ok(again) = claim.finish() else { return false };
            finished = again;
        }
        assert_ne!(finished, Finished::OutOfStep);
        if finished == Finished::StartedAnew {
            return false;
        }
        // That a range is lost is told only where one can be.
        let may_be_lost = || {
            let world = self.step();
            world.is_meddled || world.may_be_torn || world.faults.reopens() || world.has_lost
        };
        let is_lost = matches!(finished, Finished::Lost | Finished::Reopened);
        assert!(!is_lost || may_be_lost());
        !is_lost && self.say_done()
    }

    fn say_done(&self) -> bool {
        let mut world = self.step();
        if !world.is_meddled && !world.faults.reopens() && !world.has_lost {
            world.settled.extend(self.pages.clone());
        }
        world.tell((self.plan, self.range));
        true
    }

    fn is_to_recheck(&self) -> bool {
        let mut world = self.step();
        let rechecks = world.faults.rechecks;
        rechecks > 0 && world.chance.one_in(rechecks)
    }

    fn bring(&self, claim: &Claim<Node>) {
        let (number, part) = (claim.header.number, &claim.part.bytes);
        if !self.is_there_by_the_journal(number, part) {
            Site::remove_journal(self, part.start).unwrap();
            self.step().change(Change::Set(Entry::Journal(part.start), 0));
            self.write(claim, BAD);
            self.write(claim, GOOD[self.source]);
        }
        let mut world = self.step();
        let Some(inode) = world.names.0.get(&Entry::Temporary).copied() else { return };
        world.seen.extend(self.pages.clone());
        let inode = world.inodes.get_mut(&inode).unwrap();
        inode.synced.resize(PAGES, 0);
        inode.synced[self.pages.clone()].copy_from_slice(&inode.bytes[self.pages.clone()]);
        if world.names.0.contains_key(&Entry::Journal(part.start)) {
            let journal = (number, world.boot, part.end);
            world.journals.insert(part.start, journal);
        }
    }

    /// Reads back, by their journals, the ranges that came before the power went.
    fn read_back_earlier(&self, claim: &Claim<Node>) -> bool {
        let Ok(earlier) = claim.earlier() else { return false };
        let mut known = earlier.believed.clone();
        for part in &earlier.parts {
            let Range { start, end } = part.bytes;
            let is_journaled = {
                let world = self.step();
                let journal = world.journals.get(&start).map(|(number, _, end)| (*number, *end));
                let is_there = world.names.0.contains_key(&Entry::Journal(start));
                is_there && journal == Some((claim.header.number, end))
            };
            for gap in known.missing_of(&part.bytes).into_iter().filter(|_| is_journaled) {
                let mut is_there = true;
                for page in (gap.start / PAGE_BYTES) as usize..(gap.end / PAGE_BYTES) as usize {
                    let mut world = self.step();
                    let inode = world.names.0.get(&Entry::Temporary);
                    if inode.map(|it| world.inodes[it].bytes[page]) == Some(GOOD[self.source]) {
                        world.seen.insert(page);
                    } else {
                        is_there = false;
                    }
                }
                let of_gap = Part { bytes: gap.clone(), ..part.clone() };
                let what = (&of_gap, &earlier);
                if say_read_back(self, &claim.header, what, is_there, &mut || true).is_err() {
                    return false;
                }
                if is_there {
                    known.insert(&gap);
                }
            }
        }
        true
    }

    /// Whether all of the range came before, as its journal says. It is never wrong.
    fn is_there_by_the_journal(&self, number: u64, part: &Range<u64>) -> bool {
        let world = self.step();
        let is_journaled = world.is_journaled(number, part);
        if is_journaled && let Some(inode) = world.names.0.get(&Entry::Temporary) {
            let pages = &world.inodes[inode].bytes[self.pages.clone()];
            let is_good = pages.iter().all(|page| *page == GOOD[self.source]);
            assert!(is_good, "a journal at step {} tells of other bytes: {pages:?}", world.step);
        }
        is_journaled
    }
}

/// An open register: its number, and its inode.
struct Open {
    node: Node,
    open: u64,
    inode: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut world =
            self.node.world.world.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let open = self.open;
        world.locks.retain(|(of, ..)| *of != open);
    }
}

impl Node {
    fn sync(&self, register: &Open) {
        let mut world = self.step();
        let inode = world.inodes.get_mut(&register.inode).unwrap();
        inode.synced = inode.bytes.clone();
    }
}

impl Site for Node {
    type Open = Open;

    fn open_register(&self, make: bool) -> io::Result<Open> {
        let mut world = self.step();
        let inode = match world.names.0.get(&Entry::Register) {
            Some(inode) => *inode,
            None if make => {
                let inode = world.inode(Vec::new());
                world.change(Change::Set(Entry::Register, inode));
                inode
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        world.next += 1;
        Ok(Open { node: self.clone(), open: world.next, inode })
    }

    fn has_its_name(&self, register: &Open) -> bool {
        self.step().names.0.get(&Entry::Register) == Some(&register.inode)
    }

    fn lock(&self, register: &Open, bytes: Range<u64>) -> io::Result<bool> {
        let mut world = self.step();
        let (open, inode) = (register.open, register.inode);
        let _ = inode;
        let clashes = |(of, _, locked): &(u64, usize, Range<u64>)| {
            *of != open && locked.start < bytes.end && bytes.start < locked.end
        };
        if world.locks.iter().any(clashes) {
            return Ok(false);
        }
        world.locks.push((open, self.number, bytes));
        Ok(true)
    }

    fn unlock(&self, register: &Open, bytes: Range<u64>) {
        let open = register.open;
        self.step().locks.retain(|(of, _, locked)| {
            *of != open || locked.end <= bytes.start || bytes.end <= locked.start
        });
    }

    fn read(&self, register: &Open, _: u64) -> io::Result<Vec<u8>> {
        self.sync(register);
        Ok(self.step().inodes[&register.inode].bytes.clone())
    }

    fn write(&self, register: &Open, at: u64, bytes: &[u8]) -> io::Result<()> {
        let (at, end) = (at as usize, at as usize + bytes.len());
        {
            let mut world = self.step();
            let inode = world.inodes.get_mut(&register.inode).unwrap();
            let len = inode.bytes.len().max(end);
            inode.bytes.resize(len, 0);
            inode.bytes[at..end].copy_from_slice(bytes);
        }
        self.sync(register);
        self.step().inodes.get_mut(&register.inode).unwrap().bytes.truncate(end);
        self.sync(register);
        Ok(())
    }

    fn make_temporary(&self, _: u64) -> io::Result<u64> {
        let mut world = self.step();
        assert!(world.settled.is_empty(), "what was settled is thrown away");
        world.seen.clear();
        world.change(Change::Remove(Entry::Temporary));
        let inode = world.inode(vec![0; PAGES]);
        world.inodes.get_mut(&inode).unwrap().synced = vec![0; PAGES];
        world.change(Change::Set(Entry::Temporary, inode));
        world.remaking = Some(self.number);
        Ok(TEMPORARY)
    }

    fn named(&self) -> Option<(u64, i64, u32)> {
        Some((FILE_BYTES, self.step().named_time()?, WHOLE.mtime_ns))
    }

    fn temporary(&self) -> Option<(u64, u64)> {
        self.step().names.0.contains_key(&Entry::Temporary).then_some((TEMPORARY, FILE_BYTES))
    }

    fn give_attributes(&self) -> io::Result<()> {
        drop(self.step());
        Ok(())
    }

    fn rename(&self) -> io::Result<()> {
        let mut world = self.step();
        if !world.names.0.contains_key(&Entry::Temporary) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let time = Some(world.time_of(self.source));
        assert!(world.named_time() != time, "a name is given twice");
        assert_eq!(
            world.seen.len(),
            PAGES,
            "what was there before the power went is not looked at"
        );
        world.change(Change::Rename);
        world.renames += 1;
        world.forget_told(self.source);
        world.check_name("when it was named");
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut world = self.step();
        world.synced_names = world.names.clone();
        world.unsynced.clear();
        Ok(())
    }

    fn remove_journal(&self, range_begin: u64) -> io::Result<()> {
        let mut world = self.step();
        world.change(Change::Remove(Entry::Journal(range_begin)));
        world.journals.remove(&range_begin);
        let step = world.step;
        world.removed_at.get_or_insert(step);
        Ok(())
    }

    fn remove_temporary(&self) {
        self.step().change(Change::Remove(Entry::Temporary));
    }

    fn remove_register(&self) {
        self.step().change(Change::Remove(Entry::Register));
    }

    fn number(&self) -> io::Result<u64> {
        Ok(self.step().chance.next())
    }

    fn clock(&self) -> Clock {
        let World { boot, step, started_at, .. } = *self.step();
        Clock { now: Said { boot, at_ms: step }, up_ms: step - started_at }
    }

    fn pause(&self) {
        drop(self.step());
    }
}

/// Runs all sessions to their end, and gives the number of steps.
fn run(seed: u64, faults: Faults) -> u64 {
    let world = World::new(seed, faults);
    let nodes = world.shards.len();
    let turns = (0..nodes).map(|_| Condvar::new()).collect();
    let world = Arc::new(Shared { world: Mutex::new(world), turns });
    let threads: Vec<_> = (0..nodes)
        .map(|number| {
            let node = Node::new(number, seed, &world);
            thread::spawn(move || node.run())
        })
        .collect();
    for thread in threads {
        assert!(thread.join().is_ok(), "seed {seed}, {faults:?}");
    }
    // All runs two times more, one after the other: the last one brings what is missing, and then
    // they tidy up what a death at the end left.
    let (plan, again) = {
        let mut world = world.lock();
        world.faults = Faults { are_two_files: faults.are_two_files, ..NONE };
        let plan = (0..world.plans.len()).rfind(|plan| world.plans[*plan].source == world.source);
        let plan = plan.expect("each source has a plan");
        let nodes = (0..nodes).filter(|number| world.shards[*number].0 == plan);
        (plan, nodes.collect::<Vec<_>>())
    };
    for number in again.iter().chain(&again).copied() {
        {
            let mut world = world.lock();
            world.alive[number] = true;
            world.running = number;
        }
        let node = Node::new(number, seed, &world);
        node.failures.set(FAILURES_MAX);
        node.run();
    }
    let world = world.lock();
    world.check_end(plan, &format!("seed {seed}, {faults:?}"));
    if !faults.are_two_files && faults.cut_at.or(faults.cut_behind_removal).is_none() {
        assert_eq!(world.renames, 1, "seed {seed}, {faults:?}");
    }
    world.step
}
