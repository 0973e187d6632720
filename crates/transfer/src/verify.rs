//! Comparison of files with a manifest (`haul verify`). They are read again, from their disks.
//!
//! In place of a manifest it takes the journal of an unfinished transfer.
//!
//! The manifest is one of haul's or of `b3sum`'s; names in it are below a directory, or absolute.
//! Each file is read as [`read_back`](crate::storage::read_back) promises, several at a time, large
//! ones in parts. Symbolic links are followed, as `b3sum` does. Nothing is ever written.

mod extra;
mod pool;
mod unfinished;

pub use unfinished::UnfinishedReport;

use crate::{
    Interrupt,
    error::{TransferError, problem},
    manifest::line::{LINE_BYTES_MAX, Line},
    name::{Name, exact_path},
    problem::Problem,
    session::stages,
    storage::read_back::{Way, WayBytes},
};
use pool::{Outcome, Pool};
use serde::Serialize;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
    sync::{
        atomic::Ordering,
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Interval at which a wait looks for Ctrl-C.
const POLL: Duration = Duration::from_millis(50);
/// Most files that are read at a time: each takes 1 MiB of memory.
const THREADS_MAX: usize = 64;

/// A manifest, and the files to compare with it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VerifyRequest {
    /// Path of the manifest, or of the journal of an unfinished transfer.
    pub manifest: PathBuf,
    /// Directory that the names in the manifest are below; `None` for the one that the manifest
    /// lies in.
    pub directory: Option<PathBuf>,
    /// Whether files below the directory that have no line are named too.
    pub extra: bool,
    /// Number of threads that read; `None` for as many as there are processors.
    pub threads: Option<usize>,
}

impl VerifyRequest {
    /// Compares with this manifest the files below the directory that it lies in.
    #[must_use]
    pub fn new(manifest: impl Into<PathBuf>) -> Self {
        Self { manifest: manifest.into(), directory: None, extra: false, threads: None }
    }
}

/// Event of a comparison, one line of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum VerifyEvent {
    /// A file was compared.
    File(VerifiedFile),
    /// Progress of the comparison.
    Progress(VerifyProgress),
    /// A problem of something that could not be looked at.
    Error(Problem),
    /// The report, in a program's list of events; [`verify`] returns it instead.
    Report(VerifyReport),
}

/// The outcome for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum VerifyStatus {
    /// The file is as the manifest says.
    Ok,
    /// The file has other bytes than the manifest says.
    Differs,
    /// The file is in the manifest, and not there.
    Missing,
    /// The file is there, and cannot be read.
    Unreadable,
    /// The journal does not say what the file's spans hold.
    Unknown,
    /// The file is there, and not in the manifest.
    Extra,
}

impl VerifyStatus {
    /// Name of the status, as `--json` has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Differs => "differs",
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
            Self::Unknown => "not known",
            Self::Extra => "extra",
        }
    }
}

/// A file that was compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct VerifiedFile {
    /// Name below the directory.
    #[serde(flatten, serialize_with = "exact_path")]
    pub path: Name,
    /// The outcome.
    pub status: VerifyStatus,
    /// Bytes that were read.
    pub bytes: u64,
    /// Reason why the file could not be read.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

impl VerifiedFile {
    /// A file with this outcome, of which nothing was read.
    #[must_use]
    pub fn new(path: Name, status: VerifyStatus) -> Self {
        Self { path, status, bytes: 0, why: String::new() }
    }
}

/// Progress of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// Seconds since the comparison began.
    pub seconds: f64,
    /// Bytes that were read so far.
    pub bytes: u64,
    /// Files that were compared so far.
    pub files: u64,
    /// Lines of the manifest.
    pub files_total: u64,
    /// Rate of the last interval.
    pub gbit_per_s: f64,
}

/// Findings of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Whether every file of the manifest is there and the same, and none was found that is not in
    /// it.
    pub ok: bool,
    /// Lines of the manifest.
    pub files: u64,
    /// Files that are as the manifest says.
    pub same: u64,
    /// Files with other bytes.
    pub differs: u64,
    /// Files that are not there.
    pub missing: u64,
    /// Files that could not be read.
    pub unreadable: u64,
    /// Files without a line in the manifest.
    pub extra: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Bytes that were read by O_DIRECT.
    pub direct_bytes: u64,
    /// Bytes that came through the page cache, after it was told to forget them.
    pub dropped_bytes: u64,
    /// Bytes that were read on tmpfs, which has no disk.
    pub memory_bytes: u64,
    /// Wall time.
    pub seconds: f64,
    /// Rate of reading.
    pub gbit_per_s: f64,
    /// Report on a journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<UnfinishedReport>,
}

/// Compares files with a manifest.
///
/// # Errors
/// When nothing could start: no manifest, or a line of it that is none. Files that are not the same
/// are [`VerifyEvent::File`]s and make the report's `ok` false.
pub fn verify(
    request: &VerifyRequest,
    interrupt: &Interrupt,
    on_event: &mut dyn FnMut(VerifyEvent),
) -> Result<VerifyReport, TransferError> {
    let threads =
        request.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let threads = threads.clamp(1, THREADS_MAX);
    let mut run = Run {
        begun: Instant::now(),
        told: (Instant::now(), 0),
        report: VerifyReport::default(),
        finished: 0,
        on_event,
    };
    if unfinished::is_one(&request.manifest) {
        return unfinished::verify(request, run, threads, interrupt);
    }
    let directory = directory_of(request)?;
    run.report.files = check_lines(&request.manifest).map_err(TransferError::start)?;
    let (results, finished) = mpsc::channel();
    let pool = Pool::new(directory.clone(), results);
    let fed = thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| pool.work());
        }
        // A caller whose closure panics leaves no thread waiting for more.
        let feed = || run.feed(&request.manifest, &pool, &finished, interrupt);
        let fed = catch_unwind(AssertUnwindSafe(feed));
        pool.end(!matches!(fed, Ok(Ok(_))));
        fed
    });
    fed.unwrap_or_else(|panic| resume_unwind(panic))?;
    // The outcomes that came between the last look and the end.
    finished.try_iter().for_each(|outcome| run.take(outcome));
    if request.extra {
        let found =
            extra::find(&request.manifest, &directory, interrupt, &mut |file| run.count(file));
        found.map_err(|error| extra_failed(&directory, &error, interrupt))?;
    }
    Ok(run.finish(&pool.read))
}

fn directory_of(request: &VerifyRequest) -> Result<PathBuf, TransferError> {
    let of_manifest = || {
        let parent = request.manifest.parent().filter(|parent| !parent.as_os_str().is_empty());
        parent.unwrap_or(Path::new(".")).to_owned()
    };
    let directory = request.directory.clone().unwrap_or_else(of_manifest);
    let found = match std::fs::metadata(&directory) {
        Ok(found) if found.is_dir() => return Ok(directory),
        Ok(_) => "something else".to_owned(),
        Err(error) => error.to_string(),
    };
    let what = format!("cannot verify below {}", directory.display());
    let hint = "name the directory that the manifest's names are below";
    Err(TransferError::start(problem(&what, "a directory", &found, hint)))
}

fn extra_failed(directory: &Path, error: &io::Error, interrupt: &Interrupt) -> TransferError {
    if interrupt.load(Ordering::Relaxed) {
        return TransferError::interrupted();
    }
    let what = format!("cannot look for other files below {}", directory.display());
    TransferError::broken(problem(&what, "", &error.to_string(), "leave out --extra"))
}

/// Reader of the lines of a manifest, one at a time.
struct Lines {
    input: BufReader<File>,
    number: u64,
    text: Vec<u8>,
}

impl Lines {
    fn open(manifest: &Path) -> io::Result<Self> {
        let input = BufReader::with_capacity(64 << 10, File::open(manifest)?);
        Ok(Self { input, number: 0, text: Vec::new() })
    }

    fn next_line(&mut self) -> io::Result<Option<Result<Line, &'static str>>> {
        self.text.clear();
        let most = LINE_BYTES_MAX as u64 + 1;
        (&mut self.input).take(most).read_until(b'\n', &mut self.text)?;
        if self.text.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        let text = self.text.strip_suffix(b"\n").unwrap_or(&self.text);
        if text.len() as u64 >= most {
            return Ok(Some(Err("it is longer than any name")));
        }
        Ok(Some(Line::parse(text)))
    }
}

/// Number of lines of a manifest; every one of them must be a hash and a name.
fn check_lines(manifest: &Path) -> Result<u64, Problem> {
    let what = format!("cannot read the manifest {}", manifest.display());
    let needs =
        "lines of a BLAKE3 hash in hexadecimal, two blanks and a name, as b3sum prints them";
    let hint = "haul push and pull write one with --manifest, and so does b3sum FILE... > MANIFEST";
    let failed = |error: io::Error| problem(&what, "", &error.to_string(), "check the name");
    let mut lines = Lines::open(manifest).map_err(failed)?;
    while let Some(line) = lines.next_line().map_err(failed)? {
        if let Err(why) = line {
            let found = format!("line {}, of which {why}", lines.number);
            let found = found.replace("of which it", "which").replace("of which the", "where the");
            return Err(problem(&what, needs, &found, hint));
        }
    }
    Ok(lines.number)
}

struct Run<'a> {
    begun: Instant,
    /// Time when progress was last told, and the bytes by then.
    told: (Instant, u64),
    report: VerifyReport,
    finished: u64,
    on_event: &'a mut dyn FnMut(VerifyEvent),
}

impl Run<'_> {
    /// Gives the pool all lines and takes all outcomes.
    fn feed(
        &mut self,
        manifest: &Path,
        pool: &Pool,
        finished: &Receiver<Outcome>,
        interrupt: &Interrupt,
    ) -> Result<(), TransferError> {
        let changed = |found: &str| {
            let what = format!("the manifest {} changed while it was read", manifest.display());
            TransferError::broken(problem(&what, "", found, "run the same command again"))
        };
        let mut lines = Lines::open(manifest).map_err(|error| changed(&error.to_string()))?;
        let mut all_given = false;
        while !all_given || self.finished < lines.number {
            if interrupt.load(Ordering::Relaxed) {
                return Err(TransferError::interrupted());
            }
            finished.try_iter().for_each(|outcome| self.take(outcome));
            self.tell_progress(pool);
            if !all_given && pool.has_room() {
                match lines.next_line().map_err(|error| changed(&error.to_string()))? {
                    Some(Ok(line)) => pool.give(line),
                    Some(Err(why)) => return Err(changed(why)),
                    None => all_given = true,
                }
            } else if let Ok(outcome) = finished.recv_timeout(POLL) {
                self.take(outcome);
            }
        }
        self.report.files = lines.number;
        Ok(())
    }

    fn take(&mut self, outcome: Outcome) {
        self.finished += 1;
        self.count(outcome);
    }

    fn count(&mut self, file: VerifiedFile) {
        let count = match file.status {
            VerifyStatus::Ok => &mut self.report.same,
            VerifyStatus::Differs => &mut self.report.differs,
            VerifyStatus::Missing => &mut self.report.missing,
            VerifyStatus::Unreadable | VerifyStatus::Unknown => &mut self.report.unreadable,
            VerifyStatus::Extra => &mut self.report.extra,
        };
        *count += 1;
        (self.on_event)(VerifyEvent::File(file));
    }

    fn tell_progress(&mut self, pool: &Pool) {
        let since = self.told.0.elapsed();
        if since < PROGRESS_EVERY {
            return;
        }
        let bytes = pool.read.sum();
        let rate = gbit_per_s(bytes - self.told.1, since.as_secs_f64());
        self.told = (Instant::now(), bytes);
        (self.on_event)(VerifyEvent::Progress(VerifyProgress {
            seconds: stages::round(self.begun.elapsed().as_secs_f64(), 2),
            bytes,
            files: self.finished,
            files_total: self.report.files,
            gbit_per_s: rate,
        }));
    }

    fn finish(self, read: &WayBytes) -> VerifyReport {
        let seconds = self.begun.elapsed().as_secs_f64();
        let bytes = read.sum();
        VerifyReport {
            ok: self.report.same == self.report.files
                && self.report.extra + self.report.unreadable == 0,
            bytes,
            direct_bytes: read.of(Way::Direct),
            dropped_bytes: read.of(Way::Dropped),
            memory_bytes: read.of(Way::Memory),
            seconds: stages::round(seconds, 3),
            gbit_per_s: gbit_per_s(bytes, seconds),
            ..self.report
        }
    }
}

fn gbit_per_s(bytes: u64, seconds: f64) -> f64 {
    stages::round(bytes as f64 * 8.0 / 1e9 / seconds.max(1e-9), 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The threads that read waited for more, and the caller for them.
    #[test]
    fn a_caller_that_panics_is_not_held() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("f"), "other bytes").unwrap();
        let manifest = directory.path().join("manifest");
        std::fs::write(&manifest, format!("{}  f\n", "0".repeat(64))).unwrap();
        let request = VerifyRequest::new(manifest);
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let verified = || verify(&request, &Interrupt::default(), &mut |_| panic!("of a test"));
            tell.send(catch_unwind(AssertUnwindSafe(verified)).is_err()).unwrap();
        });
        assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(true));
    }
}
