//! A control group of one's own, with one limit. Needs root; gone when dropped.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The kernel lets a group go a moment after its last process.
const REMOVE_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct ControlGroup {
    directory: PathBuf,
    /// The file with the limit.
    limit: &'static str,
}

impl ControlGroup {
    /// Makes one below the first of `places` where it can be limited, and says below which. A place
    /// is a root, the file with the limit, and what to write there.
    ///
    /// # Errors
    /// Without root, or where no place has such a limit: why not at the last one.
    pub(crate) fn make(places: &[(&str, &'static str, String)]) -> Result<(Self, usize), String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("haul-test-{}-{number}", std::process::id());
        let mut why = "no control groups".to_owned();
        for (at, (root, limit, value)) in places.iter().enumerate() {
            let directory = Path::new(root).join(&name);
            if let Err(error) = fs::create_dir(&directory) {
                why = format!("{}: {error}", directory.display());
                continue;
            }
            let this = Self { directory, limit };
            match this.limit_to(value) {
                Ok(()) => return Ok((this, at)),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// # Errors
    /// What write(2) says.
    pub(crate) fn limit_to(&self, value: &str) -> Result<(), String> {
        let written = fs::write(self.directory.join(self.limit), value);
        written.map_err(|error| format!("{}: {error}", self.limit))
    }

    /// The words that run a program in this group when they stand before it.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let procs = self.directory.join("cgroup.procs");
        let script = "echo $$ > \"$0\" && exec \"$@\"";
        [OsStr::new("sh"), OsStr::new("-c"), OsStr::new(script), procs.as_os_str()]
            .map(OsStr::to_owned)
            .into()
    }

    /// A file of the group; empty where it cannot be read.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.directory.join(name)).unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVE_PATIENCE;
        while fs::remove_dir(&self.directory).is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
    }
}
