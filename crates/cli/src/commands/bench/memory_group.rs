//! A control group with little memory, so that a file can be larger than memory on any host.
//!
//! The limit counts the page cache that its processes fill. Needs root; gone when dropped.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// Where version 1 and version 2 of control groups are mounted most of the time, and their limits.
const PLACES: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
/// The kernel lets a group go a moment after its last process.
const REMOVE_PATIENCE: Duration = Duration::from_secs(10);

/// A control group that limits memory.
#[derive(Debug)]
pub struct MemoryGroup {
    group: PathBuf,
}

impl MemoryGroup {
    /// # Errors
    /// Says what is missing: root, or control groups that limit memory.
    pub fn new(limit_bytes: u64) -> Result<Self, String> {
        let mut why = "needs root and control groups that limit memory, found none".to_owned();
        for (place, limit) in PLACES {
            let group = Path::new(place).join(format!("haul-bench-{}", std::process::id()));
            if let Err(error) = fs::create_dir(&group) {
                why = format!("needs root and control groups, found {place}: {error}");
                continue;
            }
            let this = Self { group };
            match fs::write(this.group.join(limit), limit_bytes.to_string()) {
                Ok(()) => return Ok(this),
                Err(error) => why = format!("needs {place}/.../{limit}, found {error}"),
            }
        }
        Err(why)
    }

    /// The words that run a program in this group when they stand before it.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        let processes = self.group.join("cgroup.procs");
        let script = "echo $$ > \"$0\" && exec \"$@\"";
        [OsStr::new("sh"), OsStr::new("-c"), OsStr::new(script), processes.as_os_str()]
            .map(OsStr::to_owned)
            .into()
    }
}

impl Drop for MemoryGroup {
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
    use std::process::Command;

    #[test]
    fn a_program_behind_its_words_is_in_the_group_and_the_group_goes_away() {
        let group = match MemoryGroup::new(64 << 20) {
            Ok(group) => group,
            Err(why) => return haul_testkit::skip::skip("root and control groups", &why),
        };
        let words = group.words();
        let mut command = Command::new(&words[0]);
        let output = command.args(&words[1..]).args(["cat", "/proc/self/cgroup"]).output().unwrap();
        let name = group.group.file_name().unwrap().to_str().unwrap().to_owned();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains(&name), "{said} {:?}", output.stderr);
        let path = group.group.clone();
        drop(group);
        assert!(!path.exists());
    }
}
