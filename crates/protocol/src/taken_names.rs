//! Names taken in a session: one file for a name, and which names a receiver refuses.
//!
//! Names are kept as 64-bit hashes, in two generations, so memory is bounded (some 9 MiB): the
//! last [`limits::TAKEN_NAMES_MAX`] / 2 names are always known. Two different names have one hash
//! with a probability of 2^-64 a pair; the second of them is refused in words. No peer can make a
//! name that has the hash of another: a hard link to what was there before would be taken for one
//! to a file of the session.

use crate::{
    limits,
    message::{Fault, FaultCode, FileKind, FileOffer, Growth, Side},
    name_set::NameSet,
};
use alloc::{format, string::String, vec::Vec};

/// A hash that a name is kept by.
pub(crate) type NameHash = u64;

/// Count of the sources that the target's path stands for: one, or any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetPath {
    /// The path is a directory: each source has a name of its own in it.
    #[default]
    Directory,
    /// The path is the new name of one source: another source would take the same name.
    NameOfOneSource,
}

/// Permission for a name that was settled to come again in the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeats {
    #[default]
    Refused,
    /// Names may repeat, as sources are watched: a file that was written to again is sent again.
    OnceSettled,
}

#[derive(Debug, Default)]
pub(crate) struct TakenNames {
    pub path: TargetPath,
    pub repeats: Repeats,
    /// The first component of all names, where the target's path stands for one source.
    source: Option<Vec<u8>>,
    young: NameSet,
    old: NameSet,
}

impl TakenNames {
    /// Takes the name of an offer; `None` for a directory, which several sources may share.
    ///
    /// # Errors
    /// The fault of a second file of one name.
    pub fn take(&mut self, offer: &FileOffer) -> Result<Option<NameHash>, Fault> {
        if self.path == TargetPath::NameOfOneSource {
            let first = offer.name.split(|&byte| byte == b'/').next().unwrap_or_default();
            let source = self.source.get_or_insert_with(|| first.to_vec());
            if source != first {
                let found = format!("another source, {}, was offered before", shown(source));
                return Err(taken_fault(offer, found, "end the target with / to keep their names"));
            }
        }
        let hash = hash_of(offer);
        if self.holds(hash) {
            let hint = "give each source a target of its own, by a command each";
            return Err(taken_fault(offer, "a file of that name came before".into(), hint));
        }
        if offer.kind == FileKind::Directory {
            return Ok(None);
        }
        if self.young.len() >= limits::TAKEN_NAMES_MAX / 2 {
            self.old = core::mem::take(&mut self.young);
        }
        self.young.insert(hash);
        Ok(Some(hash))
    }

    /// Finds the hash of a name, if it is taken.
    pub fn taken(&self, name: &[u8]) -> Option<NameHash> {
        let hash = hash(name);
        self.holds(hash).then_some(hash)
    }

    fn holds(&self, hash: NameHash) -> bool {
        self.young.contains(hash) || self.old.contains(hash)
    }

    /// Whether a name stays taken once its file is in place.
    pub fn keeps(&self, offer: &FileOffer) -> bool {
        self.repeats == Repeats::Refused && offer.growth == Growth::NotGrowing
    }

    /// Releases a name, which may be offered again: nothing was put there under it.
    pub fn release(&mut self, hash: NameHash) {
        self.young.remove(hash);
        self.old.remove(hash);
    }
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn taken_fault(offer: &FileOffer, found: String, hint: &str) -> Fault {
    Fault::new(FaultCode::NameTaken, Side::Target, "another file has this name already")
        .at(&*offer.name)
        .needs("one file for a name in a transfer")
        .found(found)
        .hint(hint)
}

/// Hashes what an offer takes: its name, of a range that of the file and where the range begins.
fn hash_of(offer: &FileOffer) -> NameHash {
    let Some(range) = &offer.range else { return hash(&offer.name) };
    // No name holds a zero byte.
    hash(&[&*offer.name, &[0], &range.offset_bytes.to_le_bytes()].concat())
}

/// Hashes a name by BLAKE3, of which it takes the first 64 bits.
fn hash(name: &[u8]) -> NameHash {
    let hash = blake3::hash(name);
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: String) -> FileOffer {
        let kind = FileKind::Regular;
        FileOffer { name: name.into_bytes(), kind, ..FileOffer::default() }
    }

    #[test]
    fn a_name_that_is_released_is_free_however_long_it_was_taken() {
        let mut names = TakenNames::default();
        let hash = names.take(&file("old".into())).expect("a free name").expect("a file");
        for number in 0..limits::TAKEN_NAMES_MAX / 2 {
            names.take(&file(format!("{number}"))).expect("a free name");
        }
        assert_eq!(names.taken(b"old"), Some(hash));
        names.release(hash);
        assert_eq!(names.taken(b"old"), None);
    }

    /// Case of two names of one FNV-1a, by which names were kept: a client that may not read could
    /// have what the first names by another name, as a hard link.
    #[test]
    fn a_name_that_was_made_to_be_taken_for_another_is_not() {
        let (first, second) = ("8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ");
        let mut names = TakenNames::default();
        names.take(&file(first.into())).expect("a free name");
        assert_eq!(names.taken(second.as_bytes()), None);
        names.take(&file(second.into())).expect("a free name");
    }

    #[test]
    fn a_second_source_for_one_name_is_told_which_came_first() {
        let mut names = TakenNames { path: TargetPath::NameOfOneSource, ..Default::default() };
        names.take(&file("run7/a".into())).expect("a free name");
        names.take(&file("run7/b".into())).expect("of the same source");
        let fault = names.take(&file("run8".into())).expect_err("of another source");
        assert!(fault.found.contains("another source, run7, was"), "{}", fault.found);
    }

    #[test]
    fn as_many_names_are_known_as_the_limit_says_and_no_more_are_kept() {
        let mut names = TakenNames::default();
        for number in 0..2 * limits::TAKEN_NAMES_MAX {
            assert!(names.take(&file(format!("run7/{number}.fits"))).is_ok(), "{number}");
            assert!(names.young.len() + names.old.len() <= limits::TAKEN_NAMES_MAX);
        }
        let known = 3 * limits::TAKEN_NAMES_MAX / 2..2 * limits::TAKEN_NAMES_MAX;
        for number in known {
            assert!(names.take(&file(format!("run7/{number}.fits"))).is_err(), "{number}");
        }
    }
}
