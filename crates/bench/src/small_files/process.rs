//! A process of a mover: awaited without a delay, with what it used, and gone when dropped.

use crate::workshop::Workshop;
use anyhow::{Context, Result, bail, ensure};
use haul_sys::{child_usage, parent::end_with_parent, usage::Usage};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Interval between checks whether the user wants to stop.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Interval between looks at what a server prints.
const SERVER_LOOK_EVERY: Duration = Duration::from_millis(2);
/// Longest part of what a process says in its errors.
const SAYS_CHARS_MAX: usize = 300;

/// A program behind words that run it, such as those that count its calls.
pub fn command(words: &[OsString], program: &OsStr) -> Command {
    match words {
        [] => Command::new(program),
        [runner, rest @ ..] => {
            let mut command = Command::new(runner);
            command.args(rest).arg(program);
            command
        }
    }
}

/// A running process; what it started goes with it when this is dropped.
#[derive(Debug)]
pub struct Process {
    /// `None` once it was awaited.
    child: Option<Child>,
    group: Pid,
    ends: OwnedFd,
    name: &'static str,
    output: PathBuf,
    errors: PathBuf,
}

impl Process {
    /// Starts the command, whose standard output, where `command` does not say otherwise, and
    /// standard error go to files.
    pub fn start(
        workshop: &Workshop,
        name: &'static str,
        command: &mut Command,
        output: Option<Stdio>,
    ) -> Result<Self> {
        let [output_file, errors] =
            ["output", "errors"].map(|kind| workshop.path().join(format!("{name}.{kind}")));
        let make = |path: &PathBuf| File::create(path).context("cannot write to the directory");
        let stdout = match output {
            Some(output) => output,
            None => make(&output_file)?.into(),
        };
        command.stdout(stdout).stderr(make(&errors)?);
        // Its own group, so that what it starts can be ended with it.
        const OWN_GROUP: i32 = 0;
        command.process_group(OWN_GROUP);
        end_with_parent(command);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let group = Pid::from_child(&child);
        let ends = pidfd_open(group, PidfdFlags::empty()).context("pidfd_open")?;
        Ok(Self { child: Some(child), group, ends, name, output: output_file, errors })
    }

    pub fn id(&self) -> u32 {
        self.group.as_raw_pid().unsigned_abs()
    }

    /// The file that the process prints into, unless it was started with another output.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// Whether the process has ended.
    pub fn has_ended(&self) -> Result<bool> {
        poll_one(&self.ends, Duration::ZERO)
    }

    /// Waits for the end of the process: what it used.
    ///
    /// # Errors
    /// If it fails, or has not ended by then, with what it said; or if the user wants to stop.
    pub fn wait(mut self, until: Instant, workshop: &Workshop) -> Result<Usage> {
        while !poll_one(&self.ends, LOOK_EVERY)? {
            workshop.go_on()?;
            if Instant::now() > until {
                bail!("{} did not end in time: {}", self.name, self.says());
            }
        }
        let child = self.child.take().context("a process is awaited once")?;
        let (status, usage) = child_usage::wait(child).context("wait4")?;
        ensure!(status.success(), "{} failed ({status}): {}", self.name, self.says());
        Ok(usage)
    }

    /// Waits until `find` finds something in a line of JSON that the process prints.
    pub fn wait_for<T>(
        &self,
        until: Instant,
        workshop: &Workshop,
        find: impl Fn(&serde_json::Value) -> Option<T>,
    ) -> Result<T> {
        loop {
            let text = fs::read_to_string(&self.output).context("cannot read its output")?;
            let whole_lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines).lines();
            let found = whole_lines
                .filter_map(|line| serde_json::from_str(line).ok())
                .find_map(|line| find(&line));
            if let Some(found) = found {
                return Ok(found);
            }
            workshop.go_on()?;
            if poll_one(&self.ends, SERVER_LOOK_EVERY)? || Instant::now() > until {
                bail!("{} is not ready: {}", self.name, self.says());
            }
        }
    }

    /// The end of what the process said on standard error, or words that it said nothing.
    pub fn says(&self) -> String {
        let text = fs::read_to_string(&self.errors).unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        let cut = text.chars().count().saturating_sub(SAYS_CHARS_MAX);
        let text: String = text.chars().skip(cut).collect();
        if text.is_empty() { "it gave no reason".to_owned() } else { text }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        // An error says that all of it is gone already.
        let _ = kill_process_group(self.group, Signal::KILL);
        let _ = child.wait();
    }
}

/// Waits until the descriptor can be read, at most so long; says whether it can.
pub fn poll_one(descriptor: impl AsFd, time_max: Duration) -> Result<bool> {
    let mut looked_at = [PollFd::new(&descriptor, PollFlags::IN)];
    let time_max = Timespec::try_from(time_max).context("a time to wait")?;
    match poll(&mut looked_at, Some(&time_max)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error).context("poll"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Caller;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_process_gives_its_time_or_its_last_words() {
        let workshop = Workshop::new(Path::new("."), &Caller::default()).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let start = |script| Process::start(&workshop, "shell", &mut shell(script), None).unwrap();
        let used = start("i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done");
        assert!(used.wait(until, &workshop).unwrap().cpu > Duration::ZERO);
        let failed = start("echo no room >&2; exit 3").wait(until, &workshop).unwrap_err();
        let failed = failed.to_string();
        assert!(failed.contains("shell failed") && failed.contains("no room"), "{failed}");
        let printing = start("echo '{\"url\": \"here\"}'; sleep 60");
        let url = |line: &serde_json::Value| line["url"].as_str().map(str::to_owned);
        assert_eq!(printing.wait_for(until, &workshop, url).unwrap(), "here");
        let silent = start("exit 0").wait_for(until, &workshop, url).unwrap_err().to_string();
        assert!(silent.contains("shell is not ready: it gave no reason"), "{silent}");
    }

    #[test]
    fn what_a_process_started_ends_with_it() {
        let workshop = Workshop::new(Path::new("."), &Caller::default()).unwrap();
        let started = workshop.path().join("started");
        let script = format!("sleep 60 & echo $! > {}; wait", started.display());
        let process = Process::start(&workshop, "shell", &mut shell(&script), None).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let number = || fs::read_to_string(&started).ok()?.trim().parse::<i32>().ok();
        while number().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let state = format!("/proc/{}/stat", number().unwrap());
        drop(process);
        // Whoever takes in orphans may not have waited for it yet.
        let is_gone = || fs::read_to_string(&state).map_or(true, |text| text.contains(") Z "));
        while !is_gone() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(is_gone());
    }
}
