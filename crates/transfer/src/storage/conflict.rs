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
