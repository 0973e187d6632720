//! A child process of this very program, ended by its handle, and with this one where it is killed.

use anyhow::{Context, Result};
use haul_sys::parent::end_with_parent;
use std::{
    ffi::OsString,
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    time::{Duration, Instant},
};

/// Lines that wait to be read; more are dropped, so that the process never blocks on us.
const LINES_MAX: usize = 4096;
/// Interval between checks whether the user wants to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The meaning of a line to whoever waits for one.
pub enum Wanted<T> {
    This(T),
    More,
    /// The wanted line can't come any more.
    Never,
}

/// A running `haul`, killed when dropped.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
    errors: PathBuf,
}

impl Child {
    /// Starts this program in `directory`, with its own state there.
    pub fn start(
        directory: &Path,
        name: &str,
        arguments: impl FnOnce(&mut Command),
    ) -> Result<Self> {
        Self::start_behind(&[], directory, name, arguments)
    }

    /// Starts this program behind words that run it, such as those that put it into a control
    /// group.
    pub fn start_behind(
        words: &[OsString],
        directory: &Path,
        name: &str,
        arguments: impl FnOnce(&mut Command),
    ) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let errors = directory.join(format!("{name}.errors"));
        let error_file = File::create(&errors).context("cannot write to the fresh directory")?;
        let mut command = match words {
            [] => Command::new(&program),
            [runner, rest @ ..] => {
                let mut command = Command::new(runner);
                command.args(rest).arg(&program);
                command
            }
        };
        command
            .current_dir(directory)
            .env("HAUL_STATE", directory.join("state"))
            .env_remove("HAUL_TOKEN")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(error_file);
        arguments(&mut command);
        end_with_parent(&mut command);
        let mut process =
            command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let output = process.stdout.take().context("the process has no standard output")?;
        let (sender, lines) = sync_channel(LINES_MAX);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Full: nobody looks. Gone: nobody will.
                let _ = sender.try_send(line);
            }
        });
        Ok(Self { process, lines, errors })
    }

    /// Looks at each JSON line until the wanted one comes; `None` if it does not within `time_max`.
    pub fn wait_for<T>(
        &mut self,
        time_max: Duration,
        go_on: impl Fn() -> Result<()>,
        mut look: impl FnMut(&serde_json::Value) -> Wanted<T>,
    ) -> Result<Option<T>> {
        let started = Instant::now();
        while started.elapsed() < time_max {
            go_on()?;
            let line = match self.lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            };
            let object = serde_json::from_str(&line)
                .with_context(|| format!("haul printed a line that is no JSON: {line}"))?;
            match look(&object) {
                Wanted::This(found) => return Ok(Some(found)),
                Wanted::More => {}
                Wanted::Never => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The number of the process; words that run the program in their place have the same one.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends the process at once (SIGKILL) and waits until it is gone.
    pub fn kill(&mut self) {
        // An error says that it is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Ends the process as Ctrl-C would and waits, but not for ever.
    pub fn end(&mut self) {
        const END_TIME_MAX: Duration = Duration::from_secs(3);
        let id = i32::try_from(self.process.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(id) = id {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let started = Instant::now();
        while started.elapsed() < END_TIME_MAX && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(LOOK_EVERY / 10);
        }
        self.kill();
    }

    /// Text of the process on standard error, or words that there is none.
    pub fn errors(&self) -> String {
        let text = std::fs::read_to_string(&self.errors).unwrap_or_default();
        let text = text.trim();
        if text.is_empty() { "it gave no reason".to_owned() } else { text.to_owned() }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}
