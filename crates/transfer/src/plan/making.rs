//! Makes a plan: walks the source once, cuts what is there into batches, and writes the shards.

use super::{
    balance::{Batch, Cutting, distribute},
    cutting::{LargeFiles, cut, write_range},
    earlier::{Earlier, EarlierPlan, Known},
    growing::{Growing, ShardSize},
    line::{Head, Line, Sink},
    plan_file::{
        LOCK_FILE, PLAN_FILE, Plan, SHARDS_MAX, VERSION, VERSION_GROWING, VERSION_WITH_RANGES,
        create_anew, is_shard, shard_path,
    },
    shard::ShardLoad,
};
use crate::{
    Interrupt,
    bytes::{hex, random_bytes},
    error::{TransferError, problem},
    name::Name,
    options::SourceSpec,
    problem::Problem,
    selection::Selection,
    storage::{
        named_sources::walk_named,
        root::split_last,
        source::{Location, SourceEntry},
        walk::{Listed, Purpose, WalkOptions, is_at_or_below},
    },
};
use haul_protocol::message::{Fault, FileKind};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File},
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{self, Component, Path, PathBuf},
    sync::atomic::Ordering,
};

/// A plan to make.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// The directory whose names are planned, from the root on.
    pub source: PathBuf,
    /// Targets as the user named them.
    pub targets: Vec<String>,
    /// How many shards there are, or how large.
    pub shards: Shards,
    /// Names that are meant.
    pub selection: Selection,
    /// Treatment of files that are large beside a shard.
    pub large_files: LargeFiles,
    /// Directory of the plan, which is made where it is not there.
    pub place: PathBuf,
    /// Earlier plans of the source, the oldest first: what their runs have moved, and is as it was
    /// then, is left out.
    pub again: Vec<EarlierPlan>,
    /// Whether each name that an earlier plan has stays with its target, as where the targets share
    /// no file system. There are at least as many shards as targets then, and their number is
    /// known.
    pub keeps_targets: bool,
}

/// Number of the shards of a plan, or their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shards {
    /// Number of shards of equal weight. They are there when all names are known.
    Count(u32),
    /// Size of each shard, of which as many come as have to. Each is there when it is full.
    Size(ShardSize),
}

/// A plan that was made, and what could not be planned.
#[derive(Debug)]
#[non_exhaustive]
pub struct Made {
    /// The plan.
    pub plan: Plan,
    /// Load of each shard.
    pub loads: Vec<ShardLoad>,
    /// Entries that could not be listed.
    pub failed: Entries,
    /// Entries of kinds that are not moved.
    pub left_out: Entries,
    /// Names of an earlier plan that are not in this one, for a run has moved them, and that are
    /// gone from the source. `None` where there was no earlier plan.
    pub unchanged_and_gone: Option<(u64, u64)>,
}

/// Entries without a line, each with the reason: the first of them, and how many there are.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Entries {
    /// The first of them, at most a thousand.
    pub first: Vec<Problem>,
    /// Number of all.
    pub count: u64,
}

/// Entries without a line whose reasons are kept; the others are counted.
const ENTRIES_KEPT_MAX: usize = 1000;

impl Entries {
    fn add(&mut self, fault: &Fault) {
        self.count += 1;
        if self.first.len() < ENTRIES_KEPT_MAX {
            self.first.push(Problem::of(fault));
        }
    }

    /// Number of those that are not among the first.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.count - self.first.len() as u64
    }
}

/// Makes a plan.
///
/// # Errors
/// If the source is no directory, the place has a plan already, it cannot be written, or the
/// earlier plan cannot be read.
pub fn make(request: &PlanRequest, interrupt: &Interrupt) -> Result<Made, TransferError> {
    let PlanRequest { source, place, .. } = request;
    check(request)?;
    let written = |error: io::Error| {
        let what = format!("cannot write the plan in {}", place.display());
        let hint = "name another by --out";
        problem(&what, "room to write", &error.to_string(), hint)
    };
    let failed = |error: io::Error| TransferError::start(written(error));
    // What is made in the source would be moved by the next plan.
    check_apart(source, place)?;
    fs::create_dir_all(place).map_err(failed)?;
    let _held = hold(place).map_err(failed)?.ok_or_else(|| at_work(place))?;
    check_new(place)?;
    remove_stale(place).map_err(failed)?;
    // All that may be refused, before there is a plan.
    let walk = Walking::of(request)?;
    let id = hex(&random_bytes::<8>().map_err(failed)?);
    let plan = Plan {
        version: VERSION,
        id,
        source: Name(source.as_os_str().as_bytes().to_vec()),
        targets: request.targets.clone(),
        shards: 0,
        files: 0,
        bytes: 0,
        rules: Some(request.selection.rules.clone()),
        failed: 0,
        growing: None,
        place: place.clone(),
    };
    match request.shards {
        Shards::Count(shards) => {
            let targets = if request.keeps_targets { request.targets.len() } else { 1 };
            let mut gathered = Gathered::new(place, shards, targets).map_err(failed)?;
            let ending = walk.all(&mut gathered, interrupt, &written)?;
            let plan = Plan { failed: ending.failed.count, ..plan };
            let (plan, loads) = gathered.finish(plan, request).map_err(failed)?;
            Ok(ending.made(plan, loads))
        }
        Shards::Size(size) => {
            let plan = Plan { version: VERSION_GROWING, ..plan };
            let how = (size, request.large_files);
            let mut growing = Growing::begin(plan, source, how).map_err(failed)?;
            let ending = walk.all(&mut growing, interrupt, &written)?;
            let (plan, loads) = growing.finish(ending.failed.count).map_err(failed)?;
            Ok(ending.made(plan, loads))
        }
    }
}

/// A walk over all names that are to be planned.
struct Walking {
    source: SourceSpec,
    options: WalkOptions,
    earlier: Option<Earlier>,
}

impl Walking {
    fn of(request: &PlanRequest) -> Result<Self, TransferError> {
        let matcher = request.selection.compile().map_err(TransferError::start)?;
        let names = request.selection.names.clone();
        let (matcher, purpose) = (Some(matcher), Purpose::Plan);
        let options = WalkOptions { matcher, names, purpose, ..WalkOptions::default() };
        let again = Some(&request.again).filter(|plans| !plans.is_empty());
        let earlier = again.map(|plans| Earlier::open(plans)).transpose();
        let earlier = earlier.map_err(TransferError::start)?;
        let source = SourceSpec::Path(request.source.as_os_str().to_owned());
        Ok(Self { source, options, earlier })
    }

    /// Gives the lines of all names to `sink`, in the order of a walk.
    fn all(
        self,
        sink: &mut dyn Sink,
        interrupt: &Interrupt,
        written: &dyn Fn(io::Error) -> Problem,
    ) -> Result<Ending, TransferError> {
        let Self { source, options, earlier } = self;
        let mut listing =
            Listing { sink, written, earlier, empty: None, ending: Ending::default() };
        for listed in walk_named(&[source], options) {
            if interrupt.load(Ordering::Relaxed) {
                return Err(TransferError::interrupted());
            }
            listing.take(listed).map_err(TransferError::start)?;
        }
        listing.finish().map_err(TransferError::start)
    }
}

fn check(request: &PlanRequest) -> Result<(), TransferError> {
    let PlanRequest { source, shards, .. } = request;
    if !source.is_dir() {
        let what = format!("cannot plan {}", source.display());
        let found = if source.exists() { "a single file" } else { "nothing of that name" };
        let hint = "push a single file by `haul push`";
        return Err(TransferError::start(problem(&what, "a directory", found, hint)));
    }
    if let Shards::Count(shards) = shards
        && !(1..=SHARDS_MAX).contains(shards)
    {
        let needs = format!("from 1 to {SHARDS_MAX} shards");
        let found = shards.to_string();
        let hint = "several for each machine are enough";
        return Err(TransferError::start(problem("cannot make the plan", &needs, &found, hint)));
    }
    let targets = request.targets.len();
    if request.keeps_targets
        && !matches!(shards, Shards::Count(shards) if *shards as usize >= targets)
    {
        let needs = format!("a number of shards, at least {targets}, as each has its own server");
        let hint = "name more shards, or say that the servers share a file system";
        let found = format!("{shards:?}");
        return Err(TransferError::start(problem("cannot make the plan", &needs, &found, hint)));
    }
    Ok(())
}

/// Holds a directory against other planners until the file is closed, by whatever end of the
/// process; `None` where another holds it.
///
/// # Errors
/// If the file cannot be made.
fn hold(place: &Path) -> io::Result<Option<File>> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags((rustix::fs::OFlags::NOFOLLOW.bits()).cast_signed());
    let file = options.open(place.join(LOCK_FILE))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        // Some file systems have no locks: then nothing tells of the other.
        _ => Ok(Some(file)),
    }
}

fn at_work(place: &Path) -> TransferError {
    let what = format!("another haul plan makes a plan in {}", place.display());
    let hint = "wait until it has ended and run that plan, or name another directory by --out";
    TransferError::start(problem(&what, "a directory of its own", "one that is in use", hint))
}

fn check_new(place: &Path) -> Result<(), TransferError> {
    if !place.join(PLAN_FILE).exists() {
        return Ok(());
    }
    let what = format!("there is a plan in {} already", place.display());
    let hint = "run it, or name another directory";
    Err(TransferError::start(problem(&what, "a new directory", "one", hint)))
}

/// Removes the shards that a planner left which was killed: the new plan may have fewer. A planner
/// for several targets writes the shards of one behind those of another, so numbers may be missing.
///
/// # Errors
/// If one cannot be removed.
fn remove_stale(place: &Path) -> io::Result<()> {
    for entry in fs::read_dir(place)? {
        let name = entry?.file_name();
        if is_shard(&name) {
            fs::remove_file(place.join(name))?;
        }
    }
    Ok(())
}

/// Checks that the plan is not a part of what is planned: it holds tokens, and would be moved.
fn check_apart(source: &Path, place: &Path) -> Result<(), TransferError> {
    if !real(place).starts_with(real(source)) {
        return Ok(());
    }
    let what = format!("cannot write the plan in {}", place.display());
    let needs = "a directory outside of the source, which would be moved with it";
    let found = format!("one below {}", source.display());
    let hint = "name another by --out";
    Err(TransferError::start(problem(&what, needs, &found, hint)))
}

/// The path without links and `..`, also of what is not there yet, as `realpath -m` tells it.
fn real(path: &Path) -> PathBuf {
    let whole = path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut real = PathBuf::new();
    for component in whole.components() {
        match component {
            Component::ParentDir => drop(real.pop()),
            other => real.push(other),
        }
        real = fs::canonicalize(&real).unwrap_or(real);
    }
    real
}

/// A file without a name, for the lines of all shards in the order of the walk.
fn tempfile_in(place: &Path) -> io::Result<File> {
    let path = place.join(".lines.new");
    let file = create_anew(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// Lines that are shared out when all of them are known.
struct Gathered {
    /// Lines of each target whose names stay there; else one for all.
    groups: Vec<Group>,
    shards: u32,
    /// Directory of the last name that no earlier plan has, and its group.
    last_new: (Vec<u8>, usize),
}

/// Lines that are shared out over some of the shards.
struct Group {
    lines: BufWriter<File>,
    cutting: Cutting,
    /// Directory of the last name.
    directory: Vec<u8>,
    /// Numbers of the shards.
    numbers: Vec<u32>,
    bytes: u64,
}

impl Group {
    fn new(place: &Path, numbers: Vec<u32>) -> io::Result<Self> {
        let lines = BufWriter::new(tempfile_in(place)?);
        let shards = u32::try_from(numbers.len()).expect("at most SHARDS_MAX");
        let directory = Vec::new();
        Ok(Self { lines, cutting: Cutting::new(shards), directory, numbers, bytes: 0 })
    }

    /// Bytes that a shard has, on average.
    fn load(&self) -> u64 {
        self.bytes / self.numbers.len() as u64
    }
}

impl Gathered {
    fn new(place: &Path, shards: u32, targets: usize) -> io::Result<Self> {
        let numbers = |target| (1..=shards).skip(target).step_by(targets).collect();
        let groups = (0..targets).map(|target| Group::new(place, numbers(target)));
        Ok(Self { groups: groups.collect::<io::Result<_>>()?, shards, last_new: (Vec::new(), 0) })
    }

    /// Writes the shards, and the plan last.
    fn finish(self, plan: Plan, request: &PlanRequest) -> io::Result<(Plan, Vec<ShardLoad>)> {
        let mut loads = vec![ShardLoad::default(); self.shards as usize];
        let mut plan = Plan { shards: self.shards, ..plan };
        for Group { lines, cutting, numbers, .. } in self.groups {
            let mut lines = lines.into_inner().map_err(io::IntoInnerError::into_error)?;
            let (mut batches, files, bytes) = cutting.finish();
            plan.files += files;
            plan.bytes += bytes;
            let of = (&*request.source, u32::try_from(numbers.len()).expect("at most SHARDS_MAX"));
            let lists = cut(&mut lines, &mut batches, of, request.large_files)?;
            let small = distribute(batches, numbers.len());
            for ((large, small), number) in lists.into_iter().zip(small).zip(numbers) {
                let mut list = [large, small].concat();
                list.sort_by_key(|batch| (batch.from, batch.range));
                let head = head_of(&plan, number, &list);
                plan.version = plan.version.max(head.haul_shard);
                write_shard(&mut lines, &list, &head, &request.place)?;
                loads[number as usize - 1] = load_of(&list);
            }
        }
        plan.write()?;
        Ok((plan, loads))
    }

    /// Group of a line: that of the earlier shard's target. What is new goes where least is, but
    /// names of one directory stay together.
    fn group_of(&mut self, line: &Line, shard: Option<u32>) -> usize {
        let targets = self.groups.len();
        if let Some(shard) = shard {
            return (shard as usize - 1) % targets;
        }
        let directory = split_last(&line.path.0).0;
        if self.last_new.0 != directory || directory.is_empty() {
            let least = (0..targets).min_by_key(|group| self.groups[*group].load());
            self.last_new = (directory.to_vec(), least.unwrap_or(0));
        }
        self.last_new.1
    }
}

impl Sink for Gathered {
    fn take(&mut self, line: &Line, shard: Option<u32>) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let group = self.group_of(line, shard);
        let group = &mut self.groups[group];
        group.bytes += line.bytes;
        let directory = split_last(&line.path.0).0;
        let goes_on = group.directory == directory;
        if !goes_on {
            group.directory = directory.to_vec();
        }
        group.cutting.take(text.len() as u64, line.bytes, goes_on);
        group.lines.write_all(&text)
    }
}

/// The lines of a walk.
struct Listing<'a> {
    sink: &'a mut dyn Sink,
    written: &'a dyn Fn(io::Error) -> Problem,
    earlier: Option<Earlier>,
    /// A directory of which nothing below has come yet.
    empty: Option<Line>,
    ending: Ending,
}

/// Entries without a line, and those of an earlier plan.
#[derive(Default)]
struct Ending {
    failed: Entries,
    left_out: Entries,
    unchanged_and_gone: Option<(u64, u64)>,
}

impl Listing<'_> {
    fn take(&mut self, listed: Listed) -> Result<(), Problem> {
        match listed {
            Listed::Entry(entry) => self.entry(*entry)?,
            Listed::LeftOut(fault) => self.ending.left_out.add(&fault),
            Listed::Failed(fault) => self.ending.failed.add(&fault),
        }
        Ok(())
    }

    fn entry(&mut self, entry: SourceEntry) -> Result<(), Problem> {
        let Location::Beneath(_, path) = entry.location else { return Ok(()) };
        if let Some(empty) = self.empty.take()
            && !is_at_or_below(&path, &empty.path.0)
        {
            self.write(&empty)?;
        }
        // The source itself: each run makes it.
        if path.is_empty() {
            return Ok(());
        }
        let line = Line::of(path, &entry.offer);
        if entry.offer.kind == FileKind::Directory {
            self.empty = Some(line);
            return Ok(());
        }
        self.write(&line)
    }

    fn write(&mut self, line: &Line) -> Result<(), Problem> {
        let known = self.earlier.as_mut().map(|earlier| earlier.find(line)).transpose()?;
        match known.unwrap_or(Known::Differs { shard: None }) {
            Known::Moved => Ok(()),
            Known::Differs { shard } => self.sink.take(line, shard).map_err(self.written),
        }
    }

    fn finish(mut self) -> Result<Ending, Problem> {
        if let Some(empty) = self.empty.take() {
            self.write(&empty)?;
        }
        if let Some(earlier) = &mut self.earlier {
            earlier.finish()?;
            self.ending.unchanged_and_gone = Some((earlier.unchanged, earlier.gone));
        }
        Ok(self.ending)
    }
}

impl Ending {
    fn made(self, plan: Plan, loads: Vec<ShardLoad>) -> Made {
        let Self { failed, left_out, unchanged_and_gone } = self;
        Made { plan, loads, failed, left_out, unchanged_and_gone }
    }
}

/// Files and bytes of a shard.
fn load_of(list: &[Batch]) -> ShardLoad {
    let files = list.iter().map(|batch| batch.files).sum();
    ShardLoad { files, bytes: list.iter().map(|batch| batch.bytes).sum() }
}

fn head_of(plan: &Plan, shard: u32, list: &[Batch]) -> Head {
    let ShardLoad { files, bytes } = load_of(list);
    let has_ranges = list.iter().any(|batch| batch.range.is_some());
    let haul_shard = if has_ranges { VERSION_WITH_RANGES } else { VERSION };
    let begin_names = list.iter().filter(|batch| batch.range.is_none_or(|begin| begin == 0));
    let names = Some(begin_names.map(|batch| batch.files).sum()).filter(|names| *names != files);
    Head { haul_shard, plan: plan.id.clone(), shard, of: plan.shards, files, bytes, names }
}

/// Writes a shard, its lines in the order of the walk.
fn write_shard(lines: &mut File, list: &[Batch], head: &Head, place: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(create_anew(&shard_path(place, head.shard))?);
    serde_json::to_writer(&mut file, head)?;
    file.write_all(b"\n")?;
    for batch in list {
        if let Some(begin) = batch.range {
            write_range(lines, batch, begin, &mut file)?;
            continue;
        }
        lines.seek(SeekFrom::Start(batch.from))?;
        io::copy(&mut lines.take(batch.len), &mut file)?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_protocol::message::{FaultCode, Side};
    use std::{collections::BTreeSet, os::unix::fs::symlink};

    #[test]
    fn of_very_many_entries_without_a_line_the_first_are_kept_and_the_rest_is_counted() {
        let mut entries = Entries::default();
        for number in 0..ENTRIES_KEPT_MAX + 7 {
            let fault = Fault::new(FaultCode::NotPermitted, Side::Source, "cannot be read");
            entries.add(&fault.at(format!("d/{number}")));
        }
        assert_eq!((entries.count, entries.first.len(), entries.left_out()), (1007, 1000, 7));
        assert!(entries.first[999].to_string().contains("d/999"));
    }

    /// The next plan would move the directories, empty as they are.
    #[test]
    fn a_plan_that_is_refused_for_its_place_makes_nothing_in_the_source() {
        let scratch = tempfile::tempdir().unwrap();
        let source = scratch.path().join("tree");
        fs::create_dir(&source).unwrap();
        symlink("tree", scratch.path().join("link")).unwrap();
        let request = |place: PathBuf| PlanRequest {
            source: source.clone(),
            targets: vec!["h:x".to_owned()],
            shards: Shards::Count(1),
            selection: Selection::default(),
            large_files: LargeFiles::Whole,
            place,
            again: Vec::new(),
            keeps_targets: false,
        };
        let made = |place: &str| make(&request(scratch.path().join(place)), &Interrupt::default());
        for place in ["tree", "tree/new/plan", "link/new/plan", "none/../tree/new"] {
            let refused = made(place).unwrap_err().to_string();
            assert!(refused.contains("outside of the source"), "{place}: {refused}");
        }
        assert_eq!(fs::read_dir(&source).unwrap().count(), 0);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2);
        for place in ["new/plan", "tree/../plan"] {
            assert_eq!(made(place).unwrap().plan.shards, 1, "{place}");
        }
    }

    /// Plans of several targets write each target's shards together: 1, 3 and 5 before 2, 4 and 6.
    #[test]
    fn of_a_planner_that_was_killed_no_shard_stays_though_numbers_are_missing() {
        let place = tempfile::tempdir().unwrap();
        for number in [2, 3, 5, SHARDS_MAX] {
            fs::write(shard_path(place.path(), number), "half a shard").unwrap();
        }
        let others = ["shard-1.jsonl", "shard-00001.jsonl.old", "shard-00000.jsonl", "notes"];
        for name in others {
            fs::write(place.path().join(name), "another's").unwrap();
        }
        remove_stale(place.path()).unwrap();
        let left = fs::read_dir(place.path()).unwrap();
        let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let left = left.collect::<BTreeSet<_>>();
        assert_eq!(left, others.map(String::from).into());
    }
}
