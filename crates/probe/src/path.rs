//! Probe of a path (`haul probe path`): four runs over it, between memories and disks. They say
//! something of each stage.
//!
//! Real transfers with the protection that was asked for, from connecting to the last sync. At the
//! target they write to files without a name, which are gone with the session, however it ends.

pub mod decision;
mod source;
pub mod tables;

use decision::{Decision, FourRuns, RunFacts, decide};
use haul_transfer::{
    Check, CheckVerdict, Event, FileOptions, HaulUrl, Interrupt, Problem, PushRequest, Report,
    SourceSpec, TargetRoom, TransferError, TransferOptions, push,
};
use serde::Serialize;
pub use source::Residency;
use source::Source;
use std::{path::PathBuf, time::Duration};

/// The time of a run, about, when the user names none.
pub const TIME_DEFAULT: Duration = Duration::from_secs(10);
/// The most bytes that a run from memory moves, whatever it could in its time.
const MEMORY_BYTES_MAX: u64 = 64 << 30;
/// The size of a run's first transfer, whose time says how large the next is.
const FIRST_BYTES: u64 = 1 << 20;
/// The largest growth from one transfer to the next: a cache that takes the first must not mislead.
const GROWTH_MAX: f64 = 8.0;
/// The least growth from one transfer to the next.
const GROWTH_MIN: f64 = 1.25;
/// The share of the time from which a transfer is long enough, once the rate stays as it is.
const ENOUGH_SHARE: f64 = 0.5;
/// The share of the time from which a transfer is long enough, whatever its rate does.
const LONG_ENOUGH_SHARE: f64 = 0.85;
/// The largest growth of the rate from one transfer to the next that counts as steady. On a long
/// path windows grow for a while: until then a transfer says how they grow, and not what the path
/// carries.
const STEADY_GROWTH_MAX: f64 = 1.15;
/// The share of the time that a run is sized to take.
const AIM_SHARE: f64 = 0.9;
/// The largest share of the target's free space that a run takes.
const ROOM_SHARE: f64 = 0.8;

/// A request to measure a path.
#[derive(Clone, Debug)]
pub struct PathProbe {
    /// The source: a file or a directory.
    pub source: PathBuf,
    /// The server; the URL's path is the directory that would be received into.
    pub url: HaulUrl,
    /// Most bytes that a run moves; `None`: what takes about `time`.
    pub len_bytes_max: Option<u64>,
    /// The time that a run takes, about.
    pub time: Duration,
    /// The number of times that each run is made.
    pub rounds: u32,
    pub options: TransferOptions,
}

/// The course of a run: from memory or disk, to memory or disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Course {
    MemoryToMemory,
    DiskToMemory,
    MemoryToDisk,
    DiskToDisk,
}

/// The courses in the order in which they are run.
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

/// A sample of a run: how far it was after this many seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    pub seconds: f64,
    /// Bytes through the sender's sockets.
    pub sent_bytes: u64,
    /// Bytes that are durable at the receiver.
    pub recorded_bytes: u64,
}

/// A transfer of a probe.
#[derive(Clone, Debug)]
pub struct Round {
    pub report: Report,
    pub residency: Residency,
    pub files: usize,
    /// Samples about once a second, and at the end.
    pub samples: Vec<Sample>,
}

/// A run: all its rounds, of one size.
#[derive(Clone, Debug)]
pub struct Run {
    pub course: Course,
    pub len_bytes: u64,
    pub rounds: Vec<Round>,
}

/// All findings of a path's probe.
#[derive(Clone, Debug)]
pub struct PathFindings {
    pub source_bytes: u64,
    /// Whether the source has more files than were looked at.
    pub source_is_cut: bool,
    pub room: TargetRoom,
    pub runs: Vec<Run>,
    pub decision: Decision,
}

/// An event while a probe runs.
#[derive(Clone, Debug)]
pub enum PathEvent {
    /// Checks of both hosts, before the first byte.
    Preflight(Vec<Check>),
    Begins {
        course: Course,
        /// The number of the round; 0: its size is being found.
        round: u32,
        len_bytes: u64,
    },
}

impl Round {
    /// The rate of what was moved, from connecting to the last sync.
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

/// Measures a path; `on_event` hears what it is at.
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
    let mut file_options = FileOptions::default();
    (file_options.dry_run, file_options.preflight) = (true, true);
    let sources = vec![SourceSpec::Path(probe.source.clone().into())];
    let mut failed = None;
    let report = push(&request(probe, sources, file_options), interrupt, &mut |event| {
        if let Event::Error(problem) = event {
            failed.get_or_insert(problem);
        }
    })?;
    on_event(PathEvent::Preflight(report.preflight.clone()));
    if let Some(problem) = failed {
        return Err(TransferError::start(problem));
    }
    // Room is only needed for what a run writes, which is seen then.
    let must = |check: &&Check| check.verdict == CheckVerdict::Failed && check.name != "space";
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

fn request(probe: &PathProbe, sources: Vec<SourceSpec>, file_options: FileOptions) -> PushRequest {
    let mut request = PushRequest::new(sources, probe.url.clone());
    request.options = probe.options.clone();
    (request.options.file_options, request.options.retry_for) = (file_options, Duration::ZERO);
    request
}

/// Counts files in words: `1 file`, `2 files`.
fn counted(files: usize) -> String {
    format!("{files} file{}", if files == 1 { "" } else { "s" })
}

/// Things that every run needs.
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
        let mut file_options = FileOptions::default();
        file_options.discard = true;
        let mut request = request(self.probe, sources, file_options);
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

/// The error of a run in which a file failed, as one that does not fit: the whole probe tells that.
fn failed_run(course: Course, mut problem: Problem) -> TransferError {
    problem.what = format!("the run from {} failed: {}", course.name(), problem.what);
    TransferError::broken(problem)
}

/// The search for a run's size: how much a transfer moves, as the one before tells.
struct Sizing {
    len_bytes: u64,
    most_bytes: u64,
    time: Duration,
    /// The rate of the transfer before, in bytes a second.
    rate_before: Option<f64>,
}

impl Sizing {
    /// Sizes the next transfer after one of `len_bytes`; false when that was long enough, or as
    /// large as any may be.
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

    /// Tries sizes at a rate; returns them, in bytes, and how long the last takes.
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

    /// The link of this test has a window that doubles every second, up to 60 MB/s.
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
