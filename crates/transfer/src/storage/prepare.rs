//! Preparation for what is offered: looks at what is there, decides, and opens the target.

use super::{
    aborted::sync_directory,
    attributes::{MODE_BITS, attributes_fault},
    conflict::{self, Decision, is_directory, is_source_itself, same_file},
    fresh::Fresh,
    hidden_names::hidden_link_name,
    holes,
    root::{Links, Root, join},
    staged::{self, Begun, StagedDirectory, StagedEntry},
    target::{Shape, TargetFile},
    target_rules::TargetRules,
    temporary::{Named, Naming, Part, Wanted},
};
use crate::{
    error::io_fault,
    file_options::{OnConflict, Preserve},
    storage::{leftovers::remove_leftovers, target::OpenFile, temporary::Left},
};
use haul_datapath::SpanFile;
use haul_protocol::{
    SpanGrid, SpanSet,
    message::{Digest, Fault, FaultCode, FileKind, FileOffer, Growth, Plan, Side},
};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat, fsync, linkat, unlinkat},
    io::Errno,
    process::geteuid,
};
use std::{io, sync::Arc};

pub use super::filling::OWN_BITS;

/// An offer, looked at.
pub enum Prepared {
    /// Nothing is moved, for what is there is the same.
    Skip,
    /// A file of the same size is there, which this opens to compare its bytes.
    Compare(OpenFile),
    /// A plan, which says what a dry run would do.
    Plan(Plan),
    Ready {
        target: Box<TargetFile>,
        span_bytes: u64,
        durable: SpanSet,
        /// Name of the file here, where that is not the one offered.
        stored_as: Vec<u8>,
        /// Facts about what an earlier run left.
        left: Option<Box<Left>>,
    },
}

/// A target in `null:`.
pub(super) fn null_target(offer: &FileOffer, grid: &SpanGrid) -> Prepared {
    Prepared::Ready {
        target: Box::new(TargetFile::new(offer, offer.name.clone(), Shape::Null, Arc::default())),
        span_bytes: grid.span_bytes(),
        durable: SpanSet::new(grid.count()),
        stored_as: Vec::new(),
        left: None,
    }
}

/// An offer that is being looked at.
#[derive(Clone)]
pub(super) struct Preparing<'a> {
    pub root: &'a Arc<Root>,
    pub rules: &'a Arc<TargetRules>,
    pub offer: &'a FileOffer,
    pub grid: SpanGrid,
    pub digest: Digest,
    /// Whether this session made the directory of the file.
    pub in_fresh: bool,
    /// The directory that is hidden until its end, and holds the file.
    pub staged: Option<Arc<StagedDirectory>>,
}

/// Whether a directory has a mode in the end in which this user may not write.
pub(super) fn is_narrowed(offer: &FileOffer, rules: &TargetRules) -> bool {
    let is_narrow = offer.mode & OWN_BITS != OWN_BITS && rules.file_options.preserve.mode;
    is_narrow && !geteuid().is_root()
}

impl Preparing<'_> {
    fn ready(&self, name: Vec<u8>, shape: Shape, durable: Option<SpanSet>) -> Prepared {
        let durable = durable.unwrap_or_else(|| SpanSet::new(self.grid.count()));
        Prepared::Ready {
            target: Box::new(self.target(name, shape)),
            span_bytes: self.grid.span_bytes(),
            durable,
            stored_as: Vec::new(),
            left: None,
        }
    }

    fn target(&self, name: Vec<u8>, shape: Shape) -> TargetFile {
        let is_light =
            matches!(shape, Shape::Directory { .. } | Shape::Whole { naming: Naming::Staged, .. });
        let staged = self.staged.clone().map(match is_light {
            true => StagedEntry::light,
            false => StagedEntry::other,
        });
        TargetFile::new(self.offer, name, shape, self.rules.clone()).in_staged(staged)
    }

    fn plan(&self, replaces: bool, stored_as: Vec<u8>) -> Prepared {
        Prepared::Plan(Plan { replaces, durable_bytes: 0, stored_as })
    }

    pub fn directory(
        &self,
        name: Vec<u8>,
        there: Option<&Stat>,
        fresh: &mut Fresh,
    ) -> Result<Prepared, Fault> {
        if let Some(there) = there.filter(|there| is_directory(there)) {
            if self.rules.file_options.move_sources && is_source_itself(there, self.offer) {
                return Err(same_file(&name));
            }
            if !self.rules.file_options.leaves_nothing() {
                let is_wide = there.st_mode & OWN_BITS == OWN_BITS;
                self.keep_writable(&name, is_wide);
                staged::take_up_left(self.root, &name)?;
            }
            self.rules.attributes.count_directory(there, self.offer);
            return Ok(Prepared::Skip);
        }
        if let Some(there) = there {
            conflict::give_way_to_directory(&name, there, self.rules.file_options)?;
        }
        if self.rules.file_options.dry_run {
            if !self.in_fresh {
                self.check_parent(&name)?;
            }
            fresh.add(&name);
            return Ok(self.plan(there.is_some(), Vec::new()));
        }
        if there.is_some() {
            let parent = self.root.parent_of(&name);
            parent
                .and_then(|(parent, last)| Ok(unlinkat(&parent, last, AtFlags::empty())?))
                .map_err(|error| {
                    let what = "what is in its way cannot be removed";
                    io_fault(Side::Target, &name, what, &error)
                })?;
        }
        // Never wider than the source, also until its end, and this session may write into it.
        let mode = self.offer.mode & MODE_BITS | OWN_BITS;
        if self.staged.is_none() {
            match staged::begin(self.root, &name, mode, self.rules.file_options)? {
                Begun::Plain => {}
                Begun::Shown => {
                    self.keep_writable(&name, false);
                    return Ok(Prepared::Skip);
                }
                Begun::Hidden { directory, is_new } => {
                    if is_new {
                        fresh.add(&name);
                    }
                    let root = self.root.clone();
                    let shape = Shape::Directory { root, new_levels: 1 };
                    let hidden = Preparing { staged: Some(directory), ..self.clone() };
                    return Ok(hidden.ready(name, shape, None));
                }
            }
        }
        let new_levels = self
            .root
            .make_directories(&name, mode)
            .map_err(|error| io_fault(Side::Target, &name, "cannot be made", &error))?;
        if new_levels > 0 {
            fresh.add(&name);
        }
        if self.staged.is_none() {
            self.keep_writable(&name, new_levels > 0);
        }
        let root = self.root.clone();
        Ok(self.ready(name, Shape::Directory { root, new_levels }, None))
    }

    /// Lets this user write into a directory of its own that has no such mode, as an earlier
    /// session may have left it or another may give it now, until this one is through: it gets the
    /// source's mode at the end. Who cannot do so is told by the first file that comes there.
    /// `is_wide`: it had a mode to write into when it was looked at.
    fn keep_writable(&self, name: &[u8], is_wide: bool) {
        let is_narrowed = is_narrowed(self.offer, self.rules);
        if geteuid().is_root() || is_wide && !is_narrowed {
            return;
        }
        if let Ok(directory) = self.root.open_directory(name, Links::Refuse) {
            let _ = self.rules.filling.hold(name, directory, is_narrowed);
        }
    }

    /// Fails in a dry run where something is in the way of the parent directory, and so of all
    /// below it.
    fn check_parent(&self, name: &[u8]) -> Result<(), Fault> {
        match self.root.parent_of(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_fault(Side::Target, name, "cannot be created", &error))
            }
            _ => Ok(()),
        }
    }

    pub fn hard_link(
        &self,
        name: Vec<u8>,
        there: Option<Stat>,
        first: &[u8],
        fresh: &Fresh,
    ) -> Result<Prepared, Fault> {
        let inode = |stat: &Stat| (stat.st_ino, stat.st_dev);
        if self.rules.file_options.dry_run {
            // A file that would be replaced gets another inode, and its other names with it.
            let to =
                self.root.stat(first, Links::Refuse).ok().filter(|_| !fresh.is_replaced(first));
            let is_link = to.is_some_and(|to| there.is_some_and(|now| inode(&now) == inode(&to)));
            if is_link {
                return Ok(Prepared::Skip);
            }
            if let Decision::Skip(_) = self.decide(&name, there)? {
                return Ok(Prepared::Skip);
            }
            self.check_parent(&name)?;
            return Ok(self.plan(there.is_some(), Vec::new()));
        }
        let cannot = |found: String| {
            let what = "cannot be made as a hard link";
            Fault::new(FaultCode::KindUnsupported, Side::Target, what).at(&*name).found(found)
        };
        let to = self.root.stat(first, Links::Refuse).map_err(|error| cannot(error.to_string()))?;
        if FileType::from_raw_mode(to.st_mode) != FileType::RegularFile {
            return Err(cannot("what it links to is no file".into()));
        }
        if there.as_ref().is_some_and(|there| inode(there) == inode(&to)) {
            return Ok(Prepared::Skip);
        }
        if let Decision::Skip(_) = self.decide(&name, there)? {
            return Ok(Prepared::Skip);
        }
        let link_name = hidden_link_name(&name);
        let made = self.root.parent_of(first).and_then(|(from, last)| {
            let (parent, own) = self.root.parent_of(&name)?;
            let link = |own: &[u8]| linkat(&from, last, &parent, own, AtFlags::empty());
            // The file is whole, and may have its other name at once: a kill leaves nothing hidden.
            match link(own) {
                Ok(()) => {
                    let device = to.st_dev;
                    return Ok(Shape::Named(Named { directory: parent, device, discarded: false }));
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            match link(&link_name) {
                Err(Errno::EXIST) => {
                    // Of a run that died.
                    let _ = unlinkat(&parent, &*link_name, AtFlags::empty());
                    link(&link_name)?;
                }
                made => made?,
            }
            Ok(Shape::Link { root: self.root.clone(), link_name, is_made: true })
        });
        let shape = made.map_err(|error| cannot(error.to_string()))?;
        Ok(self.ready(name, shape, None))
    }

    pub fn file_or_link(
        &self,
        name: Vec<u8>,
        base: &[u8],
        there: Option<Stat>,
        fresh: &mut Fresh,
    ) -> Result<Prepared, Fault> {
        let dry_run = self.rules.file_options.dry_run;
        let (replaces, other_name) = match self.decide(&name, there)? {
            Decision::Skip(there) => {
                self.bring_up_to_date(&name, &there)?;
                return Ok(Prepared::Skip);
            }
            Decision::Compare => return Ok(self.compare(&name)),
            Decision::Take { replaces, other_name } => (replaces, other_name),
        };
        let stored_as = match &other_name {
            Some(other) if base.is_empty() => other.clone(),
            Some(other) => other[base.len() + 1..].to_vec(),
            None => Vec::new(),
        };
        if dry_run {
            if replaces {
                fresh.will_replace(&name);
            } else if !self.in_fresh {
                self.check_parent(&name)?;
            }
            return Ok(self.plan(replaces, stored_as));
        }
        let is_new = there.is_none() && other_name.is_none();
        let mut prepared = self.receive(other_name.unwrap_or(name), is_new)?;
        if let Prepared::Ready { stored_as: told, .. } = &mut prepared {
            *told = stored_as;
        }
        Ok(prepared)
    }

    fn decide(&self, name: &[u8], there: Option<Stat>) -> Result<Decision, Fault> {
        let options = self.rules.file_options;
        let Some(range) = self.offer.range else {
            return conflict::decide(self.root, name, there, self.offer, options);
        };
        // It is the whole file that has the name, or is to have it.
        let whole = FileOffer { size_bytes: range.file_bytes, ..self.offer.clone() };
        if options.on_conflict == OnConflict::Replace {
            return Err(of_ranges(name, "replacing even what is the same"));
        }
        match conflict::decide(self.root, name, there, &whole, options)? {
            Decision::Compare => Err(of_ranges(name, "comparing the bytes of what is there")),
            Decision::Take { other_name: Some(_), .. } => {
                Err(of_ranges(name, "keeping what is there, and giving the file another name"))
            }
            decision => Ok(decision),
        }
    }

    /// Receives a file or link. `is_new`: nothing has its name.
    fn receive(&self, name: Vec<u8>, is_new: bool) -> Result<Prepared, Fault> {
        if self.offer.kind == FileKind::Symlink {
            let link_name = hidden_link_name(&name);
            let shape = Shape::Link { root: self.root.clone(), link_name, is_made: false };
            return Ok(self.ready(name, shape, None));
        }
        if self.offer.growth != Growth::NotGrowing {
            return self.receive_growing(name);
        }
        let staged = self.staged.as_deref();
        if self.grid.count() <= 1 && self.offer.range.is_none() {
            let naming = match self.in_fresh {
                _ if is_new && staged.is_some_and(StagedDirectory::takes_small_files) => {
                    Naming::Staged
                }
                true => Naming::Linked,
                false => Naming::Locked,
            };
            let shape = Shape::Whole { root: self.root.clone(), naming };
            return Ok(self.ready(name, shape, None));
        }
        if let Some(staged) = staged {
            // Such a file takes its time, and has a temporary of its own.
            staged.want();
        }
        let (span_bytes, spans) = (self.grid.span_bytes(), self.grid.count());
        let recheck = self.rules.file_options.recheck;
        let wanted = Wanted { span_bytes, spans, digest: self.digest, recheck };
        let opened = match self.offer.range {
            Some(_) => Part::open_range(self.root, &name, self.offer, &wanted, self.rules)?,
            None => Some(Part::open(self.root, &name, self.offer, &wanted)?),
        };
        let Some((part, span_bytes, mut durable, left)) = opened else {
            remove_leftovers(self.root, &name);
            return Ok(Prepared::Skip);
        };
        let there = self.root.stat(&name, Links::Refuse).ok();
        if let Ok(Decision::Skip(_)) = self.decide(&name, there) {
            // An earlier session has finished it while this one waited for its lock.
            part.remove();
            return Ok(Prepared::Skip);
        }
        // An earlier run may have left bytes there that it never verified.
        let are_zeros = part.punch(self.offer).unwrap_or(false);
        if are_zeros && let Ok(grid) = SpanGrid::new(self.offer.size_bytes, span_bytes) {
            holes::add_spans_within(&self.offer.holes, &grid, &mut durable);
        }
        let shape = Shape::Regular(Box::new(part));
        Ok(Prepared::Ready {
            target: Box::new(self.target(name, shape)),
            span_bytes,
            durable,
            stored_as: Vec::new(),
            left: left.map(Box::new),
        })
    }

    /// Prepares a round of a file that is still being written, or its end.
    fn receive_growing(&self, name: Vec<u8>) -> Result<Prepared, Fault> {
        if let Some(staged) = &self.staged {
            staged.want();
        }
        let (span_bytes, spans) = (self.grid.span_bytes(), self.grid.count());
        let recheck = self.rules.file_options.recheck;
        let wanted = Wanted { span_bytes, spans, digest: self.digest, recheck };
        let found = Part::open_growing(self.root, &name, self.offer, &wanted)?;
        if found.to_compare {
            // Held open, and so locked, until it has been read.
            let file = found.part.file.clone();
            return Ok(Prepared::Compare(Box::new(move || Ok(file))));
        }
        let shape = Shape::Regular(Box::new(found.part));
        Ok(Prepared::Ready {
            target: Box::new(self.target(name, shape)),
            span_bytes: found.span_bytes,
            durable: found.durable,
            stored_as: Vec::new(),
            left: None,
        })
    }

    /// Prepares a file that is only measured: written and synced where it would be, without a name.
    /// What has no bytes goes as into `null:`.
    pub fn discarded(&self, base: &[u8]) -> Result<Prepared, Fault> {
        if self.offer.growth != Growth::NotGrowing {
            let what = "a file that grows cannot be discarded";
            return Err(Fault::new(FaultCode::ProtocolViolation, Side::Source, what));
        }
        if self.offer.kind != FileKind::Regular {
            return Ok(null_target(self.offer, &self.grid));
        }
        let name = join(base, &self.offer.name);
        if self.offer.range.is_some() {
            return Err(of_ranges(&name, "throwing away what arrives"));
        }
        if self.grid.count() <= 1 {
            let shape = Shape::Whole { root: self.root.clone(), naming: Naming::Never };
            return Ok(self.ready(name, shape, None));
        }
        let part = Part::begin_discarded(self.root, &name, None)?;
        part.preallocate(self.offer, &name)?;
        Ok(self.ready(name, Shape::Regular(Box::new(part)), None))
    }

    /// Gives a file that holds the same bytes mode, owner and the like of the source too.
    fn bring_up_to_date(&self, name: &[u8], there: &Stat) -> Result<(), Fault> {
        if self.offer.kind != FileKind::Regular {
            return Ok(());
        }
        let dry_run = self.rules.file_options.dry_run;
        if !dry_run {
            remove_leftovers(self.root, name);
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let open = || self.root.open_beneath(name, flags, Mode::empty(), Links::Refuse);
        let attributes = &self.rules.attributes;
        match attributes.bring_up_to_date((there, self.offer), dry_run, open) {
            // Somebody else's file with the same bytes has always been good enough.
            Err(error) if self.rules.file_options.preserve != Preserve::default() => {
                Err(attributes_fault(name, &error))
            }
            _ => Ok(()),
        }
    }

    fn compare(&self, name: &[u8]) -> Prepared {
        let (root, name) = (self.root.clone(), name.to_vec());
        let must_last = self.rules.file_options.move_sources;
        Prepared::Compare(Box::new(move || {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK;
            let file = root.open_beneath(&name, flags, Mode::empty(), Links::Refuse)?;
            if must_last {
                // Its source is removed when it is the same.
                fsync(&file)?;
                sync_directory(root.parent_of(&name)?.0)?;
            }
            Ok(Arc::new(SpanFile::new(file.into())))
        }))
    }
}

/// Fault of what no file can have that comes in ranges: each session decides for itself.
fn of_ranges(name: &[u8], asked: &str) -> Fault {
    let what = "cannot be done with a file that comes in ranges";
    Fault::new(FaultCode::NameRefused, Side::Target, what)
        .at(name)
        .needs("files that are whole, as by `haul plan --whole-files`")
        .found(asked)
        .hint("leave that option out, or make a plan of whole files")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file_options::FileOptions,
        storage::{
            filling::tests::not_as_root,
            target_place::{PathMeans, TargetPlace},
        },
    };
    use haul_testkit::skip::skip;
    use rustix::fs::{IFlags, ioctl_setflags};
    use std::{
        fs::Permissions,
        os::unix::fs::{MetadataExt, PermissionsExt},
    };

    #[test]
    fn a_directory_is_never_wider_than_its_source_while_it_is_received() {
        let directory = tempfile::tempdir().unwrap();
        for (name, mode) in [("private", 0o700), ("closed", 0o500), ("group", 0o750)] {
            let kind = FileKind::Directory;
            let offer = FileOffer { name: name.into(), kind, mode, ..FileOffer::default() };
            let fresh = &mut Fresh::default();
            let root = Root::open(directory.path()).unwrap();
            let means = PathMeans::Directory;
            let place = TargetPlace::resolve(&root, b"", means, FileOptions::default()).unwrap();
            place.prepare(&offer, 64 << 10, Digest::AesGmac, fresh).unwrap();
            let hidden = directory.path().join(format!(".{name}.haul-staged"));
            let there = std::fs::metadata(hidden).unwrap().mode() & 0o777;
            assert!(there & !(mode | 0o700) == 0 && there & 0o700 == 0o700, "{name}: {there:o}");
        }
    }

    /// The place of a session below a directory.
    fn below(directory: &std::path::Path, options: FileOptions) -> TargetPlace {
        let root = Root::open(directory).unwrap();
        TargetPlace::resolve(&root, b"", PathMeans::Directory, options).unwrap()
    }

    fn prepare(place: &TargetPlace, offer: &FileOffer) -> Result<Prepared, Fault> {
        place.prepare(offer, 64 << 10, Digest::AesGmac, &mut Fresh::default())
    }

    fn ready(prepared: Prepared) -> Box<TargetFile> {
        let Prepared::Ready { target, .. } = prepared else { panic!("it is to be received") };
        target
    }

    fn offer(name: &str, kind: FileKind, size_bytes: u64) -> FileOffer {
        FileOffer { name: name.into(), kind, size_bytes, mode: 0o755, ..FileOffer::default() }
    }

    #[test]
    fn in_a_hidden_directory_only_a_sync_is_wanted_for_what_has_one_span() {
        let place = tempfile::tempdir().unwrap();
        let session = below(place.path(), FileOptions::default());
        let is_light = |name, kind, size_bytes| {
            ready(prepare(&session, &offer(name, kind, size_bytes)).unwrap()).is_light()
        };
        assert!(is_light("tree", FileKind::Directory, 0), "it is hidden from now on");
        assert!(is_light("tree/small", FileKind::Regular, 64 << 10));
        assert!(!is_light("tree/large", FileKind::Regular, (64 << 10) + 1));
        assert!(!is_light("tree/late", FileKind::Regular, 1), "the large one is to be seen");
        assert!(!is_light("beside", FileKind::Regular, 1));
    }

    #[test]
    fn what_is_only_measured_is_written_where_it_has_several_spans_and_never_named() {
        let place = tempfile::tempdir().unwrap();
        let options = FileOptions { discard: true, ..FileOptions::default() };
        let session = below(place.path(), options);
        let shape = |size_bytes| {
            ready(prepare(&session, &offer("x", FileKind::Regular, size_bytes)).unwrap()).shape
        };
        assert!(matches!(shape(64 << 10), Shape::Whole { naming: Naming::Never, .. }));
        assert!(matches!(shape((64 << 10) + 1), Shape::Regular(_)));
        let growing = FileOffer { growth: Growth::Growing, ..offer("x", FileKind::Regular, 9) };
        let refused = prepare(&session, &growing);
        assert_eq!(refused.err().map(|fault| fault.code), Some(FaultCode::ProtocolViolation));
    }

    /// Case of a name that somebody gives to a FIFO just before it is opened.
    #[test]
    fn a_comparison_never_waits_for_somebody_to_write_to_a_pipe() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("x"), [7; 9]).unwrap();
        let options = FileOptions { compare_content: true, ..FileOptions::default() };
        let session = below(place.path(), options);
        let prepared = prepare(&session, &offer("x", FileKind::Regular, 9)).unwrap();
        let Prepared::Compare(open) = prepared else { panic!("its size is the same") };
        std::fs::remove_file(place.path().join("x")).unwrap();
        let directory = std::fs::File::open(place.path()).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(&directory, "x", fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let _ = open();
    }

    /// Case of another session that makes a directory in one that this session made.
    #[test]
    fn a_directory_that_somebody_made_meanwhile_is_not_taken_for_empty() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join("a/there")).unwrap();
        // With these options nothing is hidden.
        let options = FileOptions { move_sources: true, ..FileOptions::default() };
        let session = below(place.path(), options);
        let mut fresh = Fresh::default();
        fresh.add(b"a");
        for name in ["a/there", "a/new"] {
            let offer = offer(name, FileKind::Directory, 0);
            ready(session.prepare(&offer, 64 << 10, Digest::AesGmac, &mut fresh).unwrap());
        }
        assert!(fresh.holds(b"a/new") && !fresh.holds(b"a/there"));
    }

    #[test]
    fn what_a_killed_run_left_beside_a_whole_file_goes_unless_nothing_is_to_be_done() {
        let place = tempfile::tempdir().unwrap();
        let (path, left) = (place.path().join("x"), place.path().join(".x.haul-part"));
        std::fs::write(&path, [7; 9]).unwrap();
        std::fs::write(&left, [7; 5]).unwrap();
        let there = std::fs::metadata(&path).unwrap();
        let same = FileOffer {
            mtime_s: there.mtime(),
            mtime_ns: there.mtime_nsec() as u32,
            mode: there.mode(),
            inode: 1,
            device: 1,
            ..offer("x", FileKind::Regular, 9)
        };
        for dry_run in [true, false] {
            let session = below(place.path(), FileOptions { dry_run, ..FileOptions::default() });
            assert!(matches!(prepare(&session, &same), Ok(Prepared::Skip)));
            assert_eq!(left.exists(), dry_run);
        }
    }

    #[test]
    fn a_hidden_directory_of_a_killed_run_is_put_in_place_unless_nothing_is_to_be_done() {
        let place = tempfile::tempdir().unwrap();
        let killed = Root::open(place.path()).unwrap().of_session();
        let begun = staged::begin(&killed, b"tree", 0o755, FileOptions::default());
        let Ok(Begun::Hidden { directory, .. }) = begun else { panic!("it is hidden") };
        std::fs::write(place.path().join(".tree.haul-staged/told"), "x").unwrap();
        directory.tell_durable(&[directory.hash_of(b"tree/told")], true).unwrap();
        drop((directory, killed));
        std::fs::create_dir(place.path().join("tree")).unwrap();
        for dry_run in [true, false] {
            let session = below(place.path(), FileOptions { dry_run, ..FileOptions::default() });
            let offer = offer("tree", FileKind::Directory, 0);
            assert!(matches!(prepare(&session, &offer), Ok(Prepared::Skip)));
            assert_eq!(place.path().join("tree/told").exists(), !dry_run);
        }
    }

    /// Case of another session that narrows a directory just after this one looked for it.
    #[test]
    fn a_directory_that_another_session_narrows_meanwhile_can_be_filled() {
        let place = tempfile::tempdir().unwrap();
        let (path, hidden) = (place.path().join("ro"), place.path().join(".ro.haul-staged"));
        let narrow = |path| std::fs::set_permissions(path, Permissions::from_mode(0o555)).unwrap();
        let offer = FileOffer { mode: 0o555, ..offer("ro", FileKind::Directory, 0) };
        let mode_after = |there: Option<&Stat>| {
            // With these options nothing is hidden.
            let options = FileOptions { move_sources: true, ..FileOptions::default() };
            let session = below(place.path(), options);
            let TargetPlace::Below { root, rules, .. } = &session else { panic!("it is no null:") };
            let (grid, digest) = (SpanGrid::new(0, 64 << 10).unwrap(), Digest::None);
            let offer = &offer;
            let (in_fresh, staged) = (false, None);
            let preparing = Preparing { root, rules, offer, grid, digest, in_fresh, staged };
            preparing.directory(b"ro".to_vec(), there, &mut Fresh::default()).unwrap();
            std::fs::metadata(&path).unwrap().mode() & 0o777
        };
        not_as_root(place.path(), || {
            std::fs::create_dir(&path).unwrap();
            let before = rustix::fs::stat(&path).unwrap();
            let modes = [Some(&before), None].map(|there| {
                narrow(&path);
                mode_after(there)
            });
            assert_eq!(modes, [0o755; 2], "it was there when it was looked for, or came then");
            std::fs::remove_dir(&path).unwrap();
            let killed = Root::open(place.path()).unwrap().of_session();
            let begun = staged::begin(&killed, b"ro", 0o755, FileOptions::default());
            assert!(matches!(begun, Ok(Begun::Hidden { .. })));
            drop((begun, killed));
            narrow(&hidden);
            assert_eq!(mode_after(None), 0o755, "a killed session had it hidden");
        });
    }

    /// Offer of another name of the file `first`.
    fn link(name: &str) -> FileOffer {
        FileOffer { link_target: b"first".into(), ..offer(name, FileKind::HardLink, 0) }
    }

    #[test]
    fn a_hard_link_that_is_there_is_left_and_what_is_no_file_gets_no_other_name() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::write(at("first"), b"bytes").unwrap();
        std::fs::hard_link(at("first"), at("same")).unwrap();
        std::fs::write(at("other"), b"bytes").unwrap();
        for dry_run in [true, false] {
            let session = below(place.path(), FileOptions { dry_run, ..FileOptions::default() });
            assert!(matches!(prepare(&session, &link("same")), Ok(Prepared::Skip)));
            let prepared = |name| prepare(&session, &link(name));
            let replaces = |name| match prepared(name).unwrap() {
                Prepared::Plan(plan) => Some(plan.replaces),
                _ => None,
            };
            assert_eq!(replaces("other"), dry_run.then_some(true));
            assert_eq!(replaces("new"), dry_run.then_some(false));
            assert_eq!(at("new").exists(), !dry_run);
        }
        let session = below(place.path(), FileOptions { dry_run: true, ..FileOptions::default() });
        let mut fresh = Fresh::default();
        fresh.will_replace(b"first");
        let prepared = session.prepare(&link("same"), 64 << 10, Digest::None, &mut fresh);
        assert!(matches!(prepared, Ok(Prepared::Plan(_))), "it gets another inode");
        std::fs::remove_file(at("first")).unwrap();
        let session = below(place.path(), FileOptions::default());
        let refused = |name| prepare(&session, &link(name)).err().map(|fault| fault.found);
        assert!(refused("late").unwrap().contains("No such file"));
        std::fs::create_dir(at("first")).unwrap();
        assert_eq!(refused("late").as_deref(), Some("what it links to is no file"));
    }

    #[test]
    fn another_name_is_told_below_the_base_and_a_plan_says_what_would_be_replaced() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("to")).unwrap();
        for name in ["x", "to/x"] {
            std::fs::write(place.path().join(name), b"other").unwrap();
        }
        let root = Root::open(place.path()).unwrap();
        let keeps = FileOptions { on_conflict: OnConflict::KeepBoth, ..FileOptions::default() };
        let prepared = |base: &[u8], options| {
            let means = PathMeans::Directory;
            let place = TargetPlace::resolve(&root, base, means, options).unwrap();
            prepare(&place, &offer("x", FileKind::Regular, 9)).unwrap()
        };
        for base in [&b""[..], b"to"] {
            let Prepared::Ready { stored_as, target, .. } = prepared(base, keeps) else {
                panic!("it is to be received")
            };
            assert_eq!((&*stored_as, target.name), (&b"x.1"[..], join(base, b"x.1")));
            let dry = FileOptions { dry_run: true, ..keeps };
            let Prepared::Plan(plan) = prepared(base, dry) else { panic!("it is a dry run") };
            assert_eq!((plan.replaces, &*plan.stored_as), (false, &b"x.1"[..]));
            let dry = FileOptions { dry_run: true, ..FileOptions::default() };
            let Prepared::Plan(plan) = prepared(base, dry) else { panic!("it is a dry run") };
            assert_eq!((plan.replaces, &*plan.stored_as), (true, &b""[..]));
        }
    }

    #[test]
    fn a_dry_run_looks_only_at_parents_that_no_earlier_offer_makes() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("file"), b"bytes").unwrap();
        let session = below(place.path(), FileOptions { dry_run: true, ..FileOptions::default() });
        for kind in [FileKind::Regular, FileKind::Directory] {
            let is_planned = |name, fresh: &mut Fresh| {
                let prepared =
                    session.prepare(&offer(name, kind, 0), 64 << 10, Digest::None, fresh);
                matches!(prepared, Ok(Prepared::Plan(_)))
            };
            assert!(is_planned("gone/x", &mut Fresh::default()), "it is made on the way");
            assert!(!is_planned("file/x", &mut Fresh::default()));
            let mut fresh = Fresh::default();
            fresh.add(b"file");
            assert!(is_planned("file/x", &mut fresh), "a directory takes its place");
        }
        let refused = prepare(&session, &FileOffer { name: b"file/x".to_vec(), ..link("x") });
        assert!(refused.is_err());
    }

    /// Case of a file of somebody else, which holds the same bytes.
    #[test]
    fn attributes_that_cannot_be_set_are_an_error_where_more_than_usual_is_asked_for() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x");
        std::fs::write(&path, [7; 9]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let there = file.metadata().unwrap();
        let same = FileOffer {
            mtime_s: there.mtime(),
            mtime_ns: there.mtime_nsec() as u32,
            mode: 0o600,
            inode: 1,
            device: 1,
            ..offer("x", FileKind::Regular, 9)
        };
        if ioctl_setflags(&file, IFlags::IMMUTABLE).is_err() {
            return skip("root, to make a file immutable", "another user");
        }
        let outcomes = [false, true].map(|group| {
            let preserve = Preserve { group, ..Preserve::default() };
            let session = below(place.path(), FileOptions { preserve, ..FileOptions::default() });
            matches!(prepare(&session, &same), Ok(Prepared::Skip))
        });
        ioctl_setflags(&file, IFlags::empty()).unwrap();
        assert_eq!(outcomes, [true, false]);
    }
}
