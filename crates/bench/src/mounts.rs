//! File systems in image files, mounted for a bench.
//!
//! Needs root; all of them go when dropped.

use crate::error::Lack;
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// Longest time that unmounting is tried: a process that was just ended lets go of its files a
/// moment later.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of an image that are written at once.
const PIECE_BYTES: usize = 4 << 20;

/// Blocks of an image file before a file system is made in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Blocks that the disk below gives out when they are first written.
    Sparse,
    /// Blocks that are all there, as a disk's are: no write waits for the file system below, and
    /// the file system of the image does nothing in the background that it left for later.
    Written,
}

impl Blocks {
    /// Words for the program that makes a file system, for what is not its default.
    fn words(self, kind: &str) -> &'static [&'static str] {
        match (self, kind) {
            (Self::Written, "ext4") => &["-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
            // Else they would give the blocks back (mkfs.xfs(8), mkfs.btrfs(8)).
            (Self::Written, "xfs" | "btrfs") => &["-K"],
            _ => &[],
        }
    }

    fn make(self, image: &Path, size_bytes: u64) -> io::Result<()> {
        let mut file = File::create_new(image)?;
        if self == Self::Written {
            let piece = vec![0; PIECE_BYTES];
            let mut left_bytes = size_bytes;
            while left_bytes > 0 {
                let now_bytes = left_bytes.min(PIECE_BYTES as u64);
                file.write_all(&piece[..now_bytes as usize])?;
                left_bytes -= now_bytes;
            }
            file.sync_all()?;
        }
        file.set_len(size_bytes)
    }
}

/// A mounted file system in an image file.
#[derive(Debug)]
pub struct ImageMount {
    path: PathBuf,
    image: PathBuf,
    device: OsString,
    mounted: bool,
}

impl ImageMount {
    /// Makes a file system of this kind (`xfs`, `btrfs`) in a sparse file of `directory`.
    ///
    /// # Errors
    /// Says what it needs and what it found, in a sentence.
    pub fn new(directory: &Path, kind: &str, size_bytes: u64) -> Result<Self, Lack> {
        Self::with_blocks(directory, kind, size_bytes, Blocks::Sparse)
    }

    /// Makes a file system as [`Self::new`] does, in a file with these blocks.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn with_blocks(
        directory: &Path,
        kind: &str,
        size_bytes: u64,
        blocks: Blocks,
    ) -> Result<Self, Lack> {
        let image = directory.join(format!("{kind}.image"));
        let path = directory.join(kind);
        fs::create_dir(&path)?;
        let mut this = Self { path, image, device: OsString::new(), mounted: false };
        blocks.make(&this.image, size_bytes)?;
        let program = format!("mkfs.{kind}");
        let words = ["-q"].iter().chain(blocks.words(kind)).map(OsStr::new);
        run(&program, &words.chain([this.image.as_os_str()]).collect::<Vec<_>>())?;
        // Without direct I/O the image would be in the page cache a second time, and no file on it
        // would ever be cold.
        let words = ["--find", "--show", "--direct-io=on"].map(OsStr::new);
        let device = run("losetup", &[&words[..], &[this.image.as_os_str()]].concat())?;
        this.device = device.trim().into();
        run("mount", &["-t".as_ref(), kind.as_ref(), &this.device, this.path.as_os_str()])?;
        this.mounted = true;
        // The device goes with its mount from now on, also where nobody is left to say so
        // (losetup(8): a device that is in use is detached when it no longer is).
        run("losetup", &["--detach".as_ref(), &this.device])?;
        this.device.clear();
        Ok(this)
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ImageMount {
    fn drop(&mut self) {
        let deadline = Instant::now() + UNMOUNT_PATIENCE;
        while self.mounted && run("umount", &[self.path.as_os_str()]).is_err() {
            if Instant::now() > deadline {
                // Somebody still looks at it: it goes when they are gone.
                let _ = run("umount", &["-l".as_ref(), self.path.as_os_str()]);
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
        if !self.device.is_empty() {
            let _ = run("losetup", &["--detach".as_ref(), &self.device]);
        }
        let _ = fs::remove_file(&self.image);
        let _ = fs::remove_dir(&self.path);
    }
}

/// A tracefs of a bench's own, where the host has mounted none: by it system calls are counted.
#[derive(Debug)]
pub struct Tracefs(PathBuf);

impl Tracefs {
    /// Mounts a tracefs in a new directory of `directory`.
    ///
    /// # Errors
    /// Says what it needs and what it found, in a sentence.
    pub fn new(directory: &Path) -> Result<Self, Lack> {
        let path = directory.join("tracefs");
        fs::create_dir(&path)?;
        let words = ["-t", "tracefs", "tracefs"].map(OsStr::new);
        if let Err(why) = run("mount", &[&words[..], &[path.as_os_str()]].concat()) {
            let _ = fs::remove_dir(&path);
            return Err(why);
        }
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        let _ = run("umount", &["-l".as_ref(), self.0.as_os_str()]);
        let _ = fs::remove_dir(&self.0);
    }
}

/// Runs a program and returns what it printed.
fn run(program: &str, words: &[&OsStr]) -> Result<String, Lack> {
    let output =
        Command::new(program).args(words).output().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Lack::Program(program.to_owned()),
            _ => Lack::NotStarted(program.to_owned(), error),
        })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason").trim();
    Err(Lack::Failed { program: program.to_owned(), said: first.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE_BYTES: u64 = 64 << 20;

    #[test]
    fn a_file_system_of_an_image_is_there_and_goes_away() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let mount = match ImageMount::new(directory.path(), "ext4", SIZE_BYTES) {
            Ok(mount) => mount,
            Err(why) => return haul_testkit::skip::skip("root, mkfs.ext4 and losetup", &why),
        };
        let (path, image) = (mount.path().to_owned(), mount.image.clone());
        fs::write(path.join("file"), b"there").unwrap();
        assert!(path.join("lost+found").exists());
        drop(mount);
        assert!(!path.exists() && !image.exists());
    }

    #[test]
    fn an_image_that_was_written_keeps_its_blocks() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir_in(".").unwrap();
        let made = ImageMount::with_blocks(directory.path(), "ext4", SIZE_BYTES, Blocks::Written);
        let mount = match made {
            Ok(mount) => mount,
            Err(why) => return haul_testkit::skip::skip("root, mkfs.ext4 and losetup", &why),
        };
        let blocks_bytes = fs::metadata(&mount.image).unwrap().blocks() * 512;
        assert!(blocks_bytes >= SIZE_BYTES, "{blocks_bytes}");
    }

    #[test]
    fn a_kind_without_its_program_says_what_it_needs() {
        let directory = tempfile::tempdir().unwrap();
        let why = ImageMount::new(directory.path(), "no-such-kind", 1 << 20).unwrap_err();
        assert_eq!(why.to_string(), "needs mkfs.no-such-kind, found no such program");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
