//! Many names in little memory. Their bytes lie one behind the other, with a list of where each
//! begins.

/// Names in the order in which they were added, or sorted.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PackedNames {
    bytes: Vec<u8>,
    /// Begin and length of each name, in bytes.
    places: Vec<(u32, u16)>,
}

impl PackedNames {
    /// Adds a name; one that does not fit any more is left out, and `false` is returned.
    pub fn push(&mut self, name: &[u8]) -> bool {
        let (Ok(start), Ok(len)) = (u32::try_from(self.bytes.len()), u16::try_from(name.len()))
        else {
            return false;
        };
        self.bytes.extend_from_slice(name);
        self.places.push((start, len));
        true
    }

    /// Sorts the names as a walk lists a tree, each once.
    pub fn sort(&mut self) {
        let bytes = &self.bytes;
        let name = |place: &(u32, u16)| &bytes[place.0 as usize..][..place.1.into()];
        self.places.sort_unstable_by(|a, b| in_walk_order(name(a), name(b)));
        self.places.dedup_by(|a, b| name(a) == name(b));
    }

    /// The name at this place, counted from 0.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let (start, len) = *self.places.get(index)?;
        Some(&self.bytes[start as usize..][..len.into()])
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
}
