//! A limit on how fast some processes read a disk: a control group of their own. Needs root; gone
//! when dropped.

use std::{ffi::OsString, fs, os::unix::fs::MetadataExt, path::Path};

use crate::control_group::ControlGroup;

/// Version 1 and version 2 of control groups where they are mounted most of the time, the file with
/// the limit, and what stands before its number.
const ROOTS: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup/blkio", "blkio.throttle.read_bps_device", ""),
    ("/sys/fs/cgroup", "io.max", "rbps="),
];

/// A control group with a limit.
#[derive(Debug)]
pub struct DiskLimit {
    group: ControlGroup,
    /// Stands before the number of a limit.
    before: String,
}

impl DiskLimit {
    /// Reads of the disk below `mounted`, in bytes a second.
    ///
    /// # Errors
    /// Without root, or where control groups cannot limit it.
    pub fn of_reads(mounted: &Path, bytes_per_s: u64) -> Result<Self, String> {
        let device = fs::metadata(mounted).map_err(|error| error.to_string())?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let before = ROOTS.map(|(_, _, unit)| format!("{major}:{minor} {unit}"));
        let places =
            [0, 1].map(|at| (ROOTS[at].0, ROOTS[at].1, format!("{}{bytes_per_s}", before[at])));
        let (group, at) = ControlGroup::make(&places)?;
        Ok(Self { group, before: before[at].clone() })
    }

    /// Another limit from now on.
    ///
    /// # Errors
    /// What write(2) says.
    pub fn change_to(&self, bytes_per_s: u64) -> Result<(), String> {
        self.group.limit_to(&format!("{}{bytes_per_s}", self.before))
    }

    /// The words that run a program in this group when they stand before it.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        self.group.words()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mount::Mount, skip::skip};
    use std::{
        process::Command,
        time::{Duration, Instant},
    };

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
        let group = limit.group.directory().to_owned();
        drop(limit);
        assert!(!group.exists());
    }
}
