//! Sums of a simulated transfer: its time, what held the runs back, and the use of each part.

use super::setup::Resource;
use std::collections::BTreeMap;

/// Use of the time of a run, or of a place for one that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A shared resource was full.
    Resource(Resource),
    /// One run is no faster.
    Run,
    /// One run handles no more files.
    Files,
    /// The run was starting.
    Start,
    /// No shard was left to take.
    NoShard,
    /// The node had failed, or a shard waited to be run again.
    Failures,
}

impl Cause {
    /// Word for the cause, as in `--json`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Resource(resource) => resource.word(),
            Self::Run => "run",
            Self::Files => "files",
            Self::Start => "start",
            Self::NoShard => "no_shard",
            Self::Failures => "failures",
        }
    }
}

/// Sums of one transfer.
#[derive(Clone, Debug)]
pub struct Tally {
    pub seconds: f64,
    pub moved_bytes: f64,
    /// Bytes that were sent and were not durable when a node failed.
    pub lost_bytes: f64,
    pub failures: u64,
    /// Runs that the fleet could have at a time.
    pub runs: f64,
    /// Seconds of runs, by what they went for; those without a run of the slots that had any.
    pub held_s: BTreeMap<Cause, f64>,
    /// Limited resources with their numbers.
    pub resources: Vec<(Resource, u32)>,
    /// Bytes that each moves in a second.
    pub capacities: Vec<f64>,
    pub used_bytes: Vec<f64>,
    /// Seconds of runs that each held back.
    pub resource_held_s: Vec<f64>,
}

impl Tally {
    pub fn new(resources: Vec<(Resource, u32)>, runs: f64, capacities: &[f64]) -> Self {
        Self {
            seconds: 0.0,
            moved_bytes: 0.0,
            lost_bytes: 0.0,
            failures: 0,
            runs,
            held_s: BTreeMap::new(),
            used_bytes: vec![0.0; resources.len()],
            resource_held_s: vec![0.0; resources.len()],
            resources,
            capacities: capacities.to_vec(),
        }
    }

    pub fn held(&mut self, cause: Cause, seconds: f64) {
        *self.held_s.entry(cause).or_default() += seconds;
    }

    /// Notes a resource that held a run back, and gives the cause.
    pub fn resource_held(&mut self, place: usize, seconds: f64) -> Cause {
        self.resource_held_s[place] += seconds;
        Cause::Resource(self.resources[place].0)
    }

    /// Adds another course of the same fleet.
    pub fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.moved_bytes += other.moved_bytes;
        self.lost_bytes += other.lost_bytes;
        self.failures += other.failures;
        for (cause, seconds) in &other.held_s {
            self.held(*cause, *seconds);
        }
        let add = |to: &mut Vec<f64>, from: &[f64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        };
        add(&mut self.used_bytes, &other.used_bytes);
        add(&mut self.resource_held_s, &other.resource_held_s);
    }

    /// Causes with their shares of the runs' time, the largest first.
    pub fn shares(&self) -> Vec<(Cause, f64)> {
        let mut held = self.held_s.clone();
        // Places that never had a shard have no slot in the course.
        let all = (self.runs * self.seconds).max(held.values().sum());
        let without = all - held.values().sum::<f64>();
        *held.entry(Cause::NoShard).or_default() += without.max(0.0);
        let share = |seconds: f64| if all > 0.0 { seconds / all } else { 0.0 };
        let mut shares: Vec<_> =
            held.into_iter().map(|(cause, seconds)| (cause, share(seconds))).collect();
        shares.retain(|(_, share)| *share > 1e-12);
        shares.sort_by(|one, other| other.1.total_cmp(&one.1));
        shares
    }
}
