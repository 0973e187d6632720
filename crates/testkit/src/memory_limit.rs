//! A limit on memory for some processes, page cache included: a control group of their own. Needs
//! root; gone when dropped.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Where version 1 and version 2 of control groups are mounted most of the time.
const ROOTS: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
    ("/sys/fs/cgroup", "memory.max", "memory.events"),
];
/// The kernel lets a group go a moment after its last process.
const REMOVE_PATIENCE: Duration = Duration::from_secs(10);

/// A control group with a limit.
#[derive(Debug)]
pub struct MemoryLimit {
    group: PathBuf,
    /// Holds a line `oom_kill N`.
    kills: &'static str,
}

impl MemoryLimit {
    /// # Errors
    /// Without root, or where the memory of control groups cannot be limited.
    pub fn new(bytes: u64) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("haul-test-{}-{number}", std::process::id());
        let mut why = "no control groups that limit memory".to_owned();
        for (root, limit, kills) in ROOTS {
            let group = Path::new(root).join(&name);
            if let Err(error) = fs::create_dir(&group) {
                why = format!("{}: {error}", group.display());
                continue;
            }
            let this = Self { group, kills };
            match fs::write(this.group.join(limit), bytes.to_string()) {
                Ok(()) => return Ok(this),
                Err(error) => why = format!("{limit}: {error}"),
            }
        }
        Err(why)
    }

    /// The words that run a program in this group when they stand before it.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        let procs = self.group.join("cgroup.procs");
        let script = "echo $$ > \"$0\" && exec \"$@\"";
        [OsStr::new("sh"), OsStr::new("-c"), OsStr::new(script), procs.as_os_str()]
            .map(OsStr::to_owned)
            .into()
    }

    /// Whether this process is in the group.
    #[must_use]
    pub fn holds(&self, pid: u32) -> bool {
        let procs = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        procs.lines().any(|line| line == pid.to_string())
    }

    /// How many processes the kernel killed for want of memory.
    #[must_use]
    pub fn killed(&self) -> u64 {
        let events = fs::read_to_string(self.group.join(self.kills)).unwrap_or_default();
        let count = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVE_PATIENCE;
        while fs::remove_dir(&self.group).is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;
    use std::process::Command;

    #[test]
    fn a_program_behind_its_words_is_in_the_group_and_the_group_goes_away() {
        let limit = match MemoryLimit::new(64 << 20) {
            Ok(limit) => limit,
            Err(why) => return skip("root and control groups that limit memory", &why),
        };
        let words = limit.words();
        let mut command = Command::new(&words[0]);
        let mut child = command.args(&words[1..]).args(["sleep", "30"]).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !limit.holds(child.id()) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let held = limit.holds(child.id());
        let _ = (child.kill(), child.wait());
        let group = limit.group.clone();
        assert_eq!((held, limit.killed()), (true, 0));
        drop(limit);
        assert!(!group.exists());
    }
}
