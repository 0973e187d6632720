//! Trees of files: the names in one, and the differences between two.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

const CHUNK_BYTES: usize = 1 << 20;
/// Permission bits that a transfer keeps.
const MODE_BITS: u32 = 0o777;

/// All names below `root`, relative to it and sorted; links are not followed.
///
/// # Errors
/// If a directory cannot be read.
pub fn names(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let name = directory.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                directories.push(name.clone());
            }
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Whether two files hold the same bytes.
///
/// # Errors
/// If one of them cannot be read.
pub fn same_bytes(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    loop {
        left.clear();
        right.clear();
        (&mut one).take(CHUNK_BYTES as u64).read_to_end(&mut left)?;
        (&mut other).take(CHUNK_BYTES as u64).read_to_end(&mut right)?;
        if left != right {
            return Ok(false);
        }
        if left.is_empty() {
            return Ok(true);
        }
    }
}

/// Words for everything below two directories that is not the same: names, kinds, bytes, links'
/// targets, permission bits, and times of files and directories.
///
/// # Errors
/// If something cannot be read.
pub fn differences(one: &Path, other: &Path) -> io::Result<Vec<String>> {
    let (left, right) = (names(one)?, names(other)?);
    let mut found = Vec::new();
    for name in right.iter().filter(|name| left.binary_search(name).is_err()) {
        found.push(format!("{name:?} is only in {}", other.display()));
    }
    for name in &left {
        if right.binary_search(name).is_err() {
            found.push(format!("{name:?} is only in {}", one.display()));
        } else if let Some(what) = difference(&one.join(name), &other.join(name))? {
            found.push(format!("{name:?}: {what}"));
        }
    }
    Ok(found)
}

/// Words for how two files, directories or links differ, their names aside.
///
/// # Errors
/// If one of them cannot be read.
pub fn difference(one: &Path, other: &Path) -> io::Result<Option<String>> {
    let (left, right) = (fs::symlink_metadata(one)?, fs::symlink_metadata(other)?);
    if left.file_type() != right.file_type() {
        return Ok(Some(format!("{:?} and {:?}", left.file_type(), right.file_type())));
    }
    if left.is_symlink() {
        let (left, right) = (fs::read_link(one)?, fs::read_link(other)?);
        return Ok((left != right).then(|| format!("links to {left:?} and to {right:?}")));
    }
    let time = |metadata: &Metadata| (metadata.mtime(), metadata.mtime_nsec());
    let mode = |metadata: &Metadata| metadata.mode() & MODE_BITS;
    if mode(&left) != mode(&right) {
        return Ok(Some(format!("modes {:o} and {:o}", mode(&left), mode(&right))));
    }
    if time(&left) != time(&right) {
        return Ok(Some(format!("times {:?} and {:?}", time(&left), time(&right))));
    }
    if left.is_file() && !same_bytes(one, other)? {
        let sizes = format!("{} and {} bytes", left.len(), right.len());
        return Ok(Some(format!("other bytes ({sizes})")));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_differs_is_told_and_a_tree_is_like_itself() {
        let place = std::env::temp_dir().join(format!("haul-tree-{}", std::process::id()));
        for side in ["a", "b"] {
            fs::create_dir_all(place.join(side).join("sub")).unwrap();
            fs::write(place.join(side).join("sub/file"), side).unwrap();
            symlink(side, place.join(side).join("link")).unwrap();
        }
        fs::write(place.join("b/more"), "").unwrap();
        let found = differences(&place.join("a"), &place.join("b")).unwrap().join("\n");
        let same = differences(&place.join("a"), &place.join("a")).unwrap();
        fs::remove_dir_all(&place).unwrap();
        for what in ["\"more\" is only in", "links to \"a\" and to \"b\"", "\"sub/file\": "] {
            assert!(found.contains(what), "{found}");
        }
        assert_eq!(same, [""; 0]);
    }
}
