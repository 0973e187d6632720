//! A machine that ran shards: what it moved, how long it was at work, and what held it back.

use super::{
    line::Interval,
    rates::{NODE_INTERVALS_MAX, Rates},
    reading::{RunRead, believed},
};

/// Stages that are told apart.
const STAGES_MAX: usize = 16;
/// Times that are kept apart before those that overlap are made one.
const SPANS_MAX: usize = 1024;

/// Machine that ran shards of a plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeReport {
    /// Name of the machine.
    pub host: String,
    /// Number of runs.
    pub runs: u32,
    /// Number of runs that still go.
    pub running: u32,
    /// Number of shards that were brought to their end here.
    pub shards_done: u32,
    /// Files and links that its runs put in place.
    pub files_moved: u64,
    /// Bytes that its runs brought.
    pub moved_bytes: u64,
    /// Seconds in which at least one run went.
    pub busy_s: f64,
    /// Rate in these seconds.
    pub gbit_per_s: f64,
    /// Stage that held its runs back for most of their time; empty where none is known.
    pub limited_by: String,
    /// Share of the time for which that stage did, 0 to 1.
    pub share: f64,
    /// Verdict on its longest run that this stage limited, in a sentence.
    pub verdict: String,
    /// Thing to do about the stage.
    pub remedy: String,
    /// Bytes over time.
    pub rates: Rates,
    stages: Vec<Stage>,
    busy: Busy,
}

/// A stage that held runs back.
#[derive(Clone, Debug, Default)]
struct Stage {
    name: String,
    seconds: f64,
    /// Length of the longest run that it limited, and what was said of that.
    longest_s: f64,
    verdict: String,
    remedy: String,
}

impl NodeReport {
    pub(super) fn new(host: String) -> Self {
        Self {
            host,
            runs: 0,
            running: 0,
            shards_done: 0,
            files_moved: 0,
            moved_bytes: 0,
            busy_s: 0.0,
            gbit_per_s: 0.0,
            limited_by: String::new(),
            share: 0.0,
            verdict: String::new(),
            remedy: String::new(),
            rates: Rates::new(NODE_INTERVALS_MAX),
            stages: Vec::new(),
            busy: Busy::default(),
        }
    }

    /// Adds an interval of a run that began then.
    pub(super) fn interval(&mut self, (from_ms, to_ms): (u64, u64), interval: &Interval) {
        self.rates.add(from_ms, to_ms, interval.bytes);
        if let Some(stage) = self.stage(&interval.limited_by) {
            stage.seconds += believed(interval.seconds);
        }
    }

    /// Adds a run whose intervals were added.
    pub(super) fn run(&mut self, run: &RunRead) {
        self.runs += 1;
        self.running += u32::from(run.is_running);
        self.moved_bytes = self.moved_bytes.saturating_add(run.moved_bytes());
        self.files_moved = self.files_moved.saturating_add(run.files_moved());
        self.busy.add(run.span_ms());
        let Some(ended) = &run.ended else { return };
        if let Some(stage) = self.stage(&ended.limited_by)
            && run.seconds >= stage.longest_s
        {
            stage.longest_s = run.seconds;
            stage.verdict.clone_from(&ended.verdict);
            stage.remedy.clone_from(&ended.remedy);
        }
    }

    fn stage(&mut self, name: &str) -> Option<&mut Stage> {
        let known = self.stages.iter().position(|stage| stage.name == name);
        let at = match known {
            Some(at) => at,
            None if name.is_empty() || self.stages.len() == STAGES_MAX => return None,
            None => {
                self.stages.push(Stage { name: name.to_owned(), ..Stage::default() });
                self.stages.len() - 1
            }
        };
        Some(&mut self.stages[at])
    }

    /// Draws the sums, once all runs were added.
    pub(super) fn add_up(&mut self) {
        self.busy_s = self.busy.seconds();
        self.gbit_per_s = rate(self.moved_bytes, self.busy_s);
        let sum: f64 = self.stages.iter().map(|stage| stage.seconds).sum();
        let most = self.stages.iter().max_by(|one, other| one.seconds.total_cmp(&other.seconds));
        let Some(stage) = most.filter(|stage| stage.seconds > 0.0) else { return };
        self.limited_by.clone_from(&stage.name);
        self.share = stage.seconds / sum;
        self.verdict.clone_from(&stage.verdict);
        self.remedy.clone_from(&stage.remedy);
    }
}

/// A rate in Gbit/s.
pub fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8e-9 / seconds } else { 0.0 }
}

/// Times in which something went, in milliseconds since 1970.
#[derive(Clone, Debug, Default)]
pub struct Busy(Vec<(u64, u64)>);

impl Busy {
    pub fn add(&mut self, span: (u64, u64)) {
        self.0.push(span);
        if self.0.len() > SPANS_MAX {
            self.0 = joined(&self.0, 0);
        }
        if self.0.len() > SPANS_MAX {
            // The shorter half of so many gaps are no rests.
            let mut gaps: Vec<u64> = self.0.windows(2).map(|two| two[1].0 - two[0].1).collect();
            gaps.sort_unstable();
            self.0 = joined(&self.0, gaps[gaps.len() / 2]);
        }
    }

    /// Length of all times together, in seconds; where several overlap, once.
    pub fn seconds(&self) -> f64 {
        joined(&self.0, 0).iter().map(|(from, to)| (to - from) as f64 / 1000.0).sum()
    }

    /// The first begin and the last end.
    pub fn span_ms(&self) -> Option<(u64, u64)> {
        let first = self.0.iter().map(|span| span.0).min()?;
        Some((first, self.0.iter().map(|span| span.1).max()?))
    }
}

/// Times in their order, with longer gaps than this one between them.
fn joined(spans: &[(u64, u64)], gap_ms_max: u64) -> Vec<(u64, u64)> {
    let mut spans = spans.to_vec();
    spans.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::with_capacity(spans.len());
    for (from, to) in spans {
        match joined.last_mut() {
            Some(last) if from.saturating_sub(last.1) <= gap_ms_max => last.1 = last.1.max(to),
            _ => joined.push((from, to.max(from))),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_overlap_count_once() {
        let mut busy = Busy::default();
        for span in [(9000, 10_000), (0, 2000), (1000, 4000), (4000, 4500), (20_000, 20_000)] {
            busy.add(span);
        }
        assert!((busy.seconds() - 5.5).abs() < 1e-9, "{}", busy.seconds());
        assert_eq!(busy.span_ms(), Some((0, 20_000)));
        for at in 0..5000 {
            busy.add((30_000 + at * 1000, 30_000 + at * 1000 + 1000));
        }
        assert!((busy.seconds() - 5005.5).abs() < 1e-9, "{}", busy.seconds());
        for at in 0..5000 {
            busy.add((10_000_000 + at * 1000, 10_000_000 + at * 1000 + 500));
        }
        assert!(busy.0.len() <= SPANS_MAX && busy.seconds() < 11_000.0);
    }
}
