//! A running `haul --json`: its lines as they come, its end, and its words.

use super::PATIENCE;
use haul_testkit::skip::skip;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    ffi::OsString,
    io::{BufRead, BufReader, PipeReader, Read},
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Bytes of the smallest pipe that Linux makes: one page.
const PIPE_BYTES: usize = 4096;

/// A process of `haul`, killed when dropped.
pub struct Haul {
    child: Child,
    feed: Arc<Feed>,
    errors: Option<JoinHandle<String>>,
    /// Reading end of the pipe that the process writes to, which nobody reads: held, as a closed
    /// pipe would end it.
    #[expect(dead_code, reason = "it is held")]
    unread: Option<PipeReader>,
}

#[derive(Default)]
struct Feed {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Default)]
struct Lines {
    events: Vec<Value>,
    ended: bool,
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, output: impl Read) {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let event = serde_json::from_str(&line).unwrap_or_else(
                |error| serde_json::json!({ "no_json": line, "why": error.to_string() }),
            );
            self.lock().events.push(event);
            self.changed.notify_all();
        }
        self.lock().ended = true;
        self.changed.notify_all();
    }
}

/// Command that runs another behind these words, such as `taskset -c 0`.
pub fn behind(words: &[OsString], command: Command) -> Command {
    let Some((program, rest)) = words.split_first() else { return command };
    let mut wrapped = Command::new(program);
    wrapped.args(rest).arg(command.get_program()).args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        wrapped.current_dir(directory);
    }
    wrapped.env_clear().stdin(Stdio::null());
    wrapped.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    wrapped
}

/// Words that run a program behind them, such as with less than usual; `None` and a skipped test
/// where they do not run.
pub fn runnable(words: &[&str]) -> Option<Vec<OsString>> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let mut command = behind(&words, Command::new("/bin/true"));
    let output = command.stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Some(words),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            skip(&format!("{words:?} to run"), &why);
            None
        }
        Err(error) => {
            skip(&format!("{words:?} to run"), error.to_string());
            None
        }
    }
}

impl Haul {
    pub fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (output, mut errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let feed = Arc::new(Feed::default());
        let of_thread = feed.clone();
        thread::spawn(move || of_thread.read(output));
        let errors = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = errors.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Self { child, feed, errors: Some(errors), unread: None }
    }

    /// Starts a process with standard output and error in one small pipe, of which nobody reads
    /// more than the first line.
    pub fn start_unread(mut command: Command) -> Self {
        let (mut reader, writer) = std::io::pipe().unwrap();
        rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES).unwrap();
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        let child = command.spawn().unwrap();
        // Its copies of the pipe's end are closed: the pipe ends with the program.
        drop(command);
        let (mut line, mut byte) = (Vec::new(), [0]);
        while byte != *b"\n" && reader.read(&mut byte).unwrap() > 0 {
            line.push(byte[0]);
        }
        let feed = Arc::new(Feed::default());
        feed.read(&line[..]);
        let errors = Some(thread::spawn(String::new));
        Self { child, feed, errors, unread: Some(reader) }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Lines that came so far.
    pub fn events(&self) -> Vec<Value> {
        self.feed.lock().events.clone()
    }

    /// Waits for the first line that fits, of those that came and those to come; `None` when the
    /// program ended without, or `time_max` passed.
    pub fn look_for(&self, time_max: Duration, fits: impl Fn(&Value) -> bool) -> Option<Value> {
        self.look_at(time_max, |events| events.iter().find(|event| fits(event)).cloned())
    }

    fn look_at<T>(&self, time_max: Duration, find: impl Fn(&[Value]) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + time_max;
        let mut lines = self.feed.lock();
        loop {
            let found = find(&lines.events);
            let left = deadline.saturating_duration_since(Instant::now());
            if found.is_some() || lines.ended || left.is_zero() {
                return found;
            }
            let waited = self.feed.changed.wait_timeout(lines, left);
            lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until `count` lines of this event came.
    #[track_caller]
    pub fn wait_for_count(&self, event: &str, count: usize) {
        let counted = |events: &[Value]| {
            (events.iter().filter(|line| line["event"] == event).count() >= count).then_some(())
        };
        let seen = self.look_at(PATIENCE, counted);
        assert!(seen.is_some(), "not {count} times {event}: {:?}", self.events());
    }

    /// Waits for the first line that fits, which must come.
    #[track_caller]
    pub fn wait_for(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        self.look_for(PATIENCE, fits)
            .unwrap_or_else(|| panic!("no {what} came: {:?}", self.events()))
    }

    /// Waits for progress with at least this many bytes under the key.
    #[track_caller]
    pub fn wait_for_bytes(&self, key: &str, at_least: u64) -> u64 {
        let fits = |event: &Value| event[key].as_u64().is_some_and(|bytes| bytes >= at_least);
        self.wait_for(&format!("{key} of {at_least}"), fits)[key].as_u64().unwrap()
    }

    /// The largest number under this key in any progress line so far.
    pub fn progress(&self, key: &str) -> u64 {
        let events = self.events();
        events.iter().filter_map(|event| event[key].as_u64()).max().unwrap_or(0)
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills the process by SIGKILL; returns when it is gone and all it said is read.
    pub fn kill(&mut self) {
        // An error says that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.look_for(Duration::from_secs(10), |_| false);
    }

    /// Sends a signal, SIGINT or SIGTERM.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(id, signal).unwrap();
    }

    /// Waits for the end of the process.
    #[track_caller]
    pub fn finish(mut self) -> Ran {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                let events = self.events();
                self.kill();
                let errors = self.errors.take().map(|errors| errors.join());
                panic!("it did not end in {PATIENCE:?}: {events:?}\n{errors:?}");
            }
            thread::sleep(Duration::from_millis(5));
        };
        self.look_for(PATIENCE, |_| false);
        let err = self.errors.take().unwrap().join().unwrap();
        Ran { status: status.code().unwrap_or(-1), events: self.events(), err }
    }
}

impl Drop for Haul {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that ended, and all its words.
pub struct Ran {
    /// Exit status; -1 where a signal ended the program.
    pub status: i32,
    pub events: Vec<Value>,
    pub err: String,
}

impl std::fmt::Debug for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "exit status {}", self.status)?;
        for event in &self.events {
            writeln!(f, "{event}")?;
        }
        write!(f, "{}", self.err)
    }
}

impl Ran {
    /// The report, which is the last line.
    #[track_caller]
    pub fn report(&self) -> &Value {
        let last = self.events.last().unwrap_or(&Value::Null);
        assert_eq!(last["event"], "report", "{self:?}");
        last
    }

    /// Checks that all is done and verified; returns the report.
    #[track_caller]
    pub fn ok(&self) -> &Value {
        assert_eq!(self.status, 0, "{self:?}");
        let report = self.report();
        assert_eq!((&report["ok"], &report["files"]["failed"]), (&true.into(), &0.into()));
        report
    }

    /// Checks that this many files failed; returns the report.
    #[track_caller]
    pub fn failed(&self, files: u64) -> &Value {
        assert_eq!(self.status, 1, "{self:?}");
        let report = self.report();
        let told = (&report["ok"], &report["files"]["failed"]);
        assert_eq!(told, (&false.into(), &files.into()), "{self:?}");
        report
    }

    pub fn named(&self, event: &str) -> Vec<&Value> {
        self.events.iter().filter(|line| line["event"] == event).collect()
    }

    /// The number under a key of the report.
    #[track_caller]
    pub fn number(&self, key: &str) -> u64 {
        self.report()[key].as_u64().unwrap_or_else(|| panic!("no number {key}: {self:?}"))
    }

    /// Most bytes that a session of this run went on from, whether they were there before the run
    /// or an earlier session brought them.
    pub fn gone_on_from(&self) -> u64 {
        let bytes = |event: &&Value| event["bytes"].as_u64();
        self.named("resume").iter().filter_map(bytes).max().unwrap_or(0)
    }

    /// Finds the error event whose words, all parts together, hold all of these; they must be on
    /// standard error too.
    #[track_caller]
    pub fn says(&self, words: &[&str]) -> &Value {
        let holds = |event: &&&Value| {
            let network = if event["side"] == "path" { "network" } else { "" };
            let text = format!("{event} {network}").to_lowercase();
            words.iter().all(|word| text.contains(&word.to_lowercase()))
        };
        let errors = self.named("error");
        let found = errors.iter().find(holds);
        let found = found.unwrap_or_else(|| panic!("no error says {words:?}: {self:?}"));
        let err = self.err.to_lowercase();
        for word in words {
            assert!(err.contains(&word.to_lowercase()), "{word:?} is not on stderr: {}", self.err);
        }
        found
    }

    /// Checks that nothing could start, in these words, with something to do about it.
    #[track_caller]
    pub fn refused(&self, words: &[&str]) {
        assert_eq!(self.status, 2, "{self:?}");
        let error = self.says(words);
        assert!(error["hint"] != "", "no hint: {error}");
    }
}
