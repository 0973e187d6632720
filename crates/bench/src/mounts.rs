//! File systems in image files, mounted for a bench.
//!
//! Needs root; all of them go when dropped.

use crate::error::Lack;
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// Longest time that unmounting is tried: a process that was just ended lets go of its files a
/// moment later.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(10);

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
        let image = directory.join(format!("{kind}.image"));
        let path = directory.join(kind);
        fs::create_dir(&path)?;
        let file = File::create_new(&image)?;
        file.set_len(size_bytes)?;
        let mut this = Self { path, image, device: OsString::new(), mounted: false };
        let program = format!("mkfs.{kind}");
        run(&program, &["-q".as_ref(), this.image.as_os_str()])?;
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
    fn a_kind_without_its_program_says_what_it_needs() {
        let directory = tempfile::tempdir().unwrap();
        let why = ImageMount::new(directory.path(), "no-such-kind", 1 << 20).unwrap_err();
        assert_eq!(why.to_string(), "needs mkfs.no-such-kind, found no such program");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
