//! Reads the report of one run, whoever has damaged it, in bounded memory.

use super::{
    line::{Ended, Head, Interval, LINE_BYTES_MAX, Line, VERSION},
    place::{Reports, name_of},
};
use crate::{clocks::now_ms, error::problem, plan::Plan, problem::Problem};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
};

/// Failures of a run that are kept; the others are counted.
const FAILURES_MAX: usize = 10;
/// Time without a line after which a run on another machine is taken for gone.
const SILENCE_MS_MAX: u64 = 60_000;
/// Time by which the clock of another machine may be ahead of this one's. A line from later than
/// that is no sign that its run goes: it would be one for as long as the clock is ahead.
const CLOCK_AHEAD_MS_MAX: u64 = 60_000;
/// Longest time of a run that is believed, in seconds: 30 years.
const SECONDS_MAX: f64 = 1e9;

/// The report of a run, as far as it goes.
#[derive(Debug)]
pub struct RunRead {
    pub head: Head,
    /// The last line; `None` where the run has not ended.
    pub ended: Option<Ended>,
    /// Whether the run still goes, where it has not ended.
    pub is_running: bool,
    /// Seconds from the begin to the last line.
    pub seconds: f64,
    /// Bytes and files in all intervals.
    pub interval_bytes: u64,
    pub files_done: u64,
    pub failures: Vec<Problem>,
    pub failures_left_out: u64,
}

/// The finding in a report's place.
#[derive(Debug)]
pub enum Found {
    Run(Box<RunRead>),
    /// Report of a run of another plan, which had this place before.
    OfAnotherPlan,
    /// A run began and did not end: nothing came to the disk of what it said.
    Nothing,
}

/// Reads a report and gives its intervals away, one by one.
///
/// # Errors
/// If it is damaged, of a later version, or of another user.
pub fn read(
    reports: &Reports,
    plan: &Plan,
    (shard, attempt): (u32, u32),
    interval: &mut dyn FnMut(&Head, &Interval),
) -> Result<Found, Problem> {
    let failed = |error: io::Error| {
        let needs = "a file that this user alone can write";
        problem(&what_failed(shard, attempt), needs, &error.to_string(), "remove it")
    };
    let file = reports.report(shard, attempt).map_err(failed)?;
    let is_locked = is_locked(&file);
    read_from(file, is_locked, plan, (shard, attempt), interval)
}

/// Reads a report out of whatever has its bytes, as [`read`] does.
///
/// # Errors
/// If it is damaged, or of a later version.
pub fn read_from(
    file: impl Read,
    is_locked: bool,
    plan: &Plan,
    (shard, attempt): (u32, u32),
    interval: &mut dyn FnMut(&Head, &Interval),
) -> Result<Found, Problem> {
    let what = what_failed(shard, attempt);
    let refused = |needs: &str, found: &str, hint: &str| problem(&what, needs, found, hint);
    let failed = |error: io::Error| {
        refused("the lines that a run has written", &error.to_string(), "remove it")
    };
    let mut lines = Lines { file: BufReader::new(file), text: Vec::new() };
    let Some(first) = lines.next().map_err(failed)? else { return Ok(Found::Nothing) };
    let damaged = |found: &str| {
        let hint = "run the shard again, or remove the report";
        refused("the lines that a run has written", found, hint)
    };
    let version = serde_json::from_slice::<Version>(first)
        .map_err(|error| damaged(&format!("in line 1: {error}")))?;
    if version.haul_run > VERSION {
        let found = format!("version {}", version.haul_run);
        return Err(refused(&format!("version {VERSION}"), &found, "run the haul that wrote it"));
    }
    let head: Head =
        serde_json::from_slice(first).map_err(|error| damaged(&format!("in line 1: {error}")))?;
    if head.plan != plan.id {
        return Ok(Found::OfAnotherPlan);
    }
    if (head.shard, head.of) != (shard, plan.shards_told()) {
        return Err(damaged(&format!("shard {} of {}", head.shard, head.of)));
    }
    let mut run = RunRead::of(head);
    let mut count = 1;
    let mut last_s = 0.0;
    while let Some(text) = lines.next().map_err(failed)? {
        let line = serde_json::from_slice(text)
            .map_err(|error| damaged(&format!("in line {}: {error}", count + 1)))?;
        if run.ended.is_some() {
            return Err(damaged("lines behind the last one"));
        }
        if let Line::Interval(one) = &line {
            last_s = one.seconds;
            interval(&run.head, one);
        }
        run.take(line);
        if let Some(lines) = run.ended.as_ref().map(|ended| ended.lines)
            && lines != count
        {
            return Err(damaged(&format!("{count} of {lines} lines before the last one")));
        }
        count += 1;
    }
    run.is_running = run.ended.is_none() && (is_locked || run.was_heard_lately(last_s));
    Ok(Found::Run(Box::new(run)))
}

fn what_failed(shard: u32, attempt: u32) -> String {
    format!("cannot read the report {}", name_of(shard, attempt))
}

/// The one key of the first line that every version has.
#[derive(serde::Deserialize)]
struct Version {
    haul_run: u32,
}

impl RunRead {
    fn of(head: Head) -> Self {
        let (ended, is_running, seconds) = (None, false, 0.0);
        let (interval_bytes, files_done) = (0, 0);
        let (failures, failures_left_out) = (Vec::new(), 0);
        Self {
            head,
            ended,
            is_running,
            seconds,
            interval_bytes,
            files_done,
            failures,
            failures_left_out,
        }
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Interval(one) => {
                self.seconds = believed(one.at_s).max(self.seconds);
                self.interval_bytes = self.interval_bytes.saturating_add(one.bytes);
                self.files_done = one.files;
            }
            Line::Failed(_) if self.failures.len() == FAILURES_MAX => self.failures_left_out += 1,
            Line::Failed(problem) => self.failures.push(problem),
            Line::Ended(ended) => {
                self.seconds = believed(ended.at_s).max(self.seconds);
                self.failures_left_out =
                    self.failures_left_out.saturating_add(ended.failures_left_out);
                self.ended = Some(*ended);
            }
            Line::Unknown => {}
        }
    }

    /// Begin of the run, in milliseconds since 1970, and its end as far as it is known.
    pub fn span_ms(&self) -> (u64, u64) {
        let began_ms = self.head.began_ms;
        (began_ms, began_ms.saturating_add((self.seconds * 1000.0) as u64))
    }

    /// Bytes that the run brought.
    pub fn moved_bytes(&self) -> u64 {
        self.ended.as_ref().map_or(self.interval_bytes, |ended| ended.moved_bytes)
    }

    /// Files and links that the run put in place.
    pub fn files_moved(&self) -> u64 {
        self.ended.as_ref().map_or(self.files_done, |ended| ended.files.done)
    }

    /// Files and bytes at the target, as far as the run tells.
    pub fn there(&self) -> (u64, u64) {
        match &self.ended {
            Some(ended) => (ended.files.done.saturating_add(ended.files.skipped), ended.bytes),
            None => (self.files_done, self.interval_bytes),
        }
    }

    /// Whether the run has said something a moment ago. Of one on this machine the lock tells:
    /// it is not held any more.
    fn was_heard_lately(&self, last_s: f64) -> bool {
        let boot = haul_host::boot_id().map_or_else(String::new, |id| crate::bytes::hex(&id));
        if self.head.locked && self.head.boot == boot {
            return false;
        }
        let patience_ms = SILENCE_MS_MAX + (believed(last_s) * 3000.0) as u64;
        let (now_ms, last_ms) = (now_ms(), self.span_ms().1);
        now_ms.saturating_sub(last_ms) <= patience_ms
            && last_ms.saturating_sub(now_ms) <= CLOCK_AHEAD_MS_MAX
    }
}

/// A time that a report tells, within what can be.
pub fn believed(seconds: f64) -> f64 {
    seconds.clamp(0.0, SECONDS_MAX)
}

/// Whether a run holds its report.
fn is_locked(file: &File) -> bool {
    matches!(flock(file, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK))
}

/// Lines of a file, one at a time, none longer than a report has.
struct Lines<R> {
    file: BufReader<R>,
    text: Vec<u8>,
}

impl<R: Read> Lines<R> {
    /// The next line; `None` at the end, where half a line may be that a run has begun.
    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.text.clear();
        (&mut self.file).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.text)?;
        if self.text.pop() == Some(b'\n') {
            return Ok(Some(&self.text));
        }
        if self.text.len() as u64 + 1 >= LINE_BYTES_MAX {
            return Err(io::Error::other(format!("a line of more than {LINE_BYTES_MAX} bytes")));
        }
        Ok(None)
    }
}
