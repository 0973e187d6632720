//! `haul probe path`: four runs over the real path, between memories and disks, and what they say
//! of each stage.
//!
//! Real transfers with the protection that was asked for, from connecting to the last sync. At the
//! target they write to files without a name, which are gone with the session, however it ends.

pub mod decision;
mod source;
pub mod tables;

use decision::{Decision, FourRuns, RunFacts, decide};
use haul_transfer::{
    Interrupt,
    error::TransferError,
    events::{Check, Event, Report, TargetRoom, Verdict},
    options::{PushRequest, SourceSpec, TransferOptions},
    problem::Problem,
    push,
    url::HaulUrl,
    wishes::Wishes,
};
use serde::Serialize;
pub use source::Residency;
use source::Source;
use std::{path::PathBuf, time::Duration};

/// How long a run takes, about, when the user says nothing.
pub const TIME_DEFAULT: Duration = Duration::from_secs(10);
/// A run from memory moves no more than this, whatever it could in its time.
const MEMORY_BYTES_MAX: u64 = 64 << 30;
/// The first transfer of a run; how long it takes says how large the next is.
const FIRST_BYTES: u64 = 1 << 20;
/// The next is at most so many times as large: a cache that takes the first must not mislead.
const GROWTH_MAX: f64 = 8.0;
/// And at least so many times.
const GROWTH_MIN: f64 = 1.25;
/// A transfer that takes this share of the time is long enough, once the rate stays as it is.
const ENOUGH_SHARE: f64 = 0.5;
/// Whatever the rate, it is long enough then.
const LONG_ENOUGH_SHARE: f64 = 0.85;
/// On a long path windows grow for a while: until a transfer is no faster than this times the one
/// before, it says how they grow, and not what the path carries.
const STEADY_GROWTH_MAX: f64 = 1.15;
/// A run is sized to take this share of the time.
const AIM_SHARE: f64 = 0.9;
/// Of the free space of the target a run takes at most this.
const ROOM_SHARE: f64 = 0.8;

/// The measurement that is asked for.
#[derive(Clone, Debug)]
pub struct PathProbe {
    /// A file or a directory.
    pub source: PathBuf,
    /// Its path is the directory that would be received into.
    pub url: HaulUrl,
    /// Most bytes that a run moves; `None`: what takes about `time`.
    pub len_bytes_max: Option<u64>,
    /// About so long a run takes.
    pub time: Duration,
    /// How often each run is made.
    pub rounds: u32,
    pub options: TransferOptions,
}

/// From where to where a run goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Course {
    MemoryToMemory,
    DiskToMemory,
    MemoryToDisk,
    DiskToDisk,
}

/// In the order in which they are made.
pub const COURSES: [Course; 4] =
    [Course::MemoryToMemory, Course::DiskToMemory, Course::MemoryToDisk, Course::DiskToDisk];

impl Course {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MemoryToMemory => "memory to memory",
            Self::DiskToMemory => "disk to memory",
            Self::MemoryToDisk => "memory to disk",
            Self::DiskToDisk => "disk to disk",
        }
    }

    fn reads_disk(self) -> bool {
        matches!(self, Self::DiskToMemory | Self::DiskToDisk)
    }

    fn writes_disk(self) -> bool {
        matches!(self, Self::MemoryToDisk | Self::DiskToDisk)
    }
}

/// How far a run was after some seconds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    pub seconds: f64,
    /// Through the sender's sockets.
    pub sent_bytes: u64,
    /// Durable at the receiver.
    pub recorded_bytes: u64,
}

/// One transfer.
#[derive(Clone, Debug)]
pub struct Round {
    pub report: Report,
    pub residency: Residency,
    pub files: usize,
    /// About once a second, and at the end.
    pub samples: Vec<Sample>,
}

/// All rounds of a run, of one size.
#[derive(Clone, Debug)]
pub struct Run {
    pub course: Course,
    pub len_bytes: u64,
    pub rounds: Vec<Round>,
}

/// All that was found out.
#[derive(Clone, Debug)]
pub struct PathFindings {
    pub source_bytes: u64,
    /// The source has more files than were looked at.
    pub source_is_cut: bool,
    pub room: TargetRoom,
    pub runs: Vec<Run>,
    pub decision: Decision,
}

/// An event while a probe runs.
#[derive(Clone, Debug)]
pub enum PathEvent {
    /// Before the first byte.
    Preflight(Vec<Check>),
    Begins {
        course: Course,
        /// 0: its size is being found.
        round: u32,
        len_bytes: u64,
    },
}

impl Round {
    /// Rate of what was moved, from connecting to the last sync.
    #[must_use]
    pub fn gbit_per_s(&self) -> f64 {
        self.report.moved_bytes as f64 * 8.0 / 1e9 / self.report.seconds.max(1e-6)
    }
}

impl Run {
    /// The round in the middle, by its rate.
    ///
    /// # Panics
    /// Never: a run has a round.
    #[must_use]
    pub fn median(&self) -> &Round {
        let mut rounds: Vec<&Round> = self.rounds.iter().collect();
        rounds.sort_by(|one, other| one.gbit_per_s().total_cmp(&other.gbit_per_s()));
        rounds[(rounds.len() - 1) / 2]
    }
}

/// Measures a path, and tells what it is at.
///
/// # Errors
/// If nothing could start, a run failed, or the user wants to stop. Nothing stays at the target.
pub fn probe_path(
    probe: &PathProbe,
    interrupt: &Interrupt,
    on_event: &mut dyn FnMut(PathEvent),
) -> Result<PathFindings, TransferError> {
    let source = Source::look(&probe.source)?;
    let room = preflight(probe, interrupt, on_event)?;
    let bench = Bench { probe, source: &source, room: &room, interrupt };
    let mut runs = Vec::new();
    for course in COURSES {
        runs.push(bench.size_and_run(course, on_event)?);
    }
    // Round after round, so that what changes on the way meets all four alike.
    for round in 2..=probe.rounds {
        for run in &mut runs {
            let (course, len_bytes) = (run.course, run.len_bytes);
            on_event(PathEvent::Begins { course, round, len_bytes });
            run.rounds.push(bench.transfer(course, len_bytes)?);
        }
    }
    let facts = |at: usize| facts(&runs[at]);
    let decision = decide(&FourRuns {
        memory_to_memory: facts(0),
        disk_to_memory: facts(1),
        memory_to_disk: facts(2),
        disk_to_disk: facts(3),
    });
    let (source_bytes, source_is_cut) = (source.bytes, source.is_cut);
    Ok(PathFindings { source_bytes, source_is_cut, room, runs, decision })
}

fn facts(run: &Run) -> RunFacts {
    let median = run.median();
    let report = &median.report;
    RunFacts {
        gbit_per_s: median.gbit_per_s(),
        stages: report.stages.clone(),
        bottleneck: report.bottleneck.clone(),
    }
}

/// Looks at both hosts, as `haul push --preflight` does.
fn preflight(
    probe: &PathProbe,
    interrupt: &Interrupt,
    on_event: &mut dyn FnMut(PathEvent),
) -> Result<TargetRoom, TransferError> {
    let wishes = Wishes { dry_run: true, preflight: true, ..Wishes::default() };
    let sources = vec![SourceSpec::Path(probe.source.clone().into())];
    let mut failed = None;
    let report = push(&request(probe, sources, wishes), interrupt, &mut |event| {
        if let Event::Error(problem) = event {
            failed.get_or_insert(problem);
        }
    })?;
    on_event(PathEvent::Preflight(report.preflight.clone()));
    if let Some(problem) = failed {
        return Err(TransferError::start(problem));
    }
    // Room is only needed for what a run writes, which is seen then.
    let must = |check: &&Check| check.verdict == Verdict::Failed && check.name != "space";
    if let Some(check) = report.preflight.iter().find(must) {
        let what = format!("the path cannot be probed: {}", check.name);
        return Err(TransferError::start(Problem::in_general(
            &what,
            "",
            &check.found,
            &check.hint,
        )));
    }
    report.target_room.ok_or_else(|| {
        let what = "the path has no disk at its end";
        let hint = "start haul serve there with the directory that is to receive";
        TransferError::start(Problem::in_general(
            what,
            "a server of a directory",
            "haul serve null:",
            hint,
        ))
    })
}

fn request(probe: &PathProbe, sources: Vec<SourceSpec>, wishes: Wishes) -> PushRequest {
    let options = TransferOptions { wishes, retry_for: Duration::ZERO, ..probe.options.clone() };
    PushRequest { sources, url: probe.url.clone(), options }
}

/// `1 file`, `2 files`.
fn counted(files: usize) -> String {
    format!("{files} file{}", if files == 1 { "" } else { "s" })
}

/// What every run needs.
struct Bench<'a> {
    probe: &'a PathProbe,
    source: &'a Source,
    room: &'a TargetRoom,
    interrupt: &'a Interrupt,
}

impl Bench<'_> {
    /// Finds how much a run is to move, by transfers that grow; the last is its first round.
    fn size_and_run(
        &self,
        course: Course,
        on_event: &mut dyn FnMut(PathEvent),
    ) -> Result<Run, TransferError> {
        let mut sizing = Sizing {
            len_bytes: FIRST_BYTES,
            most_bytes: self.most_bytes(course),
            time: self.probe.time,
            rate_before: None,
        };
        sizing.len_bytes = sizing.len_bytes.min(sizing.most_bytes);
        loop {
            let len_bytes = sizing.len_bytes;
            on_event(PathEvent::Begins { course, round: 0, len_bytes });
            let round = self.transfer(course, len_bytes)?;
            if !sizing.goes_on(round.report.seconds) {
                return Ok(Run { course, len_bytes, rounds: vec![round] });
            }
        }
    }

    fn most_bytes(&self, course: Course) -> u64 {
        let asked = self.probe.len_bytes_max;
        let most = if course.reads_disk() {
            asked.map_or(self.source.bytes, |asked| asked.min(self.source.bytes))
        } else {
            asked.unwrap_or(MEMORY_BYTES_MAX)
        };
        if !course.writes_disk() {
            return most;
        }
        // A full disk is left to say so itself.
        let Some(free_bytes) = self.room.free_bytes else { return most };
        let room = (free_bytes as f64 * ROOM_SHARE) as u64;
        most.min(room.max(FIRST_BYTES))
    }

    fn transfer(&self, course: Course, len_bytes: u64) -> Result<Round, TransferError> {
        let (sources, residency) = if course.reads_disk() {
            let parts = self.source.first(len_bytes);
            let residency = source::make_cold(&parts)?;
            (source::specs(&parts), residency)
        } else {
            (vec![SourceSpec::Zero(len_bytes)], Residency::Memory)
        };
        let files = sources.len();
        let wishes = Wishes { discard: true, ..Wishes::default() };
        let mut request = request(self.probe, sources, wishes);
        if !course.writes_disk() {
            request.url.path = b"null:".to_vec();
        }
        let (mut samples, mut failed) = (vec![Sample::default()], None);
        let report = push(&request, self.interrupt, &mut |event| match event {
            Event::Progress(progress) => samples.push(Sample {
                seconds: progress.seconds,
                sent_bytes: progress.bytes_on_wire,
                recorded_bytes: progress.bytes_durable,
            }),
            Event::Error(problem) => {
                failed.get_or_insert(problem);
            }
            _ => {}
        })?;
        if let Some(problem) = failed {
            return Err(failed_run(course, problem));
        }
        let moved_bytes = report.moved_bytes;
        let end = Sample {
            seconds: report.seconds,
            sent_bytes: samples.iter().map(|s| s.sent_bytes).fold(moved_bytes, u64::max),
            recorded_bytes: moved_bytes,
        };
        samples.push(end);
        Ok(Round { report, residency, files, samples })
    }
}

/// A file failed, as one that does not fit: the whole probe tells that.
fn failed_run(course: Course, problem: Problem) -> TransferError {
    let what = format!("the run from {} failed: {}", course.name(), problem.what);
    TransferError::broken(Problem { what, ..problem })
}

/// How much a transfer moves, as the one before tells.
struct Sizing {
    len_bytes: u64,
    most_bytes: u64,
    time: Duration,
    /// In bytes a second, of the transfer before.
    rate_before: Option<f64>,
}

impl Sizing {
    /// After a transfer of `len_bytes`: false when it was long enough, or as large as any may be.
    fn goes_on(&mut self, seconds: f64) -> bool {
        let time = self.time.as_secs_f64();
        let rate = self.len_bytes as f64 / seconds.max(1e-6);
        let before = self.rate_before.replace(rate);
        // The first of all may be as slow as it likes.
        let is_steady = before.is_none_or(|before| rate <= before * STEADY_GROWTH_MAX);
        let enough = if is_steady { ENOUGH_SHARE } else { LONG_ENOUGH_SHARE };
        if self.len_bytes >= self.most_bytes || seconds >= time * enough {
            return false;
        }
        let growth = (time * AIM_SHARE / seconds.max(1e-3)).clamp(GROWTH_MIN, GROWTH_MAX);
        let next = (self.len_bytes as f64 * growth) as u64;
        self.len_bytes = next.clamp(self.len_bytes + 1, self.most_bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes that are tried at a rate, in bytes, and how long the last takes.
    fn tried(bytes_per_s: f64, latency_s: f64, most_bytes: u64) -> (Vec<u64>, f64) {
        tried_on(|len_bytes| latency_s + len_bytes as f64 / bytes_per_s, most_bytes)
    }

    fn tried_on(seconds_of: impl Fn(u64) -> f64, most_bytes: u64) -> (Vec<u64>, f64) {
        let len_bytes = FIRST_BYTES.min(most_bytes);
        let mut sizing = Sizing { len_bytes, most_bytes, time: TIME_DEFAULT, rate_before: None };
        let mut sizes = Vec::new();
        loop {
            let seconds = seconds_of(sizing.len_bytes);
            sizes.push(sizing.len_bytes);
            if !sizing.goes_on(seconds) {
                return (sizes, seconds);
            }
            assert!(sizes.len() < 30, "it never ends: {sizes:?}");
        }
    }

    #[test]
    fn a_run_takes_about_its_time_whatever_the_rate() {
        for bytes_per_s in [1e6, 1e8, 1e9, 5e10] {
            for latency_s in [0.001, 0.5] {
                let (_, seconds) = tried(bytes_per_s, latency_s, u64::MAX);
                assert!((5.0..15.0).contains(&seconds), "{bytes_per_s}: {seconds} s");
            }
        }
        let (sizes, seconds) = tried(1e4, 0.1, u64::MAX);
        assert_eq!(sizes, [FIRST_BYTES], "slower than that is measured once: {seconds} s");
    }

    /// The window doubles every second, up to 60 MB/s.
    #[test]
    fn while_windows_still_grow_a_run_is_not_long_enough() {
        let seconds_of = |len_bytes: u64| {
            let (mut left, mut seconds, mut rate) = (len_bytes as f64, 0.0, 1e6);
            while left > rate {
                left -= rate;
                seconds += 1.0;
                rate = (rate * 2.0_f64).min(60e6);
            }
            seconds + left / rate
        };
        let (sizes, seconds) = tried_on(seconds_of, u64::MAX);
        assert!((8.5..12.0).contains(&seconds), "{sizes:?}: {seconds} s");
        assert!(*sizes.last().unwrap() > 200_000_000, "{sizes:?}");
    }

    #[test]
    fn no_run_moves_more_than_it_may() {
        assert_eq!(tried(1e9, 0.001, 1000).0, [1000]);
        let (sizes, _) = tried(1e9, 0.001, 100 << 20);
        assert_eq!(sizes.last(), Some(&(100 << 20)));
    }
}
