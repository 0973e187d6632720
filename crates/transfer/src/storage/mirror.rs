//! Removal of files at a target that the sources do not have (`--delete`). It comes after
//! everything else succeeded, and only below directories that were offered.
//!
//! The offered names and the target are both read in the order of a walk, side by side, so that a
//! tree of any size takes little memory. What the user's patterns leave out is not touched.

use super::{
    hidden_names::{JOURNAL_SUFFIX, STAGED_SUFFIX, is_hidden},
    name_sorter::{NameReader, SortedNames},
    root::{Links, Root, join},
    source::stat_offer,
    staged,
    walk::list,
};
use crate::{
    error::io_fault,
    file_options::Removal,
    packed_names::{PackedNames, in_walk_order},
    selection::{Fit, Matcher},
    storage::{leftovers::remove_leftover, tree::is_directory},
};
use haul_protocol::message::{Fault, FaultCode, FileOffer, Side};
use rustix::{
    fs::{AtFlags, Dir, Stat, unlinkat},
    io::Errno,
};
use std::{
    cmp::Ordering,
    collections::BTreeSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering as Atomic},
    },
};

/// A mirror: the names that stay and those that go.
#[derive(Debug)]
pub struct Mirror {
    pub root: Arc<Root>,
    /// Directory below `root` that the offered names are below.
    pub base: Vec<u8>,
    /// The source's name for the target's first component, where it is another.
    pub renamed: Option<(Vec<u8>, Vec<u8>)>,
    pub removal: Removal,
    pub matcher: Option<Matcher>,
    /// Offered names as they are below `base`.
    pub offered: SortedNames,
    /// Offered names to which a directory of the target gives way.
    pub giving_way: BTreeSet<Vec<u8>>,
    pub dry_run: bool,
}

/// An event of a sweep.
#[derive(Debug)]
pub enum Swept {
    /// Name below the base of what was removed.
    Removed(Vec<u8>),
    Failed(Fault),
}

impl Mirror {
    /// Removes what was not offered, or only tells of it in a dry run.
    ///
    /// # Errors
    /// If there is more than allowed, or a directory or the names cannot be read: the fault for the
    /// user. In the first case nothing was removed.
    pub fn sweep(&self, ending: &AtomicBool, tell: &mut dyn FnMut(Swept)) -> Result<(), Fault> {
        if let Some(names_max) = self.removal.names_max {
            let mut count = 0;
            // A dry run names them even where they are too many: that is what it is looked at for.
            self.walk(Act::Look, ending, &mut |swept| {
                count += 1;
                if self.dry_run {
                    tell(swept);
                }
            })?;
            if count > names_max {
                let what = "nothing was removed: more would go than --max-delete allows";
                return Err(Fault::new(FaultCode::TooManyRemovals, Side::Target, what)
                    .needs(format!("at most {names_max}"))
                    .found(format!("{count} names that the sources do not have"))
                    .hint("look at them with --dry-run, then raise --max-delete"));
            }
            if self.dry_run {
                return Ok(());
            }
        }
        self.walk(if self.dry_run { Act::Look } else { Act::Remove }, ending, tell)
    }

    fn walk(
        &self,
        act: Act,
        ending: &AtomicBool,
        tell: &mut dyn FnMut(Swept),
    ) -> Result<(), Fault> {
        let failed = |error: io::Error| {
            let what = "what was not offered cannot be removed";
            io_fault(Side::Target, &self.base, what, &error)
        };
        let offered = Offered { reader: self.offered.read().map_err(failed)?, next: None };
        let mut sweep = Sweep { mirror: self, act, offered, levels: Vec::new(), tell };
        sweep.offered.advance().map_err(failed)?;
        sweep.enter(Vec::new(), Kind::Base).map_err(failed)?;
        while !ending.load(Atomic::Relaxed) && sweep.step().map_err(failed)? {}
        Ok(())
    }

    /// Name that the source has for an entry of the target.
    fn source_name(&self, name: &[u8]) -> Vec<u8> {
        let Some((theirs, ours)) = &self.renamed else { return name.to_vec() };
        match name.strip_prefix(&**ours) {
            Some(rest) => [theirs, rest].concat(),
            None => name.to_vec(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Look,
    Remove,
}

/// Reason for which a directory is walked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Base,
    Offered,
    /// A directory that goes itself, when it is empty.
    Extra,
    /// A directory that stays; what is in it may go.
    Kept,
}

#[derive(Debug)]
struct Level {
    name: Vec<u8>,
    names: PackedNames,
    next: usize,
    kind: Kind,
    included: bool,
    /// Whether something in the directory stays.
    holds_kept: bool,
}

struct Offered {
    reader: NameReader,
    next: Option<Vec<u8>>,
}

impl Offered {
    fn advance(&mut self) -> io::Result<()> {
        self.next = self.reader.next_name()?;
        Ok(())
    }

    /// Whether a name was offered; names are asked for in the order of a walk.
    fn holds(&mut self, name: &[u8]) -> io::Result<bool> {
        while let Some(next) = &self.next {
            match in_walk_order(next, name) {
                Ordering::Less => self.advance()?,
                Ordering::Equal => return Ok(true),
                Ordering::Greater => break,
            }
        }
        Ok(false)
    }
}

struct Sweep<'a> {
    mirror: &'a Mirror,
    act: Act,
    offered: Offered,
    levels: Vec<Level>,
    tell: &'a mut dyn FnMut(Swept),
}

impl Sweep<'_> {
    fn enter(&mut self, name: Vec<u8>, kind: Kind) -> io::Result<()> {
        self.enter_included(name, kind, false)
    }

    fn enter_included(&mut self, name: Vec<u8>, kind: Kind, included: bool) -> io::Result<()> {
        let names = match list(&self.mirror.root, &join(&self.mirror.base, &name)) {
            // The target of a dry run, which was not made.
            Err(error) if error.kind() == io::ErrorKind::NotFound => PackedNames::default(),
            names => names?,
        };
        let holds_kept = self.mirror.root.holds_closed(&join(&self.mirror.base, &name));
        self.levels.push(Level { name, names, next: 0, kind, included, holds_kept });
        Ok(())
    }

    /// Goes one name on. False at the end.
    fn step(&mut self) -> io::Result<bool> {
        let Some(level) = self.levels.last_mut() else { return Ok(false) };
        let Some(component) = level.names.get(level.next) else {
            self.leave();
            return Ok(true);
        };
        let name = join(&level.name, component);
        let (kind, included) = (level.kind, level.included);
        level.next += 1;
        let full = join(&self.mirror.base, &name);
        let Ok(stat) = self.mirror.root.stat(&full, Links::Refuse) else {
            // Somebody else removed it.
            return Ok(true);
        };
        let gives_way = is_directory(&stat) && self.mirror.giving_way.contains(&name);
        if self.offered.holds(&name)? && !gives_way {
            self.keep();
            if is_directory(&stat) {
                self.enter(name, Kind::Offered)?;
            }
        } else if kind == Kind::Base && !self.mirror.removal.of_base {
            self.keep();
        } else {
            self.extra(name, &stat, included)?;
        }
        Ok(true)
    }

    fn keep(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            level.holds_kept = true;
        }
    }

    /// Treats a name that was not offered as the patterns say.
    fn extra(&mut self, name: Vec<u8>, stat: &Stat, included: bool) -> io::Result<()> {
        let source_name = self.mirror.source_name(&name);
        let offer = stat_offer(stat, &source_name)
            .unwrap_or_else(|| FileOffer { name: source_name, ..FileOffer::default() });
        let matcher = self.mirror.matcher.as_ref();
        let fit = matcher.map_or(Fit::Taken, |matcher| matcher.fit(&offer, included));
        match fit {
            Fit::LeftOut => self.keep(),
            Fit::Perhaps => {
                self.keep();
                self.enter(name, Kind::Kept)?;
            }
            fit if is_directory(stat) => {
                self.enter_included(name, Kind::Extra, fit == Fit::Included)?;
            }
            _ => self.remove(name, AtFlags::empty()),
        }
        Ok(())
    }

    fn leave(&mut self) {
        let Some(level) = self.levels.pop() else { return };
        match level.kind {
            Kind::Extra if level.holds_kept => self.keep(),
            Kind::Extra => {
                if self.act == Act::Remove {
                    remove_leftovers_in(&self.mirror.root, &join(&self.mirror.base, &level.name));
                }
                self.remove(level.name, AtFlags::REMOVEDIR);
            }
            Kind::Base | Kind::Offered | Kind::Kept => {}
        }
    }

    fn remove(&mut self, name: Vec<u8>, flags: AtFlags) {
        let full = join(&self.mirror.base, &name);
        let removed = match self.act {
            Act::Look => Ok(()),
            Act::Remove => self
                .mirror
                .root
                .parent_of(&full)
                .and_then(|(parent, last)| Ok(unlinkat(parent, last, flags)?)),
        };
        match removed {
            Ok(()) => (self.tell)(Swept::Removed(name)),
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {}
            Err(error) => {
                self.keep();
                let fault = io_fault(Side::Target, &full, "cannot be removed", &error);
                (self.tell)(Swept::Failed(fault));
            }
        }
    }
}

/// Removes what transfers that died left in a directory that goes.
fn remove_leftovers_in(root: &Root, directory: &[u8]) {
    let Ok(opened) = root.open_directory(directory, Links::Refuse) else { return };
    let Ok(entries) = Dir::read_from(&opened) else { return };
    let names = entries.flatten().map(|entry| entry.file_name().to_bytes().to_vec());
    let mut hidden: Vec<Vec<u8>> = names.filter(|name| is_hidden(name)).collect();
    // Temporaries before journals: one that is in use keeps its own.
    hidden.sort_by_key(|name| name.ends_with(JOURNAL_SUFFIX));
    let (staged, hidden): (Vec<_>, Vec<_>) =
        hidden.into_iter().partition(|name| name.ends_with(STAGED_SUFFIX));
    staged.iter().for_each(|name| staged::remove_left(&opened, name));
    let _ = hidden.iter().all(|name| remove_leftover(&opened, name));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        selection::{Effect, Rule, Selection},
        storage::name_sorter::NameSorter,
    };
    use haul_testkit::skip::skip;
    use rustix::fs::{FlockOperation, IFlags, flock, ioctl_setflags};
    use std::path::Path;

    fn make(directory: &Path, names: &[&str]) {
        for name in names {
            let path = directory.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            if name.ends_with('/') {
                std::fs::create_dir_all(path).unwrap();
            } else {
                std::fs::write(path, name).unwrap();
            }
        }
    }

    fn mirror(directory: &Path, offered: &[&str], of_base: bool) -> Mirror {
        let root = Root::open(directory).unwrap();
        let mut sorter = NameSorter::default();
        offered.iter().for_each(|name| sorter.push(name.as_bytes(), &root).unwrap());
        Mirror {
            root,
            base: Vec::new(),
            renamed: None,
            removal: Removal { names_max: None, of_base },
            matcher: None,
            offered: sorter.sorted().unwrap(),
            giving_way: BTreeSet::new(),
            dry_run: false,
        }
    }

    fn swept(mirror: &Mirror) -> Result<Vec<String>, Fault> {
        let mut removed = Vec::new();
        mirror.sweep(&AtomicBool::new(false), &mut |swept| match swept {
            Swept::Removed(name) => removed.push(String::from_utf8(name).unwrap()),
            Swept::Failed(fault) => panic!("{fault:?}"),
        })?;
        Ok(removed)
    }

    const THERE: [&str; 9] = [
        "d/a",
        "d/a-",
        "d/b/c",
        "d/gone/x",
        "d/gone/y/z",
        "d/.q.haul-part",
        "d/gone/.x.haul-part",
        "e",
        "f/x",
    ];

    #[test]
    fn what_was_not_offered_goes_below_what_was() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path(), &THERE);
        let mirror = mirror(directory.path(), &["d", "d/a", "d/b", "d/b/c", "d/new"], false);
        let expected = ["d/a-", "d/gone/x", "d/gone/y/z", "d/gone/y", "d/gone"];
        let dry = Mirror { dry_run: true, offered: mirror.offered, ..mirror };
        assert_eq!(swept(&dry).unwrap(), expected);
        assert!(directory.path().join("d/gone/y/z").exists());
        let mirror = Mirror { dry_run: false, ..dry };
        assert_eq!(swept(&mirror).unwrap(), expected);
        assert!(!directory.path().join("d/gone").exists());
        assert!(directory.path().join("d/a").exists() && directory.path().join("f/x").exists());
        assert!(directory.path().join("d/.q.haul-part").exists());
        assert_eq!(swept(&mirror).unwrap(), [""; 0]);
    }

    #[test]
    fn the_base_is_mirrored_when_its_contents_were_offered() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path(), &THERE);
        let mirror = mirror(directory.path(), &["d", "d/a", "e"], true);
        swept(&mirror).unwrap();
        let mut left = haul_testkit::tree::names(directory.path()).unwrap();
        left.retain(|name| !name.to_string_lossy().ends_with(".haul-part"));
        assert_eq!(left, ["d", "d/a", "e"].map(Path::new));
    }

    #[test]
    fn what_patterns_leave_out_stays_and_so_does_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path(), &["d/old/a.log", "d/old/b", "d/cache/x", "d/y"]);
        let rule = |pattern: &str| Rule { effect: Effect::Exclude, pattern: pattern.into() };
        let rules = vec![rule("*.log"), rule("cache/")];
        let matcher = Selection { rules, ..Selection::default() }.compile().unwrap();
        let plain = mirror(directory.path(), &["d"], false);
        let mirror = Mirror { matcher: Some(matcher), ..plain };
        assert_eq!(swept(&mirror).unwrap(), ["d/old/b", "d/y"]);
        assert!(directory.path().join("d/old/a.log").exists());
        assert!(directory.path().join("d/cache/x").exists());
    }

    #[test]
    fn more_than_allowed_removes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path(), &THERE);
        let plain = mirror(directory.path(), &["d"], false);
        let removal = |names_max| Removal::new(Some(names_max));
        let few = Mirror { removal: removal(7), ..plain };
        let refused = swept(&few).unwrap_err();
        assert_eq!((refused.code, refused.found.get(..1)), (FaultCode::TooManyRemovals, Some("8")));
        assert!(directory.path().join("d/gone/x").exists());
        assert_eq!(swept(&Mirror { removal: removal(8), ..few }).unwrap().len(), 8);
    }

    #[test]
    fn one_that_is_told_to_end_removes_nothing_more() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path(), &["d/a", "d/b", "d/c"]);
        let mirror = mirror(directory.path(), &["d"], false);
        let ending = AtomicBool::new(false);
        let mut removed = 0;
        let mut end = |_| {
            removed += 1;
            ending.store(true, Atomic::Relaxed);
        };
        mirror.sweep(&ending, &mut end).unwrap();
        assert_eq!(
            (removed, std::fs::read_dir(directory.path().join("d")).unwrap().count()),
            (1, 2)
        );
    }

    #[test]
    fn a_dry_run_names_even_what_is_too_much() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path(), &["d/a", "d/b"]);
        let of = |names_max| {
            let plain = mirror(directory.path(), &["d"], false);
            let dry = Mirror { removal: Removal::new(Some(names_max)), dry_run: true, ..plain };
            let mut names = 0;
            let swept = dry.sweep(&AtomicBool::new(false), &mut |_| names += 1);
            (names, swept.is_ok())
        };
        assert_eq!((of(1), of(2)), ((2, false), (2, true)));
        let plain = mirror(directory.path(), &["d"], false);
        let mut told = 0;
        let limited = Mirror { removal: Removal::new(Some(1)), ..plain };
        assert!(limited.sweep(&AtomicBool::new(false), &mut |_| told += 1).is_err() && told == 0);
    }

    #[test]
    fn patterns_speak_of_names_as_the_source_has_them() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path(), &["new/a", "new/b", "newer"]);
        let rule = Rule { effect: Effect::Exclude, pattern: b"/old/a".to_vec() };
        let matcher = Selection { rules: vec![rule], ..Selection::default() }.compile().unwrap();
        let plain = mirror(directory.path(), &["new"], false);
        let renamed = Some((b"old".to_vec(), b"new".to_vec()));
        let mirror = Mirror { renamed, matcher: Some(matcher), ..plain };
        assert_eq!(mirror.source_name(b"new/a"), b"old/a");
        assert_eq!(mirror.source_name(b"other"), b"other");
        assert_eq!(swept(&mirror).unwrap(), ["new/b"]);
    }

    #[test]
    fn with_include_rules_only_what_they_take_goes_and_directories_stay() {
        let directory = tempfile::tempdir().unwrap();
        let names = ["d/gone/a.fits", "d/gone/b", "d/all/x", "d/all/in/y", "d/only/a.fits"];
        make(directory.path(), &names);
        let rule = |pattern: &[u8]| Rule { effect: Effect::Include, pattern: pattern.to_vec() };
        let rules = vec![rule(b"*.fits"), rule(b"all/")];
        let matcher = Selection { rules, ..Selection::default() }.compile().unwrap();
        let plain = mirror(directory.path(), &["d"], false);
        let mirror = Mirror { matcher: Some(matcher), ..plain };
        let expected = ["d/all/in/y", "d/all/in", "d/all/x", "d/all", "d/gone/a.fits"];
        assert_eq!(swept(&mirror).unwrap(), [&expected[..], &["d/only/a.fits"]].concat());
        assert!(directory.path().join("d/gone/b").exists());
        assert!(directory.path().join("d/only").exists(), "no rule takes it");
    }

    #[test]
    fn what_gives_way_to_a_file_goes_though_its_name_was_offered() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path(), &["d/x/in", "d/y/in", "d/z"]);
        let plain = mirror(directory.path(), &["d", "d/x", "d/y", "d/y/in", "d/z"], false);
        let giving_way = BTreeSet::from([b"d/x".to_vec(), b"d/z".to_vec()]);
        let mirror = Mirror { giving_way, ..plain };
        assert_eq!(swept(&mirror).unwrap(), ["d/x/in", "d/x"]);
        assert!(directory.path().join("d/z").exists(), "a file is replaced");
    }

    #[test]
    fn what_is_kept_from_everybody_stays_with_the_directories_above_it() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path(), &["d/gone/state/key", "d/gone/x"]);
        let closed = [directory.path().join("d/gone/state")];
        let plain = mirror(directory.path(), &["d"], false);
        let root = Root::open_without(directory.path(), &closed).unwrap();
        let mirror = Mirror { root, ..plain };
        assert_eq!(swept(&mirror).unwrap(), ["d/gone/x"]);
        assert!(directory.path().join("d/gone/state/key").exists());
    }

    #[test]
    fn what_cannot_be_removed_is_told_and_its_directory_stays() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path(), &["d/gone/x", "d/gone/y"]);
        let file = std::fs::File::open(directory.path().join("d/gone/x")).unwrap();
        if ioctl_setflags(&file, IFlags::IMMUTABLE).is_err() {
            return skip("root, to make a file immutable", "another user");
        }
        let (mut removed, mut failed) = (Vec::new(), Vec::new());
        let mirror = mirror(directory.path(), &["d"], false);
        let swept = mirror.sweep(&AtomicBool::new(false), &mut |swept| match swept {
            Swept::Removed(name) => removed.push(name),
            Swept::Failed(fault) => failed.push((fault.path, fault.what)),
        });
        ioctl_setflags(&file, IFlags::empty()).unwrap();
        swept.unwrap();
        assert_eq!(removed, [b"d/gone/y"]);
        assert_eq!(failed, [(b"d/gone/x".to_vec(), "cannot be removed".into())]);
    }

    #[test]
    fn the_target_of_a_dry_run_need_not_be_there() {
        let directory = tempfile::tempdir().unwrap();
        let plain = mirror(directory.path(), &["d", "d/x"], true);
        let mirror = Mirror { base: b"not/made".to_vec(), dry_run: true, ..plain };
        assert_eq!(swept(&mirror).unwrap(), [""; 0]);
    }

    /// Case of a temporary that another session receives into.
    #[test]
    fn leftovers_go_with_their_directory_but_for_those_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let names = ["d/gone/.a.haul-part", "d/gone/.a.haul-journal", "d/free/.b.haul-journal"];
        make(directory.path(), &names);
        make(directory.path(), &["d/free/.t.haul-staged/x", "d/free/.t.haul-durable"]);
        let used = std::fs::File::open(directory.path().join("d/gone/.a.haul-part")).unwrap();
        flock(&used, FlockOperation::LockExclusive).unwrap();
        let mirror = mirror(directory.path(), &["d"], false);
        let (mut removed, mut failed) = (Vec::new(), 0);
        let told = &mut |swept| match swept {
            Swept::Removed(name) => removed.push(name),
            Swept::Failed(_) => failed += 1,
        };
        mirror.sweep(&AtomicBool::new(false), told).unwrap();
        assert_eq!((removed, failed), (vec![b"d/free".to_vec()], 1));
        let left = std::fs::read_dir(directory.path().join("d/gone")).unwrap().count();
        assert_eq!(left, 2, "the journal of what is in use");
    }

    #[test]
    fn what_is_never_sent_goes_too_unless_a_pattern_leaves_it_out() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path(), &["d/"]);
        for name in ["d/fifo", "d/kept"] {
            let path = directory.path().join(name);
            assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        }
        let rule = Rule { effect: Effect::Exclude, pattern: b"kept".to_vec() };
        let matcher = Selection { rules: vec![rule], ..Selection::default() }.compile().unwrap();
        let plain = mirror(directory.path(), &["d"], false);
        let mirror = Mirror { matcher: Some(matcher), ..plain };
        assert_eq!(swept(&mirror).unwrap(), ["d/fifo"]);
    }

    #[test]
    fn what_somebody_else_removed_meanwhile_is_neither_told_nor_a_failure() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path(), &["d/gone/x", "file"]);
        let plain = mirror(directory.path(), &["d"], false);
        let mut told = Vec::new();
        let hear = &mut |swept| {
            let _ = std::fs::remove_dir(directory.path().join("d/gone"));
            match swept {
                Swept::Removed(name) => told.push(name),
                Swept::Failed(fault) => panic!("{fault:?}"),
            }
        };
        plain.sweep(&AtomicBool::new(false), hear).unwrap();
        assert_eq!(told, [b"d/gone/x"]);
        // A directory that cannot be read is one.
        let mirror = Mirror { base: b"file".to_vec(), ..plain };
        assert_eq!(swept(&mirror).unwrap_err().path, b"file");
    }
}
