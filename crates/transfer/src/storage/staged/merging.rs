//! Trees of hidden directories: removal of what no list tells of, and moves into another directory.
//!
//! Directories are gone through by their paths, one open at a time, and never by a link.

use super::{
    super::{filling::widen, hidden_names::is_hidden, root::join},
    list::{PathHash, hash},
};
use rustix::{
    fs::{
        AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, fstat, mkdirat, openat2,
        renameat, renameat_with, statat, unlinkat,
    },
    io::Errno,
};
use std::{io, os::fd::OwnedFd};

/// Rule for a file whose name is taken where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The one that is there is replaced.
    Replace,
    /// The one that is there stays, and the other is removed.
    KeepThere,
}

/// Removes every file that a list does not tell of. Temporaries stay, as they have journals of
/// their own: whether there are any is returned.
pub fn remove_unlisted(directory: &OwnedFd, durable: &[PathHash]) -> io::Result<bool> {
    let mut has_temporaries = false;
    each_directory(directory, |opened, path, files| {
        for name in files {
            if is_hidden(name) {
                has_temporaries = true;
            } else if durable.binary_search(&hash(&join(path, name))).is_err() {
                unlinkat(opened, &**name, AtFlags::empty())?;
            }
        }
        Ok(())
    })?;
    Ok(has_temporaries)
}

/// Removes all that is in a directory.
pub fn remove_all_in(directory: &OwnedFd) -> io::Result<()> {
    let directories = each_directory(directory, |opened, _, files| {
        files.iter().try_for_each(|name| Ok(unlinkat(opened, &**name, AtFlags::empty())?))
    })?;
    remove_directories(directory, &directories)
}

/// Removes the directories in a directory, which fails where one is not empty.
pub fn remove_empty_in(directory: &OwnedFd) -> io::Result<()> {
    let directories = each_directory(directory, |_, _, _| Ok(()))?;
    remove_directories(directory, &directories)
}

/// Moves all that is in a directory into another one. A temporary of another run that is there
/// always stays: that run writes to it.
pub fn move_all(from: &OwnedFd, to: &OwnedFd, conflict: Conflict) -> io::Result<()> {
    let directories = each_directory(from, |opened, path, files| {
        let there = if path.is_empty() {
            open_below(to, b".")?
        } else {
            make_below(to, path, fstat(opened)?.st_mode)?
        };
        if !files.is_empty() {
            // Another session may have given it a mode in which nobody may write.
            widen(&there)?;
        }
        for name in files {
            let conflict = if is_hidden(name) { Conflict::KeepThere } else { conflict };
            match conflict {
                Conflict::Replace => renameat(opened, &**name, &there, &**name)?,
                Conflict::KeepThere => {
                    let flags = RenameFlags::NOREPLACE;
                    match renameat_with(opened, &**name, &there, &**name, flags) {
                        Err(Errno::EXIST) => unlinkat(opened, &**name, AtFlags::empty())?,
                        renamed => renamed?,
                    }
                }
            }
        }
        Ok(())
    })?;
    remove_directories(from, &directories)
}

/// Calls `act` with every directory of a tree, its path below the first, and the names of its
/// files; those above come first. Gives the paths of all but the first.
fn each_directory(
    top: &OwnedFd,
    mut act: impl FnMut(&OwnedFd, &[u8], &[Vec<u8>]) -> io::Result<()>,
) -> io::Result<Vec<Vec<u8>>> {
    let mut paths: Vec<Vec<u8>> = vec![Vec::new()];
    let mut at = 0;
    while at < paths.len() {
        let path = paths[at].clone();
        let opened = open_below(top, if path.is_empty() { b"." } else { &path })?;
        let mut files = Vec::new();
        for entry in Dir::read_from(&opened)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let stat = statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(stat.st_mode)
                }
                kind => kind,
            };
            if kind == FileType::Directory {
                paths.push(join(&path, name));
            } else {
                files.push(name.to_vec());
            }
        }
        act(&opened, &path, &files)?;
        at += 1;
    }
    paths.remove(0);
    Ok(paths)
}

/// Removes directories that are empty by now, those below first.
fn remove_directories(top: &OwnedFd, paths: &[Vec<u8>]) -> io::Result<()> {
    for path in paths.iter().rev() {
        let (above, last) = super::split_last(path);
        let opened = open_below(top, if above.is_empty() { b"." } else { above })?;
        unlinkat(&opened, last, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

fn open_below(top: &OwnedFd, path: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Without links there are no magic ones either (openat2(2)).
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    loop {
        match openat2(top, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return Ok(opened?),
        }
    }
}

fn make_below(top: &OwnedFd, path: &[u8], mode: u32) -> io::Result<OwnedFd> {
    let (above, last) = super::split_last(path);
    let opened = open_below(top, if above.is_empty() { b"." } else { above })?;
    match mkdirat(&opened, last, Mode::from_raw_mode(mode & 0o777)) {
        Ok(()) | Err(Errno::EXIST) => open_below(top, path),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        os::unix::fs::{MetadataExt, PermissionsExt},
        path::Path,
    };

    fn tree(below: &Path, files: &[&str]) {
        for name in files {
            let path = below.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, below.file_name().unwrap().as_encoded_bytes()).unwrap();
        }
    }

    fn opened(path: &Path) -> OwnedFd {
        fs::File::open(path).unwrap().into()
    }

    fn files(below: &Path) -> Vec<String> {
        let mut all = Vec::new();
        let told = each_directory(&opened(below), |_, path, files| {
            all.extend(
                files.iter().map(|name| String::from_utf8_lossy(&join(path, name)).into_owned()),
            );
            Ok(())
        });
        told.unwrap();
        all.sort();
        all
    }

    #[test]
    fn only_what_the_list_tells_of_stays_and_temporaries_with_journals_of_their_own() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().join("at");
        tree(&at, &["a", "b", "d/c", "d/e", "d/.x.haul-part", "d/.x.haul-journal"]);
        let mut durable = vec![hash(b"a"), hash(b"d/e"), hash(b"gone")];
        durable.sort_unstable();
        assert!(remove_unlisted(&opened(&at), &durable).unwrap());
        assert_eq!(files(&at), ["a", "d/.x.haul-journal", "d/.x.haul-part", "d/e"]);
        remove_all_in(&opened(&at)).unwrap();
        assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
    }

    #[test]
    fn all_of_a_tree_goes_into_the_one_that_is_there_and_the_rule_says_which_file_stays() {
        for (conflict, stays) in [(Conflict::Replace, "from"), (Conflict::KeepThere, "to")] {
            let place = tempfile::tempdir().unwrap();
            let (from, to) = (place.path().join("from"), place.path().join("to"));
            tree(&from, &["both", "d/both", "d/new/x", "y"]);
            tree(&to, &["both", "d/both", "own"]);
            move_all(&opened(&from), &opened(&to), conflict).unwrap();
            assert_eq!(files(&to), ["both", "d/both", "d/new/x", "own", "y"]);
            assert_eq!(fs::read_to_string(to.join("d/both")).unwrap(), stays);
            assert_eq!(fs::read_to_string(to.join("d/new/x")).unwrap(), "from");
            assert_eq!(fs::read_dir(&from).unwrap().count(), 0);
        }
    }

    /// Case of two shards that have both begun a file: the one that ends first gave the other one's
    /// temporary away.
    #[test]
    fn a_temporary_that_is_there_is_another_run_s_and_stays() {
        for conflict in [Conflict::Replace, Conflict::KeepThere] {
            let place = tempfile::tempdir().unwrap();
            let (from, to) = (place.path().join("from"), place.path().join("to"));
            tree(&from, &[".x.haul-part", ".y.haul-part", "x"]);
            tree(&to, &[".x.haul-part"]);
            move_all(&opened(&from), &opened(&to), conflict).unwrap();
            assert_eq!(files(&to), [".x.haul-part", ".y.haul-part", "x"]);
            assert_eq!(fs::read_to_string(to.join(".x.haul-part")).unwrap(), "to");
        }
    }

    #[test]
    fn a_link_in_the_tree_is_a_name_and_no_way() {
        let place = tempfile::tempdir().unwrap();
        let (at, outside) = (place.path().join("at"), place.path().join("outside"));
        tree(&outside, &["kept"]);
        fs::create_dir(&at).unwrap();
        std::os::unix::fs::symlink(&outside, at.join("link")).unwrap();
        assert!(!remove_unlisted(&opened(&at), &[]).unwrap());
        assert!(fs::symlink_metadata(at.join("link")).is_err() && outside.join("kept").exists());
    }

    #[test]
    fn only_directories_of_the_tree_are_opened_and_those_made_have_the_mode_of_theirs() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        tree(&from, &["d/private/x"]);
        tree(&to, &["d/y"]);
        std::os::unix::fs::symlink("d", from.join("link")).unwrap();
        let below = |path: &[u8]| open_below(&opened(&from), path);
        assert!(below(b"d/private").is_ok());
        for path in [&b"d/private/x"[..], b"link", b"..", b"gone"] {
            assert!(below(path).is_err(), "{}", path.escape_ascii());
        }
        fs::remove_file(from.join("link")).unwrap();
        let mode = fs::Permissions::from_mode(0o2750);
        fs::set_permissions(from.join("d/private"), mode).unwrap();
        move_all(&opened(&from), &opened(&to), Conflict::Replace).unwrap();
        let made = fs::metadata(to.join("d/private")).unwrap();
        assert_eq!(made.mode() & 0o7777, 0o750 & !crate::storage::attributes::umask());
    }
}
