//! `haul bench chooser`: compares what haul chooses with the best that this host can do.
//!
//! For each cell of the matrix (file system, size, warm or cold, streams) the choice and all pairs
//! of engines take turns, by real transfers over loopback. Ratios are taken within a round, so that
//! what changes on the machine from round to round cancels out.

mod tables;

use crate::{
    BenchError, Caller, GROUP_PREFIX,
    error::Lack,
    host_facts,
    mounts::ImageMount,
    requests::{BenchChooser, ChooserSize},
    side::{Role, SideSpec},
    transfers::{LoopbackServer, Push, PushReport, Pushed, PushedWith, ROOT},
    workshop::{ROOM_BYTES, Residency, SOURCE, Workshop},
};
use anyhow::{Context, Result, ensure};
use haul_datapath::{EngineInfo, Host, Verdict};
use haul_host::{FileSystem, FsKind, control_group::ControlGroup};
use haul_report::{host_facts::BenchWire, results::Results, spread::Spread, steps::Steps};
use haul_scratch::child::{Child, Wanted};
use std::{
    ffi::OsString,
    fs::File,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// A control group's limit, in bytes, where a file is to be larger than memory.
const GROUP_BYTES: u64 = 1 << 30;
/// The file for that limit, in bytes.
const BEYOND_GROUP_BYTES: u64 = 2 << 30;
/// Share of the best pair's rate that a pair must reach in the first round to be repeated.
const WORTH_REPEATING: f64 = 0.8;
/// Duels of the choice and the best pair for each round: no more than these two take part, and the
/// verdict is theirs.
const DUELS_FACTOR: u32 = 4;
/// Duels that are held however little time is left: one alone says nothing.
const DUELS_MIN: u32 = 4;
/// Time that a process needs to start and to end, beside its transfer.
const START_AND_END: Duration = Duration::from_millis(300);
/// Size below which a file gets more rounds: they tell more and take no time, as each transfer is
/// over in some milliseconds.
const SHORT_BYTES: u64 = 64 << 20;
const SHORT_ROUNDS_FACTOR: u32 = 4;
/// The directory where most systems have a tmpfs.
const TMPFS: &str = "/dev/shm";
/// File systems that root measures in image files.
const IMAGE_KINDS: [&str; 2] = ["xfs", "btrfs"];
/// Most bytes that a file system keeps for itself.
const IMAGE_EXTRA_BYTES: u64 = 1 << 30;
/// Longest time that reading a file once may take.
const READ_MAX: Duration = Duration::from_secs(600);

/// A cell of the matrix and what was found in it.
#[derive(Debug)]
pub struct Cell {
    pub file_system: String,
    /// The size in words, as `2 GiB with 1 GiB of memory`.
    pub size: String,
    pub len_bytes: u64,
    pub residency: Residency,
    pub streams: u32,
    /// The choice's report of each round; the first may be the only one.
    pub choice: Vec<PushReport>,
    pub pairs: Vec<PairRuns>,
    /// Reports of the choice and the best pair, run once more in turns: a pair that was the best by
    /// luck is found out here.
    pub duels: Vec<(PushReport, PushReport)>,
    /// The reason why nothing could be measured.
    pub skipped: Option<String>,
}

/// A pair of engines, forced, in each round of a cell.
#[derive(Debug)]
pub struct PairRuns {
    pub send: &'static str,
    pub receive: &'static str,
    pub runs: Vec<PushReport>,
    pub refused: Option<String>,
    /// Whether the pair was too slow in the first round to be the best.
    pub left_out: bool,
}

/// A directory that is measured, and what keeps it there.
struct Place {
    /// The directory of the bench, dropped before the mount that it lies on: fields are dropped in
    /// this order.
    workshop: Workshop,
    name: String,
    kind: FsKind,
    _mount: Option<ImageMount>,
}

/// Compares what haul chooses with every pair of engines.
///
/// # Errors
/// If nothing could start, or it was interrupted.
pub fn run(plan: &BenchChooser, caller: &Caller) -> Result<Results, BenchError> {
    let first = plan.directories.first().map_or(Path::new("."), PathBuf::as_path);
    // Holds the images too; the file systems in them are unmounted before it goes.
    let home = Workshop::new(first, caller)?;
    let facts = host_facts::of_workshop("chooser", &home, BenchWire::Loopback);
    let found = measure_all(plan, &home, caller);
    let cells = found.map_err(|error| BenchError::broke_off("chooser", &error))?;
    Ok(tables::results(plan, facts, &cells))
}

fn measure_all(plan: &BenchChooser, home: &Workshop, caller: &Caller) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    let started = Instant::now();
    let wanted = wanted_places(plan);
    let of_place = plan.sizes.len() * 2 * plan.streams.len();
    let steps = home.steps(wanted.len() * of_place);
    for (number, wanted_place) in wanted.iter().enumerate() {
        home.go_on()?;
        let place = match open(wanted_place, plan, home, caller) {
            Ok(place) => place,
            Err(why) => {
                cells.push(Cell::skipped(&wanted_place.name(), &why));
                continue;
            }
        };
        // What is left of the time is shared by the places that are left.
        let left = plan.time_max.saturating_sub(started.elapsed());
        let time_max = left / u32::try_from(wanted.len() - number).unwrap_or(1);
        cells.extend(measure_place(plan, &place, time_max, &steps)?);
    }
    Ok(cells)
}

fn open(
    wanted: &WantedPlace,
    plan: &BenchChooser,
    home: &Workshop,
    caller: &Caller,
) -> Result<Place, Lack> {
    let (directory, mount) = match wanted {
        WantedPlace::Directory(directory) => (directory.clone(), None),
        WantedPlace::Image(kind) => {
            let mount = image(plan, home, kind)?;
            (mount.path().to_owned(), Some(mount))
        }
    };
    let workshop = Workshop::new(&directory, caller)?;
    let kind = workshop.file_system().map_err(Lack::Figure)?.kind;
    Ok(Place { workshop, name: kind.to_string(), kind, _mount: mount })
}

/// The place where a bench is asked to work.
enum WantedPlace {
    Directory(PathBuf),
    /// A file system of this kind, made in an image file.
    Image(&'static str),
}

impl WantedPlace {
    fn name(&self) -> String {
        match self {
            Self::Directory(directory) => directory.display().to_string(),
            Self::Image(kind) => (*kind).to_owned(),
        }
    }
}

fn wanted_places(plan: &BenchChooser) -> Vec<WantedPlace> {
    if !plan.directories.is_empty() {
        return plan.directories.iter().cloned().map(WantedPlace::Directory).collect();
    }
    let here = File::open(".").and_then(FileSystem::of).map(|system| system.kind);
    let is_here = |name: &str| here.as_ref().is_ok_and(|kind| kind.name() == name);
    let mut wanted = vec![WantedPlace::Directory(".".into())];
    if Path::new(TMPFS).is_dir() && !is_here(FsKind::Tmpfs.name()) {
        wanted.push(WantedPlace::Directory(TMPFS.into()));
    }
    let images = IMAGE_KINDS.into_iter().filter(|kind| !is_here(kind));
    wanted.extend(images.map(WantedPlace::Image));
    wanted
}

/// An image that holds source and target of the largest file, if the disk below can.
fn image(plan: &BenchChooser, home: &Workshop, kind: &str) -> Result<ImageMount, Lack> {
    if !rustix::process::geteuid().is_root() {
        return Err(Lack::Root);
    }
    let bytes = |size: &ChooserSize| match size {
        ChooserSize::Bytes(bytes) => *bytes,
        ChooserSize::BeyondMemory => BEYOND_GROUP_BYTES,
    };
    let largest_bytes = plan.sizes.iter().map(bytes).max().unwrap_or(0);
    let size_bytes = largest_bytes.saturating_mul(2).saturating_add(IMAGE_EXTRA_BYTES);
    let free_bytes = home.free_bytes().map_err(Lack::Figure)?;
    if free_bytes < size_bytes + ROOM_BYTES {
        let needs_mib = (size_bytes + ROOM_BYTES) >> 20;
        return Err(Lack::ImageRoom { needs_mib, free_mib: free_bytes >> 20 });
    }
    ImageMount::new(home.path(), kind, size_bytes)
}

/// A size as it is brought about on this host.
struct Sized {
    len_bytes: u64,
    shown: String,
    /// Whether the file is larger than the memory of the processes that move it.
    beyond: bool,
    group: Option<ControlGroup>,
}

/// Makes a control group with little memory, so that a file can be larger than memory on any host.
fn memory_group() -> Result<ControlGroup, Lack> {
    let mut group = ControlGroup::new(GROUP_PREFIX);
    group.limit_memory(GROUP_BYTES)?;
    Ok(group)
}

fn sized(size: ChooserSize, place: &Place) -> Result<Sized, Lack> {
    let host = &place.workshop.host;
    let free_bytes = place.workshop.free_bytes().map_err(Lack::Figure)?;
    let fits = |len_bytes: u64| {
        let needs_bytes = len_bytes.saturating_mul(2).saturating_add(ROOM_BYTES);
        if needs_bytes <= free_bytes {
            return Ok(len_bytes);
        }
        Err(Lack::Room { needs_mib: needs_bytes >> 20, free_mib: free_bytes >> 20 })
    };
    let shown = haul_report::units::bytes;
    match size {
        ChooserSize::Bytes(bytes) => {
            let len_bytes = fits(bytes)?;
            Ok(Sized { len_bytes, shown: shown(bytes), beyond: false, group: None })
        }
        ChooserSize::BeyondMemory if place.kind == FsKind::Tmpfs => Err(Lack::InMemory),
        ChooserSize::BeyondMemory => match memory_group() {
            Ok(group) => Ok(Sized {
                len_bytes: fits(BEYOND_GROUP_BYTES)?,
                shown: format!("{} with {}", shown(BEYOND_GROUP_BYTES), shown(GROUP_BYTES)),
                beyond: true,
                group: Some(group),
            }),
            // Without a group only a file that is really larger will do.
            Err(why) => {
                let len_bytes = host.memory_bytes.saturating_add(host.memory_bytes / 4);
                let len_bytes =
                    fits(len_bytes).map_err(|room| Lack::Either(Box::new(why), Box::new(room)))?;
                let memory = shown(host.memory_bytes);
                let shown = format!("{} with {memory}", shown(len_bytes));
                Ok(Sized { len_bytes, shown, beyond: true, group: None })
            }
        },
    }
}

fn measure_place(
    plan: &BenchChooser,
    place: &Place,
    time_max: Duration,
    steps: &Steps,
) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    let started = Instant::now();
    let of_size = 2 * plan.streams.len();
    let mut left = plan.sizes.len() * of_size;
    for &size in &plan.sizes {
        let sized = match sized(size, place) {
            Ok(sized) => sized,
            Err(why) => {
                let size = match size {
                    ChooserSize::Bytes(bytes) => haul_report::units::bytes(bytes),
                    ChooserSize::BeyondMemory => "beyond memory".to_owned(),
                };
                cells.push(Cell { size, ..Cell::skipped(&place.name, &why) });
                left -= of_size;
                continue;
            }
        };
        place.workshop.make_source(sized.len_bytes, sized.len_bytes)?;
        let behind = sized.group.as_ref().map(ControlGroup::words).unwrap_or_default();
        let server = LoopbackServer::start(&place.workshop, &behind)?;
        for residency in [Residency::Warm, Residency::Cold] {
            for &streams in &plan.streams {
                let (name, shown) = (&place.name, &sized.shown);
                steps.begin(&format!("{name}, {shown}, {}, {streams}", residency.name()));
                let share = time_max.saturating_sub(started.elapsed()) / left.max(1) as u32;
                left = left.saturating_sub(1);
                let pairs = pairs(plan, &place.workshop.host);
                let mut cell = Cell::new(place, &sized, residency, streams, pairs);
                let bench = CellBench {
                    place,
                    sized: &sized,
                    server: &server,
                    behind: &behind,
                    pushes: std::cell::Cell::default(),
                };
                bench.measure(plan, &mut cell, share)?;
                cells.push(cell);
            }
        }
        drop(server);
        std::fs::remove_file(place.workshop.source())?;
    }
    Ok(cells)
}

impl Cell {
    fn new(
        place: &Place,
        sized: &Sized,
        residency: Residency,
        streams: u32,
        pairs: Vec<PairRuns>,
    ) -> Self {
        Self {
            file_system: place.name.clone(),
            size: sized.shown.clone(),
            len_bytes: sized.len_bytes,
            residency,
            streams,
            choice: Vec::new(),
            pairs,
            duels: Vec::new(),
            skipped: None,
        }
    }

    fn skipped(file_system: &str, why: &Lack) -> Self {
        Self {
            file_system: file_system.to_owned(),
            size: String::new(),
            len_bytes: 0,
            residency: Residency::Warm,
            streams: 0,
            choice: Vec::new(),
            pairs: Vec::new(),
            duels: Vec::new(),
            skipped: Some(why.to_string()),
        }
    }

    /// The pair with the highest median, of those that took part in every round.
    pub fn best(&self) -> Option<(&PairRuns, Spread)> {
        let whole = |pair: &&PairRuns| pair.refused.is_none() && !pair.left_out;
        let whole = self.pairs.iter().filter(whole);
        let rated = whole.filter_map(|pair| Some((pair, rate_of(&pair.runs)?)));
        rated.max_by(|one, other| one.1.median.total_cmp(&other.1.median))
    }

    /// Whether the choice is this very pair, by the report.
    pub fn chose(&self, pair: &PairRuns) -> bool {
        let same = |report: &PushReport| {
            let same_pair =
                report.send_engine == pair.send && report.receive_engine == pair.receive;
            same_pair && !report.changed
        };
        self.choice.first().is_some_and(same)
    }

    /// Longest time that a transfer of the first round is waited for; a pair that takes longer
    /// would be left out.
    fn worth_waiting(&self) -> Option<Duration> {
        // Of the pairs alone, so that one is left however much better the choice is.
        let rates = self.pairs.iter().filter_map(|pair| pair.runs.first()).map(|run| run.gb_per_s);
        let best = rates.fold(0.0, f64::max);
        let seconds = self.len_bytes as f64 / (WORTH_REPEATING * best * 1e9);
        Duration::try_from_secs_f64(seconds).ok().map(|seconds| seconds + START_AND_END)
    }

    /// Leaves out all pairs that cannot be the best, by their rates in the first round.
    fn leave_out_the_slow(&mut self) {
        let rate = |pair: &PairRuns| pair.runs.first().map_or(0.0, |run| run.gb_per_s);
        // Of the pairs alone, so that one is left however lucky the choice was.
        let best = self.pairs.iter().map(rate).fold(0.0, f64::max);
        for pair in &mut self.pairs {
            pair.left_out = rate(pair) < WORTH_REPEATING * best;
        }
    }
}

/// The rates of some transfers.
pub fn rate_of(runs: &[PushReport]) -> Option<Spread> {
    Spread::of(runs.iter().map(|run| run.gb_per_s))
}

/// Pairs of every engine that sends with every one that writes, with the reasons of those that do
/// not work on this host.
fn pairs(plan: &BenchChooser, host: &Host) -> Vec<PairRuns> {
    let refused = |engine: &EngineInfo| match (engine.probe)(host) {
        Verdict::Usable => None,
        Verdict::Refused { needs, found } => {
            Some(format!("{}: needs {needs}, found {found}", engine.name))
        }
    };
    // One that throws away is none for a file.
    let writes = |engine: &&&'static EngineInfo| engine.name != "discard";
    plan.senders
        .iter()
        .flat_map(|send| {
            plan.receivers.iter().filter(writes).map(move |receive| PairRuns {
                send: send.name,
                receive: receive.name,
                runs: Vec::new(),
                refused: refused(send).or_else(|| refused(receive)),
                left_out: false,
            })
        })
        .collect()
}

/// The common part of all transfers of a cell.
struct CellBench<'a> {
    place: &'a Place,
    sized: &'a Sized,
    server: &'a LoopbackServer,
    behind: &'a [OsString],
    /// Number of pushes made so far.
    pushes: std::cell::Cell<u64>,
}

impl CellBench<'_> {
    fn measure(&self, plan: &BenchChooser, cell: &mut Cell, time_max: Duration) -> Result<()> {
        let started = Instant::now();
        let short = cell.len_bytes < SHORT_BYTES && plan.rounds > 1;
        let rounds = if short { plan.rounds * SHORT_ROUNDS_FACTOR } else { plan.rounds };
        // The first transfer of a new server is slower than all others.
        if let Pushed::Refused(why) = self.push(cell, None, None)? {
            cell.skipped = Some(why);
            return Ok(());
        }
        for round in 0..rounds {
            if round > 0 && started.elapsed() > time_max {
                break;
            }
            self.round(cell, round as usize)?;
            if round == 0 {
                cell.leave_out_the_slow();
            }
        }
        let best = cell.best().filter(|(pair, _)| !cell.chose(pair));
        let Some((send, receive)) = best.map(|(pair, _)| (pair.send, pair.receive)) else {
            return Ok(());
        };
        for round in 0..rounds * DUELS_FACTOR {
            if round >= DUELS_MIN && started.elapsed() > time_max {
                break;
            }
            // In turns, so that neither is always the first.
            let best_first = round % 2 == 1;
            let early =
                if best_first { Some(self.push(cell, Some((send, receive)), None)?) } else { None };
            let choice = self.push(cell, None, None)?;
            let best = match early {
                Some(best) => best,
                None => self.push(cell, Some((send, receive)), None)?,
            };
            if let (Pushed::Done(choice), Pushed::Done(best)) = (choice, best) {
                cell.duels.push((*choice, *best));
            }
        }
        Ok(())
    }

    /// Runs the choice and all pairs once. Each round begins with another, so that none is always
    /// first.
    fn round(&self, cell: &mut Cell, round: usize) -> Result<()> {
        let count = cell.pairs.len() + 1;
        for turn in 0..count {
            let Some(at) = ((turn + round) % count).checked_sub(1) else {
                match self.push(cell, None, None)? {
                    Pushed::Done(report) => cell.choice.push(*report),
                    Pushed::Refused(why) => cell.skipped = Some(why),
                    Pushed::TooSlow => {}
                }
                continue;
            };
            let pair = &cell.pairs[at];
            if pair.refused.is_some() || pair.left_out {
                continue;
            }
            let worth_waiting = if round == 0 { cell.worth_waiting() } else { None };
            match self.push(cell, Some((pair.send, pair.receive)), worth_waiting)? {
                Pushed::Done(report) => cell.pairs[at].runs.push(*report),
                Pushed::Refused(why) => cell.pairs[at].refused = Some(why),
                Pushed::TooSlow => cell.pairs[at].left_out = true,
            }
        }
        Ok(())
    }

    fn push(
        &self,
        cell: &Cell,
        forced: Option<(&str, &str)>,
        worth_waiting: Option<Duration>,
    ) -> Result<Pushed> {
        let workshop = &self.place.workshop;
        workshop.go_on()?;
        self.clear_root()?;
        if let Some(why) = self.bring(cell)? {
            return Ok(Pushed::Refused(why));
        }
        // A name of its own: the server may not have noticed yet that the last one was ended.
        let number = self.pushes.get() + 1;
        self.pushes.set(number);
        let push = Push {
            source: SOURCE,
            len_bytes: cell.len_bytes,
            server: &self.server.url,
            target: &format!("{number}"),
            send_engine: forced.map(|(send, _)| send),
            receive_engine: forced.map(|(_, receive)| receive),
            streams: Some(cell.streams),
            protection: PushedWith::Default,
            worth_waiting,
        };
        push.run(workshop, self.behind)
    }

    /// Removes the last target, or what an ended push left of it.
    fn clear_root(&self) -> Result<()> {
        let root = self.place.workshop.path().join(ROOT);
        let what = || format!("cannot clear {}", root.display());
        for entry in std::fs::read_dir(&root).with_context(what)? {
            match std::fs::remove_file(entry.with_context(what)?.path()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(what);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes the source warm or cold. What is larger than memory is as warm as memory allows: read
    /// once, by a process with the same limit.
    fn bring(&self, cell: &Cell) -> Result<Option<String>> {
        let workshop = &self.place.workshop;
        let source = workshop.source();
        if cell.residency == Residency::Cold || !self.sized.beyond {
            return workshop.bring(&source, cell.len_bytes, cell.residency);
        }
        workshop.bring(&source, cell.len_bytes, Residency::Cold)?;
        let spec = SideSpec {
            engine: String::new(),
            role: Role::Read,
            streams: 1,
            len_bytes: cell.len_bytes,
            block_bytes: None,
            file: Some(SOURCE.into()),
            repeating_bytes: None,
            congestion: None,
            sample_every_ms: None,
            count_calls: false,
        };
        let spec = serde_json::to_string(&spec)?;
        let mut reader = Child::start_behind(self.behind, workshop.path(), "read", |command| {
            command.args(["bench-side", &spec]);
        })?;
        let line = reader.wait_for(
            READ_MAX,
            || workshop.go_on(),
            |line| Wanted::This(line["event"] == "done"),
        )?;
        ensure!(line == Some(true), "the source could not be read: {}", reader.errors());
        Ok(None)
    }
}
