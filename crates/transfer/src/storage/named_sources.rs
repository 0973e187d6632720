//! Sources that a user named, or that a client asks a server for.

use crate::{
    error::io_fault,
    options::{Beginning, SourceSpec},
    source_name::name_of_source,
    state::usual_state_directories,
    storage::{
        root::{Links, Root, os_path},
        source::{Location, SourceEntry, stat_offer},
        tree::{Tree, is_directory},
        walk::{Listed, Top, Walk, WalkOptions},
    },
};
use haul_protocol::{
    limits,
    message::{self, FaultCode, FileKind, Side},
    name::check_relative_name,
};
use std::{io, os::unix::ffi::OsStrExt, sync::Arc};

/// The sources of a push, as the user named them.
#[must_use]
pub fn walk_named(sources: &[SourceSpec], options: WalkOptions) -> Walk {
    let top = sources.iter().map(|source| match source {
        SourceSpec::Zero(size) => Top::Listed(Listed::Entry(Box::new(zero_entry(*size)))),
        SourceSpec::Path(path) => named(path.as_bytes()),
        SourceSpec::Beginning(part) => beginning(part),
        SourceSpec::Beneath(place) => place.top(),
    });
    Walk::new(top, options)
}

/// Source that is only a file's beginning; the file is checked as a whole later on, and offered
/// with fewer bytes.
fn beginning(part: &Beginning) -> Top {
    let looked_at = rustix::fs::stat(&part.path);
    let offer = looked_at.map(|stat| stat_offer(&stat, part.name.as_bytes()));
    let offer = match offer {
        Ok(Some(offer)) if offer.kind == FileKind::Regular => offer,
        Ok(_) => {
            let fault = message::Fault::new(FaultCode::KindUnsupported, Side::Source, "is no file");
            return Top::Listed(Listed::Failed(fault.at(part.path.as_os_str().as_bytes())));
        }
        Err(errno) => {
            let path = part.path.as_os_str().as_bytes();
            let fault = io_fault(Side::Source, path, "cannot be read", &errno.into());
            return Top::Listed(Listed::Failed(fault));
        }
    };
    let size_bytes = offer.size_bytes;
    let len_bytes = size_bytes.min(part.len_bytes);
    let offer = message::FileOffer { size_bytes: len_bytes, ..offer };
    let location = Location::Named(part.path.clone());
    Top::Listed(Listed::Entry(Box::new(SourceEntry {
        offer,
        location,
        links: 1,
        size_bytes,
        is_moved: false,
    })))
}

fn named(path: &[u8]) -> Top {
    let full = os_path(path);
    let name = name_of_source(path).unwrap_or_default().to_vec();
    let failed = |error: io::Error| {
        let fault = io_fault(Side::Source, path, "cannot be read", &error);
        Top::Listed(Listed::Failed(fault))
    };
    let stat = match rustix::fs::stat(full) {
        Ok(stat) => stat,
        Err(errno) => return failed(errno.into()),
    };
    if is_directory(&stat) {
        return match Root::open_without(full, &usual_state_directories()) {
            Ok(root) => Top::Tree(Tree { root, path: Vec::new(), name }),
            Err(error) => failed(error),
        };
    }
    Top::Named(Location::Named(full.to_owned()), Box::new(stat), name)
}

/// The sources of a pull, as the client named them below `root`.
#[must_use]
pub fn asked_sources(root: Option<&Arc<Root>>, paths: &[Vec<u8>]) -> Vec<Top> {
    paths.iter().map(|path| Top::Asked(root.cloned(), path.clone())).collect()
}

fn zero_entry(size_bytes: u64) -> SourceEntry {
    let offer = message::FileOffer {
        name: format!("zero-{size_bytes}").into_bytes(),
        kind: FileKind::Regular,
        size_bytes,
        mode: 0o644,
        ..message::FileOffer::default()
    };
    SourceEntry { offer, location: Location::Zero, links: 1, size_bytes, is_moved: false }
}

pub(super) fn asked(root: Option<&Arc<Root>>, path: &[u8]) -> Top {
    let fail = |fault: message::Fault| Top::Listed(Listed::Failed(fault));
    if let Some(size) = path.strip_prefix(b"zero:") {
        let size =
            std::str::from_utf8(size).ok().and_then(|text| crate::size::parse_size(text).ok());
        let Some(size) = size.filter(|size| *size <= limits::FILE_BYTES_MAX) else {
            let fault = message::Fault::new(FaultCode::NameRefused, Side::Source, "is not a size");
            return fail(fault.at(path).needs("zero:SIZE, as in zero:10G, of 1P at most"));
        };
        return Top::Listed(Listed::Entry(Box::new(zero_entry(size))));
    }
    let Some(root) = root else {
        let what = "is not there: the server serves null:";
        let fault = message::Fault::new(FaultCode::NotFound, Side::Source, what);
        return fail(fault.at(path).hint("pull zero:SIZE from it"));
    };
    let trimmed = path.strip_suffix(b"/").unwrap_or(path);
    if !trimmed.is_empty()
        && let Err(why) = check_relative_name(trimmed)
    {
        let fault =
            message::Fault::new(FaultCode::NameRefused, Side::Source, "the name is refused");
        return fail(fault.at(path).found(why).hint("name a path below the server's root"));
    }
    if trimmed.split(|&byte| byte == b'/').any(super::hidden_names::is_hidden) {
        let what = "is one of haul's own temporaries";
        return fail(message::Fault::new(FaultCode::NameRefused, Side::Source, what).at(path));
    }
    let stat = match root.stat(trimmed, Links::Follow) {
        Ok(stat) => stat,
        Err(error) => return fail(io_fault(Side::Source, path, "cannot be read", &error)),
    };
    let name = name_of_source(path).unwrap_or_default().to_vec();
    if is_directory(&stat) {
        return match root.below(trimmed, Links::Follow) {
            Ok(root) => Top::Tree(Tree { root, path: Vec::new(), name }),
            Err(error) => fail(io_fault(Side::Source, path, "cannot be opened", &error)),
        };
    }
    let location = Location::Beneath(root.clone(), trimmed.to_vec());
    Top::Named(location, Box::new(stat), name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn entry(top: Top) -> SourceEntry {
        match top {
            Top::Listed(Listed::Entry(entry)) => *entry,
            other => panic!("{other:?}"),
        }
    }

    fn fault(top: Top) -> (FaultCode, Vec<u8>) {
        match top {
            Top::Listed(Listed::Failed(fault)) => {
                assert_eq!(fault.side, Side::Source);
                (fault.code, fault.path)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_files_beginning_is_offered_under_another_name_and_checked_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, b"bytes").unwrap();
        let part = |path: &std::path::Path, len_bytes| {
            beginning(&Beginning { path: path.to_owned(), len_bytes, name: "part".into() })
        };
        for (len_bytes, offered) in [(3, 3), (5, 5), (9, 5)] {
            let entry = entry(part(&path, len_bytes));
            assert_eq!((entry.offer.size_bytes, entry.size_bytes), (offered, 5));
            assert_eq!((&*entry.offer.name, entry.links), (&b"part"[..], 1));
            assert!(entry.check().is_ok());
        }
        let name = |path: &std::path::Path| path.as_os_str().as_bytes().to_vec();
        let (there, gone) = (directory.path(), directory.path().join("gone"));
        assert_eq!(fault(part(there, 3)), (FaultCode::KindUnsupported, name(there)));
        assert_eq!(fault(part(&gone, 3)), (FaultCode::NotFound, name(&gone)));
    }

    #[test]
    fn a_named_source_is_a_tree_a_file_or_an_error() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), b"bytes").unwrap();
        let at = |name: &str| directory.path().join(name).into_os_string().into_encoded_bytes();
        let Top::Named(Location::Named(path), stat, name) = named(&at("file")) else {
            panic!("it is a file")
        };
        assert_eq!((path, name), (directory.path().join("file"), b"file".to_vec()));
        assert_eq!(stat.st_size, 5);
        let Top::Tree(tree) = named(&at("")) else { panic!("it is a tree") };
        assert!(tree.name.is_empty() && tree.path.is_empty());
        assert_eq!(fault(named(&at("gone"))), (FaultCode::NotFound, at("gone")));
    }

    #[test]
    fn zeros_are_a_file_of_any_size_that_may_be_sent() {
        let zeros = entry(asked(None, b"zero:5"));
        assert_eq!((zeros.offer.size_bytes, zeros.size_bytes, zeros.links), (5, 5, 1));
        assert_eq!((&*zeros.offer.name, zeros.offer.kind), (&b"zero-5"[..], FileKind::Regular));
        assert_eq!((zeros.offer.mode, zeros.is_moved), (0o644, false));
        let most = format!("zero:{}", limits::FILE_BYTES_MAX);
        assert_eq!(entry(asked(None, most.as_bytes())).size_bytes, limits::FILE_BYTES_MAX);
        let more = format!("zero:{}", limits::FILE_BYTES_MAX + 1).into_bytes();
        for path in [&*more, b"zero:", b"zero:x"] {
            assert_eq!(fault(asked(None, path)), (FaultCode::NameRefused, path.to_vec()));
        }
    }

    #[test]
    fn what_a_client_asks_for_is_below_the_root_and_none_of_hauls_own() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("d")).unwrap();
        fs::write(directory.path().join("d/file"), b"bytes").unwrap();
        std::os::unix::fs::symlink("d/file", directory.path().join("link")).unwrap();
        let root = Root::open(directory.path()).unwrap();
        let refused = |path: &[u8]| fault(asked(Some(&root), path)).0;
        for path in [&b"../x"[..], b"/x", b"d/./x", b".x.haul-part", b"d/.x.haul-staged/y"] {
            assert_eq!(refused(path), FaultCode::NameRefused, "{}", path.escape_ascii());
        }
        assert_eq!(refused(b"gone"), FaultCode::NotFound);
        assert_eq!(fault(asked(None, b"d")), (FaultCode::NotFound, b"d".to_vec()));
        for (path, beneath, name) in
            [(&b"d/file"[..], &b"d/file"[..], &b"file"[..]), (b"link", b"link", b"link")]
        {
            let top = asked(Some(&root), path);
            let Top::Named(Location::Beneath(of, path), stat, named) = top else {
                panic!("{top:?}")
            };
            assert!(Arc::ptr_eq(&of, &root) && stat.st_size == 5);
            assert_eq!((&*path, &*named), (beneath, name));
        }
        for (path, name) in [(&b"d"[..], &b"d"[..]), (b"d/", b""), (b"", b"")] {
            let Top::Tree(tree) = asked(Some(&root), path) else { panic!("it is a tree") };
            assert_eq!(tree.name, name);
        }
        let tops = asked_sources(Some(&root), &[b"d".to_vec(), b"gone".to_vec()]);
        let asked: Vec<_> = tops
            .iter()
            .map(|top| match top {
                Top::Asked(Some(_), path) => &**path,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(asked, [&b"d"[..], b"gone"]);
    }
}
