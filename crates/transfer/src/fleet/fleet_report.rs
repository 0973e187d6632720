//! All runs of a plan, added up: what is at the target, which shards are not, and who was slow.

use super::{
    line::{Head, Interval},
    node::{Busy, NodeReport, rate},
    place::{Reports, path_of},
    rates::{FLEET_INTERVALS_MAX, Rates},
    reading::{Found, RunRead, believed, read, read_from},
};
use crate::{error::problem, plan::Plan, problem::Problem, url::HaulUrl};
use std::{collections::BTreeMap, io};

/// Most machines that are told apart; further ones are one together.
const NODES_MAX: usize = 8192;
const OTHER_NODES: &str = "other machines";
/// Reports that could not be read and are told of; the others are counted.
const FAULTS_MAX: usize = 20;

/// State that the runs of a shard have left it in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShardState {
    /// No run has begun.
    #[default]
    NotBegun,
    /// A run goes.
    Running,
    /// The last run began, has not ended, and goes no more: it was killed, or its machine is gone.
    Stopped,
    /// The last run ended, and not all is at the target.
    Failed,
    /// A run has ended with all of it at the target.
    Done,
}

impl ShardState {
    /// Word for the state, as in `--json`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::NotBegun => "not_begun",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Done => "done",
        }
    }
}

/// A shard and what its runs have told. The run that counts is one that ended with all done, else
/// the last.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ShardReport {
    /// Number of the shard, from 1.
    pub number: u32,
    /// State of the shard.
    pub state: ShardState,
    /// Number of its runs to the plan's target.
    pub runs: u32,
    /// Number of its runs to another place, which do not count.
    pub runs_elsewhere: u32,
    /// Target of the last of these, without a token; empty for none.
    pub elsewhere: String,
    /// Number of the run that counts, from 1; 0 for none.
    pub attempt: u32,
    /// Machine of the run that counts.
    pub host: String,
    /// Target of the run that counts, without a token.
    pub target: String,
    /// Exit status of the run that counts.
    pub status: Option<u8>,
    /// Length of the run that counts, in seconds.
    pub seconds: f64,
    /// Files, links and empty directories at the target, as far as is known. A file in several
    /// shards counts in the one that has its begin.
    pub files: u64,
    /// Files and links that no run of the shard had to bring, as they were there.
    pub files_skipped: u64,
    /// Bytes at the target.
    pub bytes: u64,
    /// Files, ranges of files and links that all its runs together put in place.
    pub files_moved: u64,
    /// Bytes that all its runs together brought.
    pub moved_bytes: u64,
    /// Files that failed in the run that counts.
    pub failed: u64,
    /// Failures of the run that counts, the first of them.
    pub failures: Vec<Problem>,
    /// Number of the failures that are not among them.
    pub failures_left_out: u64,
    /// Stage that limited the run that counts; empty where none is known.
    pub limited_by: String,
    /// Verdict on the run that counts, in a sentence.
    pub verdict: String,
}

/// The runs of a plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Fleet {
    /// Shards by number, the first at 0.
    pub shards: Vec<ShardReport>,
    /// Machines by name.
    pub nodes: Vec<NodeReport>,
    /// Bytes over time of all runs.
    pub rates: Rates,
    /// Begin of the first run and the last that is known of any, in milliseconds since 1970; `None`
    /// where no run has begun.
    pub span_ms: Option<(u64, u64)>,
    /// Seconds in which at least one run went.
    pub busy_s: f64,
    /// Reports that cannot be read, the first of them.
    pub faults: Vec<Problem>,
    /// Number of reports that cannot be read and are not among `faults`.
    pub faults_left_out: u64,
    /// Number of reports of another plan, which was in this place before.
    pub of_another_plan: u64,
}

impl Fleet {
    /// Reads all reports of a plan's runs.
    ///
    /// # Errors
    /// If the directory of the reports cannot be read, or others can write it. Where no run has
    /// begun there is none, which is no error.
    pub fn read(plan: &Plan) -> Result<Self, Problem> {
        let mut adding = Adding::new(plan);
        let refused = |error: io::Error| {
            let what = format!("cannot read the reports in {}", path_of(plan.place()).display());
            let needs = "a directory that this user alone can write";
            problem(&what, needs, &error.to_string(), "run haul report as the user of the plan")
        };
        let reports = match Reports::open(plan.place()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(adding.finish(plan)),
            other => other.map_err(refused)?,
        };
        for numbers in reports.list().map_err(refused)? {
            let (shard, attempt) = numbers.map_err(refused)?;
            if (1..=plan.shards).contains(&shard) {
                adding.report(&reports, plan, (shard, attempt));
            }
        }
        Ok(adding.finish(plan))
    }

    /// Number of shards in a state.
    #[must_use]
    pub fn count(&self, state: ShardState) -> usize {
        self.shards.iter().filter(|shard| shard.state == state).count()
    }

    /// Sum over all shards.
    #[must_use]
    pub fn sum(&self, of: impl Fn(&ShardReport) -> u64) -> u64 {
        self.shards.iter().map(of).fold(0, u64::saturating_add)
    }

    /// Rate of all runs together, while at least one went.
    #[must_use]
    pub fn gbit_per_s(&self) -> f64 {
        rate(self.sum(|shard| shard.moved_bytes), self.busy_s)
    }

    /// The slowest machine of those that moved something; `None` of fewer than two.
    #[must_use]
    pub fn slowest_node(&self) -> Option<&NodeReport> {
        let moved = || self.nodes.iter().filter(|node| node.moved_bytes > 0 && node.busy_s > 0.0);
        let slowest = moved().min_by(|one, other| one.gbit_per_s.total_cmp(&other.gbit_per_s));
        slowest.filter(|_| moved().count() > 1)
    }

    /// The shard whose run took longest; `None` of fewer than two.
    #[must_use]
    pub fn slowest_shard(&self) -> Option<&ShardReport> {
        let begun = || self.shards.iter().filter(|shard| shard.runs > 0);
        let slowest = begun().max_by(|one, other| one.seconds.total_cmp(&other.seconds));
        slowest.filter(|_| begun().count() > 1)
    }

    /// Shards to run again: those that are not done and that no run is at.
    pub fn left(&self) -> impl Iterator<Item = &ShardReport> {
        let is_left = |state| !matches!(state, ShardState::Done | ShardState::Running);
        self.shards.iter().filter(move |shard| is_left(shard.state))
    }
}

/// A fleet while its reports are read, in any order.
struct Adding {
    shards: Vec<ShardReport>,
    nodes: BTreeMap<String, NodeReport>,
    rates: Rates,
    busy: Busy,
    faults: Vec<Problem>,
    faults_left_out: u64,
    of_another_plan: u64,
}

impl Adding {
    fn new(plan: &Plan) -> Self {
        let shard = |number| ShardReport { number, ..ShardReport::default() };
        Self {
            shards: (1..=plan.shards).map(shard).collect(),
            nodes: BTreeMap::new(),
            rates: Rates::new(FLEET_INTERVALS_MAX),
            busy: Busy::default(),
            faults: Vec::new(),
            faults_left_out: 0,
            of_another_plan: 0,
        }
    }

    fn report(&mut self, reports: &Reports, plan: &Plan, numbers: (u32, u32)) {
        self.take(plan, numbers, |interval| read(reports, plan, numbers, interval));
    }

    fn take(
        &mut self,
        plan: &Plan,
        (shard, attempt): (u32, u32),
        read: impl FnOnce(&mut dyn FnMut(&Head, &Interval)) -> Result<Found, Problem>,
    ) {
        let (nodes, rates) = (&mut self.nodes, &mut self.rates);
        let found = read(&mut |head, interval| {
            if !was_sent_to(&head.target, plan, shard) {
                return;
            }
            let ms = |seconds: f64| head.began_ms.saturating_add((seconds * 1000.0) as u64);
            let end_s = believed(interval.at_s);
            let span = (ms((end_s - believed(interval.seconds)).max(0.0)), ms(end_s));
            rates.add(span.0, span.1, interval.bytes);
            node(nodes, &head.host).interval(span, interval);
        });
        let shard = &mut self.shards[shard as usize - 1];
        match found {
            Ok(Found::OfAnotherPlan) => self.of_another_plan += 1,
            Ok(Found::Run(run)) => {
                if !was_sent_to(&run.head.target, plan, shard.number) {
                    return shard.went_elsewhere(&run);
                }
                shard.take(attempt, Some(&run));
                self.busy.add(run.span_ms());
                node(nodes, &run.head.host).run(&run);
            }
            Ok(Found::Nothing) => shard.take(attempt, None),
            Err(problem) => {
                shard.take(attempt, None);
                if self.faults.len() == FAULTS_MAX {
                    self.faults_left_out += 1;
                } else {
                    self.faults.push(problem);
                }
            }
        }
    }

    fn finish(mut self, plan: &Plan) -> Fleet {
        for shard in self.shards.iter_mut().filter(|shard| shard.runs > 0) {
            shard.files_skipped = shard.files.saturating_sub(shard.files_moved);
            // Runs count ranges, and not the directories that they find empty.
            shard.files = match (plan.names_in(shard.number), shard.state) {
                (Some(names), ShardState::Done) => names,
                (Some(names), _) => shard.files.min(names),
                (None, _) => shard.files,
            };
        }
        for shard in &self.shards {
            if shard.state == ShardState::Done {
                node(&mut self.nodes, &shard.host).shards_done += 1;
            }
        }
        let mut nodes: Vec<_> = self.nodes.into_values().collect();
        nodes.iter_mut().for_each(NodeReport::add_up);
        Fleet {
            shards: self.shards,
            nodes,
            rates: self.rates,
            span_ms: self.busy.span_ms(),
            busy_s: self.busy.seconds(),
            faults: self.faults,
            faults_left_out: self.faults_left_out,
            of_another_plan: self.of_another_plan,
        }
    }
}

/// Adds up reports of these bytes, each of a run of the first shard of the plan: for tests of what
/// anybody may have written.
#[must_use]
pub fn add_up(plan: &Plan, reports: &[&[u8]]) -> Fleet {
    let mut adding = Adding::new(plan);
    for (bytes, attempt) in reports.iter().zip(1..) {
        let numbers = (1, attempt);
        adding.take(plan, numbers, |interval| read_from(*bytes, false, plan, numbers, interval));
    }
    adding.finish(plan)
}

/// Whether a run brought its shard to the plan's target for it. A server may have got another port;
/// one that is of another of the plan's targets is another server.
fn was_sent_to(target: &str, plan: &Plan, shard: u32) -> bool {
    let (sent, own) = (TargetPlace::of(target), TargetPlace::of(plan.target(shard)));
    let others = || plan.targets.iter().map(|target| TargetPlace::of(target));
    sent == own || (sent.is_but_for_its_port(&own) && !others().any(|other| other == sent))
}

/// The place that a target names: without its token.
#[derive(Debug, PartialEq, Eq)]
struct TargetPlace {
    host: String,
    /// The port of a URL; `None` of an ssh target.
    port: Option<u16>,
    /// The user of an ssh target whose path begins in that user's home.
    home_of: Option<String>,
    path: Vec<u8>,
}

impl TargetPlace {
    fn of(target: &str) -> Self {
        let mut place = match target.parse::<HaulUrl>() {
            Ok(HaulUrl { host, port, path, .. }) => {
                Self { host, port: Some(port), home_of: None, path }
            }
            Err(_) => {
                let (at, path) = target.split_once(':').unwrap_or((target, ""));
                let (user, host) = at.rsplit_once('@').unwrap_or(("", at));
                let home_of = (!path.starts_with('/')).then(|| user.to_owned());
                Self { host: host.to_owned(), port: None, home_of, path: path.as_bytes().to_vec() }
            }
        };
        let path_bytes = place.path.strip_suffix(b"/").unwrap_or(&place.path).len();
        place.path.truncate(path_bytes);
        place
    }

    fn is_but_for_its_port(&self, other: &Self) -> bool {
        let Self { host, port: _, home_of, path } = self;
        (host, home_of, path) == (&other.host, &other.home_of, &other.path)
    }
}

fn node<'a>(nodes: &'a mut BTreeMap<String, NodeReport>, host: &str) -> &'a mut NodeReport {
    let is_one_too_many = nodes.len() >= NODES_MAX && !nodes.contains_key(host);
    let host = if is_one_too_many { OTHER_NODES } else { host };
    nodes.entry(host.to_owned()).or_insert_with(|| NodeReport::new(host.to_owned()))
}

impl ShardReport {
    /// Adds a run that brought nothing to the plan's target.
    fn went_elsewhere(&mut self, run: &RunRead) {
        self.runs_elsewhere += 1;
        self.elsewhere.clone_from(&run.head.target);
    }

    /// Adds a run; `None` for one of which only the name of its report is known.
    fn take(&mut self, attempt: u32, run: Option<&RunRead>) {
        self.runs += 1;
        let ended = run.and_then(|run| run.ended.as_ref());
        let state = match (ended, run) {
            (Some(ended), _) if ended.status == 0 => ShardState::Done,
            (Some(_), _) => ShardState::Failed,
            (None, Some(run)) if run.is_running => ShardState::Running,
            (None, _) => ShardState::Stopped,
        };
        if let Some(run) = run {
            self.moved_bytes = self.moved_bytes.saturating_add(run.moved_bytes());
            self.files_moved = self.files_moved.saturating_add(run.files_moved());
        }
        // One that is done counts before one that goes, and that before others.
        let weight = |state| match state {
            ShardState::Done => 2,
            ShardState::Running => 1,
            _ => 0,
        };
        let there = run.map_or((0, 0), RunRead::there);
        if self.runs > 1 && (weight(state), attempt) < (weight(self.state), self.attempt) {
            self.at_least(there, self.state);
            return;
        }
        let before = (self.files, self.bytes);
        *self = Self {
            number: self.number,
            state,
            runs: self.runs,
            runs_elsewhere: self.runs_elsewhere,
            elsewhere: std::mem::take(&mut self.elsewhere),
            attempt,
            files_moved: self.files_moved,
            moved_bytes: self.moved_bytes,
            ..run.map_or_else(Self::default, Self::of_run)
        };
        self.at_least(before, state);
    }

    /// Notes what another run has told to be at the target: of a shard that is done, the run that
    /// did it knows all.
    fn at_least(&mut self, (files, bytes): (u64, u64), state: ShardState) {
        if state != ShardState::Done {
            self.files = self.files.max(files);
            self.bytes = self.bytes.max(bytes);
        }
    }

    fn of_run(run: &RunRead) -> Self {
        let (files, bytes) = run.there();
        let this = Self {
            host: run.head.host.clone(),
            target: run.head.target.clone(),
            seconds: run.seconds,
            files,
            bytes,
            failures: run.failures.clone(),
            failures_left_out: run.failures_left_out,
            ..Self::default()
        };
        let Some(ended) = &run.ended else { return this };
        let mut failures = this.failures;
        // A cause that ended the run may have been told before, as a failure.
        failures.extend(ended.error.iter().filter(|error| !run.failures.contains(error)).cloned());
        Self {
            status: Some(ended.status),
            failed: ended.files.failed,
            failures,
            limited_by: ended.limited_by.clone(),
            verdict: ended.verdict.clone(),
            ..this
        }
    }
}

#[cfg(test)]
mod tests;
