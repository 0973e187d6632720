//! Mode of directories whose contents are sent. A target that is made for them is no wider.
//!
//! `x` brings its mode by its own offer. The contents of `x/` have none for the directory itself,
//! so that one travels when the session is opened. A directory that was there keeps its mode.

use super::{
    attributes::umask,
    root::{Links, Root},
};
use crate::{
    error::io_fault, options::SourceSpec, source_name::name_of_source,
    storage::target_place::TargetPlace,
};
use haul_protocol::message::{Fault, FileOffer, Side};
use rustix::{
    fs::{FileType, Mode, fchmod, fstat, fsync},
    io::Errno,
};
use std::{
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    sync::Arc,
};

/// The mode of a directory that is made before anything told the mode of its contents.
pub const BEFORE: u32 = 0o700;

/// Mode of mkdir(1), before the umask.
pub const USUAL: u32 = 0o777;

/// The narrowest st_mode of the directories whose contents a client sends; 0: there are none.
#[must_use]
pub fn of_named(sources: &[SourceSpec]) -> u32 {
    narrowest(sources.iter().filter_map(|source| match source {
        SourceSpec::Path(path) if name_of_source(path.as_bytes()).is_none() => {
            std::fs::metadata(path).ok().map(|there| there.mode())
        }
        SourceSpec::Beneath(place) if name_of_source(&place.path).is_none() => {
            place.stat().ok().map(|there| there.st_mode)
        }
        _ => None,
    }))
}

/// The narrowest st_mode of the directories whose contents a client asks for; 0: there are none.
#[must_use]
pub fn of_asked(root: Option<&Arc<Root>>, paths: &[Vec<u8>]) -> u32 {
    let Some(root) = root else { return 0 };
    let contents = paths.iter().filter(|path| name_of_source(path).is_none());
    narrowest(contents.filter_map(|path| {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        root.stat(path, Links::Follow).ok().map(|there| there.st_mode)
    }))
}

/// Bits that all these modes have; the kind is among them, so that a directory of mode 000 is not
/// taken for none.
fn narrowest(modes: impl Iterator<Item = u32>) -> u32 {
    modes.reduce(|narrow, mode| narrow & mode).unwrap_or(0)
}

/// Gives the target's directory this mode, if it was made for this transfer. Its owner may always
/// go into it and write: the transfer does so until its end.
///
/// # Errors
/// If it cannot be opened or synced. A file system without modes keeps its own.
pub fn give(place: &TargetPlace, st_mode: u32) -> Result<(), Fault> {
    let TargetPlace::Below { rules, .. } = place else { return Ok(()) };
    if FileType::from_raw_mode(st_mode) != FileType::Directory {
        return Ok(());
    }
    let offer = FileOffer { mode: st_mode, ..FileOffer::default() };
    set(place, rules.attributes.mode_of(&offer) | BEFORE)
}

/// Gives the mode to a directory that was made with [`BEFORE`]: the sender may be too old to tell a
/// mode.
///
/// # Errors
/// Those of [`give`].
pub fn give_after(place: &TargetPlace, st_mode: u32) -> Result<(), Fault> {
    match FileType::from_raw_mode(st_mode) {
        FileType::Directory => give(place, st_mode),
        _ => set(place, USUAL & !umask()),
    }
}

fn set(place: &TargetPlace, mode: u32) -> Result<(), Fault> {
    let TargetPlace::Below { root, base, rename: None, is_new: true, .. } = place else {
        return Ok(());
    };
    let given = || -> io::Result<()> {
        let directory = root.open_directory(base, Links::Refuse)?;
        // One below a directory of a group is of that group too.
        let of_group = fstat(&directory)?.st_mode & Mode::SGID.bits();
        match fchmod(&directory, Mode::from_raw_mode(mode | of_group)) {
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            changed => Ok(changed.and_then(|()| fsync(&directory))?),
        }
    };
    given().map_err(|error| {
        io_fault(Side::Target, base, "the new directory cannot be given its mode", &error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file_options::{FileOptions, Preserve},
        storage::target_place::PathMeans,
    };
    use std::{
        ffi::OsString,
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt,
        path::Path,
    };

    fn make(path: &Path, mode: u32) {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_narrowest_of_the_directories_whose_contents_are_sent_is_told() {
        let directory = tempfile::tempdir().unwrap();
        for (name, mode) in [("a", 0o750), ("b", 0o711), ("c", 0o700)] {
            make(&directory.path().join(name), mode);
        }
        let root = Root::open(directory.path()).unwrap();
        let narrowest = |names: &[&str]| {
            let path = |name: &&str| {
                let path = [directory.path().as_os_str(), "/".as_ref(), name.as_ref()];
                SourceSpec::Path(path.into_iter().collect::<OsString>())
            };
            let named = of_named(&names.iter().map(path).collect::<Vec<_>>());
            let asked: Vec<Vec<u8>> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
            assert_eq!(of_asked(Some(&root), &asked), named);
            named
        };
        assert_eq!(narrowest(&["a/"]), 0o040_750);
        assert_eq!(narrowest(&["a/", "b/", "c"]), 0o040_710);
        assert_eq!(narrowest(&["c", "gone/"]), 0);
        assert_eq!(of_asked(None, &[b"a/".to_vec()]), 0);
        assert_eq!(of_named(&[SourceSpec::Zero(9)]), 0);
    }

    #[test]
    fn only_a_directory_that_was_made_for_its_contents_gets_their_mode() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        make(&directory.path().join("there"), 0o755);
        let given = |path: &str, means, preserve, give: &dyn Fn(&TargetPlace)| {
            let options = FileOptions { preserve, ..FileOptions::default() };
            let place = TargetPlace::resolve(&root, path.as_bytes(), means, options).unwrap();
            give(&place);
            let made = path.split('/').next().unwrap();
            fs::metadata(directory.path().join(made)).unwrap().mode() & 0o7777
        };
        let into = PathMeans::Directory;
        let usual = Preserve::default();
        let give_mode = |mode| move |place: &TargetPlace| give(place, mode).unwrap();
        let give_later = |mode| move |place: &TargetPlace| give_after(place, mode).unwrap();
        assert_eq!(given("a", into, usual, &give_mode(0o040_050)), 0o750);
        assert_eq!(given("b", into, usual, &give_later(0o040_020)), 0o720);
        let nothing = Preserve::NOTHING;
        assert_eq!(given("c", into, nothing, &give_mode(0o040_077)), 0o777 & !umask());
        assert_eq!(given("d", into, usual, &give_later(0)), USUAL & !umask());
        let before = crate::storage::root::DIRECTORY_MODE & !umask();
        assert_eq!(given("e", into, usual, &give_mode(0)), before, "it is not told");
        assert_eq!(given("there", into, usual, &give_mode(0o040_700)), 0o755);
        assert_eq!(given("f/name", PathMeans::Name, usual, &give_mode(0o040_700)), before);
        assert_eq!(give(&TargetPlace::Null, 0o040_700), Ok(()));
        // A directory of a group.
        make(&directory.path().join("group"), 0o2755);
        let path = directory.path().join("group/g");
        given("group/g", into, usual, &give_mode(0o040_700));
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o2700);
    }
}
