//! Small file systems for tests: full, read-only, failing. Needs root; unmounted when dropped.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

/// A mounted file system.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
}

impl Mount {
    /// A tmpfs of `size` (as mount(8) takes it: `8m`) at an existing directory.
    ///
    /// # Errors
    /// What mount(8) says: not permitted, most of the time.
    pub fn tmpfs(path: &Path, size: &str) -> Result<Self, String> {
        let options = format!("size={size},mode=755");
        run("mount", ["-t", "tmpfs", "-o", &options, "haul-test"].map(OsStr::new), path)?;
        Ok(Self { path: path.to_owned() })
    }

    /// An ext2 of `size_bytes` in the new, sparse file `image`. It can't reserve space for a file,
    /// so a disk that fills up is found in the middle.
    ///
    /// # Errors
    /// What mkfs(8) or mount(8) say.
    pub fn ext2(path: &Path, image: &Path, size_bytes: u64) -> Result<Self, String> {
        Self::image(path, image, size_bytes, "ext2")
    }

    /// An ext4 in the new, sparse file `image`. Where the image lies on a file system that is too
    /// small, what was promised and written fails at the sync.
    ///
    /// # Errors
    /// What mkfs(8) or mount(8) say.
    pub fn ext4(path: &Path, image: &Path, size_bytes: u64) -> Result<Self, String> {
        Self::image(path, image, size_bytes, "ext4")
    }

    fn image(path: &Path, image: &Path, size_bytes: u64, kind: &str) -> Result<Self, String> {
        let file = std::fs::File::create_new(image).map_err(|error| error.to_string())?;
        file.set_len(size_bytes).map_err(|error| error.to_string())?;
        run("mkfs", ["-t", kind, "-q", "-m", "0"].map(OsStr::new), image)?;
        let words = [OsStr::new("-o"), OsStr::new("loop"), image.as_os_str()];
        run("mount", words, path)?;
        Ok(Self { path: path.to_owned() })
    }

    /// From now on nothing can be written.
    ///
    /// # Errors
    /// What mount(8) says: that a file is open for writing.
    pub fn make_read_only(&self) -> Result<(), String> {
        run("mount", ["-o", "remount,ro"].map(OsStr::new), &self.path)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // In use until its users are dropped: then it goes as soon as they are.
        let _ = run("umount", ["-l"].map(OsStr::new), &self.path);
    }
}

fn run<'a>(
    program: &str,
    words: impl IntoIterator<Item = &'a OsStr>,
    path: &Path,
) -> Result<(), String> {
    let output = Command::new(program)
        .args(words)
        .arg(path)
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
