//! Small file systems for tests: full, read-only, failing. Needs root; unmounted when dropped.

use crate::Unavailable;
use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// Longest wait for a file system to be unmounted. A killed process lets go of its files a moment
/// later; another test's mount namespace when that test is over.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(120);

/// Bytes that a dead disk still shows: no file system has a use for its first block.
const DEAD_BYTES: u64 = 4096;

/// A kind of file system that has a disk below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskKind {
    Ext4,
    Xfs,
    Btrfs,
}

impl DiskKind {
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// The size of a small file system: little more than the least that mkfs.xfs(8) and
    /// mkfs.btrfs(8) take.
    fn bytes_default(self) -> u64 {
        match self {
            Self::Ext4 => 96 << 20,
            Self::Xfs => 320 << 20,
            Self::Btrfs => 160 << 20,
        }
    }

    /// The name of the file system, as mount(8) takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.words()[0]
    }

    /// The name and more words for mkfs(8).
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &["ext4", "-m", "0"],
            Self::Xfs => &["xfs"],
            Self::Btrfs => &["btrfs", "-m", "single"],
        }
    }
}

/// A mounted file system.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
    /// The device that is mounted; `None` where there is none.
    device: Option<LoopDevice>,
}

impl Mount {
    /// Mounts a tmpfs of `size` (as mount(8) takes it: `8m`) at an existing directory.
    ///
    /// # Errors
    /// What mount(8) says: not permitted, most of the time.
    pub fn tmpfs(path: &Path, size: &str) -> Result<Self, Unavailable> {
        let options = format!("size={size},mode=755");
        run("mount", ["-t", "tmpfs", "-o", &options, "haul-test"].map(OsStr::new), path)?;
        Ok(Self { path: path.to_owned(), device: None })
    }

    /// Mounts a directory once more, at another that exists.
    ///
    /// # Errors
    /// What mount(8) says: not permitted, most of the time.
    pub fn bind(directory: &Path, path: &Path) -> Result<Self, Unavailable> {
        run("mount", [OsStr::new("--bind"), directory.as_os_str()], path)?;
        Ok(Self { path: path.to_owned(), device: None })
    }

    /// Mounts a ramfs at an existing directory: files in memory, which cannot be opened with
    /// O_DIRECT.
    ///
    /// # Errors
    /// What mount(8) says: not permitted, most of the time.
    pub fn ramfs(path: &Path) -> Result<Self, Unavailable> {
        run("mount", ["-t", "ramfs", "haul-test"].map(OsStr::new), path)?;
        Ok(Self { path: path.to_owned(), device: None })
    }

    /// Mounts an ext2 of `size_bytes` in the new, sparse file `image`. It can't reserve space for a
    /// file, so a disk that fills up is found in the middle.
    ///
    /// # Errors
    /// What mkfs(8) or mount(8) say.
    pub fn ext2(path: &Path, image: &Path, size_bytes: u64) -> Result<Self, Unavailable> {
        Self::image(path, image, size_bytes, &["ext2", "-m", "0"])
    }

    /// Mounts a file system of this kind in the new, sparse file `image`. Where the image lies on a
    /// file system that is too small, what was promised and written fails at the sync.
    ///
    /// # Errors
    /// What mkfs(8) or mount(8) say.
    pub fn disk(kind: DiskKind, path: &Path, image: &Path) -> Result<Self, Unavailable> {
        Self::image(path, image, kind.bytes_default(), kind.words())
    }

    /// Makes a disk as [`Self::disk`] does, one that can be filled: a small btrfs that keeps its
    /// own blocks apart from data has none left for names when data has taken all, and gets none
    /// back for half a minute.
    ///
    /// # Errors
    /// What mkfs(8) or mount(8) say.
    pub fn disk_to_fill(kind: DiskKind, path: &Path, image: &Path) -> Result<Self, Unavailable> {
        let mixed = ["btrfs", "--mixed"];
        let words = if kind == DiskKind::Btrfs { &mixed[..] } else { kind.words() };
        Self::image(path, image, kind.bytes_default(), words)
    }

    /// Mounts an ext4 of `size_bytes` in the new, sparse file `image`.
    ///
    /// # Errors
    /// What mkfs(8) or mount(8) say.
    pub fn ext4(path: &Path, image: &Path, size_bytes: u64) -> Result<Self, Unavailable> {
        Self::image(path, image, size_bytes, DiskKind::Ext4.words())
    }

    /// Mounts an ext2 whose inodes have room for whole seconds only.
    ///
    /// # Errors
    /// What mkfs(8) or mount(8) say.
    pub fn ext2_of_whole_seconds(
        path: &Path,
        image: &Path,
        size_bytes: u64,
    ) -> Result<Self, Unavailable> {
        Self::image(path, image, size_bytes, &["ext2", "-m", "0", "-I", "128"])
    }

    /// Mounts a directory as FUSE shows it, by libfuse 2 (bindfs(1)).
    ///
    /// # Errors
    /// What bindfs(1) says: not permitted, not installed, no FUSE.
    pub fn bindfs(below: &Path, path: &Path) -> Result<Self, Unavailable> {
        run("bindfs", [below.as_os_str()], path)?;
        Ok(Self { path: path.to_owned(), device: None })
    }

    /// Makes and mounts a file system in an image; `kind` is its name and words for its own
    /// mkfs(8).
    fn image(
        path: &Path,
        image: &Path,
        size_bytes: u64,
        kind: &[&str],
    ) -> Result<Self, Unavailable> {
        let file = std::fs::File::create_new(image)?;
        file.set_len(size_bytes)?;
        let words = [&["-t"], &kind[..1], &["-q"], &kind[1..]].concat();
        run("mkfs", words.into_iter().map(OsStr::new), image)?;
        let device = LoopDevice::of(image)?;
        run("mount", [device.0.as_ref()], path)?;
        Ok(Self { path: path.to_owned(), device: Some(device) })
    }

    /// Cuts the power: nothing reaches the disk from now on. What was not synced is lost, and every
    /// call fails, but on btrfs only those that want something of the disk.
    ///
    /// # Errors
    /// Where the file system can't: no disk, or the kernel does not let this user.
    pub fn cut_power(&self) -> Result<(), Unavailable> {
        let root = std::fs::File::open(&self.path)?;
        // btrfs has no such request (Linux 6.18).
        haul_sys::shutdown::power_cut(&root).or_else(|error| {
            let both = |why| Unavailable::PowerStays(error, Box::new(why));
            self.fail_disk().map_err(both)
        })
    }

    /// Fails the disk: all that wants something of it fails with EIO, until it is mounted again.
    ///
    /// # Errors
    /// Where there is no disk.
    pub fn fail_disk(&self) -> Result<(), Unavailable> {
        self.fail_disk_from(DEAD_BYTES)
    }

    /// Fails the disk as [`Self::fail_disk`] does, for what lies beyond the first bytes of the disk
    /// only.
    ///
    /// # Errors
    /// Where there is no disk.
    pub fn fail_disk_from(&self, bytes: u64) -> Result<(), Unavailable> {
        self.device.as_ref().ok_or(Unavailable::NoDisk)?.limit(bytes)
    }

    /// Unmounts the file system, waiting until nobody uses it any more, and mounts its device
    /// again: the power is back.
    ///
    /// # Errors
    /// What umount(8) or mount(8) say: that somebody still uses it.
    pub fn mount_again(&self) -> Result<(), Unavailable> {
        let device = self.device.as_ref().ok_or(Unavailable::NoDevice)?;
        let deadline = Instant::now() + UNMOUNT_PATIENCE;
        while let Err(why) = run("umount", [], &self.path) {
            if Instant::now() > deadline {
                return Err(why);
            }
            thread::sleep(Duration::from_millis(20));
        }
        // Where somebody made a mount namespace meanwhile, it lives on there.
        while device.is_mounted_somewhere() {
            if Instant::now() > deadline {
                return Err(Unavailable::MountedElsewhere(device.0.clone()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        device.limit(0)?;
        run("mount", [device.0.as_ref()], &self.path)
    }

    /// Makes the file system read-only from now on.
    ///
    /// # Errors
    /// What mount(8) says: that a file is open for writing.
    pub fn make_read_only(&self) -> Result<(), Unavailable> {
        self.remount("ro")
    }

    /// Changes the options of the mount, as mount(8) takes them: `size=64m`, `abort`.
    ///
    /// # Errors
    /// What mount(8) says.
    pub fn remount(&self, options: &str) -> Result<(), Unavailable> {
        let options = format!("remount,{options}");
        run("mount", ["-o", &options].map(OsStr::new), &self.path)
    }

    /// The directory at which the file system is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Unmounts all that is mounted below a directory which goes.
pub fn unmount_below(directory: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    // The last one covers those before it.
    for line in mounts.lines().rev() {
        let path = line.split(' ').nth(1).map(Path::new);
        if let Some(path) = path.filter(|path| path.starts_with(directory)) {
            let _ = run("umount", ["-l"].map(OsStr::new), path);
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // In use until its users are dropped: then it goes as soon as they are.
        let _ = run("umount", ["-l"].map(OsStr::new), &self.path);
    }
}

/// A block device made of a file; its number stays the same however often it is mounted.
#[derive(Debug)]
struct LoopDevice(OsString);

impl LoopDevice {
    fn of(image: &Path) -> Result<Self, Unavailable> {
        let name = output_of("losetup", ["--find", "--show"].map(OsStr::new), image)?;
        Ok(Self(name.trim().into()))
    }

    /// Shows only the first bytes of the device's file; 0: all.
    fn limit(&self, bytes: u64) -> Result<(), Unavailable> {
        let device = std::fs::File::open(&self.0)?;
        haul_sys::loop_size::limit(&device, bytes)
            .map_err(|error| Unavailable::SizeStays(self.0.display().to_string(), error))
    }

    /// Whether any mount namespace has the device mounted: each mounted ext4 has a directory there
    /// (fs/ext4/sysfs.c), each xfs (fs/xfs/xfs_super.c), and each device of a btrfs a link
    /// (fs/btrfs/sysfs.c).
    fn is_mounted_somewhere(&self) -> bool {
        let name = Path::new(&self.0).file_name().unwrap_or_default();
        let of_btrfs = std::fs::read_dir("/sys/fs/btrfs").into_iter().flatten().flatten();
        let mut of_btrfs = of_btrfs.map(|entry| entry.path().join("devices").join(name));
        ["/proc/fs/ext4", "/sys/fs/xfs"].iter().any(|all| Path::new(all).join(name).exists())
            || of_btrfs.any(|link| link.symlink_metadata().is_ok())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // While it is in use, it goes when nobody uses it any more (losetup(8)).
        let _ = run("losetup", [OsStr::new("--detach")], Path::new(&self.0));
    }
}

fn run<'a>(
    program: &'static str,
    words: impl IntoIterator<Item = &'a OsStr>,
    path: &Path,
) -> Result<(), Unavailable> {
    output_of(program, words, path).map(drop)
}

fn output_of<'a>(
    program: &'static str,
    words: impl IntoIterator<Item = &'a OsStr>,
    path: &Path,
) -> Result<String, Unavailable> {
    let output = Command::new(program)
        .args(words)
        .arg(path)
        .output()
        .map_err(|error| Unavailable::NotStarted(program, error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Unavailable::Refused { program, said })
}
