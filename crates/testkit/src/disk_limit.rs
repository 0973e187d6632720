//! A limit on how fast the processes of a control group read a disk. Needs root; gone when dropped.

use std::{ffi::OsString, path::Path};

use crate::Unavailable;
use haul_host::control_group::{ControlGroup, DeviceNumber, ReadLimit};

/// A control group whose reads of a disk are limited.
#[derive(Debug)]
pub struct DiskLimit {
    group: ControlGroup,
    device: DeviceNumber,
}

impl DiskLimit {
    /// Limits reads of the disk below `mounted`, in bytes a second.
    ///
    /// # Errors
    /// Without root, or where control groups cannot limit it.
    pub fn of_reads(mounted: &Path, bytes_per_s: u64) -> Result<Self, Unavailable> {
        let device = DeviceNumber::below(Path::new("/"), mounted)?;
        let mut this = Self { group: ControlGroup::new(crate::GROUP_PREFIX), device };
        this.change_to(bytes_per_s)?;
        Ok(this)
    }

    /// Changes the limit from now on.
    ///
    /// # Errors
    /// What write(2) says.
    pub fn change_to(&mut self, bytes_per_s: u64) -> Result<(), Unavailable> {
        let limit = ReadLimit { bytes_per_s: Some(bytes_per_s), reads_per_s: None };
        Ok(self.group.limit_reads(self.device, limit)?)
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
        fs,
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
        let group = limit.group.directories()[0].clone();
        drop(limit);
        assert!(!group.exists());
    }
}
