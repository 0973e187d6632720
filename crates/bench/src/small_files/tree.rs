//! The tree of small files that is moved: made once, read before each round, looked for afterwards.

use anyhow::{Context, Result, bail, ensure};
use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

/// Files in a directory of the tree.
pub const FILES_A_DIRECTORY: u64 = 1000;
/// Files between two looks at whether to go on.
const LOOK_FILES: u64 = 500;
/// Random bytes that the files are cut from, beside the length of one.
const RANDOM_BYTES: usize = 1 << 20;
/// Distance of the beginnings of two files in these, so that no two of many are the same: a prime.
const APART_BYTES: u64 = 4099;

/// A tree of files of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    pub files: u64,
    pub file_bytes: u64,
}

/// The depth of a look at a tree that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Every name and length.
    Lengths,
    /// Every name and every byte.
    Bytes,
}

impl Tree {
    pub fn len_bytes(self) -> u64 {
        self.files * self.file_bytes
    }

    /// The place of a file below the root, such as `d00001/f00001234`.
    pub fn name(self, number: u64) -> PathBuf {
        format!("d{:05}/f{number:08}", number / FILES_A_DIRECTORY).into()
    }

    fn names(self) -> impl Iterator<Item = (u64, PathBuf)> {
        (0..self.files).map(move |number| (number, self.name(number)))
    }

    /// Makes the tree of random bytes.
    pub fn make(self, root: &Path, go_on: impl Fn() -> Result<()>) -> Result<()> {
        let what = || format!("cannot make the tree {}", root.display());
        let len_bytes = self.file_bytes as usize;
        let mut random = vec![0; RANDOM_BYTES + len_bytes];
        fastrand::Rng::new().fill(&mut random);
        for (number, name) in self.names() {
            if number % LOOK_FILES == 0 {
                go_on()?;
            }
            let path = root.join(name);
            if number % FILES_A_DIRECTORY == 0 {
                let directory = path.parent().context("a file has a directory")?;
                fs::create_dir_all(directory).with_context(what)?;
            }
            let begin = (number * APART_BYTES % RANDOM_BYTES as u64) as usize;
            fs::write(&path, &random[begin..begin + len_bytes]).with_context(what)?;
        }
        Ok(())
    }

    /// Reads each file once, so that the page cache has it.
    pub fn warm(self, root: &Path, go_on: impl Fn() -> Result<()>) -> Result<()> {
        let mut bytes = Vec::new();
        for (number, name) in self.names() {
            if number % LOOK_FILES == 0 {
                go_on()?;
            }
            read(&root.join(name), &mut bytes)?;
        }
        Ok(())
    }

    /// Checks that all of the tree is at the target, and nothing else.
    pub fn check(self, source: &Path, target: &Path, look: Look) -> Result<()> {
        let (mut sent, mut came) = (Vec::new(), Vec::new());
        for (_, name) in self.names() {
            let file = target.join(&name);
            let found = fs::metadata(&file)
                .with_context(|| format!("{} did not arrive", name.display()))?;
            let len_bytes = found.len();
            ensure!(
                found.is_file() && len_bytes == self.file_bytes,
                "{} arrived with {len_bytes} bytes, {} were sent",
                name.display(),
                self.file_bytes
            );
            if look == Look::Bytes {
                read(&source.join(&name), &mut sent)?;
                read(&file, &mut came)?;
                ensure!(sent == came, "{} arrived with other bytes: this is a bug", name.display());
            }
        }
        let found = count(target)?;
        ensure!(found == self.files, "{found} files arrived, {} were sent", self.files);
        Ok(())
    }
}

fn read(file: &Path, bytes: &mut Vec<u8>) -> Result<()> {
    bytes.clear();
    let mut opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    opened.read_to_end(bytes).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(())
}

/// The number of entries in the directories of a tree.
fn count(root: &Path) -> Result<u64> {
    let mut files = 0;
    for directory in fs::read_dir(root)? {
        let path = directory?.path();
        let Ok(entries) = fs::read_dir(&path) else {
            bail!("{} arrived, which was not sent", path.display())
        };
        files += entries.count() as u64;
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_that_lacks_a_byte_or_a_file_or_has_one_more_is_found_out() {
        let fresh = tempfile::tempdir().unwrap();
        let (source, target) = (fresh.path().join("source"), fresh.path().join("target"));
        let tree = Tree { files: FILES_A_DIRECTORY + 2, file_bytes: 16 };
        tree.make(&source, || Ok(())).unwrap();
        tree.warm(&source, || Ok(())).unwrap();
        let bytes = |number| fs::read(source.join(tree.name(number))).unwrap();
        assert!(bytes(0) != bytes(1) && bytes(1) != bytes(FILES_A_DIRECTORY));
        let check = |look| tree.check(&source, &target, look).map_err(|error| error.to_string());
        assert!(check(Look::Lengths).unwrap_err().contains("d00000/f00000000 did not arrive"));
        for (_, name) in tree.names() {
            fs::create_dir_all(target.join(&name).parent().unwrap()).unwrap();
            fs::copy(source.join(&name), target.join(&name)).unwrap();
        }
        assert_eq!(check(Look::Bytes), Ok(()));
        let last = target.join(tree.name(tree.files - 1));
        fs::write(&last, [0; 16]).unwrap();
        assert_eq!(check(Look::Lengths), Ok(()));
        assert!(check(Look::Bytes).unwrap_err().contains("other bytes"));
        fs::write(&last, [0; 15]).unwrap();
        assert!(check(Look::Lengths).unwrap_err().contains("with 15 bytes, 16 were sent"));
        fs::copy(source.join(tree.name(tree.files - 1)), &last).unwrap();
        fs::write(target.join("d00001/more"), "").unwrap();
        assert!(check(Look::Lengths).unwrap_err().contains("1003 files arrived"));
    }
}
