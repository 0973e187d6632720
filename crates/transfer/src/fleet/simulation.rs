//! Prediction of a plan's time on a fleet that may not be there yet (`haul plan --simulate`).
//!
//! Runs take the shards in turn. What several use at once, each gets its fair share of; packets,
//! windows and single files are not simulated. Nothing is read or moved, and equal words give equal
//! answers.

mod changes;
mod course;
mod setup;
mod sharing;
mod tally;

pub use changes::{Change, Changed};
pub use setup::{NodeFailures, Resource, ResourceRates, SIMULATED_MAX, SimulatedFleet};
pub use tally::Cause;

use crate::{
    Interrupt,
    error::{TransferError, problem},
    plan::ShardLoad,
    problem::Problem,
};
use course::{GivenUp, Patience};
use tally::Tally;

/// Courses with different failures, at most and at least.
const COURSES: (u64, u64) = (100, 20);
/// Runs at a time, for each shard, of all courses together: more would take minutes.
const STEPS_MAX: u64 = 100_000_000;

/// Looks at slots after which no further course with failures is begun, and the simulation is given
/// up where there is none: some ten seconds of a processor.
const LOOKS_MAX: u64 = 200_000_000;

/// Time that a fleet needs for a plan, and what it goes for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// Seconds until all is at the target; with failures the median of all courses.
    pub seconds: f64,
    /// Seconds in which 5 and 95 % of the courses end.
    pub seconds_5_95: (f64, f64),
    /// Seconds until all is at the target if no node fails.
    pub sound_seconds: f64,
    /// Courses that were simulated: several where nodes fail.
    pub courses: u64,
    /// Failures of nodes in the mean of the courses.
    pub failures: f64,
    /// Bytes that were sent again after them.
    pub lost_bytes: f64,
    /// Files and bytes of the plan.
    pub load: ShardLoad,
    /// Uses of the runs' time with their shares, the largest first; all together 1.
    pub causes: Vec<(Cause, f64)>,
    /// Resources that have a limit.
    pub resources: Vec<ResourceUse>,
    /// Times of larger fleets, the best first; without failures.
    pub changes: Vec<Changed>,
}

/// Use of a resource over the whole time.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ResourceUse {
    /// Kind of the resource.
    pub resource: Resource,
    /// Number of it, from 1.
    pub number: u32,
    /// Bytes of files that it moves in a second at most.
    pub bytes_per_s: f64,
    /// Mean share of that which was used, 0 to 1.
    pub used: f64,
    /// Share of the runs' time in which it held them back, 0 to 1.
    pub held: f64,
}

/// Predicts how long a fleet takes for shards of these loads.
///
/// # Errors
/// If nodes fail too often for any end, or for one that can be simulated in some seconds; if the
/// number of nodes, runs or servers is 0 or too large; or if it is interrupted.
pub fn simulate(
    fleet: &SimulatedFleet,
    loads: &[ShardLoad],
    interrupt: &Interrupt,
) -> Result<Prediction, TransferError> {
    within(LOOKS_MAX, fleet, loads, interrupt)
}

/// Simulates within so many looks at slots where nodes fail. Without failures there is an end,
/// however many shards and runs there are.
fn within(
    looks: u64,
    fleet: &SimulatedFleet,
    loads: &[ShardLoad],
    interrupt: &Interrupt,
) -> Result<Prediction, TransferError> {
    check(fleet).map_err(TransferError::start)?;
    let sound = &mut Patience { looks: u64::MAX, interrupt };
    let looks = if fleet.failures.is_some() { looks } else { u64::MAX };
    let patience = &mut Patience { looks, interrupt };
    let mut sum: Option<Tally> = None;
    let mut times = Vec::new();
    for course in 0..courses(fleet, loads.len() as u64) {
        let tally = match course::run(fleet, loads, fleet.seed.wrapping_add(course), patience) {
            Err(GivenUp::TooLong) if course >= COURSES.1 => break,
            ran => ran.map_err(given_up)?,
        };
        times.push(tally.seconds);
        match &mut sum {
            Some(sum) => sum.add(&tally),
            None => sum = Some(tally),
        }
    }
    let sum = sum.expect("there is one course at least");
    let courses = times.len() as u64;
    times.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    let total = |of: fn(&ShardLoad) -> u64| loads.iter().map(of).fold(0, u64::saturating_add);
    let load = ShardLoad { files: total(|load| load.files), bytes: total(|load| load.bytes) };
    let (sound_seconds, changes) = changes::all(fleet, loads, sound).map_err(given_up)?;
    Ok(Prediction {
        seconds: at(0.5),
        seconds_5_95: (at(0.05), at(0.95)),
        sound_seconds,
        courses,
        failures: sum.failures as f64 / courses as f64,
        lost_bytes: sum.lost_bytes / courses as f64,
        load,
        resources: resource_uses(&sum),
        causes: sum.shares(),
        changes,
    })
}

fn resource_uses(sum: &Tally) -> Vec<ResourceUse> {
    let share = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
    let all = sum.resources.iter().zip(&sum.capacities).enumerate();
    let uses = all.map(|(at, ((resource, number), bytes_per_s))| ResourceUse {
        resource: *resource,
        number: *number,
        bytes_per_s: *bytes_per_s,
        used: share(sum.used_bytes[at], bytes_per_s * sum.seconds),
        held: share(sum.resource_held_s[at], sum.runs * sum.seconds),
    });
    uses.collect()
}

/// Number of courses: as many as take seconds, where failures make them different.
fn courses(fleet: &SimulatedFleet, shards: u64) -> u64 {
    let runs = (u64::from(fleet.nodes) * u64::from(fleet.runs)).min(shards);
    let steps = (shards * runs).max(1);
    if fleet.failures.is_some() { (STEPS_MAX / steps).clamp(COURSES.1, COURSES.0) } else { 1 }
}

fn given_up(why: GivenUp) -> TransferError {
    let what = match why {
        GivenUp::Endless => "the plan would never be through",
        GivenUp::TooLong => "the plan fails too often to be simulated",
        GivenUp::Interrupted => return TransferError::interrupted(),
    };
    let needs = "nodes that stay up long enough to bring a shard on";
    let found = match why {
        GivenUp::Endless => "a thousand failures for each shard",
        _ => "no end after some ten seconds of failures",
    };
    TransferError::start(problem(what, needs, found, "raise mtbf, or lower start"))
}

fn check(fleet: &SimulatedFleet) -> Result<(), Problem> {
    for (what, number) in [("nodes", fleet.nodes), ("runs", fleet.runs), ("servers", fleet.servers)]
    {
        if !(1..=SIMULATED_MAX).contains(&number) {
            let what = format!("cannot simulate {number} {what}");
            let needs = format!("from 1 to {SIMULATED_MAX}");
            return Err(problem(&what, &needs, &number.to_string(), "name another number"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
