//! A limit on how fast some processes read a disk: a control group of their own. Needs root; gone
//! when dropped.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Version 1 and version 2 of control groups where they are mounted most of the time, the file with
/// the limit, and what stands before its number.
const ROOTS: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup/blkio", "blkio.throttle.read_bps_device", ""),
    ("/sys/fs/cgroup", "io.max", "rbps="),
];
/// The kernel lets a group go a moment after its last process.
const REMOVE_PATIENCE: Duration = Duration::from_secs(10);

/// A control group with a limit.
#[derive(Debug)]
pub struct DiskLimit {
    group: PathBuf,
    /// The file with the limit, and what stands before its number.
    limit: (PathBuf, String),
}

impl DiskLimit {
    /// Reads of the disk below `mounted`, in bytes a second.
    ///
    /// # Errors
    /// Without root, or where control groups cannot limit it.
    pub fn of_reads(mounted: &Path, bytes_per_s: u64) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let device = fs::metadata(mounted).map_err(|error| error.to_string())?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let name = format!("haul-disk-{}-{number}", std::process::id());
        let mut why = "no control groups that limit disks".to_owned();
        for (root, file, unit) in ROOTS {
            let group = Path::new(root).join(&name);
            if let Err(error) = fs::create_dir(&group) {
                why = format!("{}: {error}", group.display());
                continue;
            }
            let limit = (group.join(file), format!("{major}:{minor} {unit}"));
            let this = Self { group, limit };
            match this.change_to(bytes_per_s) {
                Ok(()) => return Ok(this),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// Another limit from now on.
    ///
    /// # Errors
    /// What write(2) says.
    pub fn change_to(&self, bytes_per_s: u64) -> Result<(), String> {
        let (file, before) = &self.limit;
        let written = fs::write(file, format!("{before}{bytes_per_s}"));
        written.map_err(|error| format!("{}: {error}", file.display()))
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
}

impl Drop for DiskLimit {
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
    use crate::{mount::Mount, skip::skip};
    use std::process::Command;

    #[test]
    fn a_program_behind_its_words_reads_no_faster() {
        let directory = tempfile::tempdir().unwrap();
        let disk = directory.path().join("disk");
        fs::create_dir(&disk).unwrap();
        let mount = match Mount::ext4(&disk, &directory.path().join("image"), 32 << 20) {
            Ok(mount) => mount,
            Err(why) => return skip("root and loop devices", &why),
        };
        fs::write(disk.join("file"), vec![7; 2 << 20]).unwrap();
        mount.mount_again().unwrap();
        let limit = match DiskLimit::of_reads(&disk, 2 << 20) {
            Ok(limit) => limit,
            Err(why) => return skip("root and control groups that limit disks", &why),
        };
        let words = limit.words();
        let begun = Instant::now();
        let mut command = Command::new(&words[0]);
        let read = command.args(&words[1..]).arg("cat").arg(disk.join("file")).output().unwrap();
        assert_eq!(read.stdout.len(), 2 << 20);
        assert!(begun.elapsed() > Duration::from_millis(500), "{:?}", begun.elapsed());
        let group = limit.group.clone();
        drop(limit);
        assert!(!group.exists());
    }
}
