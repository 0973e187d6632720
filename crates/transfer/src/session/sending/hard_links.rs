//! Hard links among the files that are sent.
//!
//! The first name of an inode goes as a file, the others as hard links to it once it is in place.

use super::{
    context::Context,
    stage::{Found, Offered, Settled, Stage},
};
use crate::storage::source::SourceEntry;
use haul_protocol::{
    FileId,
    file_life::NextStep,
    message::{FileKind, Growth},
};
use std::collections::{BTreeMap, btree_map::Entry};

/// The most inodes that are kept track of at a time: of more, each name goes as a file of its own.
const INODES_MAX: usize = 1 << 18;

/// The most names that wait for the first of their inode.
const WAITING_MAX: usize = 1 << 16;

#[derive(Debug)]
enum First {
    /// The first name is being sent; the names met meanwhile wait for it.
    UnderWay(Vec<SourceEntry>),
    InPlace,
}

#[derive(Debug)]
struct Inode {
    name: Vec<u8>,
    /// Names of the inode that were not met yet, as far as they are below the sources at all.
    names_left: u64,
    first: First,
}

#[derive(Debug)]
pub(super) struct HardLinks {
    /// Links go as links; otherwise each name goes as a file of its own.
    keeps_links: bool,
    inodes: BTreeMap<(u64, u64), Inode>,
    under_way: BTreeMap<FileId, (u64, u64)>,
    waiting: usize,
}

fn key(entry: &SourceEntry) -> (u64, u64) {
    (entry.offer.device, entry.offer.inode)
}

fn is_one_of_many(entry: &SourceEntry) -> bool {
    entry.links > 1 && entry.offer.kind == FileKind::Regular
}

impl HardLinks {
    pub fn new(keeps_links: bool) -> Self {
        let (inodes, under_way) = (BTreeMap::new(), BTreeMap::new());
        Self { keeps_links, inodes, under_way, waiting: 0 }
    }

    /// Makes the entry to offer, as it is or as a link; `None`: it waits for the first of its
    /// inode.
    fn meet(&mut self, mut entry: Box<SourceEntry>) -> Option<Box<SourceEntry>> {
        if !is_one_of_many(&entry) {
            return Some(entry);
        }
        let Entry::Occupied(mut inode) = self.inodes.entry(key(&entry)) else {
            return Some(entry);
        };
        let found = inode.get_mut();
        found.names_left = found.names_left.saturating_sub(1);
        match &mut found.first {
            First::UnderWay(waiting) => {
                waiting.push(*entry);
                self.waiting += 1;
                return None;
            }
            First::InPlace => become_link(&mut entry, &found.name),
        }
        if found.names_left == 0 {
            inode.remove();
        }
        Some(entry)
    }

    /// Notes the number under which the first name of an inode was offered.
    fn first_offered(&mut self, file: FileId, entry: &SourceEntry) {
        if !is_one_of_many(entry) || self.inodes.len() >= INODES_MAX {
            return;
        }
        if let Entry::Vacant(new) = self.inodes.entry(key(entry)) {
            new.insert(Inode {
                name: entry.offer.name.clone(),
                names_left: entry.links - 1,
                first: First::UnderWay(Vec::new()),
            });
            self.under_way.insert(file, key(entry));
        }
    }

    /// Notes the new number under which the first name of an inode is offered again.
    fn offered_again(&mut self, before: FileId, file: FileId) {
        if let Some(key) = self.under_way.remove(&before) {
            self.under_way.insert(file, key);
        }
    }

    /// Takes the names that waited for a settled file, as links if it is in place.
    fn first_settled(&mut self, file: FileId, in_place: bool) -> Vec<SourceEntry> {
        let Some(key) = self.under_way.remove(&file) else { return Vec::new() };
        let Some(inode) = self.inodes.get_mut(&key) else { return Vec::new() };
        let first = std::mem::replace(&mut inode.first, First::InPlace);
        let First::UnderWay(mut waiting) = first else { return Vec::new() };
        self.waiting -= waiting.len();
        if in_place {
            waiting.iter_mut().for_each(|entry| become_link(entry, &inode.name));
        }
        if !in_place || inode.names_left == 0 {
            self.inodes.remove(&key);
        }
        waiting
    }

    /// Turns a link that cannot be made at the target into a file of its own.
    #[must_use]
    fn as_file(mut entry: SourceEntry) -> SourceEntry {
        entry.offer.link_target.clear();
        entry.offer.kind = FileKind::Regular;
        entry.offer.size_bytes = entry.size_bytes;
        entry.links = 1;
        entry
    }
}

impl Stage for HardLinks {
    fn met(&mut self, found: Found, _context: &mut Context<'_>) -> Option<Found> {
        if !self.keeps_links {
            return Some(found);
        }
        let entry = self.meet(found.entry)?;
        Some(Found { entry, ..found })
    }

    fn offered(&mut self, offered: &Offered<'_>, _context: &mut Context<'_>) {
        if !self.keeps_links || offered.entry.offer.growth != Growth::NotGrowing {
            return;
        }
        match offered.before {
            Some(before) => self.offered_again(before, offered.file),
            None => self.first_offered(offered.file, offered.entry),
        }
    }

    fn settled(&mut self, settled: &mut Settled, context: &mut Context<'_>) {
        match &settled.step {
            NextStep::OfferAsFile => context.offer(Self::as_file(settled.entry.clone()), None),
            NextStep::Ends(end) => {
                let ready = self.first_settled(settled.file, end.is_in_place());
                ready.into_iter().for_each(|entry| context.offer(entry, None));
            }
            _ => {}
        }
    }

    fn keeps_some(&self) -> bool {
        self.waiting > 0
    }

    fn is_full(&self) -> bool {
        self.waiting >= WAITING_MAX
    }
}

fn become_link(entry: &mut SourceEntry, first: &[u8]) {
    entry.offer.kind = FileKind::HardLink;
    entry.offer.link_target = first.to_vec();
    entry.offer.size_bytes = 0;
    entry.offer.holes.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::source::Location;
    use haul_protocol::message::FileOffer;

    fn entry(name: &str, inode: u64, links: u64) -> Box<SourceEntry> {
        let kind = FileKind::Regular;
        let name = name.as_bytes().to_vec();
        let offer = FileOffer { name, inode, kind, size_bytes: 9, ..FileOffer::default() };
        let (location, is_moved) = (Location::Zero, false);
        Box::new(SourceEntry { offer, location, links, size_bytes: 9, is_moved })
    }

    fn offer(links: &mut HardLinks, file: u32, entry: Box<SourceEntry>) -> FileKind {
        let entry = links.meet(entry).expect("it waits");
        links.first_offered(FileId(file), &entry);
        entry.offer.kind
    }

    #[test]
    fn names_of_one_inode_wait_for_the_first_and_become_links() {
        let mut links = HardLinks::new(true);
        assert_eq!(offer(&mut links, 0, entry("a", 1, 4)), FileKind::Regular);
        assert_eq!(offer(&mut links, 1, entry("other", 2, 1)), FileKind::Regular);
        assert!(links.meet(entry("b", 1, 4)).is_none() && links.keeps_some());
        let ready = links.first_settled(FileId(0), true);
        assert_eq!(ready.len(), 1);
        let link = &ready[0].offer;
        assert_eq!((link.kind, &*link.link_target), (FileKind::HardLink, &b"a"[..]));
        assert_eq!((link.size_bytes, links.keeps_some()), (0, false));
        assert_eq!(offer(&mut links, 2, entry("c", 1, 4)), FileKind::HardLink);
        assert_eq!(links.inodes.len(), 1);
        assert_eq!(offer(&mut links, 3, entry("d", 1, 4)), FileKind::HardLink);
        assert!(links.inodes.is_empty(), "all names were met");
        let again = HardLinks::as_file(ready[0].clone());
        assert_eq!((again.offer.kind, again.offer.size_bytes), (FileKind::Regular, 9));
    }

    #[test]
    fn of_an_inode_whose_first_name_failed_the_others_go_as_files() {
        let mut links = HardLinks::new(true);
        offer(&mut links, 0, entry("a", 1, 3));
        assert!(links.meet(entry("b", 1, 3)).is_none());
        let ready = links.first_settled(FileId(0), false);
        assert_eq!(ready[0].offer.kind, FileKind::Regular);
        assert_eq!(offer(&mut links, 1, entry("c", 1, 3)), FileKind::Regular);
    }

    #[test]
    fn inodes_of_two_file_systems_are_two_files() {
        let mut links = HardLinks::new(true);
        offer(&mut links, 0, entry("a", 1, 2));
        let mut other = entry("b", 1, 2);
        other.offer.device = 9;
        assert_eq!(offer(&mut links, 1, other), FileKind::Regular);
        let mut device = entry("c", 3, 2);
        device.offer.kind = FileKind::Symlink;
        assert_eq!(offer(&mut links, 2, device.clone()), FileKind::Symlink);
        assert_eq!(offer(&mut links, 3, device), FileKind::Symlink, "each goes as it is");
        assert_eq!(links.under_way.len(), 2);
    }

    #[test]
    fn a_first_name_that_is_offered_under_another_number_settles_under_that() {
        let mut links = HardLinks::new(true);
        offer(&mut links, 0, entry("a", 1, 3));
        assert!(links.meet(entry("b", 1, 3)).is_none() && links.meet(entry("c", 1, 3)).is_none());
        links.offered_again(FileId(0), FileId(7));
        links.offered_again(FileId(5), FileId(6));
        assert!(links.first_settled(FileId(0), true).is_empty());
        assert!(links.first_settled(FileId(6), true).is_empty());
        assert_eq!(links.first_settled(FileId(7), true).len(), 2);
        assert!(!links.keeps_some() && links.inodes.is_empty(), "no name is left");
    }

    #[test]
    fn of_more_inodes_than_are_kept_track_of_each_name_is_a_file() {
        let mut links = HardLinks::new(true);
        for inode in 0..=INODES_MAX as u64 {
            offer(&mut links, 0, entry("a", inode, 2));
        }
        assert!(links.meet(entry("b", INODES_MAX as u64 - 1, 2)).is_none());
        assert!(links.meet(entry("b", INODES_MAX as u64, 2)).is_some());
    }

    #[test]
    fn the_walk_waits_while_too_many_names_wait_for_their_first() {
        let mut links = HardLinks::new(true);
        offer(&mut links, 0, entry("a", 1, u64::MAX));
        for _ in 0..WAITING_MAX {
            assert!(!links.is_full());
            assert!(links.meet(entry("b", 1, u64::MAX)).is_none());
        }
        assert!(links.is_full());
        links.first_settled(FileId(0), true);
        assert!(!links.is_full());
    }

    fn found(entry: Box<SourceEntry>) -> Found {
        Found { entry, is_complete: false, now: std::time::Instant::now() }
    }

    fn settled(file: u32, entry: SourceEntry, step: NextStep) -> Settled {
        let (content, stored_as, is_told) = (None, None, true);
        let now = std::time::Instant::now();
        Settled { file: FileId(file), entry, step, content, stored_as, is_told, now }
    }

    fn ends(result: haul_protocol::file_life::EndResult) -> NextStep {
        NextStep::Ends(haul_protocol::file_life::FileEnd { result, frees_source: false })
    }

    /// Kinds of the entries that a stage has asked to offer, by name.
    fn to_offer(context: &mut Context<'_>) -> Vec<(String, FileKind)> {
        let waiting = context.to_offer.drain(..).map(|to_offer| to_offer.entry.offer);
        waiting.map(|it| (String::from_utf8(it.name).unwrap(), it.kind)).collect()
    }

    #[test]
    fn links_wait_in_a_session_until_their_file_is_in_place() {
        use crate::{file_options::FileOptions, session::sending::without_peer::begin};
        use haul_protocol::file_life::EndResult;
        let mut hear = |_| {};
        let mut context = begin(FileOptions::default(), &mut hear).context;
        let context = &mut context;
        let mut links = HardLinks::new(true);
        let first = *links.met(found(entry("a", 1, 3)), context).unwrap().entry;
        let offered = |file, before| Offered { file: FileId(file), entry: &first, before };
        links.offered(&offered(0, None), context);
        assert!(links.met(found(entry("b", 1, 3)), context).is_none());
        links.offered(&offered(1, Some(FileId(0))), context);
        links.settled(&mut settled(0, first.clone(), ends(EndResult::Done)), context);
        assert_eq!(to_offer(context), [], "it has another number by now");
        links.settled(&mut settled(1, first.clone(), NextStep::NextRound), context);
        assert_eq!(to_offer(context), [], "it is not settled");
        links.settled(&mut settled(1, first.clone(), ends(EndResult::Done)), context);
        assert_eq!(to_offer(context), [("b".to_owned(), FileKind::HardLink)]);
        let link = *links.met(found(entry("c", 1, 3)), context).unwrap().entry;
        assert_eq!(link.offer.kind, FileKind::HardLink);
        links.settled(&mut settled(2, link, NextStep::OfferAsFile), context);
        assert_eq!(to_offer(context), [("c".to_owned(), FileKind::Regular)]);
    }

    #[test]
    fn where_links_are_not_kept_and_of_files_that_grow_each_name_is_a_file() {
        use crate::{file_options::FileOptions, session::sending::without_peer::begin};
        let mut hear = |_| {};
        let mut context = begin(FileOptions::default(), &mut hear).context;
        for (keeps_links, growth) in [(false, Growth::NotGrowing), (true, Growth::Growing)] {
            let mut links = HardLinks::new(keeps_links);
            let mut entry = entry("a", 1, 2);
            entry.offer.growth = growth;
            for file in 0..2 {
                let met = links.met(found(entry.clone()), &mut context).expect("it goes on");
                assert_eq!(met.entry.offer.kind, FileKind::Regular);
                let offered = Offered { file: FileId(file), entry: &entry, before: None };
                links.offered(&offered, &mut context);
            }
            assert!(links.inodes.is_empty());
        }
    }
}
