//! Simulation of sessions that bring one file in ranges. They are scheduled by a seed, die at any
//! step, and their file system loses power and keeps what it likes of what was not synced. Where
//! two plans are run, the source is now the file of one, now that of the other: of one size and
//! time.

use super::*;
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
};

const RANGES: usize = 4;
const RANGE_BYTES: u64 = 1 << 20;
const FILE_BYTES: u64 = RANGES as u64 * RANGE_BYTES;
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
/// Ranges in which each plan cuts the file, of as many pages each.
const CUTS: [usize; 2] = [RANGES, RANGES / 2];
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
}

struct World {
    chance: Chance,
    faults: Faults,
    step: u64,
    boot: u64,
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
    /// Ranges that were told as durable, and are.
    settled: BTreeSet<usize>,
    /// Ranges of each source whose run has said that all is done.
    told: [BTreeSet<usize>; 2],
    /// Journals: the number of the register's header, and the boot in which they were written.
    journals: BTreeMap<u64, (u64, u64)>,
    renames: u32,
}

struct Killed;

#[derive(Clone)]
struct Node {
    number: usize,
    world: Arc<(Mutex<World>, Condvar)>,
    boot: Cell<u64>,
    /// Runs that follow the first that ends well.
    runs: Cell<u32>,
    /// Runs that failed.
    failures: Cell<u32>,
}

impl World {
    fn new(seed: u64, faults: Faults, nodes: usize) -> Self {
        Self {
            chance: Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            faults,
            step: 0,
            boot: 1,
            running: 0,
            alive: vec![true; nodes],
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
            settled: BTreeSet::new(),
            told: [BTreeSet::new(), BTreeSet::new()],
            journals: BTreeMap::new(),
            renames: 0,
        }
    }

    /// Checks what is there when the plan of the source has come to its end.
    fn check_end(&self, source: usize, when: &str) {
        self.check_name("at the end");
        let mut left: Vec<&Entry> = self.names.0.keys().collect();
        if self.faults.are_two_files {
            assert_eq!(self.named_time(), Some(self.time_of(source)), "{when}");
        } else {
            assert_eq!(self.told[source].len(), CUTS[source], "{when}");
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
        self.check_name("after the power was cut");
    }

    /// Checks that what has the file's name is the file.
    fn check_name(&self, when: &str) {
        let Some(inode) = self.names.0.get(&Entry::Name) else { return };
        let pages = &self.inodes[inode];
        let is_whole = |pages: &[u8]| GOOD.iter().any(|good| pages == [*good; RANGES]);
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
    fn tell(&mut self, source: usize, range: usize) {
        self.told[source].insert(range);
        let is_named = self.named_time() == Some(self.time_of(source));
        if is_named && self.faults.are_two_files {
            // Whoever takes the name from here on replaces a file that was there.
            self.told[source].clear();
        }
        let step = self.step;
        assert!(
            self.told[source].len() < CUTS[source] || is_named,
            "all done, at step {step}: no name"
        );
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
        let (world, turn) = &*self.world;
        let mut world = world.lock().unwrap();
        // Whoever runs until its next step is the one that hands over.
        if world.running == self.number {
            world.choose();
            turn.notify_all();
        }
        while world.running != self.number {
            world = turn.wait(world).unwrap();
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

    fn source(&self) -> usize {
        self.number / RANGES
    }

    fn range(&self) -> usize {
        self.number % RANGES
    }

    fn pages(&self) -> Range<usize> {
        let pages = RANGES / CUTS[self.source()];
        self.range() * pages..(self.range() + 1) * pages
    }

    fn whole(&self) -> Whole {
        let mtime_s = self.world.0.lock().unwrap().time_of(self.source());
        Whole { source_inode: 7 + self.source() as u64, mtime_s, ..WHOLE }
    }

    fn write(&self, claim: &Claim<Node>, page: u8) {
        let mut world = self.step();
        let Some(inode) = world.names.0.get(&Entry::Temporary).copied() else { return };
        assert!(!world.settled.contains(&self.range()), "a settled range is written again");
        let bytes = &claim.part.bytes;
        let holds =
            |(_, node, locked): &(u64, usize, Range<u64>)| *node == self.number && locked == bytes;
        assert!(world.locks.iter().any(holds), "without its lock");
        world.inodes.get_mut(&inode).unwrap().bytes[self.pages()].fill(page);
    }

    fn run(&self) {
        loop {
            self.boot.set(self.world.0.lock().unwrap().boot);
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
        self.failures.get() >= FAILURES_MAX && self.world.0.lock().unwrap().is_meddled
    }

    fn end(&self) {
        let mut world = self.world.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let number = self.number;
        world.alive[number] = false;
        world.locks.retain(|(_, node, _)| *node != number);
        world.choose();
        self.world.1.notify_all();
    }

    fn is_there(&self) -> bool {
        let world = self.step();
        world.named_time() == Some(world.time_of(self.source()))
    }

    /// Does what a run does of its range; true where it says that all is done.
    fn attempt(&self) -> bool {
        // The run finds another source than was planned.
        if self.step().source != self.source() {
            return false;
        }
        if self.is_there() {
            remove_left(self);
            return self.say_done();
        }
        let pages = self.pages();
        let (begin, end) = (pages.start as u64 * RANGE_BYTES, pages.end as u64 * RANGE_BYTES);
        let part = Part { bytes: begin..end, ctime: (1, 1) };
        let claim = match claim(self.clone(), &self.whole(), part, (false, Duration::ZERO)) {
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
            self.bring(&claim, begin);
        }
        let Ok(finished) = claim.finish() else { return false };
        assert_ne!(finished, Finished::OutOfStep);
        // That a range is lost is told only where one can be.
        let may_be_lost = || self.step().is_meddled || self.step().may_be_torn;
        assert!(finished != Finished::Lost || may_be_lost());
        finished != Finished::Lost && self.say_done()
    }

    fn say_done(&self) -> bool {
        let mut world = self.step();
        if !world.is_meddled {
            world.settled.insert(self.range());
        }
        world.tell(self.source(), self.range());
        true
    }

    fn bring(&self, claim: &Claim<Node>, begin: u64) {
        let journaled = {
            let world = self.step();
            let number = claim.header.number;
            world.journals.get(&begin).is_some_and(|journal| *journal == (number, world.boot))
        };
        if !journaled {
            self.write(claim, BAD);
            self.write(claim, GOOD[self.source()]);
        }
        let mut world = self.step();
        let Some(inode) = world.names.0.get(&Entry::Temporary).copied() else { return };
        let inode = world.inodes.get_mut(&inode).unwrap();
        inode.synced.resize(RANGES, 0);
        inode.synced[self.pages()].copy_from_slice(&inode.bytes[self.pages()]);
        let journal = (claim.header.number, world.boot);
        world.journals.insert(begin, journal);
        world.change(Change::Set(Entry::Journal(begin), 0));
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
        let mut world = self.node.world.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
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
        world.change(Change::Remove(Entry::Temporary));
        let inode = world.inode(vec![0; RANGES]);
        world.inodes.get_mut(&inode).unwrap().synced = vec![0; RANGES];
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
        let time = Some(world.time_of(self.source()));
        assert!(world.named_time() != time, "a name is given twice");
        world.change(Change::Rename);
        world.renames += 1;
        let source = self.source();
        world.told[source].clear();
        world.check_name("when it was named");
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut world = self.step();
        world.synced_names = world.names.clone();
        world.unsynced.clear();
        Ok(())
    }

    fn remove_journal(&self, range_begin: u64) {
        let mut world = self.step();
        world.change(Change::Remove(Entry::Journal(range_begin)));
        let step = world.step;
        world.removed_at.get_or_insert(step);
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

    fn pause(&self) {
        drop(self.step());
    }
}

/// Runs all sessions to their end, and gives the number of steps.
fn run(seed: u64, faults: Faults) -> u64 {
    let nodes = if faults.swaps > 0 { CUTS.iter().sum() } else { RANGES };
    let world = Arc::new((Mutex::new(World::new(seed, faults, nodes)), Condvar::new()));
    let node = |number: usize| {
        let runs = Cell::new((seed as u32 + number as u32) % 3);
        let (world, boot, failures) = (world.clone(), Cell::new(1), Cell::new(0));
        Node { number, world, boot, runs, failures }
    };
    let threads: Vec<_> = (0..nodes)
        .map(|number| {
            let node = node(number);
            thread::spawn(move || node.run())
        })
        .collect();
    for thread in threads {
        assert!(thread.join().is_ok(), "seed {seed}, {faults:?}");
    }
    // All runs two times more, one after the other: the last one brings what is missing, and then
    // they tidy up what a death at the end left.
    let source = {
        let mut world = world.0.lock().unwrap();
        world.faults = Faults { are_two_files: faults.are_two_files, ..NONE };
        world.source
    };
    let cuts = CUTS[source];
    for number in (0..2 * cuts).map(|number| source * RANGES + number % cuts) {
        {
            let mut world = world.0.lock().unwrap();
            world.alive[number] = true;
            world.running = number;
        }
        let node = node(number);
        node.failures.set(FAILURES_MAX);
        node.run();
    }
    let world = world.0.lock().unwrap();
    world.check_end(source, &format!("seed {seed}, {faults:?}"));
    if !faults.are_two_files && faults.cut_at.or(faults.cut_behind_removal).is_none() {
        assert_eq!(world.renames, 1, "seed {seed}, {faults:?}");
    }
    world.step
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
};

#[test]
fn a_file_gets_its_name_once_whichever_session_dies_at_whichever_step() {
    for seed in 1..4 {
        let steps = run(seed, NONE);
        for step in 1..steps + 20 {
            run(seed, Faults { kill_at: Some(step), ..NONE });
        }
    }
}

#[test]
fn a_file_gets_its_name_whenever_the_power_goes() {
    for seed in 11..15 {
        let steps = run(seed, NONE);
        for step in 1..steps + 20 {
            run(seed, Faults { cut_at: Some(step), ..NONE });
        }
    }
}

#[test]
fn a_file_gets_its_name_though_sessions_die_all_the_time() {
    for seed in 100..400 {
        run(seed, Faults { kills: 12 + seed % 50, cut_at: Some(seed % 170), ..NONE });
    }
}

#[test]
fn no_plan_is_all_done_without_the_name_though_its_source_is_replaced_and_comes_back() {
    for seed in 0..400 {
        run(seed, Faults { swaps: 20 + seed % 200, ..NONE });
        let kills = 30 + seed % 70;
        let cut_at = Some(seed % 300);
        run(seed, Faults { swaps: 20 + seed % 200, kills, cut_at, ..NONE });
    }
}

#[test]
fn no_plan_is_all_done_without_the_name_though_another_plan_gives_it_to_its_own_file() {
    for seed in 0..400 {
        let swaps = 20 + seed % 200;
        run(seed, Faults { swaps, are_two_files: true, ..NONE });
        let (kills, cut_at) = (30 + seed % 70, Some(seed % 300));
        run(seed, Faults { swaps, are_two_files: true, kills, cut_at, ..NONE });
    }
}

/// Moments at which a register of one source becomes one of another.
#[test]
fn no_register_speaks_of_a_temporary_that_was_made_anew_and_no_journal_stays() {
    for seed in 0..600 {
        let swaps = 20 + seed % 60;
        run(seed, Faults { swaps, dies_remaking: true, ..NONE });
        run(seed, Faults { swaps, cut_behind_removal: Some(seed % 10), ..NONE });
    }
}

#[test]
fn no_plan_is_all_done_without_the_name_though_somebody_removes_the_temporary() {
    for seed in 0..200 {
        run(seed, Faults { removals: 20 + seed % 100, ..NONE });
        let (swaps, removals, kills) = (30 + seed % 100, 50 + seed % 100, 40 + seed % 70);
        run(seed, Faults { swaps, removals, kills, ..NONE });
    }
}
