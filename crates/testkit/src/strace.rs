//! System calls of a running process, watched or made to fail by strace(1).
//!
//! What goes through io_uring is no call of its own and cannot be made to fail here.

use crate::Unavailable;
use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// Longest wait for strace to attach: a busy machine may take its time to stop all threads.
const ATTACH_PATIENCE: Duration = Duration::from_secs(30);
/// Words of strace once it has attached: `strace: Process 123 attached with 4 threads`.
const ATTACHED: &str = " attached";

/// strace(1), attached to a process and all its threads; detached when dropped.
#[derive(Debug)]
pub struct Strace {
    child: Child,
    log: PathBuf,
}

impl Strace {
    /// Makes calls of a running process fail: `fault` as `--inject=` takes it, such as
    /// `fsync:error=EIO:when=2`. Calls are counted for each thread by itself. With a `path`, only
    /// those on that file or in that directory are meant. What is traced goes to the file `log`.
    ///
    /// # Errors
    /// Without strace(1), or without the right to trace.
    pub fn attach(
        pid: u32,
        fault: &str,
        path: Option<&Path>,
        log: &Path,
    ) -> Result<Self, Unavailable> {
        let call = fault.split(':').next().unwrap_or_default();
        let (trace, inject) = (format!("trace={call}"), format!("inject={fault}"));
        let mut words: Vec<OsString> = ["-e", &trace, "-e", &inject].map(Into::into).into();
        if let Some(path) = path {
            words.extend(["-P".into(), path.into()]);
        }
        Self::run(pid, &words, log)
    }

    /// Watches the system calls `calls` of a running process, named as `trace=` takes them. They go
    /// to the file `log`, with the paths of descriptors.
    ///
    /// # Errors
    /// Without strace(1), or without the right to trace.
    pub fn watch(pid: u32, calls: &str, log: &Path) -> Result<Self, Unavailable> {
        Self::run(pid, &["-y".into(), "-e".into(), format!("trace={calls}").into()], log)
    }

    /// Attaches strace to `pid` and all its threads, with these words of its command line.
    fn run(pid: u32, words: &[OsString], log: &Path) -> Result<Self, Unavailable> {
        let mut command = Command::new("strace");
        command.args(["-f", "-p", &pid.to_string()]).args(words).arg("-o").arg(log);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| Unavailable::NotStarted("strace", error))?;
        let errors = child.stderr.take().expect("its standard error is a pipe");
        let this = Self { child, log: log.to_owned() };
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                // Nobody listens any more after the first line.
                let _ = tell.send(line);
            }
        });
        match told.recv_timeout(ATTACH_PATIENCE) {
            Ok(line) if line.contains(ATTACHED) => Ok(this),
            Ok(line) => Err(Unavailable::NotTraced(line)),
            Err(_) => {
                let late = format!("strace did not attach in {ATTACH_PATIENCE:?}");
                Err(Unavailable::NotTraced(late))
            }
        }
    }

    /// Lets the process go on as it was, and returns the log.
    ///
    /// # Panics
    /// If strace left no log.
    #[must_use]
    pub fn log(mut self) -> String {
        self.end();
        let log = fs::read(&self.log).expect("strace writes a log");
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Lets the process go on as it was, and returns how many calls strace made fail.
    ///
    /// # Panics
    /// If strace left no log.
    #[must_use]
    pub fn detach(self) -> usize {
        self.log().matches("(INJECTED").count()
    }

    fn end(&mut self) {
        let id = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(id) = id {
            // It lets go of all threads before it ends; SIGKILL would do so too.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::INT);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;
    use std::io::Write;

    #[test]
    fn a_call_fails_as_often_as_it_was_asked_for_and_not_any_more_afterwards() {
        let mut child = Command::new("cat");
        let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut child) = child.spawn() else { return skip("cat", "none") };
        let mut input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        input.write_all(b"first\n").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let log = std::env::temp_dir().join(format!("haul-strace-{}", std::process::id()));
        let traced = Strace::attach(child.id(), "write:error=EIO:when=1", None, &log);
        let failed = traced.map(|strace| {
            input.write_all(b"second\n").unwrap();
            let status = child.wait().unwrap();
            (status.success(), strace.detach())
        });
        let _ = (child.kill(), child.wait(), fs::remove_file(&log));
        match failed {
            Ok(failed) => assert_eq!(failed, (false, 1)),
            Err(why) => skip("strace and the right to trace", &why),
        }
    }
}
