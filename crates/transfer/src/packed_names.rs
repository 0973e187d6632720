//! Many names in little memory. Their bytes lie one behind the other, with a list of where each
//! begins.

/// Names in the order in which they were added, or sorted.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PackedNames {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

/// Place of a name among the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    start: u32,
    len: u16,
    is_directory: bool,
}

impl Place {
    fn name(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..][..self.len.into()]
    }
}

impl PackedNames {
    /// Adds a name; one that does not fit any more is left out, and `false` is returned.
    pub fn push(&mut self, name: &[u8]) -> bool {
        self.add(name, false)
    }

    /// Adds the name of what is known to be a directory, as [`Self::push`].
    pub fn push_directory(&mut self, name: &[u8]) -> bool {
        self.add(name, true)
    }

    fn add(&mut self, name: &[u8], is_directory: bool) -> bool {
        let (Ok(start), Ok(len)) = (u32::try_from(self.bytes.len()), u16::try_from(name.len()))
        else {
            return false;
        };
        self.bytes.extend_from_slice(name);
        self.places.push(Place { start, len, is_directory });
        true
    }

    /// Sorts the names as a walk lists a tree, each once.
    pub fn sort(&mut self) {
        let bytes = &self.bytes;
        self.places.sort_unstable_by(|a, b| in_walk_order(a.name(bytes), b.name(bytes)));
        self.places.dedup_by(|a, b| a.name(bytes) == b.name(bytes));
    }

    /// The name at this place, counted from 0.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.places.get(index).map(|place| place.name(&self.bytes))
    }

    /// Whether the name at this place is known to be a directory's.
    #[must_use]
    pub fn is_directory(&self, index: usize) -> bool {
        self.places.get(index).is_some_and(|place| place.is_directory)
    }

    /// All names, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

/// Order in which a walk lists a tree: a directory's entries by their bytes, and what is in a
/// directory right behind it. So `/` stands before every other byte.
#[must_use]
pub fn in_walk_order(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    let key = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(key).cmp(b.iter().map(key))
}

impl<Name: AsRef<[u8]>> FromIterator<Name> for PackedNames {
    fn from_iter<Names: IntoIterator<Item = Name>>(names: Names) -> Self {
        let mut packed = Self::default();
        for name in names {
            packed.push(name.as_ref());
        }
        packed
    }
}

impl std::fmt::Debug for PackedNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(<[u8]>::escape_ascii)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_as_a_walk_lists_them() {
        let mut names: PackedNames = ["b", "a/x", "a-", "a", "a/x/y", "a", "a.b"].iter().collect();
        names.sort();
        let sorted: Vec<&[u8]> = names.iter().collect();
        assert_eq!(sorted, [&b"a"[..], b"a/x", b"a/x/y", b"a-", b"a.b", b"b"]);
        assert_eq!((names.len(), names.get(6)), (6, None));
    }

    #[test]
    fn directories_are_told_from_other_names() {
        let mut names = PackedNames::default();
        assert!(names.push(b"b") && names.push_directory(b"a"));
        assert!(!names.is_directory(0) && names.is_directory(1) && !names.is_directory(2));
        names.sort();
        assert!(names.is_directory(0) && !names.is_directory(1));
    }
}
