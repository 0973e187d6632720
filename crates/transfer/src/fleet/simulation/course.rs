//! Course of one simulated transfer: runs take shards, move them, and lose them with their node.
//!
//! Nothing but the events of runs and nodes changes a rate, so time goes from one to the next.

use super::{
    setup::{Resource, SimulatedFleet},
    sharing::{Demand, Share, share},
    tally::{Cause, Tally},
};
use crate::{Interrupt, plan::ShardLoad};
use std::{collections::VecDeque, sync::atomic::Ordering};

/// Seconds between two records of a journal: what came since is sent again.
pub const JOURNAL_S: f64 = 1.0;
/// Rate of a run that nothing limits.
const UNLIMITED_BYTES_PER_S: f64 = 1e15;
/// Failures after which a simulation is given up, for each shard and once more.
const FAILURES_OF_SHARD_MAX: u64 = 1000;
/// Times that differ by less are one time, in seconds and beside the time itself.
const INSTANT_S: f64 = 1e-9;

/// Reason why a simulation is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// Shards do not get through between two failures of their nodes.
    Endless,
    /// More looks at slots than there is patience for.
    TooLong,
    Interrupted,
}

/// Work that a simulation may still cost, and the flag that ends it.
#[derive(Debug)]
pub struct Patience<'a> {
    /// Looks at a slot, which are what a simulation spends its time on.
    pub looks: u64,
    pub interrupt: &'a Interrupt,
}

impl Patience<'_> {
    /// Takes the work of an event.
    fn spend(&mut self, looks: usize) -> Result<(), GivenUp> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(GivenUp::Interrupted);
        }
        self.looks = self.looks.checked_sub(looks as u64).ok_or(GivenUp::TooLong)?;
        Ok(())
    }
}

/// Runs all shards once, and tells what happened.
pub fn run(
    fleet: &SimulatedFleet,
    loads: &[ShardLoad],
    seed: u64,
    patience: &mut Patience,
) -> Result<Tally, GivenUp> {
    let mut course = Course::new(fleet, loads, seed);
    let failures_max = (loads.len() as u64 + 1) * FAILURES_OF_SHARD_MAX;
    while course.open > 0 {
        patience.spend(course.slots.len() + course.nodes.len())?;
        course.assign();
        let shares = course.shares();
        let next_s = course.next_event(&shares);
        course.advance(next_s, &shares);
        course.runs_end();
        course.nodes_change();
        if course.tally.failures > failures_max {
            return Err(GivenUp::Endless);
        }
    }
    Ok(course.tally)
}

/// A shard, in bytes, or files where these are more: a file without bytes takes some, too.
#[derive(Clone, Copy, Debug)]
struct Shard {
    work: f64,
    /// Work that is durable.
    kept: f64,
    /// Bytes of a unit of work.
    payload: f64,
    own_rate: f64,
}

impl Shard {
    fn new(fleet: &SimulatedFleet, load: ShardLoad) -> Self {
        let (files, bytes) = (load.files as f64, load.bytes as f64);
        let work = files.max(bytes);
        let by_files = if files > 0.0 { work / files * fleet.run_files_per_s } else { f64::MAX };
        let by_run = fleet.run_bytes_per_s.unwrap_or(f64::MAX);
        let payload = if work > 0.0 { bytes / work } else { 0.0 };
        let own_rate = by_files.min(by_run).min(UNLIMITED_BYTES_PER_S);
        Self { work, kept: 0.0, payload, own_rate }
    }

    /// Cause that holds a run of the shard back where nothing shared does.
    fn own_cause(&self, fleet: &SimulatedFleet) -> Cause {
        if fleet.run_bytes_per_s.is_some_and(|rate| rate <= self.own_rate) {
            Cause::Run
        } else {
            Cause::Files
        }
    }
}

/// Place for one run on a node.
#[derive(Debug)]
struct Slot {
    node: usize,
    run: Option<Run>,
}

#[derive(Debug)]
struct Run {
    shard: usize,
    /// Time of its first byte, in seconds.
    begins_s: f64,
    /// Work that has arrived.
    moved: f64,
    demand: Demand,
    /// End at the rate that it has now.
    ends_s: f64,
}

/// Times of a node.
#[derive(Clone, Copy, Debug)]
struct Node {
    fails_s: f64,
    /// Time until which it is away.
    away_s: f64,
}

struct Course<'a> {
    fleet: &'a SimulatedFleet,
    now_s: f64,
    shards: Vec<Shard>,
    /// Shards that are not done.
    open: usize,
    /// Shards that no run has, in the order of their numbers.
    waiting: VecDeque<usize>,
    /// Shards whose run was lost, with the time from which on they may begin.
    requeued: VecDeque<(f64, usize)>,
    slots: Vec<Slot>,
    nodes: Vec<Node>,
    capacities: Vec<f64>,
    /// Place of each resource that has a limit, by its kind and number.
    places: Vec<Vec<Option<usize>>>,
    random: fastrand::Rng,
    tally: Tally,
}

impl<'a> Course<'a> {
    fn new(fleet: &'a SimulatedFleet, loads: &[ShardLoad], seed: u64) -> Self {
        let shards: Vec<_> = loads.iter().map(|load| Shard::new(fleet, *load)).collect();
        let (mut capacities, mut resources, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for resource in Resource::ALL {
            let mut of_kind = Vec::new();
            for number in 1..=fleet.count(resource) {
                let rate = fleet.payload_rate(resource, number);
                of_kind.push(rate.map(|_| capacities.len()));
                capacities.extend(rate);
                resources.extend(rate.map(|_| (resource, number)));
            }
            places.push(of_kind);
        }
        // One run on each node, then the second on each: as schedulers spread them.
        let nodes = fleet.nodes as usize;
        // A lost run may go on elsewhere, so some slots are there for those as well.
        let spare = if fleet.failures.is_some() { 2 } else { 1 };
        let used = (shards.len() * spare).min(nodes * fleet.runs as usize);
        let slots: Vec<_> = (0..used).map(|at| Slot { node: at % nodes, run: None }).collect();
        let mut random = fastrand::Rng::with_seed(seed);
        let nodes = (0..nodes.min(used))
            .map(|_| Node { fails_s: up_time(fleet, &mut random), away_s: 0.0 })
            .collect();
        let tally = Tally::new(resources, nodes_runs(fleet), &capacities);
        Self {
            fleet,
            now_s: 0.0,
            open: shards.len(),
            waiting: (0..shards.len()).collect(),
            shards,
            requeued: VecDeque::new(),
            slots,
            nodes,
            capacities,
            places,
            random,
            tally,
        }
    }

    /// Gives shards to the runs that have none.
    fn assign(&mut self) {
        let now_s = self.now_s;
        while self.requeued.front().is_some_and(|(from_s, _)| is_reached(*from_s, now_s)) {
            let shard = self.requeued.pop_front().expect("it was looked at").1;
            let at = self.waiting.partition_point(|other| *other < shard);
            self.waiting.insert(at, shard);
        }
        for at in 0..self.slots.len() {
            let Slot { node, run } = &self.slots[at];
            if run.is_some() || !is_reached(self.nodes[*node].away_s, now_s) {
                continue;
            }
            let Some(shard) = self.waiting.pop_front() else { return };
            let demand = self.demand(*node, shard);
            let begins_s = now_s + self.fleet.start_s;
            let moved = self.shards[shard].kept;
            let run = Run { shard, begins_s, moved, demand, ends_s: f64::INFINITY };
            self.slots[at].run = Some(run);
        }
    }

    fn demand(&self, node: usize, shard: usize) -> Demand {
        let server = shard % self.fleet.servers as usize;
        let uses = Resource::ALL.iter().zip(&self.places).filter_map(|(resource, places)| {
            if resource.is_of_node() {
                places[node]
            } else if resource.is_of_server() {
                places[server]
            } else {
                places[0]
            }
        });
        Demand { own_bytes_per_s: self.shards[shard].own_rate, uses: uses.collect() }
    }

    /// Rates of the runs that move something, by their slots.
    fn shares(&mut self) -> Vec<(usize, Share)> {
        let now_s = self.now_s;
        let moving =
            |slot: &Slot| slot.run.as_ref().is_some_and(|it| is_reached(it.begins_s, now_s));
        let places: Vec<usize> =
            (0..self.slots.len()).filter(|at| moving(&self.slots[*at])).collect();
        let runs = places.iter().filter_map(|at| self.slots[*at].run.as_ref());
        let demands: Vec<&Demand> = runs.map(|run| &run.demand).collect();
        let shares = share(&self.capacities, &demands);
        let shares: Vec<_> = places.into_iter().zip(shares).collect();
        for (at, share) in &shares {
            let run = self.slots[*at].run.as_mut().expect("it moves");
            let left = (self.shards[run.shard].work - run.moved).max(0.0);
            run.ends_s = now_s + left / share.bytes_per_s.min(UNLIMITED_BYTES_PER_S);
        }
        shares
    }

    /// Time of the next event.
    fn next_event(&self, shares: &[(usize, Share)]) -> f64 {
        let runs = self.slots.iter().filter_map(|slot| slot.run.as_ref());
        let begins = runs.clone().map(|run| run.begins_s);
        let begins = begins.filter(|begins_s| !is_reached(*begins_s, self.now_s));
        let ends = shares.iter().filter_map(|(at, _)| self.slots[*at].run.as_ref());
        let ends = ends.map(|run| run.ends_s);
        let returns = self.nodes.iter().map(|node| node.away_s);
        let returns = returns.filter(|away_s| !is_reached(*away_s, self.now_s));
        let fails = self.nodes.iter().map(|node| node.fails_s);
        let requeued = self.requeued.front().map(|it| it.0);
        let all = begins.chain(ends).chain(returns).chain(fails).chain(requeued);
        all.fold(f64::INFINITY, f64::min).max(self.now_s)
    }

    /// Lets time go on, with these rates.
    fn advance(&mut self, to_s: f64, shares: &[(usize, Share)]) {
        let seconds = to_s - self.now_s;
        let mut rates = vec![None; self.slots.len()];
        shares.iter().for_each(|(at, share)| rates[*at] = Some(*share));
        for (slot, share) in self.slots.iter_mut().zip(rates) {
            let is_away = !is_reached(self.nodes[slot.node].away_s, self.now_s);
            let cause = match (&mut slot.run, share) {
                (Some(run), Some(share)) => {
                    let shard = &mut self.shards[run.shard];
                    run.advance(shard, self.now_s, (seconds, share.bytes_per_s));
                    for place in &run.demand.uses {
                        self.tally.used_bytes[*place] += share.bytes_per_s * seconds;
                    }
                    match share.held_by {
                        Some(place) => self.tally.resource_held(place, seconds),
                        None => shard.own_cause(self.fleet),
                    }
                }
                (Some(_), None) => Cause::Start,
                (None, _) if is_away || !self.requeued.is_empty() => Cause::Failures,
                (None, _) => Cause::NoShard,
            };
            self.tally.held(cause, seconds);
        }
        self.now_s = to_s;
        self.tally.seconds = to_s;
    }

    fn runs_end(&mut self) {
        for slot in &mut self.slots {
            if let Some(run) = slot.run.take_if(|run| is_reached(run.ends_s, self.now_s)) {
                let shard = &mut self.shards[run.shard];
                self.tally.moved_bytes += shard.work * shard.payload;
                shard.kept = shard.work;
                self.open -= 1;
            }
        }
    }

    /// Fails nodes whose time has come.
    fn nodes_change(&mut self) {
        let Some(failures) = self.fleet.failures else { return };
        for (number, node) in self.nodes.iter_mut().enumerate() {
            if self.open == 0 || !is_reached(node.fails_s, self.now_s) {
                continue;
            }
            self.tally.failures += 1;
            node.away_s = self.now_s + failures.repair_s;
            node.fails_s = node.away_s + up_time(self.fleet, &mut self.random);
            for slot in self.slots.iter_mut().filter(|slot| slot.node == number) {
                let Some(run) = slot.run.take() else { continue };
                let shard = &self.shards[run.shard];
                self.tally.lost_bytes += (run.moved - shard.kept) * shard.payload;
                self.requeued.push_back((self.now_s + failures.requeue_s, run.shard));
            }
        }
    }
}

impl Run {
    /// Moves bytes, and keeps those that a record of the journal has made durable.
    fn advance(&mut self, shard: &mut Shard, from_s: f64, (seconds, bytes_per_s): (f64, f64)) {
        let records = ((from_s + seconds - self.begins_s) / JOURNAL_S + INSTANT_S).floor();
        let recorded_s = self.begins_s + records * JOURNAL_S;
        if recorded_s > from_s {
            let durable = self.moved + bytes_per_s * (recorded_s - from_s).min(seconds);
            shard.kept = durable.min(shard.work);
        }
        self.moved = (self.moved + bytes_per_s * seconds).min(shard.work);
    }
}

fn is_reached(at_s: f64, now_s: f64) -> bool {
    at_s <= now_s + INSTANT_S * (1.0 + now_s)
}

fn nodes_runs(fleet: &SimulatedFleet) -> f64 {
    f64::from(fleet.nodes) * f64::from(fleet.runs)
}

fn up_time(fleet: &SimulatedFleet, random: &mut fastrand::Rng) -> f64 {
    match fleet.failures {
        Some(failures) => -(1.0 - random.f64()).ln() * failures.mean_up_s,
        None => f64::INFINITY,
    }
}
