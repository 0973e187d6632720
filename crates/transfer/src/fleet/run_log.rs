//! The report of a run, written while it runs: a line at its begin, some meanwhile, one at its end.
//!
//! A plan that cannot be written to is no reason to move nothing: whoever runs the shard is told
//! once, and goes on.

use super::{
    line::{Ended, Files, Head, Interval, Line, VERSION},
    place::{Reports, path_of},
};
use crate::{
    SOFTWARE,
    bytes::hex,
    clocks::now_ms,
    error::{TransferError, problem},
    events::{Event, Progress, Report},
    plan::Plan,
    problem::Problem,
    url::HaulUrl,
};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use serde::Serialize;
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// Lines about intervals of one length. Behind them an interval is twice as long, so that a run of
/// days has a few thousand.
const LINES_OF_LENGTH: u32 = 256;
/// Shortest interval, in seconds.
const INTERVAL_S_MIN: f64 = 1.0;
/// Most failures with a line of their own.
const FAILURES_MAX: u64 = 100;
/// Most bytes of each text of a failure.
const TEXT_BYTES_MAX: usize = 2000;
/// Most characters of a machine's name; that of a host has 64 bytes (uname(2)).
const NODE_CHARS_MAX: usize = 255;
/// Looks at a lock that a reader holds for a moment.
const LOCK_TRIES: u32 = 25;
const LOCK_POLL: Duration = Duration::from_millis(20);

/// The report of a run of a shard, kept beside the plan while the run moves.
#[derive(Debug)]
pub struct RunLog {
    file: Lines,
    reports: PathBuf,
    begun: Instant,
    /// Interval that has no line yet.
    open: Interval,
    /// Seconds of the stages in the open interval.
    stages: Vec<(String, f64)>,
    /// Shortest length of an interval for now, and how many lines have it.
    interval_s: f64,
    lines_of_length: u32,
    /// Bytes in all intervals.
    bytes: u64,
    failures: u64,
    outcome: Ended,
}

impl RunLog {
    /// Begins the report of a run on the machine `node`; `None`: that of this host's name.
    ///
    /// # Errors
    /// If the plan's directory cannot be written, or its reports could be written by others.
    pub fn begin(plan: &Plan, shard: u32, node: Option<&str>) -> Result<Self, Problem> {
        let named = node.map(|node| node.chars().take(NODE_CHARS_MAX).collect());
        let reports = path_of(plan.place());
        let refused = |error: io::Error| not_kept(&reports, &error);
        let (file, attempt) = Reports::make(plan.place())
            .and_then(|reports| reports.create(shard))
            .map_err(refused)?;
        let locked = lock(&file);
        let mut file = Lines { file, len_bytes: 0, count: 0, trouble: None };
        file.write(&Head {
            haul_run: VERSION,
            plan: plan.id.clone(),
            shard,
            of: plan.shards_told(),
            attempt,
            host: named.or_else(haul_host::host_name).unwrap_or_else(|| "unnamed".to_owned()),
            boot: haul_host::boot_id().map_or_else(String::new, |id| hex(&id)),
            pid: std::process::id(),
            locked,
            software: SOFTWARE.to_owned(),
            target: without_token(plan.target(shard)),
            began_ms: now_ms(),
        });
        // Other machines see the run from now on.
        file.sync();
        if let Some(error) = file.trouble.take() {
            return Err(refused(error));
        }
        let begun = Instant::now();
        let (open, outcome) = (Interval::default(), Ended::default());
        let (interval_s, lines_of_length) = (INTERVAL_S_MIN, 0);
        let stages = Vec::new();
        let (bytes, failures) = (0, 0);
        Ok(Self {
            file,
            reports,
            begun,
            open,
            stages,
            interval_s,
            lines_of_length,
            bytes,
            failures,
            outcome,
        })
    }

    /// Notes what an event tells.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Progress(progress) => self.progress(progress),
            Event::Error(problem) => self.failure(problem),
            _ => {}
        }
    }

    fn progress(&mut self, progress: &Progress) {
        self.open.bytes += progress.interval_bytes;
        self.open.files = progress.files_done;
        if let Some(limiting) = &progress.limiting {
            self.note_stage(&limiting.stage, progress.interval_seconds);
        }
        if self.begun.elapsed().as_secs_f64() - self.open.at_s >= self.interval_s {
            self.close_interval();
        }
    }

    fn note_stage(&mut self, stage: &str, seconds: f64) {
        match self.stages.iter_mut().find(|(name, _)| name == stage) {
            Some((_, sum)) => *sum += seconds,
            None => self.stages.push((stage.to_owned(), seconds)),
        }
    }

    /// Writes the open interval, and begins the next.
    fn close_interval(&mut self) {
        let at_s = rounded(self.begun.elapsed().as_secs_f64());
        let seconds = rounded(at_s - self.open.at_s);
        let stages = std::mem::take(&mut self.stages).into_iter();
        let most = stages.max_by(|one, other| one.1.total_cmp(&other.1));
        let limited_by = most.map_or_else(String::new, |(stage, _)| stage);
        let interval = Interval { at_s, seconds, limited_by, ..self.open.clone() };
        self.file.write(&Line::Interval(interval));
        self.bytes += self.open.bytes;
        self.open = Interval { at_s, bytes: 0, ..std::mem::take(&mut self.open) };
        self.lines_of_length += 1;
        if self.lines_of_length == LINES_OF_LENGTH {
            (self.interval_s, self.lines_of_length) = (self.interval_s * 2.0, 0);
        }
    }

    fn failure(&mut self, problem: &Problem) {
        self.failures += 1;
        if self.failures <= FAILURES_MAX {
            self.file.write(&Line::Failed(bounded(problem)));
        }
    }

    /// Notes how the transfer ended.
    pub fn outcome(&mut self, result: &Result<Report, TransferError>) {
        let report = match result {
            Ok(report) => Some(report),
            Err(error) => {
                self.outcome.error = Some(bounded(&error.problem()));
                error.report()
            }
        };
        let Some(report) = report else { return };
        let (counts, bottleneck) = (report.files, &report.bottleneck);
        self.outcome = Ended {
            files: Files {
                done: counts.done,
                skipped: counts.skipped,
                failed: counts.failed,
                left_out: counts.left_out,
            },
            bytes: report.bytes,
            moved_bytes: report.moved_bytes,
            skipped_bytes: report.skipped_bytes,
            limited_by: bottleneck.stage.clone(),
            verdict: bottleneck.verdict.clone(),
            remedy: bottleneck.remedy.clone(),
            ..std::mem::take(&mut self.outcome)
        };
    }

    /// Ends the report with the exit status of the run.
    ///
    /// # Errors
    /// If it could not be written whole: then it says that the run has not ended.
    pub fn end(mut self, status: u8) -> Result<(), Problem> {
        let told = self.bytes + self.open.bytes;
        self.open.bytes += self.outcome.moved_bytes.saturating_sub(told);
        self.open.files = self.open.files.max(self.outcome.files.done);
        if self.open.bytes > 0 {
            if self.stages.is_empty() && !self.outcome.limited_by.is_empty() {
                self.note_stage(&self.outcome.limited_by.clone(), 1.0);
            }
            self.close_interval();
        }
        let ended = Ended {
            status,
            lines: self.file.count,
            ended_ms: now_ms(),
            at_s: rounded(self.begun.elapsed().as_secs_f64()),
            failures_left_out: self.failures.saturating_sub(FAILURES_MAX),
            ..self.outcome
        };
        // What could not be written may be now: a full disk has been cleared.
        self.file.trouble = None;
        self.file.sync();
        self.file.write(&Line::Ended(Box::new(ended)));
        self.file.sync();
        self.file.trouble.map_or(Ok(()), |error| Err(not_kept(&self.reports, &error)))
    }
}

/// A file of lines, of which each is there whole or not at all.
#[derive(Debug)]
struct Lines {
    file: File,
    /// Bytes of the lines that were written.
    len_bytes: u64,
    count: u64,
    /// The first error since it was last looked at.
    trouble: Option<io::Error>,
}

impl Lines {
    fn write(&mut self, line: &impl Serialize) {
        let mut text = serde_json::to_vec(line).expect("lines are plain data with text keys");
        text.push(b'\n');
        match self.file.write_all_at(&text, self.len_bytes) {
            Ok(()) => {
                self.len_bytes += text.len() as u64;
                self.count += 1;
            }
            Err(error) => {
                // The next line goes to the place of this one, whatever is there of it.
                let _ = self.file.set_len(self.len_bytes);
                self.trouble.get_or_insert(error);
            }
        }
    }

    fn sync(&mut self) {
        if let Err(error) = self.file.sync_all() {
            self.trouble.get_or_insert(error);
        }
    }
}

/// Locks a report for as long as its run goes: the kernel lets go of it when the run is killed. A
/// file system without locks has none, and the lines must do.
fn lock(file: &File) -> bool {
    for _ in 0..LOCK_TRIES {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_POLL),
            other => return other.is_ok(),
        }
    }
    false
}

fn not_kept(reports: &Path, error: &io::Error) -> Problem {
    let what = format!("the report of this run is not kept in {}", reports.display());
    let needs = "a directory that this user alone can write";
    let hint = "the run goes on; `haul report` will not know of it";
    problem(&what, needs, &error.to_string(), hint)
}

/// A target as the user named it, without its token.
fn without_token(target: &str) -> String {
    if !target.starts_with("haul://") {
        return target.to_owned();
    }
    match target.parse::<HaulUrl>() {
        Ok(mut url) => {
            url.token = None;
            url.to_string()
        }
        Err(_) => "haul://".to_owned(),
    }
}

fn bounded(problem: &Problem) -> Problem {
    let cut = |text: &str| {
        let mut end = text.len().min(TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text[..end].to_owned()
    };
    Problem {
        what: cut(&problem.what),
        needs: cut(&problem.needs),
        found: cut(&problem.found),
        hint: cut(&problem.hint),
        ..problem.clone()
    }
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_told_without_its_token() {
        let token = crate::Token::generate([7; 16]).unwrap().reveal();
        let url = format!("haul://{token}@host:7/a%20b/");
        assert_eq!(without_token(&url), "haul://host:7/a%20b/");
        assert_eq!(without_token("ann@host:dir/"), "ann@host:dir/");
        assert!(!without_token(&format!("haul://{token}@:x/")).contains(&token));
    }

    #[test]
    fn what_is_half_written_is_written_over() {
        let file = tempfile::tempfile().unwrap();
        let mut lines = Lines { file, len_bytes: 0, count: 0, trouble: None };
        lines.write(&"first");
        // Half of a line that the disk had no room for.
        lines.file.write_all_at(b"\"half of a li", lines.len_bytes).unwrap();
        lines.write(&"a line that is longer");
        let mut text = String::new();
        io::Seek::seek(&mut lines.file, io::SeekFrom::Start(0)).unwrap();
        io::Read::read_to_string(&mut lines.file, &mut text).unwrap();
        assert_eq!(text, "\"first\"\n\"a line that is longer\"\n");
        assert_eq!(lines.count, 2);
    }
}
