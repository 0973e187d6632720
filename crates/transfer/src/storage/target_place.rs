//! Place where received files go, and what a path of a target means.

use crate::{
    error::io_fault,
    file_options::{FileOptions, Preserve},
    storage::{
        aborted::sync_directory,
        attributes::attributes_fault,
        conflict::{gives_way, is_directory},
        filling::{OWN_BITS, is_shared},
        fresh::Fresh,
        hidden_names::is_hidden,
        name_at_target::{final_name, name_refused},
        prepare::{Prepared, Preparing, is_narrowed, null_target},
        root::{DIRECTORY_MODE, Links, Root, join, split_last},
        target_rules::TargetRules,
    },
};
use haul_protocol::{
    SpanGrid,
    message::{Digest, Fault, FaultCode, FileKind, FileOffer, Side},
};
use std::{io, sync::Arc};

/// The place to which received files go.
#[derive(Clone, Debug)]
pub enum TargetPlace {
    /// The place `null:`, where nothing is kept.
    Null,
    Below {
        root: Arc<Root>,
        base: Vec<u8>,
        /// New name of the one source; `None` where sources keep theirs.
        rename: Option<Vec<u8>>,
        rules: Arc<TargetRules>,
        /// Whether the base was made for this transfer.
        is_new: bool,
    },
}

/// The meaning of the path of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathMeans {
    /// The path is the directory to receive into; made when missing.
    Directory,
    /// The path is the new name of the one source, whatever is there.
    Name,
    /// The path is a directory if one is there, or if it ends in `/`, and else the new name.
    WhatIsThere,
}

impl PathMeans {
    #[must_use]
    pub fn directory_if(is_directory: bool) -> Self {
        if is_directory { Self::Directory } else { Self::WhatIsThere }
    }
}

impl TargetPlace {
    /// Finds where `path` below `root` is: a directory to receive into, or the one file's new name.
    ///
    /// # Errors
    /// If the name is refused or the directory cannot be made.
    pub fn resolve(
        root: &Arc<Root>,
        path: &[u8],
        means: PathMeans,
        file_options: FileOptions,
    ) -> Result<Self, Fault> {
        if path == b"null:" {
            return Ok(Self::Null);
        }
        if file_options.removal.is_some()
            && file_options.on_conflict == crate::file_options::OnConflict::KeepBoth
        {
            return Err(super::conflict::keeps_and_removes(path));
        }
        let trimmed = path.strip_suffix(b"/").unwrap_or(path);
        let make = |name: &[u8]| {
            let leaves_nothing = file_options.leaves_nothing();
            let made = if leaves_nothing { Ok(0) } else { make_durable_directories(root, name) };
            made.map_err(|error| {
                io_fault(Side::Target, path, "the target directory cannot be made", &error)
            })
        };
        if !trimmed.is_empty()
            && let Err(why) = haul_protocol::name::check_relative_name(trimmed)
        {
            return Err(name_refused(path, why));
        }
        if trimmed.split(|&byte| byte == b'/').any(is_hidden) {
            return Err(name_refused(path, "haul's own temporaries have such names"));
        }
        let rules = TargetRules::new(file_options);
        let root = &root.of_session();
        let place = |base: &[u8], rename, levels_made: usize| {
            let (root, base, is_new) = (root.clone(), base.to_vec(), levels_made > 0);
            Ok(Self::Below { root, base, rename, rules, is_new })
        };
        let is_directory = match means {
            PathMeans::Directory => true,
            PathMeans::Name => false,
            PathMeans::WhatIsThere => path.ends_with(b"/") || root.is_directory(trimmed),
        };
        if is_directory || trimmed.is_empty() {
            return place(trimmed, None, make(trimmed)?);
        }
        let (base, name) = split_last(trimmed);
        place(base, Some(name.to_vec()), make(base)?)
    }

    /// Notes that the base of the place was made for this transfer already.
    #[must_use]
    pub fn made_before(mut self, made: bool) -> Self {
        if let Self::Below { is_new, .. } = &mut self {
            *is_new |= made;
        }
        self
    }

    /// Learns by an offer what the one source is: a directory keeps its name, below the path that a
    /// single file would take. True if that changes the place.
    pub fn learn_source(&mut self, offer: &FileOffer) -> bool {
        let Self::Below { base, rename, .. } = self else { return false };
        let is_directory = offer.kind == FileKind::Directory || offer.name.contains(&b'/');
        let Some(new) = rename.take_if(|_| is_directory) else { return false };
        *base = join(base, &new);
        true
    }

    #[must_use]
    pub fn root(&self) -> Option<Arc<Root>> {
        if let Self::Below { root, .. } = self { Some(root.clone()) } else { None }
    }

    /// Has every directory made under its name at once: its files are to be seen, or read, before
    /// the end.
    pub fn forbid_staging(&self) {
        if let Self::Below { root, .. } = self {
            root.forbid_staging();
        }
    }

    /// Number of entries that were there already and lacked some of the source's attributes.
    #[must_use]
    pub fn updated_attributes(&self) -> u64 {
        let Self::Below { rules, .. } = self else { return 0 };
        rules.attributes.updated()
    }

    #[must_use]
    pub fn file_options(&self) -> FileOptions {
        match self {
            Self::Null => FileOptions::default(),
            Self::Below { rules, .. } => rules.file_options,
        }
    }

    /// Makes ready to receive what is offered.
    ///
    /// # Errors
    /// The fault to answer with.
    pub fn prepare(
        &self,
        offer: &FileOffer,
        span_bytes: u64,
        digest: Digest,
        fresh: &mut Fresh,
    ) -> Result<Prepared, Fault> {
        let grid = SpanGrid::new(offer.size_bytes, span_bytes)
            .map_err(|error| Fault::new(FaultCode::ProtocolViolation, Side::Target, error.what))?;
        let Self::Below { root, base, rename, rules, .. } = self else {
            return Ok(null_target(offer, &grid));
        };
        let name = final_name(base, rename.as_deref(), &offer.name);
        if name.split(|&byte| byte == b'/').any(is_hidden) {
            return Err(name_refused(&name, "haul's own temporaries have such names"));
        }
        if offer.range.is_some() && !rules.file_options.ranges {
            let what = "a range of a file, where none was announced";
            return Err(Fault::new(FaultCode::ProtocolViolation, Side::Source, what).at(name));
        }
        // A watch offers again what it sent, and other sessions bring other ranges.
        let may_be_there = rules.file_options.recording.watch || offer.range.is_some();
        let in_fresh = !may_be_there && fresh.holds(split_last(&name).0);
        let there = if in_fresh { None } else { root.stat(&name, Links::Refuse).ok() };
        let staged = root.hidden_directory_of(&name);
        let preparing = Preparing { root, rules, offer, grid, digest, in_fresh, staged };
        match offer.kind {
            _ if rules.file_options.discard => preparing.discarded(base),
            FileKind::Directory => preparing.directory(name, there.as_ref(), fresh),
            FileKind::HardLink => {
                let first = final_name(base, rename.as_deref(), &offer.link_target);
                preparing.hard_link(name, there, &first, fresh)
            }
            FileKind::Regular | FileKind::Symlink => {
                preparing.file_or_link(name, base, there, fresh)
            }
            FileKind::Unknown => {
                let what = "is of a kind that this version does not know";
                Err(Fault::new(FaultCode::KindUnsupported, Side::Target, what).at(name))
            }
        }
    }

    /// The name below the root of what is offered.
    #[must_use]
    pub fn name_of(&self, offer: &FileOffer) -> Vec<u8> {
        match self {
            Self::Null => offer.name.clone(),
            Self::Below { base, rename, .. } => final_name(base, rename.as_deref(), &offer.name),
        }
    }

    /// Sets a directory's mode, time and the like, once everything below it is in place. One that
    /// belongs to somebody else keeps its own, unless --preserve asked for more than the default.
    ///
    /// # Errors
    /// If the directory is there and cannot be given what was offered.
    pub fn finish_directory(&self, offer: &FileOffer) -> Result<(), Fault> {
        let Self::Below { root, base, rename, rules, .. } = self else { return Ok(()) };
        let name = final_name(base, rename.as_deref(), &offer.name);
        let set = root.open_directory(&name, Links::Refuse).and_then(|directory| {
            if is_narrowed(offer, rules) && !rules.filling.may_narrow(&name, &directory) {
                // Another session fills it, and narrows it at its own end: not just now, or this
                // would widen it behind that.
                is_shared(&directory);
                let wide = FileOffer { mode: offer.mode | OWN_BITS, ..offer.clone() };
                rules.attributes.apply(&directory, &wide, true)?;
                // That one may be through by now, and have found this lock.
                if !rules.filling.may_narrow(&name, &directory) {
                    return Ok(());
                }
            }
            rules.attributes.apply(&directory, offer, true)
        });
        let Err(error) = set else { return Ok(()) };
        // On a read-only file system, when nothing is left to do: the same command ran before.
        let there = root.stat(&name, Links::Refuse);
        if there.is_ok_and(|there| !rules.attributes.may_differ(&there, offer)) {
            return Ok(());
        }
        let fault = attributes_fault(&name, &error);
        let is_default = rules.file_options.preserve == Preserve::default();
        if fault.code == FaultCode::NotPermitted && is_default { Ok(()) } else { Err(fault) }
    }
}

/// Whether a directory that stays in the way of this file is to be removed in the end.
pub fn is_in_the_way(place: &TargetPlace, offer: &FileOffer) -> bool {
    let TargetPlace::Below { root, base, rename, rules, .. } = place else { return false };
    let name = final_name(base, rename.as_deref(), &offer.name);
    let there = || root.stat(&name, Links::Refuse);
    gives_way(offer, rules.file_options) && there().is_ok_and(|there| is_directory(&there))
}

fn make_durable_directories(root: &Root, name: &[u8]) -> io::Result<usize> {
    let new_levels = root.make_directories(name, DIRECTORY_MODE)?;
    root.each_parent(name, new_levels, |directory| sync_directory(directory))?;
    Ok(new_levels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file_options::{OnConflict, Recording, Removal},
        storage::filling::tests::not_as_root,
    };
    use haul_protocol::message::Compared;
    use haul_testkit::{mount::Mount, skip::skip};
    use rustix::fs::{FlockOperation, IFlags, flock, ioctl_setflags};
    use std::{
        fs::{self, File, Permissions},
        os::unix::fs::{MetadataExt, PermissionsExt},
        path::Path,
    };

    fn resolved(directory: &Path, path: &[u8], means: PathMeans) -> TargetPlace {
        let root = Root::open(directory).unwrap();
        TargetPlace::resolve(&root, path, means, FileOptions::default()).unwrap()
    }

    /// Base, other name, and whether the base was made.
    fn parts(place: &TargetPlace) -> (&[u8], Option<&[u8]>, bool) {
        let TargetPlace::Below { base, rename, is_new, .. } = place else { panic!("it is null:") };
        (base, rename.as_deref(), *is_new)
    }

    #[test]
    fn a_path_is_a_directory_or_the_new_name_of_the_one_source() {
        use PathMeans::{Directory, Name, WhatIsThere};
        type Expected = (&'static str, Option<&'static str>, bool);
        let cases: [(&str, PathMeans, Expected); 10] = [
            ("", Directory, ("", None, false)),
            ("", Name, ("", None, false)),
            ("d", Directory, ("d", None, false)),
            ("a/b", Directory, ("a/b", None, true)),
            ("d", WhatIsThere, ("d", None, false)),
            ("n", WhatIsThere, ("", Some("n"), false)),
            ("m/", WhatIsThere, ("m", None, true)),
            ("d", Name, ("", Some("d"), false)),
            ("d/n", Name, ("d", Some("n"), false)),
            ("x/y/n", Name, ("x/y", Some("n"), true)),
        ];
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("d")).unwrap();
        for (path, means, (base, rename, is_new)) in cases {
            let place = resolved(directory.path(), path.as_bytes(), means);
            let expected = (base.as_bytes(), rename.map(str::as_bytes), is_new);
            assert_eq!(parts(&place), expected, "{path} {means:?}");
            assert!(directory.path().join(base).is_dir());
        }
        let means = [true, false].map(PathMeans::directory_if);
        assert_eq!(means, [Directory, WhatIsThere]);
        assert!(matches!(resolved(directory.path(), b"null:", Directory), TargetPlace::Null));
    }

    #[test]
    fn a_target_that_is_refused_or_only_looked_at_makes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let resolve = |path: &[u8], options| {
            let place = TargetPlace::resolve(&root, path, PathMeans::Directory, options);
            place.map(|place| parts(&place).2).map_err(|fault| fault.code)
        };
        let plain = FileOptions::default();
        for path in [&b"../x"[..], b".x.haul-part", b"a/.x.haul-staged/b"] {
            assert_eq!(resolve(path, plain), Err(FaultCode::NameRefused));
        }
        let removal = Some(Removal::new(None));
        let both = FileOptions { on_conflict: OnConflict::KeepBoth, ..plain };
        let refused = resolve(b"a", FileOptions { removal, ..both });
        assert_eq!(refused, Err(FaultCode::NameRefused));
        assert_eq!(resolve(b"a", FileOptions { dry_run: true, ..plain }), Ok(false));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!(resolve(b"a", both), Ok(true));
        assert_eq!(resolve(b"b", FileOptions { removal, ..plain }), Ok(true));
    }

    #[test]
    fn what_was_made_before_stays_new() {
        let directory = tempfile::tempdir().unwrap();
        let is_new = |path: &[u8], before| {
            let place = resolved(directory.path(), path, PathMeans::Directory);
            parts(&place.made_before(before)).2
        };
        assert_eq!([is_new(b"", false), is_new(b"", true)], [false, true]);
        assert_eq!([is_new(b"a", false), is_new(b"b", true)], [true, true]);
    }

    fn offer(name: &str, kind: FileKind, size_bytes: u64) -> FileOffer {
        FileOffer { name: name.into(), kind, size_bytes, mode: 0o750, ..FileOffer::default() }
    }

    #[test]
    fn a_directory_goes_below_the_name_that_a_file_would_take() {
        let directory = tempfile::tempdir().unwrap();
        for (name, kind, is_moved) in [
            ("x", FileKind::Regular, false),
            ("x", FileKind::Directory, true),
            ("x/y", FileKind::Regular, true),
        ] {
            let mut place = resolved(directory.path(), b"new", PathMeans::Name);
            let offer = offer(name, kind, 0);
            assert_eq!(place.learn_source(&offer), is_moved, "{name}");
            let (base, rename): (&[u8], Option<&[u8]>) =
                if is_moved { (b"new", None) } else { (b"", Some(b"new")) };
            assert_eq!(parts(&place), (base, rename, false));
            let at = if is_moved { format!("new/{name}") } else { "new".into() };
            assert_eq!(place.name_of(&offer), at.as_bytes());
            assert!(!place.learn_source(&offer), "it knows");
        }
        let offer = offer("x", FileKind::Directory, 0);
        assert!(!TargetPlace::Null.learn_source(&offer) && TargetPlace::Null.root().is_none());
        assert_eq!(TargetPlace::Null.name_of(&offer), b"x");
        assert_eq!(TargetPlace::Null.updated_attributes(), 0);
        assert!(resolved(directory.path(), b"", PathMeans::Directory).root().is_some());
    }

    #[test]
    fn what_a_watch_sent_before_is_looked_at_again() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("d")).unwrap();
        let path = directory.path().join("d/x");
        fs::write(&path, [7; 9]).unwrap();
        let root = Root::open(directory.path()).unwrap();
        let there = fs::metadata(&path).unwrap();
        let same = FileOffer {
            mtime_s: there.mtime(),
            mtime_ns: there.mtime_nsec() as u32,
            inode: 1,
            ..offer("d/x", FileKind::Regular, 9)
        };
        for watch in [true, false] {
            let recording = Recording { watch, ..Recording::default() };
            let options = FileOptions { recording, ..FileOptions::default() };
            let place = TargetPlace::resolve(&root, b"", PathMeans::Directory, options).unwrap();
            assert_eq!(place.file_options(), options);
            let mut fresh = Fresh::default();
            fresh.add(b"d");
            let prepared = place.prepare(&same, 64 << 10, Digest::None, &mut fresh).unwrap();
            assert_eq!(matches!(prepared, Prepared::Skip), watch);
            // It had another mode.
            assert_eq!(place.updated_attributes(), u64::from(watch));
        }
        let null = &TargetPlace::Null;
        assert_eq!(null.file_options(), FileOptions::default());
        let compared = FileOffer { compared: Compared::SameContent, ..same };
        let prepared = null.prepare(&compared, 64 << 10, Digest::None, &mut Fresh::default());
        assert!(matches!(prepared, Ok(Prepared::Ready { .. })));
    }

    #[test]
    fn a_directory_gets_its_mode_and_time_in_the_end_as_far_as_it_may() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d");
        fs::create_dir(&path).unwrap();
        let offer = FileOffer { mtime_s: 77, ..offer("d", FileKind::Directory, 0) };
        let root = Root::open(directory.path()).unwrap();
        let finish = |options| {
            let place = TargetPlace::resolve(&root, b"", PathMeans::Directory, options).unwrap();
            place.finish_directory(&offer).map_err(|fault| fault.code)
        };
        let plain = FileOptions::default();
        assert_eq!(finish(plain), Ok(()));
        let there = fs::metadata(&path).unwrap();
        assert_eq!((there.mode() & 0o7777, there.mtime()), (0o750, 77));
        let other = FileOffer { name: b"gone".to_vec(), ..offer.clone() };
        let place = TargetPlace::resolve(&root, b"", PathMeans::Directory, plain).unwrap();
        assert_eq!(place.finish_directory(&other).unwrap_err().code, FaultCode::NotFound);
        assert_eq!(TargetPlace::Null.finish_directory(&other), Ok(()));
        // One that nobody may change, as one of somebody else.
        let opened = File::open(&path).unwrap();
        if ioctl_setflags(&opened, IFlags::IMMUTABLE).is_err() {
            return skip("root, to make a directory immutable", "another user");
        }
        let preserve = Preserve { group: true, ..Preserve::default() };
        let asks_for_more = FileOptions { preserve, ..plain };
        let same = [finish(plain), finish(asks_for_more)];
        ioctl_setflags(&opened, IFlags::empty()).unwrap();
        opened.set_permissions(Permissions::from_mode(0o700)).unwrap();
        ioctl_setflags(&opened, IFlags::IMMUTABLE).unwrap();
        let differs = [finish(plain), finish(asks_for_more)];
        ioctl_setflags(&opened, IFlags::empty()).unwrap();
        assert_eq!(same, [Ok(()), Ok(())]);
        assert_eq!(differs, [Ok(()), Err(FaultCode::NotPermitted)]);
        let mount = match Mount::tmpfs(directory.path(), "8m") {
            Ok(mount) => mount,
            Err(why) => return skip("root, to mount a tmpfs", &why),
        };
        fs::create_dir(&path).unwrap();
        mount.make_read_only().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let place = TargetPlace::resolve(&root, b"", PathMeans::Directory, plain).unwrap();
        assert!(place.finish_directory(&offer).is_err(), "its time is another");
    }

    #[test]
    fn a_directory_that_another_session_fills_gets_all_but_its_narrow_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ro");
        not_as_root(directory.path(), || {
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
            let session = resolved(directory.path(), b"", PathMeans::Directory);
            let narrow = offer("ro", FileKind::Directory, 0);
            let narrow = FileOffer { mtime_s: 77, mode: 0o555, ..narrow };
            let finished = || {
                session.finish_directory(&narrow).unwrap();
                let there = fs::metadata(&path).unwrap();
                (there.mode() & 0o7777, there.mtime())
            };
            let held = File::open(&path).unwrap();
            flock(&held, FlockOperation::LockShared).unwrap();
            assert_eq!(finished(), (0o755, 77));
            drop(held);
            // Other tests fork.
            assert!((0..200).any(|_| finished() == (0o555, 77)));
        });
    }

    #[test]
    fn only_a_directory_that_is_to_go_is_in_the_way() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("d/x")).unwrap();
        fs::write(directory.path().join("d/y"), b"").unwrap();
        let root = Root::open(directory.path()).unwrap();
        let is_in_the_way = |name, removal| {
            let options = FileOptions { removal, ..FileOptions::default() };
            let place = TargetPlace::resolve(&root, b"", PathMeans::Directory, options).unwrap();
            is_in_the_way(&place, &offer(name, FileKind::Regular, 0))
        };
        let removal = Some(Removal::new(None));
        assert!(is_in_the_way("d/x", removal) && !is_in_the_way("d/x", None));
        assert!(!is_in_the_way("d/y", removal) && !is_in_the_way("d/gone", removal));
        assert!(!super::is_in_the_way(&TargetPlace::Null, &offer("d/x", FileKind::Regular, 0)));
    }
}
