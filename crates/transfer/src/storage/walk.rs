//! Walk over what is to be sent, in order, one entry at a time. It lists the sources that the user
//! named and everything below them that is meant.

mod faults;

use self::faults::{not_as_planned, not_moved, too_long, unsupported};
use super::{
    attributes::Attributes,
    holes,
    made_up::ToldSizes,
    root::{Links, Root},
    source::{Location, SourceEntry, stat_offer},
    watch::DirectoryWatch,
};
use crate::{
    error::io_fault,
    file_options::FileOptions,
    file_ranges::FileRanges,
    locks::{Lock, lock},
    packed_names::PackedNames,
    selection::{Fit, Matcher, Selection},
    storage::{
        named_sources::asked,
        tree::Tree,
        walk_ahead::{Pace, WalkAhead, blocks_read},
    },
};
use haul_protocol::{
    message::{Fault, FaultCode, FileKind, Side},
    name::check_relative_name,
};
use rustix::fs::{Dir, Stat};
use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

/// Most trees of one request that are open at a time: each has a descriptor until its last file is
/// settled.
const ROOTS_MAX: usize = 16;

/// An entry that a walk comes to.
#[derive(Debug)]
pub enum Listed {
    Entry(Box<SourceEntry>),
    /// An entry of a kind that is not moved: it is named, and nothing has failed.
    LeftOut(Fault),
    /// An entry that could not be listed: it is named at the end, and the rest goes on.
    Failed(Fault),
}

/// Options of a walk: the entries that are meant, and what is told of each.
#[derive(Clone, Debug, Default)]
pub struct WalkOptions {
    /// Patterns of the entries that are meant; `None` where all are.
    pub matcher: Option<Matcher>,
    /// Names below each tree that are meant; `None` where all are. Sorted.
    pub names: Option<Arc<PackedNames>>,
    /// Whether a directory among the names is taken without what is below it.
    pub names_alone: bool,
    /// Ranges of files among the names, of which nothing else is meant.
    pub ranges: Option<Arc<FileRanges>>,
    pub attributes: Arc<Attributes>,
    /// Watch that is told of each directory that is entered.
    pub watch: Option<Arc<Lock<DirectoryWatch>>>,
    /// Whether a source is removed when it is at the target.
    pub is_moved: bool,
    pub purpose: Purpose,
}

/// Purpose of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// A transfer: entries are offered to a receiver.
    #[default]
    Transfer,
    /// A plan: entries become its lines, no file is opened for its holes, and the walk waits for
    /// nothing but the file system.
    Plan,
}

impl WalkOptions {
    /// Options of a walk of what a user selected.
    #[must_use]
    pub fn of(selection: &Selection, matcher: Option<Matcher>, options: FileOptions) -> Self {
        Self {
            matcher,
            names: selection.names.clone(),
            names_alone: selection.names_alone,
            ranges: selection.ranges.clone(),
            attributes: Arc::new(Attributes::new(options.preserve)),
            watch: options.recording.watch.then(Arc::default),
            is_moved: options.move_sources,
            purpose: Purpose::Transfer,
        }
    }
}

/// A directory that is being listed.
#[derive(Debug)]
struct Level {
    tree: Tree,
    names: PackedNames,
    next: usize,
    /// Whether a rule took the directory and all below.
    included: bool,
    /// Entry of the directory itself, which goes out when something below is meant.
    waiting: Option<Box<SourceEntry>>,
}

/// A tree of which only some names are meant.
#[derive(Debug)]
struct Listing {
    tree: Tree,
    names: Arc<PackedNames>,
    next: usize,
    /// Name that was listed last, as were the directories above it.
    last: Vec<u8>,
    /// Directory that was listed with all below it.
    whole: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
pub struct Walk {
    options: WalkOptions,
    top: VecDeque<Top>,
    /// Trees that are walked again, where they are watched.
    trees: Vec<Tree>,
    listing: Option<Listing>,
    levels: Vec<Level>,
    ready: VecDeque<Listed>,
    /// Roots of the trees that a client asked for.
    roots: Vec<Weak<Root>>,
    pace: Pace,
    /// Looks ahead of this walk, once its own have become slow.
    ahead: Option<WalkAhead>,
    told_sizes: ToldSizes,
}

/// A source as the user named it.
#[derive(Debug)]
pub enum Top {
    Listed(Listed),
    Named(Location, Box<Stat>, Vec<u8>),
    Tree(Tree),
    /// A source as a client named it. Looked at when its turn comes: a directory takes a
    /// descriptor.
    Asked(Option<Arc<Root>>, Vec<u8>),
}

impl Walk {
    #[must_use]
    pub fn new(top: impl IntoIterator<Item = Top>, options: WalkOptions) -> Self {
        let top: VecDeque<Top> = top.into_iter().collect();
        let tree = |top: &Top| match top {
            Top::Tree(tree) => Some(tree.clone()),
            Top::Listed(_) | Top::Named(..) | Top::Asked(..) => None,
        };
        let trees = top.iter().filter(|_| options.watch.is_some()).filter_map(tree).collect();
        Self { options, top, trees, ..Self::default() }
    }

    /// Watch that is told of the directories that are entered.
    #[must_use]
    pub fn watch(&self) -> Option<Arc<Lock<DirectoryWatch>>> {
        self.options.watch.clone()
    }

    /// Whether any of the sources that were looked at so far is a directory.
    #[must_use]
    pub fn has_trees(&self) -> bool {
        !self.trees.is_empty()
    }

    /// Walks all trees once more.
    pub fn begin_again(&mut self) {
        self.top.extend(self.trees.iter().cloned().map(Top::Tree));
    }

    /// Gives up the trees that were to be walked again and are not under their names any more: of
    /// an open directory no removal is told, and of one above it nothing at all.
    pub fn lose_trees(&mut self) -> Vec<Tree> {
        let (kept, lost) = self.trees.drain(..).partition(|tree: &Tree| tree.root.has_its_name());
        self.trees = kept;
        let gone = |tree: &Tree| {
            let name: &[u8] = if tree.name.is_empty() { b"." } else { &tree.name };
            let what = "was renamed or removed while it was watched";
            let fault = Fault::new(FaultCode::IoFailed, Side::Source, what)
                .at(name)
                .needs("the directory under its name until the watch ends")
                .found("another name of it, or none; it is not watched any more")
                .hint("run the same command again once the directory is there");
            Listed::Failed(fault)
        };
        self.ready.extend(lost.iter().map(gone));
        lost
    }

    /// Looks at one name, and at all below it. `included`: a rule took the directories above it.
    ///
    /// # Panics
    /// If the walk is not at its end.
    pub fn look_at(&mut self, tree: Tree, included: bool) {
        assert!(self.levels.is_empty(), "a walk within another");
        self.take(tree, included, true);
    }

    /// Whether the next source has to wait until files of those before it are settled.
    pub fn must_wait(&mut self) -> bool {
        self.roots.retain(|root| root.strong_count() > 0);
        let is_through = self.ready.is_empty()
            && self.listing.is_none()
            && self.levels.iter().all(|level| level.next == level.names.len());
        let asks_next = is_through && matches!(self.top.front(), Some(Top::Asked(..)));
        // What is watched stays open.
        asks_next && self.options.watch.is_none() && self.roots.len() >= ROOTS_MAX
    }

    fn ask(&mut self, root: Option<&Arc<Root>>, path: &[u8]) {
        let top = asked(root, path);
        if let Top::Tree(tree) = &top
            && !root.is_some_and(|root| Arc::ptr_eq(root, &tree.root))
        {
            self.roots.push(Arc::downgrade(&tree.root));
        }
        if let Top::Tree(tree) = &top
            && self.options.watch.is_some()
        {
            self.trees.push(tree.clone());
        }
        self.top.push_front(top);
    }

    fn enter(&mut self, tree: Tree, included: bool, waiting: Option<Box<SourceEntry>>) {
        if let Some(watch) = &self.options.watch {
            // Where it does not wait itself, none above it does.
            lock(watch).add(&tree, included, waiting.is_none());
        }
        match list(&tree.root, &tree.path) {
            Ok(names) => {
                if let Some(ahead) = &self.ahead {
                    ahead.look_below(&tree, b"");
                }
                self.levels.push(Level { tree, names, next: 0, included, waiting });
            }
            Err(error) => {
                let what = "the directory cannot be listed";
                let fault = io_fault(Side::Source, &tree.name, what, &error);
                self.ready.push_back(Listed::Failed(fault));
            }
        }
    }

    /// Goes one step on, which may make something ready. False at the end.
    fn step(&mut self) -> bool {
        if let Some(level) = self.levels.last_mut() {
            let included = level.included;
            match level.names.get(level.next).map(|name| level.tree.below(name)) {
                Some(tree) => {
                    level.next += 1;
                    self.take(tree, included, true);
                }
                None => drop(self.levels.pop()),
            }
        } else if let Some(mut listing) = self.listing.take() {
            if self.step_listing(&mut listing) {
                self.listing = Some(listing);
            }
        } else {
            let Some(top) = self.top.pop_front() else { return false };
            self.begin(top);
        }
        true
    }

    fn begin(&mut self, top: Top) {
        match (top, &self.options.names) {
            (Top::Asked(root, path), _) => self.ask(root.as_ref(), &path),
            (Top::Listed(listed), _) => self.ready.push_back(listed),
            // A plan is of a directory.
            (Top::Named(_, _, name), Some(_)) if self.options.names_alone => {
                self.ready.push_back(Listed::Failed(not_as_planned(&name)));
            }
            (Top::Named(location, stat, name), _) => match self.describe(&stat, &name, location) {
                Ok(Some(entry)) if self.fit(&entry, false) != Fit::LeftOut => {
                    self.ready.push_back(Listed::Entry(entry));
                }
                Ok(Some(_)) => {}
                Ok(None) => self.ready.push_back(Listed::Failed(not_moved(&name))),
                Err(fault) => self.ready.push_back(Listed::Failed(fault)),
            },
            (Top::Tree(tree), Some(names)) => {
                let names = names.clone();
                if !tree.name.is_empty() {
                    self.take(tree.clone(), false, false);
                }
                let (last, whole) = (Vec::new(), None);
                self.listing = Some(Listing { tree, names, next: 0, last, whole });
            }
            (Top::Tree(tree), None) if tree.name.is_empty() => self.enter(tree, false, None),
            (Top::Tree(tree), None) => self.take(tree, false, true),
        }
    }

    /// Lists the next of the names that are meant, with the directories above it. False at their
    /// end.
    fn step_listing(&mut self, listing: &mut Listing) -> bool {
        let names = listing.names.clone();
        let Some(name) = names.get(listing.next) else { return false };
        listing.next += 1;
        if listing.whole.as_ref().is_some_and(|whole| is_at_or_below(name, whole)) {
            return true;
        }
        let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (at, _) in slashes {
            let directory = &name[..at];
            if !is_at_or_below(&listing.last, directory) {
                self.take(listing.tree.below(directory), false, false);
            }
        }
        listing.last = name.to_vec();
        let depth = self.levels.len();
        match self.options.names_alone {
            true => {
                self.take_planned(listing.tree.below(name), names.is_directory(listing.next - 1))
            }
            false => self.take(listing.tree.below(name), false, true),
        }
        if self.levels.len() > depth {
            listing.whole = Some(name.to_vec());
        }
        true
    }

    /// Looks at an entry; a directory is entered behind it where `enter` says so.
    fn take(&mut self, tree: Tree, above_included: bool, enter: bool) {
        match self.look(&tree) {
            Ok(Some(entry)) => self.take_found(tree, entry, above_included, enter),
            Ok(None) => self.ready.push_back(Listed::LeftOut(unsupported(&tree.name))),
            Err(fault) => self.ready.push_back(Listed::Failed(fault)),
        }
    }

    /// Takes an entry of a plan, without what is below it. A file in whose place a directory or a
    /// FIFO is by now would count as moved, though none of its bytes were.
    fn take_planned(&mut self, tree: Tree, is_directory: bool) {
        let fault = match self.look(&tree) {
            Ok(Some(entry)) if is_directory || entry.offer.kind != FileKind::Directory => {
                return self.take_found(tree, entry, false, false);
            }
            Ok(_) => not_as_planned(&tree.name),
            Err(fault) => fault,
        };
        self.ready.push_back(Listed::Failed(fault));
    }

    /// Looks at an entry; `None` for what is never moved.
    fn look(&mut self, tree: &Tree) -> Result<Option<Box<SourceEntry>>, Fault> {
        check_relative_name(&tree.name).map_err(|why| too_long(&tree.name, why))?;
        let location = Location::Beneath(tree.root.clone(), tree.path.clone());
        let begun = Instant::now();
        let looked_at = tree.root.stat(&tree.path, Links::Refuse);
        self.keep_ahead(begun.elapsed());
        looked_at
            .map_err(|error| io_fault(Side::Source, &tree.name, "cannot be looked at", &error))
            .and_then(|stat| self.describe(&stat, &tree.name, location))
    }

    fn take_found(
        &mut self,
        tree: Tree,
        entry: Box<SourceEntry>,
        above_included: bool,
        enter: bool,
    ) {
        let is_directory = entry.offer.kind == FileKind::Directory;
        match self.fit(&entry, above_included) {
            Fit::LeftOut => {}
            // Listed by its name: what is below does not decide.
            _ if self.options.ranges.is_some() && !is_directory => self.take_ranges(&tree, entry),
            Fit::Perhaps if !enter => self.take_entry(entry),
            Fit::Perhaps => self.enter(tree, false, Some(entry)),
            fit => {
                self.take_entry(entry);
                if is_directory && enter {
                    self.enter(tree, fit == Fit::Included, None);
                }
            }
        }
    }

    /// Starts looks ahead where those of the walk take long, of which the last `took` so long. Only
    /// where all is meant: what is left out may hang, and the walk never comes to it.
    fn keep_ahead(&mut self, took: Duration) {
        let is_plan = self.options.purpose == Purpose::Plan;
        let is_slow = match is_plan {
            true => self.pace.is_late(took),
            false => self.pace.is_slow(took, blocks_read),
        };
        if let Some(ahead) = &self.ahead {
            return ahead.walked();
        }
        let takes_all = self.options.matcher.as_ref().is_none_or(Matcher::takes_all);
        if !is_slow || !takes_all || self.options.names.is_some() {
            return;
        }
        let ahead = WalkAhead::start();
        for level in &self.levels {
            let last = level.next.checked_sub(1).and_then(|last| level.names.get(last));
            ahead.look_below(&level.tree, last.unwrap_or_default());
        }
        self.levels.iter().last().into_iter().for_each(|level| ahead.look_at(&level.tree));
        self.ahead = Some(ahead);
    }

    fn fit(&self, entry: &SourceEntry, above_included: bool) -> Fit {
        let matcher = self.options.matcher.as_ref();
        matcher.map_or(Fit::Taken, |matcher| matcher.fit(&entry.offer, above_included))
    }

    /// Takes the ranges of a file that are meant; all of it, where it has none.
    fn take_ranges(&mut self, tree: &Tree, entry: Box<SourceEntry>) {
        let ranges = self.options.ranges.clone();
        match ranges.as_ref().and_then(|ranges| ranges.of(&tree.path)) {
            None => self.take_entry(entry),
            Some(ranges) => self.ready.extend(ranges.iter().map(|range| match entry.cut(range) {
                Ok(entry) => Listed::Entry(Box::new(entry)),
                Err(fault) => Listed::Failed(fault),
            })),
        }
    }

    /// Takes an entry that is meant, and the directories above it that waited for one.
    fn take_entry(&mut self, entry: Box<SourceEntry>) {
        let waiting = self.levels.iter_mut().filter_map(|level| level.waiting.take());
        self.ready.extend(waiting.map(Listed::Entry));
        self.ready.push_back(Listed::Entry(entry));
    }

    /// Entry of a source, with its attributes; `None` for what is never moved.
    fn describe(
        &self,
        stat: &Stat,
        name: &[u8],
        location: Location,
    ) -> Result<Option<Box<SourceEntry>>, Fault> {
        let Some(mut offer) = stat_offer(stat, name) else { return Ok(None) };
        let attributes = &self.options.attributes;
        attributes.describe_owner(stat, &mut offer);
        let is_regular = offer.kind == FileKind::Regular;
        let links = if is_regular { count_of(stat.st_nlink) } else { 1 };
        let size_bytes = offer.size_bytes;
        let is_moved = self.options.is_moved;
        let entry = SourceEntry { offer, location, links, size_bytes, is_moved };
        let mut entry = entry.with_link()?;
        if is_regular {
            self.told_sizes.check(stat, &entry)?;
        }
        let is_offered = self.options.purpose == Purpose::Transfer;
        let wants_holes = is_regular && is_offered && holes::may_have_holes(stat);
        let wants_xattrs =
            attributes.preserve.needs_xattrs() && entry.offer.kind != FileKind::Symlink;
        if wants_holes || wants_xattrs {
            match entry.open_as_is() {
                Ok(file) => {
                    if wants_holes {
                        entry.offer.holes = holes::find(&file, entry.offer.size_bytes);
                    }
                    let failed = |error: io::Error| {
                        io_fault(Side::Source, name, "its attributes cannot be read", &error)
                    };
                    entry.offer.xattrs = attributes.read_xattrs(&file).map_err(failed)?;
                }
                Err(error) if wants_xattrs => {
                    return Err(io_fault(Side::Source, name, "cannot be read", &error));
                }
                // Whoever reads it will say so.
                Err(_) => {}
            }
        }
        Ok(Some(Box::new(entry)))
    }
}

impl Iterator for Walk {
    type Item = Listed;

    fn next(&mut self) -> Option<Listed> {
        while self.ready.is_empty() {
            if !self.step() {
                self.ahead = None;
                return None;
            }
        }
        self.ready.pop_front()
    }
}

/// Whether `name` is `directory` or below it.
pub fn is_at_or_below(name: &[u8], directory: &[u8]) -> bool {
    name.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Names in a directory, sorted, without `.`, `..`, haul's own hidden files and what the root keeps
/// from everybody.
pub fn list(root: &Root, path: &[u8]) -> io::Result<PackedNames> {
    let directory = root.open_directory(path, Links::Refuse)?;
    let mut names = PackedNames::default();
    let closed = root.names_closed(&directory)?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..")
            && !super::hidden_names::is_hidden(name)
            && !closed.iter().any(|closed| closed == name)
            && !names.push(name)
        {
            return Err(io::Error::other("the names in it take more than 4 GiB"));
        }
    }
    names.sort();
    Ok(names)
}

/// A number of links as 64 bits, which the kernel counts with 32 on aarch64 (stat(3type)).
fn count_of(links: impl Into<u64>) -> u64 {
    links.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        selection::{Effect, Rule, Selection},
        storage::watch::Change,
    };
    use haul_protocol::limits::NAME_BYTES_MAX;
    use std::path::Path;

    fn tree_of(directory: &Path) {
        for name in ["a/one.fits", "a/two.txt", "b/c/three.fits", "b/four.txt", "empty/.keep"] {
            let path = directory.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
    }

    fn walked(rules: &[(&str, Effect)], names: Option<&[&str]>) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        tree_of(directory.path());
        let rule = |(pattern, effect): &(&str, Effect)| Rule {
            effect: *effect,
            pattern: pattern.as_bytes().to_vec(),
        };
        let rules = rules.iter().map(rule).collect();
        let matcher = Selection { rules, ..Selection::default() }.compile().unwrap();
        let names = names.map(|names| {
            let mut names: PackedNames = names.iter().collect();
            names.sort();
            Arc::new(names)
        });
        let options = WalkOptions { matcher: Some(matcher), names, ..WalkOptions::default() };
        let root = Root::open(directory.path()).unwrap();
        let tree = Tree { root, path: Vec::new(), name: b"t".to_vec() };
        let walk = Walk::new([Top::Tree(tree)], options);
        let shown = walk.map(|listed| match listed {
            Listed::Entry(entry) => String::from_utf8(entry.offer.name).unwrap(),
            Listed::LeftOut(fault) | Listed::Failed(fault) => format!("!{}", fault.what),
        });
        shown.collect()
    }

    #[test]
    fn a_tree_is_listed_in_order_and_what_is_left_out_is_not_entered() {
        let all = walked(&[], None);
        let expected = [
            "t",
            "t/a",
            "t/a/one.fits",
            "t/a/two.txt",
            "t/b",
            "t/b/c",
            "t/b/c/three.fits",
            "t/b/four.txt",
            "t/empty",
            "t/empty/.keep",
        ];
        assert_eq!(all, expected);
        let some = walked(&[("b/", Effect::Exclude), ("two*", Effect::Exclude)], None);
        assert_eq!(some, ["t", "t/a", "t/a/one.fits", "t/empty", "t/empty/.keep"]);
    }

    /// Regression: the receiver ended the session at such a name, and what came later was not sent.
    #[test]
    fn a_path_longer_than_the_protocol_has_fails_alone() {
        let directory = tempfile::tempdir().unwrap();
        let deep = vec!["d".repeat(195); 20].join("/");
        std::fs::create_dir_all(directory.path().join("a").join(deep)).unwrap();
        std::fs::write(directory.path().join("b"), b"later").unwrap();
        let root = Root::open(directory.path()).unwrap();
        let tree = Tree { root, path: Vec::new(), name: vec![b'x'; 255] };
        let listed: Vec<Listed> = Walk::new([Top::Tree(tree)], WalkOptions::default()).collect();
        let failed = |listed: &&Listed| match listed {
            Listed::Failed(fault) => fault.found.contains("longer than 4095"),
            _ => false,
        };
        assert_eq!(listed.iter().filter(failed).count(), 1);
        let Some(Listed::Entry(last)) = listed.last() else { panic!("b comes") };
        assert!(last.offer.name.ends_with(b"/b"));
    }

    #[test]
    fn with_include_rules_alone_no_empty_directories_come() {
        let fits = walked(&[("*.fits", Effect::Include)], None);
        assert_eq!(fits, ["t", "t/a", "t/a/one.fits", "t/b", "t/b/c", "t/b/c/three.fits"]);
        let below = walked(&[("c/", Effect::Include)], None);
        assert_eq!(below, ["t", "t/b", "t/b/c", "t/b/c/three.fits"]);
    }

    #[test]
    fn listed_names_come_with_the_directories_above_them_once() {
        let names = ["b/four.txt", "a/one.fits", "b", "b/c/three.fits", "gone"];
        let found = walked(&[], Some(&names));
        let expected = [
            "t",
            "t/a",
            "t/a/one.fits",
            "t/b",
            "t/b/c",
            "t/b/c/three.fits",
            "t/b/four.txt",
            "!cannot be looked at",
        ];
        assert_eq!(found, expected);
        let found = walked(&[], Some(&["b/c/three.fits", "b/four.txt"]));
        assert_eq!(found, ["t", "t/b", "t/b/c", "t/b/c/three.fits", "t/b/four.txt"]);
        // What is below a file is not there, and the file comes once.
        let found = walked(&[], Some(&["b/four.txt", "b/four.txt/x", "gone", "gone/x"]));
        let gone = "!cannot be looked at";
        assert_eq!(found, ["t", "t/b", "t/b/four.txt", gone, gone, gone]);
        // Of a directory that is on the way only what is named.
        let found = walked(&[("*.fits", Effect::Include)], Some(&["b/c/three.fits"]));
        assert_eq!(found, ["t", "t/b", "t/b/c", "t/b/c/three.fits"]);
    }

    fn tree(directory: &Path, name: &str) -> Tree {
        Tree { root: Root::open(directory).unwrap(), path: Vec::new(), name: name.into() }
    }

    fn names_of(walk: &mut Walk) -> Vec<String> {
        let shown = walk.map(|listed| match listed {
            Listed::Entry(entry) => String::from_utf8(entry.offer.name).unwrap(),
            Listed::LeftOut(fault) => format!("left out: {}", fault.path.escape_ascii()),
            Listed::Failed(fault) => format!("{}: {}", fault.path.escape_ascii(), fault.what),
        });
        shown.collect()
    }

    #[test]
    fn what_is_watched_is_walked_again_until_it_has_another_name() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["kept", "lost", "contents"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let tops = || {
            let of = |path: &str, name| Top::Tree(tree(&directory.path().join(path), name));
            [of("kept", "kept"), of("lost", "lost"), of("contents", "")]
        };
        let mut plain = Walk::new(tops(), WalkOptions::default());
        assert!(!plain.has_trees() && plain.watch().is_none());
        assert_eq!(names_of(&mut plain), ["kept", "lost"]);
        let watch = Some(Arc::new(Lock::new(DirectoryWatch::default())));
        let mut walk = Walk::new(tops(), WalkOptions { watch, ..WalkOptions::default() });
        assert!(walk.has_trees() && walk.watch().is_some());
        assert_eq!(names_of(&mut walk), ["kept", "lost"]);
        walk.begin_again();
        assert_eq!(names_of(&mut walk), ["kept", "lost"]);
        assert!(walk.lose_trees().is_empty());
        for name in ["lost", "contents"] {
            std::fs::remove_dir(directory.path().join(name)).unwrap();
        }
        assert_eq!(walk.lose_trees().len(), 2);
        let what = "was renamed or removed while it was watched";
        assert_eq!(names_of(&mut walk), [format!("lost: {what}"), format!(".: {what}")]);
        walk.begin_again();
        assert_eq!(names_of(&mut walk), ["kept"]);
        std::fs::write(directory.path().join("kept/new"), b"x").unwrap();
        let below = tree(&directory.path().join("kept"), "kept").below(b"new");
        walk.look_at(below, false);
        assert_eq!(names_of(&mut walk), ["kept/new"]);
    }

    /// Case of a client that asks for thousands of directories.
    #[test]
    fn only_so_many_of_the_trees_that_a_client_asks_for_are_open() {
        let directory = tempfile::tempdir().unwrap();
        let paths: Vec<Vec<u8>> = (0..ROOTS_MAX + 2).map(|at| format!("{at:02}").into()).collect();
        for path in &paths {
            let path = directory.path().join(super::super::root::os_path(path));
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("file"), b"x").unwrap();
        }
        let root = Root::open(directory.path()).unwrap();
        let asked = || super::super::named_sources::asked_sources(Some(&root), &paths);
        let mut walk = Walk::new(asked(), WalkOptions::default());
        let mut kept = Vec::new();
        while !walk.must_wait() {
            kept.extend(walk.next());
        }
        assert_eq!((kept.len(), walk.has_trees()), (2 * ROOTS_MAX, false));
        // All files of one are settled.
        kept.drain(..2);
        assert!(!walk.must_wait());
        kept.extend(walk.next());
        assert!(!walk.must_wait(), "its own are still to come");
        kept.extend(walk.next());
        assert!(walk.must_wait());
        drop(kept);
        assert!(!walk.must_wait() && names_of(&mut walk).len() == 2);
        let watch = Some(Arc::new(Lock::new(DirectoryWatch::default())));
        let mut walk = Walk::new(asked(), WalkOptions { watch, ..WalkOptions::default() });
        let mut kept = Vec::new();
        while let Some(listed) = walk.next() {
            kept.push(listed);
            assert!(!walk.must_wait());
        }
        assert!(walk.has_trees() && kept.len() == 2 * paths.len());
        // The root itself is open anyway.
        let tops = super::super::named_sources::asked_sources(Some(&root), &[Vec::new()]);
        let mut walk = Walk::new(tops, WalkOptions::default());
        assert!(walk.next().is_some() && walk.roots.is_empty());
    }

    #[test]
    fn what_is_no_file_is_named_and_fails_only_where_the_user_named_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let tree = Top::Tree(tree(directory.path(), "t"));
        let mut walk = Walk::new([tree], WalkOptions::default());
        assert_eq!(names_of(&mut walk), ["t", "left out: t/fifo"]);
        let stat = Box::new(rustix::fs::lstat(&path).unwrap());
        let top = Top::Named(Location::Named(path.clone()), stat, b"fifo".to_vec());
        let listed: Vec<Listed> = Walk::new([top], WalkOptions::default()).collect();
        let [Listed::Failed(fault)] = &listed[..] else { panic!("{listed:?}") };
        assert_eq!((fault.code, &*fault.path), (FaultCode::NameRefused, &b"fifo"[..]));
        assert_eq!(fault.what, "is not moved");
        assert_eq!(unsupported(b"x").code, FaultCode::KindUnsupported);
    }

    #[test]
    fn a_file_that_is_named_comes_where_no_rule_leaves_it_out() {
        let directory = tempfile::tempdir().unwrap();
        let walk = |name: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, b"x").unwrap();
            let stat = Box::new(rustix::fs::lstat(&path).unwrap());
            let rule = Rule { effect: Effect::Exclude, pattern: b"*.log".to_vec() };
            let rules = Selection { rules: vec![rule], ..Selection::default() };
            let matcher = Some(rules.compile().unwrap());
            let top = Top::Named(Location::Named(path), stat, name.into());
            names_of(&mut Walk::new([top], WalkOptions { matcher, ..WalkOptions::default() }))
        };
        assert_eq!((walk("a.txt"), walk("a.log")), (vec!["a.txt".to_owned()], vec![]));
    }

    #[test]
    fn an_entry_says_what_else_there_is_to_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let file = std::fs::File::create(at("holes")).unwrap();
        file.set_len(1 << 20).unwrap();
        std::fs::write(at("plain"), b"bytes").unwrap();
        std::fs::hard_link(at("plain"), at("second")).unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        let has_xattrs = rustix::fs::fsetxattr(&file, "user.x", b"1", flags).is_ok();
        let preserve = crate::file_options::Preserve { xattrs: true, ..Default::default() };
        let entries = |attributes, is_moved| {
            let options = WalkOptions { attributes, is_moved, ..WalkOptions::default() };
            let walk = Walk::new([Top::Tree(tree(directory.path(), ""))], options);
            let entry = |listed| match listed {
                Listed::Entry(entry) => *entry,
                other => panic!("{other:?}"),
            };
            walk.map(entry).collect::<Vec<_>>()
        };
        let plain = entries(Arc::default(), false);
        let links: Vec<u64> = plain.iter().map(|entry| entry.links).collect();
        assert_eq!((links, plain.len()), (vec![1, 2, 2], 3));
        let holes: Vec<usize> = plain.iter().map(|entry| entry.offer.holes.len()).collect();
        assert_eq!(holes, [1, 0, 0]);
        assert!(plain.iter().all(|entry| entry.offer.xattrs.is_empty() && !entry.is_moved));
        let all = entries(Arc::new(Attributes::new(preserve)), true);
        assert!(all.iter().all(|entry| entry.is_moved));
        assert_eq!(all[0].offer.xattrs.len(), usize::from(has_xattrs));
        assert_eq!(all[0].offer.holes.len(), 1);
        assert!(all[1].offer.xattrs.is_empty());
        std::os::unix::fs::symlink("gone", at("link")).unwrap();
        assert_eq!(entries(Arc::new(Attributes::new(preserve)), false).len(), 4);
    }

    #[test]
    fn a_name_is_at_or_below_a_directory_by_whole_components() {
        for (name, directory, is_so) in [
            ("a/b", "a", true),
            ("a", "a", true),
            ("ab", "a", false),
            ("a", "a/b", false),
            ("b/a", "a", false),
        ] {
            assert_eq!(is_at_or_below(name.as_bytes(), directory.as_bytes()), is_so, "{name}");
        }
        let fault = too_long(&[b'n'; NAME_BYTES_MAX + 9], "it is longer");
        assert_eq!((fault.path.len(), &*fault.found), (NAME_BYTES_MAX, "it is longer"));
        assert_eq!(fault.code, FaultCode::NameRefused);
    }

    #[test]
    fn a_walk_looks_ahead_once_its_own_looks_wait_for_a_disk_and_all_is_meant() {
        let directory = tempfile::tempdir_in(".").unwrap();
        tree_of(directory.path());
        let path = directory.path().join("data");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let is_ahead = |options: WalkOptions, took| {
            let mut walk = Walk::new([Top::Tree(tree(directory.path(), "t"))], options);
            walk.next();
            let blocks = || haul_sys::usage::blocks_read_by_this_thread().unwrap();
            let before = blocks();
            for _ in 0..2 {
                if let Err(why) = haul_testkit::page_cache::forget(&path, 0..1 << 20) {
                    return Err(why.to_string());
                }
                std::fs::read(&path).unwrap();
                (0..64).for_each(|_| walk.keep_ahead(took));
            }
            let is_ahead = walk.ahead.is_some();
            assert_eq!(walk.by_ref().count(), 10);
            assert!(walk.ahead.is_none(), "the threads end with the walk");
            if blocks() > before { Ok(is_ahead) } else { Err("no blocks are counted".into()) }
        };
        let (fast, slow) = (Duration::ZERO, Duration::from_millis(1));
        match is_ahead(WalkOptions::default(), slow) {
            Ok(is_ahead) => assert!(is_ahead),
            Err(why) => return haul_testkit::skip::skip("a disk below this directory", why),
        }
        assert_eq!(is_ahead(WalkOptions::default(), fast), Ok(false));
        let rule = Rule { effect: Effect::Exclude, pattern: b"none".to_vec() };
        let matcher = Selection { rules: vec![rule], ..Selection::default() }.compile().unwrap();
        let some = WalkOptions { matcher: Some(matcher), ..WalkOptions::default() };
        assert_eq!(is_ahead(some, slow), Ok(false), "what is left out may hang");
        let all = Selection::default().compile().unwrap();
        let all = WalkOptions { matcher: Some(all), ..WalkOptions::default() };
        assert_eq!(is_ahead(all, slow), Ok(true));
    }

    #[test]
    fn a_directory_that_waits_for_what_is_meant_is_watched_as_one_that_was_not_offered() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("d")).unwrap();
        let rule = Rule { effect: Effect::Include, pattern: b"*.fits".to_vec() };
        let matcher = Selection { rules: vec![rule], ..Selection::default() }.compile().unwrap();
        let watch = Arc::new(Lock::new(DirectoryWatch::default()));
        let (matcher, told) = (Some(matcher), Some(watch.clone()));
        let options = WalkOptions { matcher, watch: told, ..WalkOptions::default() };
        let mut walk = Walk::new([Top::Tree(tree(directory.path(), ""))], options);
        assert!(names_of(&mut walk).is_empty());
        std::fs::create_dir(directory.path().join("d/x")).unwrap();
        std::fs::create_dir(directory.path().join("e")).unwrap();
        let changes = lock(&watch).take(9);
        assert!(matches!(changes[..], [Change::Everything, Change::Name { .. }]), "{changes:?}");
    }

    /// Case of a file that this user may not read, or that goes away meanwhile.
    #[test]
    fn a_file_that_cannot_be_opened_fails_in_the_walk_only_where_its_attributes_are_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("holes");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        std::fs::remove_file(&path).unwrap();
        let described = |xattrs| {
            let preserve = crate::file_options::Preserve { xattrs, ..Default::default() };
            let attributes = Arc::new(Attributes::new(preserve));
            let walk = Walk::new([], WalkOptions { attributes, ..WalkOptions::default() });
            walk.describe(&stat, b"holes", Location::Named(path.clone()))
        };
        let entry = described(false).unwrap().unwrap();
        assert!(entry.offer.holes.is_empty() && entry.offer.size_bytes == 1 << 20);
        assert_eq!(described(true).unwrap_err().what, "cannot be read");
    }
}
