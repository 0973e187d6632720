//! Decisions about an offered file whose name is taken at the target. It is skipped, replaced,
//! refused, or received under another name.

use super::root::{Links, Root, split_last};
use crate::{
    file_options::{FileOptions, OnConflict},
    storage::attributes::has_time,
};
use haul_protocol::{
    limits::COMPONENT_BYTES_MAX,
    message::{Compared, Fault, FaultCode, FileKind, FileOffer, Growth, Side},
};
use rustix::fs::{FileType, Stat};

/// Most names that are tried for a file whose own is taken: NAME.1, NAME.2, ...
const OTHER_NAMES_MAX: u32 = 1000;

/// The decision about an offer.
#[derive(Debug)]
pub enum Decision {
    /// Nothing is moved, for the same file is there.
    Skip(Box<Stat>),
    /// A file of the same size is there, and its bytes have to be compared.
    Compare,
    /// The file is received, under its own name or `other_name`.
    Take { replaces: bool, other_name: Option<Vec<u8>> },
}

/// Decides about a file or a link, `there` being what has its name.
///
/// # Errors
/// The fault to answer with.
pub fn decide(
    root: &Root,
    name: &[u8],
    there: Option<Stat>,
    offer: &FileOffer,
    file_options: FileOptions,
) -> Result<Decision, Fault> {
    let Some(there) = there else {
        return Ok(Decision::Take { replaces: false, other_name: None });
    };
    if is_source_itself(&there, offer) {
        return match file_options.move_sources {
            true => Err(same_file(name)),
            false => Ok(Decision::Skip(Box::new(there))),
        };
    }
    let is_file = offer.kind == FileKind::Regular;
    let keeps_same = file_options.on_conflict != OnConflict::Replace;
    let same_size = is_file && is_regular(&there) && same_size(&there, offer);
    let compared = offer.compared;
    // Of a file that grows it is what came of it that is compared, not what has its name.
    let compares = file_options.compare_content && offer.growth == Growth::NotGrowing;
    if same_size && compares && keeps_same {
        match compared {
            Compared::NotCompared => return Ok(Decision::Compare),
            Compared::SameContent => return Ok(Decision::Skip(Box::new(there))),
            Compared::OtherContent => {}
        }
    } else if keeps_same && is_same(root, name, &there, offer) {
        return Ok(Decision::Skip(Box::new(there)));
    }
    if file_options.on_conflict == OnConflict::KeepBoth {
        return other_name(root, name, offer);
    }
    if is_directory(&there) {
        let what = "a directory of that name is there";
        let fault = Fault::new(FaultCode::NameRefused, Side::Target, what).at(name);
        return Err(fault.hint(match gives_way(offer, file_options) {
            true => "--delete removes it when all else succeeded; then run the same command again",
            false => "remove it, or choose another target",
        }));
    }
    if is_special(&there) {
        let what = "a FIFO, socket or device of that name is there, which no file replaces";
        let fault = Fault::new(FaultCode::NameRefused, Side::Target, what).at(name);
        return Err(fault.hint("remove it, or choose another target"));
    }
    if file_options.on_conflict == OnConflict::Fail {
        return Err(exists(name, &there, offer));
    }
    Ok(Decision::Take { replaces: true, other_name: None })
}

/// Whether an entry is a device, FIFO or socket: programs rely on it as it is, and a device that
/// became a file stays one for all of them.
fn is_special(there: &Stat) -> bool {
    let kind = FileType::from_raw_mode(there.st_mode);
    !matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink)
}

/// Whether a directory that has the name of this file gives way to it: the sources do not have it,
/// and it is removed with the rest of what they do not have.
pub fn gives_way(offer: &FileOffer, file_options: FileOptions) -> bool {
    let is_below = offer.name.contains(&b'/');
    let replaces = matches!(file_options.on_conflict, OnConflict::SkipSame | OnConflict::Replace);
    offer.kind != FileKind::Directory
        && replaces
        && file_options.removal.is_some_and(|removal| removal.of_base || is_below)
}

/// Decides about a directory where something else has its name: with `--delete` that is removed,
/// for the sources do not have it.
///
/// # Errors
/// The fault to answer with.
pub(super) fn give_way_to_directory(
    name: &[u8],
    there: &Stat,
    file_options: FileOptions,
) -> Result<(), Fault> {
    if file_options.removal.is_some() && file_options.on_conflict != OnConflict::Fail {
        return Ok(());
    }
    let found = match FileType::from_raw_mode(there.st_mode) {
        FileType::RegularFile => "a file",
        FileType::Symlink => "a symbolic link, which is not followed",
        _ => "a FIFO, socket or device",
    };
    let what = "something else has the name of this directory";
    Err(Fault::new(FaultCode::NameRefused, Side::Target, what)
        .at(name)
        .needs("a directory, or none yet")
        .found(found)
        .hint("remove it, or let --delete do so"))
}

/// The first numbered name that is free, or that this very file has already.
fn other_name(root: &Root, name: &[u8], offer: &FileOffer) -> Result<Decision, Fault> {
    for number in 1..=OTHER_NAMES_MAX {
        let suffix = format!(".{number}");
        let other = [name, suffix.as_bytes()].concat();
        if split_last(&other).1.len() > COMPONENT_BYTES_MAX {
            break;
        }
        match root.stat(&other, Links::Refuse) {
            Err(_) => return Ok(Decision::Take { replaces: false, other_name: Some(other) }),
            Ok(there) if is_same(root, &other, &there, offer) => {
                return Ok(Decision::Skip(Box::new(there)));
            }
            Ok(_) => {}
        }
    }
    let what = "no other name is free for it";
    Err(Fault::new(FaultCode::Exists, Side::Target, what)
        .at(name)
        .needs(format!("one of NAME.1 to NAME.{OTHER_NAMES_MAX}, of 255 bytes at most"))
        .hint("tidy the target up, or choose another --on-conflict"))
}

/// Whether what is there is the very inode that is offered: by another path, a mount, or a network
/// file system that both hosts have. The device has another number on another host; that two
/// inodes of one number also changed in the same nanosecond is taken for impossible.
pub(super) fn is_source_itself(there: &Stat, offer: &FileOffer) -> bool {
    let ctime = (there.st_ctime, u32::try_from(there.st_ctime_nsec).unwrap_or(0));
    there.st_ino == offer.inode
        && ctime == (offer.ctime_s, offer.ctime_ns)
        // One that is not known is zero.
        && ctime != (0, 0)
}

/// Fault of a source that is its own target: to remove it would remove what is at the target.
pub(super) fn same_file(name: &[u8]) -> Fault {
    Fault::new(FaultCode::Exists, Side::Target, "the source and the target are the same")
        .at(name)
        .needs("a target that is not the source itself by another path, to move it there")
        .found("the same inode with the same ctime")
        .hint("nothing is to be done, or choose another target")
}

/// Fault of `--delete` beside keep-both: a file stored under another name is none that the sources
/// have.
pub(super) fn keeps_and_removes(path: &[u8]) -> Fault {
    Fault::new(FaultCode::NameRefused, Side::Target, "cannot keep both files and remove others")
        .at(path)
        .needs("one of --on-conflict keep-both and --delete")
        .found("both: --delete would remove what keep-both keeps")
        .hint("leave out one of them")
}

fn exists(name: &[u8], there: &Stat, offer: &FileOffer) -> Fault {
    let found = if is_regular(there) && !same_size(there, offer) {
        format!("a file of {} bytes, not of {}", there.st_size, offer.size_bytes)
    } else if is_regular(there) && offer.compared == Compared::OtherContent {
        "a file of the same size with other bytes".to_owned()
    } else if is_regular(there) {
        "a file of another time".to_owned()
    } else {
        "something else".to_owned()
    };
    Fault::new(FaultCode::Exists, Side::Target, "something of that name is there already")
        .at(name)
        .found(found)
        .hint("--on-conflict replace, keep-both or skip-same says what to do")
}

pub(super) fn is_directory(there: &Stat) -> bool {
    FileType::from_raw_mode(there.st_mode) == FileType::Directory
}

fn is_regular(there: &Stat) -> bool {
    FileType::from_raw_mode(there.st_mode) == FileType::RegularFile
}

fn same_size(there: &Stat, offer: &FileOffer) -> bool {
    u64::try_from(there.st_size) == Ok(offer.size_bytes)
}

/// Whether the same file is there, by size and time, or a link by where it leads.
fn is_same(root: &Root, name: &[u8], there: &Stat, offer: &FileOffer) -> bool {
    match offer.kind {
        FileKind::Regular => {
            is_regular(there)
                && same_size(there, offer)
                && there.st_mtime == offer.mtime_s
                && u32::try_from(there.st_mtime_nsec) == Ok(offer.mtime_ns)
                && has_time(offer)
        }
        FileKind::Symlink => root.parent_of(name).is_ok_and(|(parent, last)| {
            let link = rustix::fs::readlinkat(parent, last, Vec::new());
            link.is_ok_and(|link| link.to_bytes() == offer.link_target)
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{file_options::Removal, storage::source::stat_offer};
    use std::{
        fs::{self, File},
        os::unix::fs::symlink,
        path::Path,
        process::Command,
        time::{Duration, SystemTime},
    };

    const SIX_BYTES: &str = "a file of 5 bytes, not of 6";

    /// Makes a file of five bytes with a time of its own.
    fn make(path: &Path) {
        fs::write(path, b"bytes").unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::new(77, 5);
        File::open(path).unwrap().set_modified(time).unwrap();
    }

    /// Offer of what is the same as `path` by size, time and link, and has another inode.
    fn offer_like(path: &Path) -> FileOffer {
        let stat = rustix::fs::lstat(path).unwrap();
        let link_target =
            fs::read_link(path).map(|link| link.into_os_string().into_encoded_bytes());
        FileOffer {
            link_target: link_target.unwrap_or_default(),
            inode: stat.st_ino + 1,
            ..stat_offer(&stat, b"x").unwrap()
        }
    }

    /// The decision about an offer of the name `x`, in words.
    fn decided(directory: &Path, offer: &FileOffer, options: FileOptions) -> String {
        let there = rustix::fs::lstat(directory.join("x")).ok();
        match decide(&Root::open(directory).unwrap(), b"x", there, offer, options) {
            Ok(Decision::Skip(_)) => "skip".into(),
            Ok(Decision::Compare) => "compare".into(),
            Ok(Decision::Take { replaces: true, other_name: None }) => "replace".into(),
            Ok(Decision::Take { replaces: false, other_name: None }) => "take".into(),
            Ok(Decision::Take { replaces, other_name: Some(name) }) => {
                assert!(!replaces);
                String::from_utf8(name).unwrap()
            }
            Err(fault) => {
                assert_eq!((&*fault.path, fault.side), (&b"x"[..], Side::Target));
                if fault.found.is_empty() { fault.what } else { fault.found }
            }
        }
    }

    fn on(on_conflict: OnConflict) -> FileOptions {
        FileOptions { on_conflict, ..FileOptions::default() }
    }

    #[test]
    fn a_file_is_the_same_by_its_size_and_its_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        make(&path);
        let same = offer_like(&path);
        let differing = [
            (FileOffer { size_bytes: 6, ..same.clone() }, SIX_BYTES),
            (FileOffer { mtime_s: 78, ..same.clone() }, "a file of another time"),
            (FileOffer { mtime_ns: 6, ..same.clone() }, "a file of another time"),
            // As `zero:`, which has no time.
            (FileOffer { inode: 0, device: 0, ..same.clone() }, "a file of another time"),
            (FileOffer { kind: FileKind::HardLink, ..same.clone() }, "a file of another time"),
        ];
        for (on_conflict, expected) in [
            (OnConflict::SkipSame, "skip"),
            (OnConflict::Fail, "skip"),
            (OnConflict::KeepBoth, "skip"),
        ] {
            assert_eq!(decided(directory.path(), &same, on(on_conflict)), expected);
        }
        assert_eq!(decided(directory.path(), &same, on(OnConflict::Replace)), "replace");
        for (offer, found) in differing {
            let decided = |on_conflict| decided(directory.path(), &offer, on(on_conflict));
            assert_eq!(decided(OnConflict::SkipSame), "replace", "{offer:?}");
            assert_eq!(decided(OnConflict::Replace), "replace");
            assert_eq!(decided(OnConflict::Fail), found);
            assert_eq!(decided(OnConflict::KeepBoth), "x.1");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(decided(directory.path(), &same, on(OnConflict::Fail)), "take");
    }

    #[test]
    fn where_bytes_are_compared_they_decide_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        make(&directory.path().join("x"));
        let same = offer_like(&directory.path().join("x"));
        let other_time = FileOffer { mtime_s: 78, ..same.clone() };
        let decided = |offer: &FileOffer, compared, on_conflict| {
            let options = FileOptions { compare_content: true, ..on(on_conflict) };
            decided(directory.path(), &FileOffer { compared, ..offer.clone() }, options)
        };
        for offer in [&same, &other_time] {
            for (compared, expected) in [
                (Compared::NotCompared, "compare"),
                (Compared::SameContent, "skip"),
                (Compared::OtherContent, "replace"),
            ] {
                assert_eq!(decided(offer, compared, OnConflict::SkipSame), expected);
                assert_eq!(decided(offer, compared, OnConflict::Replace), "replace");
            }
        }
        let found = decided(&same, Compared::OtherContent, OnConflict::Fail);
        assert_eq!(found, "a file of the same size with other bytes");
        let larger = FileOffer { size_bytes: 6, ..same.clone() };
        assert_eq!(decided(&larger, Compared::NotCompared, OnConflict::SkipSame), "replace");
        let found = decided(&larger, Compared::OtherContent, OnConflict::Fail);
        assert_eq!(found, SIX_BYTES);
        let growing = FileOffer { growth: Growth::Growing, ..same };
        assert_eq!(decided(&growing, Compared::NotCompared, OnConflict::SkipSame), "skip");
    }

    #[test]
    fn a_link_is_the_same_by_where_it_leads_and_no_file_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        symlink("there", &path).unwrap();
        let same = offer_like(&path);
        let decided = |offer: &FileOffer| decided(directory.path(), offer, FileOptions::default());
        assert_eq!(decided(&same), "skip");
        assert_eq!(
            decided(&FileOffer { link_target: b"elsewhere".into(), ..same.clone() }),
            "replace"
        );
        let size_bytes = rustix::fs::lstat(&path).unwrap().st_size.cast_unsigned();
        let file = FileOffer { kind: FileKind::Regular, size_bytes, ..same.clone() };
        assert_eq!(decided(&file), "replace");
        let compares = FileOptions { compare_content: true, ..FileOptions::default() };
        assert_eq!(super::tests::decided(directory.path(), &file, compares), "replace");
        assert_eq!(
            super::tests::decided(directory.path(), &file, on(OnConflict::Fail)),
            "something else"
        );
        fs::remove_file(&path).unwrap();
        make(&path);
        assert_eq!(decided(&same), "replace");
    }

    #[test]
    fn the_first_number_that_is_free_or_is_the_file_stands_behind_the_name() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        ["x", "x.1", "x.2"].iter().for_each(|name| make(&at(name)));
        let same = offer_like(&at("x"));
        let other = FileOffer { size_bytes: 6, ..same.clone() };
        let both = on(OnConflict::KeepBoth);
        assert_eq!(decided(directory.path(), &other, both), "x.3");
        fs::write(at("x.2"), b"bytes.").unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::new(77, 5);
        File::open(at("x.2")).unwrap().set_modified(time).unwrap();
        assert_eq!(decided(directory.path(), &other, both), "skip");
        let root = Root::open(directory.path()).unwrap();
        for (len, is_free) in [(COMPONENT_BYTES_MAX - 2, true), (COMPONENT_BYTES_MAX - 1, false)] {
            let name = ["d/".repeat(2).into_bytes(), vec![b'n'; len]].concat();
            match other_name(&root, &name, &other) {
                Ok(Decision::Take { other_name: Some(other), .. }) => {
                    assert!(is_free && other == [&*name, b".1"].concat());
                }
                Err(fault) => assert!(!is_free && fault.code == FaultCode::Exists),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn directories_and_devices_stay_whatever_comes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        make(&path);
        let offer = offer_like(&path);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let options = FileOptions { removal: Some(Removal::new(None)), ..FileOptions::default() };
        let of_base = Removal { of_base: true, ..Removal::new(None) };
        let mirrors = FileOptions { removal: Some(of_base), ..options };
        let root = Root::open(directory.path()).unwrap();
        let hint = |options| {
            let there = rustix::fs::lstat(&path).ok();
            let fault = decide(&root, b"x", there, &offer, options).unwrap_err();
            assert_eq!(fault.code, FaultCode::NameRefused);
            fault.hint
        };
        assert!(hint(mirrors).contains("--delete") && !hint(options).contains("--delete"));
        let what = decided(directory.path(), &offer, on(OnConflict::Replace));
        assert_eq!(what, "a directory of that name is there");
        assert_eq!(decided(directory.path(), &offer, on(OnConflict::KeepBoth)), "x.1");
        fs::remove_dir(&path).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let what = decided(directory.path(), &offer, on(OnConflict::Replace));
        assert!(what.starts_with("a FIFO, socket or device"), "{what}");
        assert!(!is_special(&rustix::fs::stat(directory.path()).unwrap()));
    }

    #[test]
    fn what_the_sources_do_not_have_gives_way_where_it_is_removed() {
        let offer =
            |name: &str, kind| FileOffer { name: name.into(), kind, ..FileOffer::default() };
        let options = |on_conflict, of_base| FileOptions {
            removal: Some(Removal { of_base, ..Removal::new(None) }),
            ..on(on_conflict)
        };
        let (top, below) = (offer("x", FileKind::Regular), offer("d/x", FileKind::Symlink));
        for on_conflict in [OnConflict::SkipSame, OnConflict::Replace] {
            assert!(gives_way(&top, options(on_conflict, true)));
            assert!(!gives_way(&top, options(on_conflict, false)));
            assert!(gives_way(&below, options(on_conflict, false)));
            assert!(!gives_way(&below, on(on_conflict)));
        }
        assert!(!gives_way(&below, options(OnConflict::Fail, true)));
        assert!(!gives_way(&below, options(OnConflict::KeepBoth, true)));
        let made = offer("d/x", FileKind::Directory);
        assert!(!gives_way(&made, options(OnConflict::SkipSame, true)));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        let found = |options| {
            let there = rustix::fs::lstat(&path).unwrap();
            give_way_to_directory(b"x", &there, options).map_err(|fault| fault.found)
        };
        make(&path);
        assert_eq!(found(options(OnConflict::SkipSame, false)), Ok(()));
        assert_eq!(found(options(OnConflict::Fail, true)), Err("a file".into()));
        assert_eq!(found(on(OnConflict::Replace)), Err("a file".into()));
        fs::remove_file(&path).unwrap();
        symlink("d", &path).unwrap();
        let link = "a symbolic link, which is not followed";
        assert_eq!(found(on(OnConflict::Replace)), Err(link.into()));
        fs::remove_file(&path).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(found(on(OnConflict::Replace)), Err("a FIFO, socket or device".into()));
        let fault = keeps_and_removes(b"x");
        assert_eq!((fault.code, &*fault.path), (FaultCode::NameRefused, &b"x"[..]));
    }

    #[test]
    fn a_source_is_its_own_target_by_inode_and_change_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        make(&path);
        let stat = rustix::fs::lstat(&path).unwrap();
        let itself = FileOffer { device: 0, ..stat_offer(&stat, b"x").unwrap() };
        assert!(is_source_itself(&stat, &itself));
        for other in [
            FileOffer { inode: itself.inode + 1, ..itself.clone() },
            FileOffer { ctime_s: itself.ctime_s + 1, ..itself.clone() },
            FileOffer { ctime_ns: itself.ctime_ns + 1, ..itself.clone() },
            FileOffer { ctime_s: 0, ctime_ns: 0, ..itself.clone() },
        ] {
            assert!(!is_source_itself(&stat, &other), "{other:?}");
        }
        let mut unknown = stat;
        (unknown.st_ctime, unknown.st_ctime_nsec) = (0, 0);
        let offer = FileOffer { ctime_s: 0, ctime_ns: 0, ..itself.clone() };
        assert!(!is_source_itself(&unknown, &offer), "neither is known");
        assert_eq!(decided(directory.path(), &itself, on(OnConflict::Replace)), "skip");
        let moves = FileOptions { move_sources: true, ..on(OnConflict::Replace) };
        let found = "the same inode with the same ctime";
        assert_eq!(decided(directory.path(), &itself, moves), found);
    }
}
