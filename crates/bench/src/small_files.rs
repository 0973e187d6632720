//! `haul bench files --small`: a tree of small files by haul, tar and rsync, beside the bare floor.
//!
//! On each file system all movers move the same warm tree to a new directory, durably, in
//! interleaved rounds; before them each runs once for the count of its system calls, and for every
//! byte to be compared. Nothing is told of a network: both sides are this host.

mod calls;
mod host_time;
mod movers;
mod place;
mod process;
pub mod programs;
mod tables;
mod targets;
mod tree;

use crate::{
    BenchError, Caller, host_facts,
    requests::{BenchSmallFiles, SmallFilesPlace},
    workshop::Workshop,
};
use anyhow::{Context, Result};
use calls::{CallCounts, Counter, Counting};
use haul_report::{host_facts::BenchWire, results::Results, spread::Spread, steps::Steps};
use movers::{Bed, Moved, Mover, SOURCE, TARGET, TREE};
use place::Place;
use std::{
    fs,
    time::{Duration, Instant},
};
use tree::{Look, Tree};

/// A round of a mover.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Round {
    moved: Moved,
    /// Time of one more sync of the file system after the clock's end.
    sync_after: Duration,
}

/// The rounds of one mover on one file system.
#[derive(Debug)]
struct MoverFound {
    mover: Mover,
    /// The rounds, in their order.
    rounds: Vec<Round>,
    counts: Option<CallCounts>,
    /// The reason why there is no round, or no other.
    refused: Option<String>,
}

/// Findings on one file system.
#[derive(Debug)]
struct PlaceFound {
    file_system: String,
    movers: Vec<MoverFound>,
    /// The reason why nothing was measured here.
    refused: Option<String>,
}

/// Findings of the bench.
#[derive(Debug)]
struct Found {
    tree: Tree,
    rounds: u32,
    places: Vec<PlaceFound>,
    /// The reason why calls are not counted.
    not_counted: Option<String>,
    /// Load of the last minute before the first run; `None` where it is not told.
    load: Option<f64>,
    cores: u32,
    /// Versions of the programs that were found.
    versions: Vec<String>,
    /// Whether this program is built for speed.
    is_release: bool,
}

impl MoverFound {
    /// The spread of a figure over the rounds.
    fn spread(&self, figure: impl Fn(&Round) -> f64) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(figure))
    }

    fn seconds(&self) -> Option<Spread> {
        self.spread(|round| round.moved.seconds)
    }

    /// Processor time of both sides for each file, in microseconds.
    fn cpu_us(&self, tree: Tree) -> Option<Spread> {
        self.spread(|round| per_file_us(round.moved.sends + round.moved.receives, tree))
    }
}

fn per_file_us(time: Duration, tree: Tree) -> f64 {
    time.as_secs_f64() * 1e6 / tree.files.max(1) as f64
}

/// Moves small files by each mover on each file system.
///
/// # Errors
/// If nothing could start, or it was interrupted.
pub fn run(plan: &BenchSmallFiles, caller: &Caller) -> Result<Results, BenchError> {
    let workshop = Workshop::new(&plan.directory, caller)?;
    let bench = "files --small";
    let found = find(plan, &workshop).map_err(|error| BenchError::broke_off(bench, &error))?;
    let facts = host_facts::of_workshop(bench, &workshop, BenchWire::Loopback).chosen_by_path();
    Ok(tables::results(&found, facts))
}

fn find(plan: &BenchSmallFiles, workshop: &Workshop) -> Result<Found> {
    let load = host_time::load_of_a_minute();
    let counter = Counter::find(workshop);
    let tree = Tree { files: plan.files, file_bytes: plan.file_bytes };
    let runs = Mover::ALL.len() * (1 + plan.rounds as usize);
    let steps = workshop.steps(runs * plan.places.len());
    let started = Instant::now();
    let mut places: Vec<PlaceFound> = Vec::new();
    for (number, wanted) in plan.places.iter().enumerate() {
        // What is left of the time is shared by the places that are left.
        let left = plan.time_max.saturating_sub(started.elapsed());
        let time_max = left / u32::try_from(plan.places.len() - number).unwrap_or(1);
        let rounds = Rounds { count: plan.rounds, time_max };
        // strace takes its time, and calls are those of a program, not of a file system.
        let is_counted = places.iter().any(|place| place.refused.is_none());
        let counter = match &counter {
            Counter::Strace(_) if is_counted => None,
            counter => Some(counter),
        };
        places.push(match Place::open(*wanted, plan, workshop) {
            Ok(place) => on_place(workshop, &place, tree, rounds, counter, &steps)?,
            Err(why) => not_on_place(*wanted, why.to_string()),
        });
    }
    let not_counted = match counter {
        Counter::Nothing(why) => Some(why),
        Counter::Tracepoints { .. } | Counter::Strace(_) => None,
    };
    let version = |program| programs::version(&programs::find(program).ok()?);
    let versions = ["tar", "rsync"].into_iter().filter_map(version).collect();
    Ok(Found {
        tree,
        rounds: plan.rounds,
        places,
        not_counted,
        load,
        cores: workshop.host.cores,
        versions,
        is_release: cfg!(not(debug_assertions)),
    })
}

fn not_on_place(wanted: SmallFilesPlace, why: String) -> PlaceFound {
    let file_system = wanted.name().to_owned();
    PlaceFound { file_system, movers: Vec::new(), refused: Some(why) }
}

/// The rounds on one file system, and the time after which none begins.
#[derive(Clone, Copy, Debug)]
struct Rounds {
    count: u32,
    time_max: Duration,
}

fn on_place(
    workshop: &Workshop,
    place: &Place,
    tree: Tree,
    rounds: Rounds,
    counter: Option<&Counter>,
    steps: &Steps,
) -> Result<PlaceFound> {
    let bed = Bed { workshop, place, tree, counting: &Counting::Nothing };
    tree.make(&bed.source(), || workshop.go_on())?;
    place.sync()?;
    let started = Instant::now();
    let mut movers: Vec<MoverFound> = Mover::ALL
        .into_iter()
        .map(|mover| MoverFound {
            mover,
            rounds: Vec::new(),
            counts: None,
            refused: mover.find().err().map(|why| why.to_string()),
        })
        .collect();
    let mut counting = match counter {
        Some(counter) => counter.open(workshop)?,
        None => Counting::Nothing,
    };
    for found in &mut movers {
        steps.begin(&format!("{}, {}, calls", place.file_system, found.mover.name()));
        attempt(workshop, found, |found| {
            found.counts = counted(&bed, &mut counting, found.mover)?;
            Ok(())
        })?;
    }
    // An open counter makes each call slower.
    drop(counting);
    for round in 0..rounds.count {
        if round > 0 && started.elapsed() > rounds.time_max {
            break;
        }
        // Each second round the other way round, so that no mover always comes after the same one.
        let order = (0..movers.len()).map(|at| match round % 2 {
            0 => at,
            _ => movers.len() - 1 - at,
        });
        for at in order.collect::<Vec<_>>() {
            let found = &mut movers[at];
            steps.begin(&format!("{}, {}", place.file_system, found.mover.name()));
            attempt(workshop, found, |found| {
                let round = one_run(&bed, found.mover, Look::Lengths)?;
                found.rounds.push(round);
                Ok(())
            })?;
        }
    }
    fs::remove_dir_all(place.directory.join(SOURCE)).context("the source stays")?;
    let file_system = place.file_system.clone();
    Ok(PlaceFound { file_system, movers, refused: None })
}

/// Runs a mover that was not refused; one that fails is refused from then on.
fn attempt(
    workshop: &Workshop,
    found: &mut MoverFound,
    work: impl FnOnce(&mut MoverFound) -> Result<()>,
) -> Result<()> {
    workshop.go_on()?;
    if found.refused.is_some() {
        return Ok(());
    }
    if let Err(error) = work(found) {
        workshop.go_on()?;
        found.refused = Some(format!("{error:#}"));
    }
    Ok(())
}

/// A run for the count of calls, whose every byte is compared.
fn counted(bed: &Bed<'_>, counting: &mut Counting<'_>, mover: Mover) -> Result<Option<CallCounts>> {
    prepare(bed)?;
    counting.begin()?;
    Bed { counting, ..*bed }.run(mover)?;
    let counts = counting.end()?;
    look_and_remove(bed, mover, Look::Bytes)?;
    Ok(counts)
}

fn one_run(bed: &Bed<'_>, mover: Mover, look: Look) -> Result<Round> {
    prepare(bed)?;
    let moved = bed.run(mover)?;
    let ended = Instant::now();
    bed.place.sync()?;
    let sync_after = ended.elapsed();
    look_and_remove(bed, mover, look)?;
    Ok(Round { moved, sync_after })
}

/// Makes the target's directory, reads the source into the page cache, has memory given by the
/// host, and leaves nothing to be written back.
fn prepare(bed: &Bed<'_>) -> Result<()> {
    let go_on = || bed.workshop.go_on();
    remove_target(bed)?;
    fs::create_dir(bed.target()).context("cannot make the target's directory")?;
    bed.tree.warm(&bed.source(), go_on)?;
    bed.workshop.touch_memory(2 * bed.tree.len_bytes())?;
    bed.place.sync()
}

fn look_and_remove(bed: &Bed<'_>, mover: Mover, look: Look) -> Result<()> {
    // The floor writes bytes of its own.
    let look = if mover == Mover::Floor { Look::Lengths } else { look };
    bed.tree.check(&bed.source(), &bed.target().join(TREE), look)?;
    remove_target(bed)?;
    bed.place.sync()
}

/// Removes the target of an earlier run, if there is one.
fn remove_target(bed: &Bed<'_>) -> Result<()> {
    match fs::remove_dir_all(bed.place.directory.join(TARGET)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context("the target stays")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A tree as the targets want it, on one file system, five rounds of each mover: the floor
    /// takes a second and tar three, haul so long, and so much processor time a file.
    pub(super) fn found(file_system: &str, haul_s: f64, cpu_us: u64) -> Found {
        let tree = Tree { files: targets::FILES_MIN, file_bytes: targets::FILE_BYTES };
        let seconds = |mover| match mover {
            Mover::Floor => 1.0,
            Mover::Tar => 3.0,
            Mover::HaulPush | Mover::HaulPull => haul_s,
            Mover::RsyncPush | Mover::RsyncPull => 4.0,
        };
        let round = |seconds: f64, cpu_us: u64| Round {
            moved: Moved {
                seconds,
                sends: Duration::from_micros(cpu_us * tree.files / 4),
                receives: Duration::from_micros(cpu_us * tree.files * 3 / 4),
                host: Some(Duration::from_micros(2 * cpu_us * tree.files)),
            },
            sync_after: Duration::from_millis(1),
        };
        let named = [("openat", 40_000), ("write", 20_000), ("brk", 3)];
        let named = named.map(|(name, calls)| (name.to_owned(), calls));
        let counts = CallCounts { by: "strace", all: 70_000, named: BTreeMap::from(named) };
        let mover = |mover| {
            // The middle one counts.
            let factors = [1.0, 3.0, 0.5, 1.0, 0.9];
            let rounds = factors.map(|factor| round(factor * seconds(mover), cpu_us));
            let counts = Some(counts.clone());
            MoverFound { mover, rounds: rounds.into(), counts, refused: None }
        };
        let movers = Mover::ALL.map(mover).into();
        let file_system = file_system.to_owned();
        Found {
            tree,
            rounds: 5,
            places: vec![PlaceFound { file_system, movers, refused: None }],
            not_counted: None,
            load: Some(0.25),
            cores: 2,
            versions: Vec::new(),
            is_release: true,
        }
    }

    #[test]
    fn a_mover_that_failed_is_not_run_again() {
        let workshop = Workshop::new(std::path::Path::new("."), &Caller::default()).unwrap();
        let mut one = found("xfs", 1.0, 1).places.remove(0).movers.remove(0);
        attempt(&workshop, &mut one, |_| anyhow::bail!("no room")).unwrap();
        assert_eq!(one.refused.as_deref(), Some("no room"));
        attempt(&workshop, &mut one, |_| panic!("it ran again")).unwrap();
    }
}
