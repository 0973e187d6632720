//! Times of a larger fleet: each thing is doubled by itself, and the plan simulated again.

use super::{
    course::{self, GivenUp, Patience},
    setup::{Resource, SIMULATED_MAX, SimulatedFleet},
    tally::Cause,
};
use crate::plan::{SHARDS_MAX, ShardLoad};

/// A thing of a fleet of which there could be twice as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Shards of the plan, each half as large.
    Shards,
    /// Runs at a time on each node.
    Runs,
    /// Rate of one run.
    RunRate,
    /// Rate of a resource, of all of its kind.
    Rate(Resource),
    /// Nodes, with their disks and cards.
    Nodes,
    /// Servers, with their disks and cards.
    Servers,
}

impl Change {
    /// Word for what is doubled, as in `--json`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Shards => "shards",
            Self::Runs => "runs",
            Self::RunRate => "run",
            Self::Rate(resource) => resource.word(),
            Self::Nodes => "nodes",
            Self::Servers => "servers",
        }
    }
}

/// Time of a plan with twice as much of a thing.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Changed {
    /// Thing of which there is twice as much.
    pub change: Change,
    /// Seconds until all is at the target, without failures.
    pub seconds: f64,
    /// Main use of the runs' time then.
    pub then: Cause,
}

/// Part of the time that a change must save to be named.
const SAVED_MIN: f64 = 0.05;
/// Part of the runs' time below which a cause is not looked at.
const SHARE_MIN: f64 = 0.01;

/// Time without failures, and all changes that save a twentieth of it, the best first. Of those
/// that are about equal the first of the list comes first: it costs least.
pub fn all(
    fleet: &SimulatedFleet,
    loads: &[ShardLoad],
    patience: &mut Patience,
) -> Result<(f64, Vec<Changed>), GivenUp> {
    let sound = SimulatedFleet { failures: None, ..fleet.clone() };
    let now = course::run(&sound, loads, 0, patience)?;
    let causes = now.shares();
    let matters = |cause| causes.iter().any(|it| it.0 == cause && it.1 > SHARE_MIN);
    let mut list = vec![Change::Shards, Change::Runs];
    list.extend(matters(Cause::Run).then_some(Change::RunRate));
    let rates = Resource::ALL.into_iter().filter(|it| matters(Cause::Resource(*it)));
    list.extend(rates.map(Change::Rate));
    list.extend([Change::Nodes, Change::Servers]);
    let mut changed = Vec::new();
    for change in list {
        let Some((fleet, loads)) = doubled(&sound, loads, change) else { continue };
        let then = course::run(&fleet, &loads, 0, patience)?;
        let Some((cause, _)) = then.shares().first().copied() else { continue };
        if then.seconds < now.seconds * (1.0 - SAVED_MIN) {
            changed.push(Changed { change, seconds: then.seconds, then: cause });
        }
    }
    let step = (now.seconds * SAVED_MIN).max(f64::MIN_POSITIVE);
    changed.sort_by_key(|changed| (changed.seconds / step) as u64);
    Ok((now.seconds, changed))
}

/// A fleet and shards with twice as much; `None` where that is more than there can be.
fn doubled(
    fleet: &SimulatedFleet,
    loads: &[ShardLoad],
    change: Change,
) -> Option<(SimulatedFleet, Vec<ShardLoad>)> {
    let (mut fleet, mut loads) = (fleet.clone(), loads.to_vec());
    let twice = |number: u32| Some(number * 2).filter(|number| *number <= SIMULATED_MAX);
    match change {
        Change::Nodes => fleet.nodes = twice(fleet.nodes)?,
        Change::Runs => fleet.runs = twice(fleet.runs)?,
        Change::Servers => fleet.servers = twice(fleet.servers)?,
        Change::RunRate => fleet.run_bytes_per_s = fleet.run_bytes_per_s.map(|rate| rate * 2.0),
        Change::Rate(resource) => {
            let rates = fleet.rates.get_mut(&resource)?;
            rates.each = rates.each.map(|rate| rate * 2.0);
            rates.single.values_mut().for_each(|rate| *rate *= 2.0);
        }
        Change::Shards => {
            let is_possible = loads.len() * 2 <= SHARDS_MAX as usize;
            let halves = |load: &ShardLoad| {
                let half = ShardLoad { files: load.files / 2, bytes: load.bytes / 2 };
                let rest =
                    ShardLoad { files: load.files - half.files, bytes: load.bytes - half.bytes };
                [half, rest]
            };
            loads = is_possible.then(|| loads.iter().flat_map(halves).collect())?;
        }
    }
    Some((fleet, loads))
}
