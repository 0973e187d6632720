//! Names of haul's own files beside a target. They are the temporary that is received into, and its
//! journal; of a directory, the hidden one that is received into, and the list of what is durable.

use super::root::split_last;
use crate::{bytes::hex, token::Token};
use haul_protocol::limits::COMPONENT_BYTES_MAX;

pub(super) const PART_SUFFIX: &[u8] = b".haul-part";
pub(super) const JOURNAL_SUFFIX: &[u8] = b".haul-journal";
pub(super) const STAGED_SUFFIX: &[u8] = b".haul-staged";
pub(super) const LIST_SUFFIX: &[u8] = b".haul-durable";
/// Suffixes for a file that comes in ranges: its temporary, its register, the journal of a range.
pub(super) const SHARED_SUFFIX: &[u8] = b".haul-shared";
pub(super) const REGISTER_SUFFIX: &[u8] = b".haul-ranges";
pub(super) const RANGE_SUFFIX: &[u8] = b".haul-range";
const SUFFIXES: [&[u8]; 7] = [
    PART_SUFFIX,
    JOURNAL_SUFFIX,
    STAGED_SUFFIX,
    LIST_SUFFIX,
    SHARED_SUFFIX,
    REGISTER_SUFFIX,
    RANGE_SUFFIX,
];

/// Whether a name is one of haul's own temporaries.
#[must_use]
pub fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".") && SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

pub(super) fn hidden_name(name: &[u8], suffix: &[u8]) -> Vec<u8> {
    if 1 + name.len() + JOURNAL_SUFFIX.len() <= COMPONENT_BYTES_MAX {
        [b".", name, suffix].concat()
    } else {
        [b".", hex(&Token::secret_hash(name)).as_bytes(), suffix].concat()
    }
}

/// Name of the journal of a range that begins at this byte of a file.
pub(super) fn range_journal_name(name: &[u8], begin: u64) -> Vec<u8> {
    hidden_name(&[name, format!(".{begin:016x}").as_bytes()].concat(), RANGE_SUFFIX)
}

/// Name of a file until it is whole.
#[must_use]
pub fn part_name(name: &[u8]) -> Vec<u8> {
    hidden_name(name, PART_SUFFIX)
}

/// The temporary that a journal of this name speaks of.
#[must_use]
pub fn part_of_journal(journal_name: &[u8]) -> Option<Vec<u8>> {
    Some([journal_name.strip_suffix(JOURNAL_SUFFIX)?, PART_SUFFIX].concat())
}

/// Name of a link until it is published: not the one that a file of that name has, for no lock
/// protects it, and always the same, so that the next run finds what one that died has left.
pub(super) fn hidden_link_name(name: &[u8]) -> Vec<u8> {
    let hash = Token::secret_hash(&[b"link ", split_last(name).1].concat());
    hidden_name(&hex(&hash).as_bytes()[..16], PART_SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_are_known_by_both_ends() {
        let of_ranges = range_journal_name(b"x", 1 << 30);
        assert_eq!(of_ranges, b".x.0000000040000000.haul-range");
        for name in [
            &b".x.haul-part"[..],
            b".x.haul-journal",
            b".x.haul-staged",
            b".haul-durable",
            b".x.haul-shared",
            b".x.haul-ranges",
            &of_ranges,
        ] {
            assert!(is_hidden(name), "{}", name.escape_ascii());
        }
        for name in [&b"x.haul-part"[..], b".x.haul-par", b".haul-part.x", b".x", b""] {
            assert!(!is_hidden(name), "{}", name.escape_ascii());
        }
        assert_eq!(part_name(b"x"), b".x.haul-part");
        assert_eq!(part_of_journal(b".x.haul-journal").unwrap(), b".x.haul-part");
        assert_eq!(part_of_journal(b".x.haul-part"), None);
    }

    #[test]
    fn a_name_too_long_to_be_hidden_is_told_by_its_hash() {
        let longest = COMPONENT_BYTES_MAX - 1 - JOURNAL_SUFFIX.len();
        let hidden = |len| hidden_name(&vec![b'n'; len], JOURNAL_SUFFIX);
        assert_eq!(hidden(longest).len(), COMPONENT_BYTES_MAX);
        assert!(hidden(longest).starts_with(b".nnn"));
        let hashed = hidden(longest + 1);
        assert_eq!(hashed.len(), 1 + 64 + JOURNAL_SUFFIX.len());
        assert!(is_hidden(&hashed) && !hashed.starts_with(b".nnn"));
        let link = hidden_link_name(b"a/b/x");
        assert!(is_hidden(&link) && link.len() == 1 + 16 + PART_SUFFIX.len());
        assert_eq!((&link, &hidden_link_name(b"c/x")), (&hidden_link_name(b"x"), &link));
        assert_ne!(link, hidden_link_name(b"y"));
    }
}
