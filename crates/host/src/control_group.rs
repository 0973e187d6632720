//! A control group of one's own, with limits on memory and on what it reads from a disk. Needs
//! root; gone when dropped.
//!
//! Version 1 has a directory for each kind of limit, version 2 one for all (cgroups(7), and
//! Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/blkio-controller.rst).

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{below, text};

/// The usual place at which control groups are mounted.
const MOUNTED: &str = "/sys/fs/cgroup";
/// Longest wait for a group to go: the kernel keeps it for a moment after its last process.
const REMOVE_PATIENCE: Duration = Duration::from_secs(10);
/// Shell script that runs the program behind `--` in the groups whose `cgroup.procs` stand before
/// it.
const SCRIPT: &str = "while [ \"$1\" != -- ]; do echo $$ > \"$1\" || exit 1; shift; done; shift; \
                      exec \"$@\"";

/// A limit that cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum ControlGroupError {
    /// The kernel does not say where a path lies.
    #[error(transparent)]
    Path(#[from] io::Error),
    /// A path lies on no disk whose reads could be limited.
    #[error(
        "needs a directory on a disk, found none: the file system's number is {0}, which is no disk"
    )]
    NoDisk(DeviceNumber),
    /// The disk that a partition is of cannot be found.
    #[error("the disk of partition {0} has no number")]
    NoWholeDisk(DeviceNumber),
    /// No version of control groups takes the limit.
    #[error("needs root and control groups that limit {controller}, found {found}")]
    NotLimited {
        /// Kind of limit, by the name of its controller in version 2.
        controller: &'static str,
        /// Obstacle in the last version that was tried.
        found: Obstacle,
    },
}

/// An obstacle to a limit in one version of control groups.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    /// The host has no such control groups.
    #[error("none")]
    Nothing,
    /// Version 2 is there, and its kernel lacks the controller.
    #[error("version 2 without {0:?}")]
    NoController(&'static str),
    /// A file or directory of the group cannot be written or made.
    #[error("{0}: {1}")]
    Refused(String, io::Error),
}

/// A block device by its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber {
    pub major: u32,
    pub minor: u32,
}

impl DeviceNumber {
    /// Finds the whole disk that the file lies on: limits are not taken for a partition.
    ///
    /// # Errors
    /// Where there is no such disk: a tmpfs, a network, or btrfs, which numbers its devices itself.
    pub fn below(root: &Path, path: &Path) -> Result<Self, ControlGroupError> {
        use std::os::unix::fs::MetadataExt;
        let device = fs::metadata(path)?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let found = Self { major, minor };
        let own = below(root, "/sys/dev/block").join(found.to_string());
        if !own.exists() {
            return Err(ControlGroupError::NoDisk(found));
        }
        if !own.join("partition").exists() {
            return Ok(found);
        }
        let whole = text(&own.join("../dev")).and_then(|text| Self::parse(text.trim()));
        whole.ok_or(ControlGroupError::NoWholeDisk(found))
    }

    /// The device that `MAJOR:MINOR` names.
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl std::fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// Limits on reading from a disk; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadLimit {
    pub bytes_per_s: Option<u64>,
    /// Requests a second, however large each is: a limit on what seeks cost.
    pub reads_per_s: Option<u64>,
}

/// Most that is written to a disk in a second; `None` does not limit it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteLimit {
    pub bytes_per_s: Option<u64>,
    pub writes_per_s: Option<u64>,
}

/// A version of control groups, with its controller for a kind of limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One { controller: &'static str },
    Two { controller: &'static str },
}

/// A control group; without a limit there is none.
#[derive(Debug)]
pub struct ControlGroup {
    root: PathBuf,
    name: String,
    directories: Vec<PathBuf>,
    /// Controllers that were switched on for the group in version 2; dropping switches them off
    /// again.
    switched_on: Vec<&'static str>,
}

impl ControlGroup {
    /// Makes a group that has no limit yet. `prefix` says whose it is; what a killed run of the
    /// same has left is removed.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        Self::below(Path::new("/"), prefix)
    }

    fn below(root: &Path, prefix: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        remove_leftovers(root, prefix);
        Self {
            root: root.to_owned(),
            name: format!("{prefix}-{}-{number}", std::process::id()),
            directories: Vec::new(),
            switched_on: Vec::new(),
        }
    }

    /// Limits memory, in bytes, the page cache that the group's processes fill included.
    ///
    /// # Errors
    /// Says what it needs and what it found.
    pub fn limit_memory(&mut self, bytes: u64) -> Result<(), ControlGroupError> {
        self.limit("memory", "memory", |version| match version {
            Version::One { .. } => vec![("memory.limit_in_bytes".to_owned(), bytes.to_string())],
            Version::Two { .. } => vec![("memory.max".to_owned(), bytes.to_string())],
        })
    }

    /// Limits reads of a disk from now on; may be called again.
    ///
    /// # Errors
    /// Says what it needs and what it found.
    pub fn limit_reads(
        &mut self,
        device: DeviceNumber,
        limit: ReadLimit,
    ) -> Result<(), ControlGroupError> {
        let ReadLimit { bytes_per_s, reads_per_s } = limit;
        self.limit_disk(device, ["read", "r"], bytes_per_s, reads_per_s)
    }

    /// Limits writes to a disk from now on, as far as they go past the page cache; may be called
    /// again.
    ///
    /// # Errors
    /// Says what it needs and what it found.
    pub fn limit_writes(
        &mut self,
        device: DeviceNumber,
        limit: WriteLimit,
    ) -> Result<(), ControlGroupError> {
        let WriteLimit { bytes_per_s, writes_per_s } = limit;
        self.limit_disk(device, ["write", "w"], bytes_per_s, writes_per_s)
    }

    /// Limits one direction of a disk, by its words in both versions.
    fn limit_disk(
        &mut self,
        device: DeviceNumber,
        [word, letter]: [&'static str; 2],
        bytes_per_s: Option<u64>,
        requests_per_s: Option<u64>,
    ) -> Result<(), ControlGroupError> {
        self.limit("blkio", "io", |version| match version {
            // 0 takes a limit away (blkio-controller.rst).
            Version::One { .. } => {
                let line = |limit: Option<u64>| format!("{device} {}", limit.unwrap_or(0));
                vec![
                    (format!("blkio.throttle.{word}_bps_device"), line(bytes_per_s)),
                    (format!("blkio.throttle.{word}_iops_device"), line(requests_per_s)),
                ]
            }
            Version::Two { .. } => {
                let most = |limit: Option<u64>| {
                    limit.map_or_else(|| "max".to_owned(), |limit| limit.to_string())
                };
                let (bytes, requests) = (most(bytes_per_s), most(requests_per_s));
                let line = format!("{device} {letter}bps={bytes} {letter}iops={requests}");
                vec![("io.max".to_owned(), line)]
            }
        })
    }

    /// The words that run a program in this group when they stand before it.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        if self.directories.is_empty() {
            return Vec::new();
        }
        let processes =
            self.directories.iter().map(|group| group.join("cgroup.procs").into_os_string());
        ["sh", "-c", SCRIPT, "sh"]
            .map(OsString::from)
            .into_iter()
            .chain(processes)
            .chain([OsStr::new("--").to_owned()])
            .collect()
    }

    /// Whether this process is in the group, with each of its limits.
    #[must_use]
    pub fn holds(&self, process: u32) -> bool {
        let has = |group: &PathBuf| {
            let listed = text(&group.join("cgroup.procs")).unwrap_or_default();
            listed.lines().any(|line| line == process.to_string())
        };
        !self.directories.is_empty() && self.directories.iter().all(has)
    }

    /// The number of processes that the kernel killed for want of memory.
    #[must_use]
    pub fn killed(&self) -> u64 {
        let counts = |name: &str| {
            let text = self.read(name)?;
            let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
            count.trim().parse().ok()
        };
        counts("memory.events").or_else(|| counts("memory.oom_control")).unwrap_or(0)
    }

    /// The number of read requests that the disk took from the group so far. `None` without a limit
    /// on reads.
    #[must_use]
    pub fn reads(&self, device: DeviceNumber) -> Option<u64> {
        let of_device = |text: String| {
            let name = format!("{device} ");
            text.lines().filter_map(|line| line.strip_prefix(&name).map(str::to_owned)).collect()
        };
        if let Some(text) = self.read("blkio.throttle.io_serviced") {
            let lines: Vec<String> = of_device(text);
            let reads = lines.iter().find_map(|line| line.strip_prefix("Read "));
            return Some(reads.and_then(|count| count.trim().parse().ok()).unwrap_or(0));
        }
        let lines: Vec<String> = of_device(self.read("io.stat")?);
        let mut words = lines.iter().flat_map(|line| line.split(' '));
        let reads = words.find_map(|word| word.strip_prefix("rios="));
        Some(reads.and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    /// The directories of the group, one for each hierarchy.
    #[must_use]
    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    fn read(&self, name: &str) -> Option<String> {
        self.directories.iter().find_map(|group| text(&group.join(name)))
    }

    /// Writes the limits in the first version that has them.
    fn limit(
        &mut self,
        one: &'static str,
        two: &'static str,
        values: impl Fn(Version) -> Vec<(String, String)>,
    ) -> Result<(), ControlGroupError> {
        let mut found = Obstacle::Nothing;
        let versions = [Version::One { controller: one }, Version::Two { controller: two }];
        for version in versions {
            let place = match self.place(version) {
                Ok(Some(place)) => place,
                Ok(None) => continue,
                Err(why) => {
                    found = why;
                    continue;
                }
            };
            let group = place.join(&self.name);
            let is_new = !self.directories.contains(&group);
            if is_new && let Err(error) = fs::create_dir(&group) {
                found = Obstacle::Refused(group.display().to_string(), error);
                continue;
            }
            match values(version).iter().try_for_each(|(file, value)| write(&group, file, value)) {
                Ok(()) => {
                    if is_new {
                        self.directories.push(group);
                    }
                    return Ok(());
                }
                Err(why) => found = why,
            }
            if is_new {
                let _ = fs::remove_dir(&group);
            }
        }
        Err(ControlGroupError::NotLimited { controller: two, found })
    }

    /// Finds the directory in which groups of this version are made; `None` where it has no such
    /// controller.
    fn place(&mut self, version: Version) -> Result<Option<PathBuf>, Obstacle> {
        let mounted = below(&self.root, MOUNTED);
        match version {
            Version::One { controller } => {
                let place = mounted.join(controller);
                Ok(place.join("cgroup.procs").exists().then_some(place))
            }
            Version::Two { controller } => {
                let Some(controllers) = text(&mounted.join("cgroup.controllers")) else {
                    return Ok(None);
                };
                if !has_word(&controllers, controller) {
                    return Err(Obstacle::NoController(controller));
                }
                let on = text(&mounted.join(SWITCHES)).unwrap_or_default();
                if !has_word(&on, controller) {
                    write(&mounted, SWITCHES, &format!("+{controller}"))?;
                    self.switched_on.push(controller);
                }
                Ok(Some(mounted))
            }
        }
    }
}

/// The file that says which controllers the groups below have (version 2).
const SWITCHES: &str = "cgroup.subtree_control";

fn has_word(text: &str, wanted: &str) -> bool {
    text.split_whitespace().any(|word| word == wanted)
}

/// Writes a file of a group. A file that is not there is not made: that directory is no control
/// group.
fn write(group: &Path, file: &str, value: &str) -> Result<(), Obstacle> {
    let written = File::options().write(true).open(group.join(file));
    let written = written.and_then(|mut file| file.write_all(value.as_bytes()));
    written.map_err(|error| Obstacle::Refused(file.to_owned(), error))
}

/// Removes groups of processes that are gone: only a killed run leaves them.
fn remove_leftovers(root: &Path, prefix: &str) {
    let mounted = below(root, MOUNTED);
    let places = ["memory", "blkio"].map(|name| mounted.join(name)).into_iter().chain([mounted]);
    for place in places {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let of = name.to_str().and_then(|name| name.strip_prefix(prefix)?.strip_prefix('-'));
            let Some((process, _)) = of.and_then(|rest| rest.split_once('-')) else { continue };
            let is_gone = !below(root, "/proc").join(process).exists();
            if process.parse::<u32>().is_ok() && is_gone {
                // One that still holds a process stays.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVE_PATIENCE;
        for group in &self.directories {
            while fs::remove_dir(group).is_err() && group.exists() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(10));
            }
        }
        let mounted = below(&self.root, MOUNTED);
        for controller in &self.switched_on {
            let _ = write(&mounted, SWITCHES, &format!("-{controller}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const DISK: DeviceNumber = DeviceNumber { major: 8, minor: 16 };

    /// A host whose control groups are plain directories: a test makes their files.
    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = below(root.path(), path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn without_a_limit_there_is_no_group() {
        let root = host(&[]);
        let mut group = ControlGroup::below(root.path(), "haul-t");
        assert!(group.words().is_empty() && !group.holds(1));
        let why = group.limit_memory(1).unwrap_err();
        assert_eq!(why.to_string(), "needs root and control groups that limit memory, found none");
        // A plain directory takes no limit, and nothing is left in it.
        fs::create_dir_all(root.path().join("sys/fs/cgroup/memory")).unwrap();
        assert!(group.limit_memory(1).is_err());
        assert_eq!(fs::read_dir(root.path().join("sys/fs/cgroup/memory")).unwrap().count(), 0);
    }

    #[test]
    fn version_2_is_switched_on_for_the_group_and_off_again() {
        let root = host(&[
            ("/sys/fs/cgroup/cgroup.controllers", "cpu io memory"),
            ("/sys/fs/cgroup/cgroup.subtree_control", "memory"),
        ]);
        let mut group = ControlGroup::below(root.path(), "haul-t");
        // A kernel would have made the file; here nobody does, and the group goes again.
        let why = group.limit_reads(DISK, ReadLimit::default()).unwrap_err();
        assert!(why.to_string().contains("io.max"), "{why}");
        let switches = root.path().join("sys/fs/cgroup/cgroup.subtree_control");
        let switched = || fs::read_to_string(&switches).unwrap();
        assert!(switched().starts_with("+io"), "{}", switched());
        drop(group);
        assert!(switched().starts_with("-io"), "{}", switched());
    }

    #[test]
    fn a_partition_s_reads_are_limited_at_its_disk() {
        let root = host(&[]);
        let directory = tempfile::tempdir().unwrap();
        let found = DeviceNumber::below(root.path(), directory.path());
        assert!(found.unwrap_err().to_string().starts_with("needs a directory on a disk"));
        let device = {
            use std::os::unix::fs::MetadataExt;
            let device = fs::metadata(directory.path()).unwrap().dev();
            format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
        };
        let disk = root.path().join("sys/devices/disk");
        fs::create_dir_all(disk.join("part")).unwrap();
        fs::create_dir_all(root.path().join("sys/dev/block")).unwrap();
        symlink(disk.join("part"), root.path().join("sys/dev/block").join(device)).unwrap();
        fs::write(disk.join("dev"), "8:16\n").unwrap();
        fs::write(disk.join("part/partition"), "1\n").unwrap();
        assert_eq!(DeviceNumber::below(root.path(), directory.path()).unwrap(), DISK);
    }

    #[test]
    fn what_a_killed_run_left_goes_and_what_lives_stays() {
        let root = host(&[("/proc/7/stat", "")]);
        let groups = root.path().join("sys/fs/cgroup/blkio");
        for name in ["haul-t-7-0", "haul-t-8-0", "haul-t-x-0", "other-8-0"] {
            fs::create_dir_all(groups.join(name)).unwrap();
        }
        let _group = ControlGroup::below(root.path(), "haul-t");
        let mut left: Vec<_> =
            fs::read_dir(groups).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["haul-t-7-0", "haul-t-x-0", "other-8-0"]);
    }
}
