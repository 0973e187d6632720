//! Ranges of one file that several sessions bring, on whatever hosts they run.
//!
//! The session that completes the last range gives the file its name.
//!
//! All write one temporary, `.NAME.haul-shared`, and each has a journal of its range. The register
//! `.NAME.haul-ranges` says which ranges are durable and verified. Its locks are the only thing
//! that the sessions agree by: a lock on the bytes of a range belongs to the session that writes
//! it, and one byte behind all files, the gate, to the one that reads and changes the register.
//! SPEC 7.7 says why a name is never given before the last byte is durable, nor twice.
//!
//! The steps are written against [`Site`], so that a simulation can stand in for a file system that
//! loses power and for hosts that die between any two of them.

pub mod byte_set;
pub mod register;
#[cfg(test)]
mod simulation;
pub mod site;
#[cfg(test)]
mod tests;

use byte_set::ByteSet;
use register::{
    Clock, Counting, Header, NO_INODE, REGISTER_BYTES_MAX, Record, Register, State, Whole,
};
use std::{
    fmt, io,
    ops::Range,
    time::{Duration, Instant},
};

/// Place of the gate among the register's locks: behind the last byte of the largest file.
const GATE: Range<u64> = 1 << 60..(1 << 60) + 1;
/// All ranges of all files.
const ALL: Range<u64> = 0..1 << 60;
/// Time for which the gate is waited for at a range's end: its holder gives a file its name, which
/// takes a sync.
const GATE_PATIENCE: Duration = Duration::from_secs(60);
/// Marks of a register that followed one whose own are not known.
const LOST_UNKNOWN: u64 = u64::MAX;
const POLL: Duration = Duration::from_millis(20);

/// Directory of the file, as one session sees it.
pub trait Site {
    /// An open register: its locks are let go of when it is dropped.
    type Open;

    /// Opens the register, made when missing where `make` says so.
    ///
    /// # Errors
    /// What open(2) says; AlreadyExists where something else has its name.
    fn open_register(&self, make: bool) -> io::Result<Self::Open>;
    /// Whether the register's name is still that of the open one.
    fn has_its_name(&self, register: &Self::Open) -> bool;
    /// Locks bytes of the register's lock space; false where another session holds one of them.
    ///
    /// # Errors
    /// If the file system has no such locks.
    fn lock(&self, register: &Self::Open, bytes: Range<u64>) -> io::Result<bool>;
    fn unlock(&self, register: &Self::Open, bytes: Range<u64>);
    /// Reads the register, at most so many bytes. They are made durable before: whoever wrote them
    /// may have died between the two, and what they say is relied on.
    ///
    /// # Errors
    /// What read(2) says.
    fn read(&self, register: &Self::Open, bytes_max: u64) -> io::Result<Vec<u8>>;
    /// Writes to the register behind its first `at` bytes, syncs it, and cuts it behind that: at no
    /// moment is a header gone that was there, or without the records that follow it.
    ///
    /// # Errors
    /// What the calls say.
    fn write(&self, register: &Self::Open, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes the temporary anew, of this size, in the place of any other: its inode.
    ///
    /// # Errors
    /// What the calls say.
    fn make_temporary(&self, size_bytes: u64) -> io::Result<u64>;
    /// Size and time of modification of what has the file's name, where that is a file.
    fn named(&self) -> Option<(u64, i64, u32)>;
    /// Inode and size of the temporary, where there is one.
    fn temporary(&self) -> Option<(u64, u64)>;
    /// Gives the temporary mode, time and the like, and makes them durable.
    ///
    /// # Errors
    /// What the calls say.
    fn give_attributes(&self) -> io::Result<()>;
    /// Gives the temporary the file's name.
    ///
    /// # Errors
    /// What rename(2) says.
    fn rename(&self) -> io::Result<()>;
    /// Makes the names in the directory durable.
    ///
    /// # Errors
    /// What fsync(2) says.
    fn sync_names(&self) -> io::Result<()>;
    /// Removes the journal of the range that begins there, if there is one.
    ///
    /// # Errors
    /// What unlink(2) says of one that is there: it would go on to be believed.
    fn remove_journal(&self, range_begin: u64) -> io::Result<()>;
    fn remove_temporary(&self);
    fn remove_register(&self);
    /// A random number.
    ///
    /// # Errors
    /// If there is none.
    fn number(&self) -> io::Result<u64>;
    /// Clock of the session's host.
    fn clock(&self) -> Clock;
    /// Waits for as long as is between two tries for a lock.
    fn pause(&self);
}

/// Reason why a range cannot be brought.
#[derive(Debug)]
pub enum Refused {
    /// A session that lives brings a range that has bytes of this one.
    Held,
    /// A session that lives brings a range of a source that is another.
    OtherSource,
    /// The file has its name already.
    There,
    /// The register has as many records as it may have.
    Full,
    Failed(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// A range that a session brings, and the change time of the source's inode that it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub bytes: Range<u64>,
    /// Seconds and nanoseconds; zeros: not known.
    pub ctime: (i64, u32),
}

/// The right to bring a range, for as long as it lives.
pub struct Claim<S: Site> {
    site: S,
    open: S::Open,
    part: Part,
    /// Header of the register when the range was claimed.
    pub header: Header,
    /// Whether the range is durable and verified: nothing of it is to come.
    pub is_done: bool,
    /// Whether bytes of it were to be read back, or found lost: no journal is believed unread.
    pub is_doubted: bool,
}

impl<S: Site> fmt::Debug for Claim<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim({:?})", self.part)
    }
}

/// End of a range that was brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The file has its name.
    Named,
    /// Other ranges are missing.
    Waiting,
    /// All ranges are there, and some are of a source whose inode has changed since: each of those
    /// is to be compared by a session of its own.
    OutOfStep,
    /// All ranges are there, and some were told as durable before this host was started: those
    /// are to be read back ([`Claim::earlier`]). The session keeps its range until then.
    StartedAnew,
    /// Other ranges are missing, and some of them had been told as durable: nobody who brought one
    /// of those would come again without being asked.
    Lost,
    /// Other ranges are missing, for those that were told as durable are read back, or come again.
    Reopened,
}

/// Ranges that were told as durable before this host was started, as they are to be read back.
#[derive(Clone, Debug)]
pub struct Earlier {
    /// Ranges, the last that was told first. They may overlap.
    pub parts: Vec<Part>,
    /// Bytes that are believed, and need not be read.
    pub believed: ByteSet,
    /// Count of the register's records when that was looked at.
    records: usize,
}

/// Claims a range of a file. `recheck`: what is said to be durable is to be read back.
///
/// # Errors
/// If another session holds it, or the file system does not let it be held.
pub fn claim<S: Site>(
    site: S,
    whole: &Whole,
    part: Part,
    (recheck, patience): (bool, Duration),
) -> Result<Claim<S>, Refused> {
    let deadline = Instant::now() + patience;
    loop {
        let opened = through_gate(&site, true, &mut || Instant::now() < deadline)?;
        let Some(open) = opened else { return Err(Refused::Held) };
        let claimed = claim_at_gate(&site, &open, whole, &part, recheck);
        site.unlock(&open, GATE);
        match claimed {
            Ok(Claimed { header, is_done, is_doubted }) => {
                return Ok(Claim { site, open, part, header, is_done, is_doubted });
            }
            Err(Refused::Held | Refused::OtherSource) if Instant::now() < deadline => {
                drop(open);
                site.pause();
            }
            Err(refused) => return Err(refused),
        }
    }
}

/// Opens the register, made when missing where `make` says so, and waits for its gate while `waits`
/// says so; `None` where it stays locked.
fn through_gate<S: Site>(
    site: &S,
    make: bool,
    waits: &mut dyn FnMut() -> bool,
) -> io::Result<Option<S::Open>> {
    loop {
        let open = site.open_register(make)?;
        loop {
            match site.lock(&open, GATE) {
                Ok(true) => break,
                Ok(false) if !waits() => return Ok(None),
                Ok(false) => site.pause(),
                // Another host removed it.
                Err(error) if error.kind() == io::ErrorKind::StaleNetworkFileHandle => break,
                Err(error) => return Err(error),
            }
        }
        // Whoever held the gate may have given the file its name, and removed the register.
        if site.has_its_name(&open) {
            return Ok(Some(open));
        }
    }
}

/// Knowledge of a range that was claimed.
struct Claimed {
    header: Header,
    is_done: bool,
    is_doubted: bool,
}

fn claim_at_gate<S: Site>(
    site: &S,
    open: &S::Open,
    whole: &Whole,
    part: &Part,
    recheck: bool,
) -> Result<Claimed, Refused> {
    let bytes = site.read(open, REGISTER_BYTES_MAX)?;
    let register = match Register::decode(&bytes) {
        Some(register) if is_of(site, &register, whole, part.ctime) => register,
        there => {
            // Whoever gave it its name died before it could tidy up.
            if site.named() == Some((whole.size_bytes, whole.mtime_s, whole.mtime_ns)) {
                return Err(Refused::There);
            }
            // Nobody may be writing to what is taken away.
            if !site.lock(open, ALL)? {
                return Err(Refused::OtherSource);
            }
            site.unlock(open, ALL);
            // What it said is not known where it is torn, so it may have said anything.
            let torn = if is_blank(&bytes) { 0 } else { LOST_UNKNOWN };
            let lost = there.as_ref().map_or(torn, Register::lost);
            begin_anew(site, open, whole, (there, lost))?
        }
    };
    if !site.lock(open, part.bytes.clone())? {
        return Err(Refused::Held);
    }
    let clock = site.clock();
    let believed = Counting::of(part.ctime).since_start(clock);
    let is_done = !recheck && register.covers(&part.bytes, believed);
    let at = register.whole_bytes;
    // Room for the end of each range that was begun.
    if !is_done && at >= REGISTER_BYTES_MAX / 2 {
        return Err(Refused::Full);
    }
    let is_doubted = register.is_doubted(&part.bytes);
    let claimed = Claimed { header: register.header, is_done, is_doubted };
    if is_done {
        return Ok(claimed);
    }
    // What is written from now on is not what the journals of other cuts tell of.
    let cut_otherwise = register.cut_otherwise(&part.bytes);
    for begin in &cut_otherwise {
        site.remove_journal(*begin)?;
    }
    if !cut_otherwise.is_empty() {
        site.sync_names()?;
    }
    // What is written again is not durable until that is said again.
    let state = if register.touches(&part.bytes) { State::Reopened } else { State::Begun };
    if state == State::Begun && register.says(State::Begun, &part.bytes) {
        return Ok(claimed);
    }
    let record = Record { state, range: part.bytes.clone(), ctime: part.ctime, said: clock.now };
    site.write(open, at, &register.header.record(&record))?;
    Ok(claimed)
}

/// Whether nothing was ever said by a register: a crash may leave zeros of its first header.
fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Whether the register speaks of this file, and of the temporary that is there.
fn is_of<S: Site>(site: &S, register: &Register, whole: &Whole, ctime: (i64, u32)) -> bool {
    let there = site.temporary();
    let is_there = there == Some((register.header.temporary, whole.size_bytes));
    register.header.whole.is_same(whole, ctime) && is_there
}

fn begin_anew<S: Site>(
    site: &S,
    open: &S::Open,
    whole: &Whole,
    (before, lost): (Option<Register>, u64),
) -> io::Result<Register> {
    let header = Header { whole: *whole, temporary: NO_INODE, number: site.number()?, lost };
    if let Some(before) = before {
        for begin in before.begun() {
            site.remove_journal(begin)?;
        }
        // Nothing knows of them from now on.
        site.sync_names()?;
    }
    // What it said must not be said of another temporary, and what was lost stays known.
    site.write(open, 0, &header.encode())?;
    // A journal would stay whose register a power cut took away.
    site.sync_names()?;
    let temporary = site.make_temporary(whole.size_bytes)?;
    let header = Header { temporary, ..header };
    site.write(open, 0, &header.encode())?;
    Ok(Register::new(header))
}

impl<S: Site> Claim<S> {
    pub fn site(&self) -> &S {
        &self.site
    }

    pub fn part(&self) -> &Part {
        &self.part
    }

    /// Ends a range of which every byte is verified and durable: says so, and gives the file its
    /// name if it was the last one. The range is let go of, but where ranges of before are to be
    /// read back: then it may be ended once more.
    ///
    /// # Errors
    /// If the register was taken away, or a call fails: then nothing was promised.
    pub fn finish(&self) -> io::Result<Finished> {
        self.at_gate(|| {
            let finished = self.finish_at_gate();
            if !matches!(finished, Ok(Finished::StartedAnew)) {
                self.site.unlock(&self.open, self.part.bytes.clone());
            }
            finished
        })
    }

    /// Ranges that were told as durable before this host was started, of the source of this one.
    ///
    /// # Errors
    /// If the register was taken away, or a call fails.
    pub fn earlier(&self) -> io::Result<Earlier> {
        let register = self.at_gate(|| self.register())?;
        let of_source = Counting::of(self.part.ctime);
        let by_believed = of_source.since_start(self.site.clock());
        let parts = register.durable_only_by(of_source, by_believed).into_iter();
        Ok(Earlier {
            parts: parts.map(|it| Part { bytes: it.range, ctime: it.ctime }).collect(),
            believed: register.durable(by_believed),
            records: register.records(),
        })
    }

    fn at_gate<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let begun = Instant::now();
        while !self.site.lock(&self.open, GATE)? {
            if begun.elapsed() > GATE_PATIENCE {
                return Err(stays_locked());
            }
            self.site.pause();
        }
        let done = work();
        self.site.unlock(&self.open, GATE);
        done
    }

    /// Reads the register, which must still be of this claim.
    fn register(&self) -> io::Result<Register> {
        let Self { site, open, header, part: Part { ctime, .. }, .. } = self;
        register_of(site, open, header, *ctime)?.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "somebody took its register away")
        })
    }

    fn finish_at_gate(&self) -> io::Result<Finished> {
        let Self { site, open, part: Part { bytes, ctime }, .. } = self;
        let mut register = self.register()?;
        if !register.has_room(1, REGISTER_BYTES_MAX) {
            return Err(is_full());
        }
        let (of_source, clock) = (Counting::of(*ctime), site.clock());
        let believed = of_source.since_start(clock);
        let is_believed = register.covers(bytes, believed);
        if self.is_done && !is_believed {
            // The clock was set since the range was claimed, or another host found it lost; nothing
            // of it was read.
            let is_doubted = register.is_doubted(bytes);
            return Ok(if is_doubted { Finished::Reopened } else { Finished::StartedAnew });
        }
        // Hosts whose clocks were apart believe each other's records once these are said anew.
        let is_to_say_again = || {
            let is_own = register.covers(bytes, of_source.of_boot(clock.now.boot));
            self.is_done && is_own && !register.is_complete(believed)
        };
        if !is_believed || is_to_say_again() {
            let (range, said) = (bytes.clone(), clock.now);
            let record = Record { state: State::Done, range, ctime: *ctime, said };
            site.write(open, register.whole_bytes, &register.header.record(&record))?;
            register.push(record);
        }
        // The names of register and temporary, before anybody relies on what they hold.
        site.sync_names()?;
        if !register.is_complete(Counting::default()) {
            return Ok(match (register.is_marked_lost(), register.is_reopened()) {
                (true, _) => Finished::Lost,
                (false, true) => Finished::Reopened,
                (false, false) => Finished::Waiting,
            });
        }
        if !register.is_complete(of_source) {
            return Ok(Finished::OutOfStep);
        }
        if !register.is_complete(believed) {
            return Ok(Finished::StartedAnew);
        }
        site.give_attributes()?;
        site.rename()?;
        tidy(site, open, &register)?;
        Ok(Finished::Named)
    }

    /// Gives the range up. Where nothing of the file was ever durable and nobody else is at it, all
    /// that is there of it goes.
    pub fn give_up(&self) {
        let Self { site, open, part, .. } = self;
        let range = part.bytes.clone();
        site.unlock(open, range.clone());
        if matches!(site.lock(open, GATE), Ok(true)) {
            if site.has_its_name(open)
                && matches!(site.lock(open, ALL), Ok(true))
                && let Ok(bytes) = site.read(open, REGISTER_BYTES_MAX)
                && let Some(register) = Register::decode(&bytes)
                && register.header == self.header
                && register.is_empty()
                && register.begun().iter().all(|begin| *begin == range.start)
            {
                let _ = tidy(site, open, &register);
            }
            site.unlock(open, ALL);
            site.unlock(open, GATE);
        }
    }
}

/// Reads an open register, at its gate; `None` where it is not of that header any more.
fn register_of<S: Site>(
    site: &S,
    open: &S::Open,
    header: &Header,
    ctime: (i64, u32),
) -> io::Result<Option<Register>> {
    if !site.has_its_name(open) {
        return Ok(None);
    }
    let register = Register::decode(&site.read(open, REGISTER_BYTES_MAX)?);
    Ok(register.filter(|it| it.header == *header && is_of(site, it, &header.whole, ctime)))
}

fn stays_locked() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "its register stays locked")
}

fn is_full() -> io::Error {
    io::Error::other("its register is full")
}

/// Says of bytes that came before this host's start that all of them were read back and are there,
/// or that they are not. Nobody holds them meanwhile: of bytes that another session took up since,
/// or has read, nothing is said.
///
/// # Errors
/// Interrupted where `goes_on` says no while the gate is waited for; what the calls say.
pub fn say_read_back<S: Site>(
    site: &S,
    header: &Header,
    (part, earlier): (&Part, &Earlier),
    is_there: bool,
    goes_on: &mut dyn FnMut() -> bool,
) -> io::Result<()> {
    let deadline = Instant::now() + GATE_PATIENCE;
    let open = match through_gate(site, false, &mut || Instant::now() < deadline && goes_on()) {
        Ok(Some(open)) => open,
        Ok(None) if goes_on() => return Err(stays_locked()),
        Ok(None) => return Err(io::ErrorKind::Interrupted.into()),
        // The file has its name by now.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let Part { bytes, ctime } = part;
    let Some(register) = register_of(site, &open, header, *ctime)? else { return Ok(()) };
    let parts = register.told_since(earlier.records).missing_of(bytes);
    if !register.has_room(parts.len(), REGISTER_BYTES_MAX) {
        return Err(is_full());
    }
    if parts.is_empty() {
        return Ok(());
    }
    let state = if is_there { State::Done } else { State::Reopened };
    let said = site.clock().now;
    let record = |range| register.header.record(&Record { state, range, ctime: *ctime, said });
    let records: Vec<u8> = parts.into_iter().flat_map(record).collect();
    site.write(&open, register.whole_bytes, &records)
}

/// Removes what is not needed any more. The register goes when the name is durable and the others
/// are gone for certain: a crash may keep its removal alone, and it says which there were. Where
/// other sources lost ranges, it stays without records: theirs are to be told that when they come.
/// What a torn one may have said goes, or each file of the name would be told of losses for good.
///
/// # Errors
/// If the directory cannot be synced: then the register stays.
fn tidy<S: Site>(site: &S, open: &S::Open, register: &Register) -> io::Result<()> {
    for begin in register.begun() {
        // One that stays is of this register's number, which no other has.
        let _ = site.remove_journal(begin);
    }
    site.remove_temporary();
    site.sync_names()?;
    let Header { whole, lost, .. } = register.header;
    let lost = if lost == LOST_UNKNOWN { 0 } else { lost & !whole.mark() };
    if lost == 0 {
        site.remove_register();
    } else if !register.is_bare() {
        // A number of its own: records that a power cut brings back are not believed.
        let number = site.number()?;
        let bare = Header { temporary: NO_INODE, number, lost, ..register.header };
        site.write(open, 0, &bare.encode())?;
    }
    Ok(())
}

/// Removes what is left beside a file that has its name, unless a session is at it.
pub fn remove_left<S: Site>(site: &S) {
    let Ok(open) = site.open_register(false) else { return };
    let is_locked =
        matches!(site.lock(&open, GATE), Ok(true)) && matches!(site.lock(&open, ALL), Ok(true));
    if !is_locked || !site.has_its_name(&open) {
        return;
    }
    let Ok(bytes) = site.read(&open, REGISTER_BYTES_MAX) else { return };
    let Some(register) = Register::decode(&bytes) else {
        // One that is torn may speak of ranges that others rely on.
        if is_blank(&bytes) {
            let _ = tidy(site, &open, &Register::default());
        }
        return;
    };
    let Whole { size_bytes, mtime_s, mtime_ns, .. } = register.header.whole;
    // Ranges of another state of the file are somebody's who goes on with them.
    if site.named() == Some((size_bytes, mtime_s, mtime_ns)) {
        let _ = tidy(site, &open, &register);
    }
}
