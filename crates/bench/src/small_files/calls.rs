//! System calls of a mover by their names, counted in a round that is not timed.
//!
//! By the kernel's tracepoints where this user may use them (perf_event_open(2)), else by strace,
//! which stops a program at each call, so that it waits more or less often than by itself. What
//! io_uring does is one call however much that is.

use crate::{error::Lack, mounts::Tracefs, small_files::programs, workshop::Workshop};
use anyhow::{Context, Result};
use haul_sys::perf_counter::{SystemCallCounter, tracefs};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Calls that movers of files make, by the names of their tracepoints. Others are counted together.
const NAMED: [&str; 73] = [
    "accept4",
    "brk",
    "chmod",
    "clock_nanosleep",
    "clone",
    "clone3",
    "close",
    "connect",
    "copy_file_range",
    "epoll_pwait",
    "epoll_wait",
    "fadvise64",
    "fallocate",
    "fchmod",
    "fchmodat",
    "fchown",
    "fchownat",
    "fcntl",
    "fdatasync",
    "flock",
    "fstatfs",
    "fsync",
    "ftruncate",
    "futex",
    "getdents64",
    "getsockopt",
    "gettimeofday",
    "io_uring_enter",
    "ioctl",
    "lchown",
    "linkat",
    "lseek",
    "madvise",
    "mkdir",
    "mkdirat",
    "mmap",
    "mprotect",
    "munmap",
    "newfstat",
    "newfstatat",
    "newlstat",
    "openat",
    "openat2",
    "poll",
    "ppoll",
    "pread64",
    "preadv2",
    "pselect6",
    "pwrite64",
    "pwritev2",
    "read",
    "readlink",
    "readlinkat",
    "readv",
    "recvfrom",
    "recvmsg",
    "rename",
    "renameat",
    "renameat2",
    "sched_yield",
    "select",
    "sendfile64",
    "sendmsg",
    "sendto",
    "splice",
    "statx",
    "sync_file_range",
    "syncfs",
    "unlink",
    "unlinkat",
    "utimensat",
    "write",
    "writev",
];
/// The call by which a counter is looked at.
const LOOK: &str = "read";
/// Names of calls whose tracepoints are called otherwise.
const SHOWN: [(&str, &str); 3] =
    [("newfstat", "fstat"), ("newlstat", "lstat"), ("sendfile64", "sendfile")];

/// The way in which this host counts calls.
#[derive(Debug)]
pub enum Counter {
    /// Tracepoints; the tracefs is the bench's own where the host has none.
    Tracepoints {
        tracefs: PathBuf,
        _mount: Option<Tracefs>,
    },
    Strace(PathBuf),
    /// No way, for this reason.
    Nothing(String),
}

/// Calls of both sides of a mover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallCounts {
    /// The way in which they were counted, in words.
    pub by: &'static str,
    pub all: u64,
    pub named: BTreeMap<String, u64>,
}

/// Counts of a thread and of what it starts, open until dropped: that takes the kernel a second.
#[derive(Debug)]
pub enum Counting<'counter> {
    Nothing,
    Tracepoints { all: Counted, named: Vec<Counted> },
    Strace { program: &'counter Path, directory: PathBuf },
}

/// A counter of calls of one name, or of all, and its state when the count began.
#[derive(Debug)]
pub struct Counted {
    name: &'static str,
    counter: SystemCallCounter,
    before: u64,
}

impl Counted {
    fn new(name: &'static str, counter: SystemCallCounter) -> Self {
        Self { name, counter, before: 0 }
    }

    fn begin(&mut self) -> Result<()> {
        self.before = self.counter.count()?;
        Ok(())
    }

    fn calls(&self) -> Result<u64> {
        Ok(self.counter.count()?.saturating_sub(self.before))
    }

    fn shown(&self) -> String {
        let shown = SHOWN.iter().find(|(tracepoint, _)| *tracepoint == self.name);
        shown.map_or(self.name, |(_, shown)| shown).to_owned()
    }
}

impl Counter {
    /// Finds the best way that this user has.
    pub fn find(workshop: &Workshop) -> Self {
        let (tracefs, mount) = match (tracefs(), rustix::process::geteuid().is_root()) {
            (Err(_), true) => match Tracefs::new(workshop.path()) {
                Ok(mount) => (Ok(mount.path().to_owned()), Some(mount)),
                Err(why) => (Err(why.to_string()), None),
            },
            (found, _) => (found.map_err(|error| format!("no tracefs to read: {error}")), None),
        };
        let tried = tracefs.and_then(|tracefs| {
            let opened = SystemCallCounter::open_at(&tracefs);
            opened.map(|_| tracefs).map_err(|error| format!("perf_event_open: {error}"))
        });
        match tried {
            Ok(tracefs) => Self::Tracepoints { tracefs, _mount: mount },
            Err(perf) => match strace() {
                Ok(program) => Self::Strace(program),
                Err(strace) => Self::Nothing(format!("{perf}; strace: {strace}")),
            },
        }
    }

    /// Opens the counts of what the calling thread starts from now on.
    pub fn open(&self, workshop: &Workshop) -> Result<Counting<'_>> {
        Ok(match self {
            Self::Nothing(_) => Counting::Nothing,
            Self::Strace(program) => {
                Counting::Strace { program, directory: workshop.path().join("strace") }
            }
            Self::Tracepoints { tracefs, .. } => {
                // Not every machine has each call.
                let named = NAMED.into_iter().filter_map(|name| {
                    let counter = SystemCallCounter::open_named(tracefs, name).ok()?;
                    Some(Counted::new(name, counter))
                });
                let mut named: Vec<Counted> = named.collect();
                // Last, for a look at each of the others is such a call.
                named.sort_by_key(|counted| counted.name == LOOK);
                let all = SystemCallCounter::open_at(tracefs).context("perf_event_open")?;
                Counting::Tracepoints { all: Counted::new("all", all), named }
            }
        })
    }
}

/// strace, where it is there and may trace.
fn strace() -> Result<PathBuf, Lack> {
    let program = programs::find("strace")?;
    let mut command = Command::new(&program);
    command.args(["-f", "-c", "-o", "/dev/null", "true"]).stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => Ok(program),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Lack::Failed { program: "strace".to_owned(), said })
        }
        Err(error) => Err(Lack::NotStarted("strace".to_owned(), error)),
    }
}

impl Counting<'_> {
    /// Begins a count.
    pub fn begin(&mut self) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Strace { directory, .. } => {
                let _ = fs::remove_dir_all(&*directory);
                fs::create_dir(&*directory).context("cannot make a directory for strace")
            }
            Self::Tracepoints { all, named } => {
                all.begin()?;
                named.iter_mut().try_for_each(Counted::begin)
            }
        }
    }

    /// Words behind which a process of this name runs.
    pub fn words(&self, name: &str) -> Vec<OsString> {
        match self {
            Self::Strace { program, directory } => {
                let file = directory.join(name).into();
                [program.as_os_str().into(), "-f".into(), "-c".into(), "-o".into(), file].into()
            }
            Self::Nothing | Self::Tracepoints { .. } => Vec::new(),
        }
    }

    /// The calls since the count began; `None` where nothing is counted.
    pub fn end(&self) -> Result<Option<CallCounts>> {
        match self {
            Self::Nothing => Ok(None),
            Self::Tracepoints { all, named } => {
                // The other way round, so that the count of all holds that of each, and looks.
                let looks = 2 * named.len() as u64;
                let count = |counted: &Counted| Ok((counted.shown(), counted.calls()?));
                let named = named.iter().rev().map(count).collect::<Result<BTreeMap<_, _>>>()?;
                let all = all.calls()?.saturating_sub(looks);
                Ok(Some(CallCounts { by: "tracepoints", all, named }))
            }
            Self::Strace { directory, .. } => {
                let mut named = BTreeMap::new();
                for entry in fs::read_dir(directory)? {
                    let text = fs::read_to_string(entry?.path())?;
                    for (name, count) in read_summary(&text) {
                        *named.entry(name).or_default() += count;
                    }
                }
                Ok(Some(CallCounts { by: "strace", all: named.values().sum(), named }))
            }
        }
    }
}

/// Calls of a summary that strace(1) prints with `-c`: after the share of the time, seconds and
/// microseconds a call comes the number of calls, and last the name.
fn read_summary(text: &str) -> Vec<(String, u64)> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let name = *cells.last().filter(|name| **name != "total")?;
        let count = cells.get(3)?.parse().ok()?;
        Some((name.to_owned(), count))
    };
    text.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Caller;

    #[test]
    fn a_summary_of_strace_has_each_call_and_no_sum() {
        let text = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 63.14    0.000214           4        46         1 openat
 36.86    0.000125           3        37           close
------ ----------- ----------- --------- --------- ----------------
100.00    0.000339           4        83         1 total
";
        let expected = [("openat".to_owned(), 46), ("close".to_owned(), 37)];
        assert_eq!(read_summary(text), expected);
        assert_eq!(read_summary(""), []);
    }

    #[test]
    fn no_call_is_named_twice() {
        assert!(NAMED.is_sorted_by(|one, next| one < next));
        for (tracepoint, shown) in SHOWN {
            assert!(NAMED.contains(&tracepoint) && !NAMED.contains(&shown));
        }
    }

    #[test]
    fn calls_of_a_process_are_counted_by_name_or_it_is_said_why_not() {
        let workshop = Workshop::new(Path::new("."), &Caller::default()).unwrap();
        let counter = Counter::find(&workshop);
        if let Counter::Nothing(why) = &counter {
            return haul_testkit::skip::skip("tracepoints or strace", why);
        }
        let mut counting = counter.open(&workshop).unwrap();
        for files in [1, 3] {
            let files = (0..files).map(|at| workshop.path().join(format!("file-{at}")));
            let files: Vec<PathBuf> = files.collect();
            files.iter().for_each(|file| fs::write(file, "").unwrap());
            counting.begin().unwrap();
            let words = counting.words("remove");
            let mut command = super::super::process::command(&words, "rm".as_ref());
            assert!(command.args(&files).status().unwrap().success());
            let counts = counting.end().unwrap().unwrap();
            assert_eq!(counts.named["unlinkat"], files.len() as u64);
            let named: u64 = counts.named.values().sum();
            assert!(counts.all >= named && named > 5, "{counts:?}");
        }
    }
}
