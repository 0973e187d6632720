//! Which of the files that are sent are names of one inode: the first goes as a file, the others as
//! hard links to it once it is in place.

use crate::storage::source::SourceEntry;
use haul_protocol::{FileId, wire::FileKind};
use std::collections::{BTreeMap, btree_map::Entry};

/// Inodes that are kept track of at a time: of more, each name goes as a file of its own.
const INODES_MAX: usize = 1 << 18;

/// Names that wait for the first of their inode.
const WAITING_MAX: usize = 1 << 16;

#[derive(Debug)]
enum First {
    /// Its names that were met meanwhile wait for it.
    UnderWay(Vec<SourceEntry>),
    InPlace,
}

#[derive(Debug)]
struct Inode {
    name: Vec<u8>,
    /// Names that were not met yet, as far as they are below the sources at all.
    names_left: u64,
    first: First,
}

#[derive(Debug, Default)]
pub struct HardLinks {
    inodes: BTreeMap<(u64, u64), Inode>,
    under_way: BTreeMap<FileId, (u64, u64)>,
    waiting: usize,
}

/// The step for a name that is met.
#[derive(Debug)]
pub enum Met {
    /// Offer it as it is; [`HardLinks::offered`] follows.
    Offer(Box<SourceEntry>),
    /// It waits for the first name of its inode.
    Waits,
}

fn key(entry: &SourceEntry) -> (u64, u64) {
    (entry.offer.device, entry.offer.inode)
}

fn is_one_of_many(entry: &SourceEntry) -> bool {
    entry.links > 1 && entry.offer.kind() == FileKind::Regular
}

impl HardLinks {
    pub fn meet(&mut self, mut entry: Box<SourceEntry>) -> Met {
        if !is_one_of_many(&entry) {
            return Met::Offer(entry);
        }
        let Entry::Occupied(mut inode) = self.inodes.entry(key(&entry)) else {
            return Met::Offer(entry);
        };
        let found = inode.get_mut();
        found.names_left = found.names_left.saturating_sub(1);
        match &mut found.first {
            First::UnderWay(waiting) => {
                waiting.push(*entry);
                self.waiting += 1;
                return Met::Waits;
            }
            First::InPlace => become_link(&mut entry, &found.name),
        }
        if found.names_left == 0 {
            inode.remove();
        }
        Met::Offer(entry)
    }

    /// The first name of an inode was offered under this number.
    pub fn offered(&mut self, file: FileId, entry: &SourceEntry) {
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

    /// The first name of an inode is offered again, under another number.
    pub fn offered_again(&mut self, before: FileId, file: FileId) {
        if let Some(key) = self.under_way.remove(&before) {
            self.under_way.insert(file, key);
        }
    }

    /// A file is settled: the names that waited for it, as links if it is in place.
    pub fn settled(&mut self, file: FileId, in_place: bool) -> Vec<SourceEntry> {
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

    /// A link that cannot be made at the target goes as a file.
    #[must_use]
    pub fn as_file(mut entry: SourceEntry) -> SourceEntry {
        entry.offer.link_target.clear();
        entry.offer.kind = FileKind::Regular as i32;
        entry.offer.size_bytes = entry.size_bytes;
        entry.links = 1;
        entry
    }

    /// Whether as many wait as may: the first of them is to be in place before more are met.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.waiting >= WAITING_MAX
    }

    /// Whether some name waits for another.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.waiting > 0
    }
}

fn become_link(entry: &mut SourceEntry, first: &[u8]) {
    entry.offer.kind = FileKind::HardLink as i32;
    entry.offer.link_target = first.to_vec();
    entry.offer.size_bytes = 0;
    entry.offer.holes.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::source::Location;
    use haul_protocol::wire::FileOffer;

    fn entry(name: &str, inode: u64, links: u64) -> Box<SourceEntry> {
        let kind = FileKind::Regular as i32;
        let name = name.as_bytes().to_vec();
        let offer = FileOffer { name, inode, kind, size_bytes: 9, ..FileOffer::default() };
        let (location, is_moved) = (Location::Zero, false);
        Box::new(SourceEntry { offer, location, links, size_bytes: 9, is_moved })
    }

    fn offer(links: &mut HardLinks, file: u32, entry: Box<SourceEntry>) -> FileKind {
        match links.meet(entry) {
            Met::Offer(entry) => {
                links.offered(FileId(file), &entry);
                entry.offer.kind()
            }
            Met::Waits => panic!("it waits"),
        }
    }

    #[test]
    fn names_of_one_inode_wait_for_the_first_and_become_links() {
        let mut links = HardLinks::default();
        assert_eq!(offer(&mut links, 0, entry("a", 1, 4)), FileKind::Regular);
        assert_eq!(offer(&mut links, 1, entry("other", 2, 1)), FileKind::Regular);
        assert!(matches!(links.meet(entry("b", 1, 4)), Met::Waits) && links.has_waiting());
        let ready = links.settled(FileId(0), true);
        assert_eq!(ready.len(), 1);
        let link = &ready[0].offer;
        assert_eq!((link.kind(), &*link.link_target), (FileKind::HardLink, &b"a"[..]));
        assert_eq!((link.size_bytes, links.has_waiting()), (0, false));
        assert_eq!(offer(&mut links, 2, entry("c", 1, 4)), FileKind::HardLink);
        assert_eq!(links.inodes.len(), 1);
        assert_eq!(offer(&mut links, 3, entry("d", 1, 4)), FileKind::HardLink);
        assert!(links.inodes.is_empty(), "all names were met");
        let again = HardLinks::as_file(ready[0].clone());
        assert_eq!((again.offer.kind(), again.offer.size_bytes), (FileKind::Regular, 9));
    }

    #[test]
    fn of_an_inode_whose_first_name_failed_the_others_go_as_files() {
        let mut links = HardLinks::default();
        offer(&mut links, 0, entry("a", 1, 3));
        assert!(matches!(links.meet(entry("b", 1, 3)), Met::Waits));
        let ready = links.settled(FileId(0), false);
        assert_eq!(ready[0].offer.kind(), FileKind::Regular);
        assert_eq!(offer(&mut links, 1, entry("c", 1, 3)), FileKind::Regular);
    }
}
