//! Open files of a loop, shared by its streams: one descriptor a film, not one a stream.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use crate::site::{Identity, OpenFile};

/// Most closed films that wait to be forgotten.
const CLOSED_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    files: HashMap<Identity, Weak<OpenFile>>,
    open: usize,
}

impl OpenFiles {
    /// Gives the file that is open already, if it is this version of the same film, or the new one.
    pub fn shared(&mut self, file: OpenFile) -> Arc<OpenFile> {
        let known = self.files.get(&file.identity).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.is_same_version(&file)) {
            return known;
        }
        if self.files.len() > self.open + CLOSED_MAX {
            self.files.retain(|_, file| file.strong_count() > 0);
            self.open = self.files.len();
        }
        let identity = file.identity;
        let file = Arc::new(file);
        self.files.insert(identity, Arc::downgrade(&file));
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::{Found, Site};
    use std::fs;

    fn open(site: &Site, name: &str) -> OpenFile {
        match site.find(name.as_bytes()) {
            Found::File(file) => file,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_film_is_open_once_and_another_version_is_another() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "1").unwrap();
        let site = Site::open(root.path()).unwrap();
        let mut files = OpenFiles::default();
        let first = files.shared(open(&site, "/a"));
        assert!(Arc::ptr_eq(&first, &files.shared(open(&site, "/a"))));
        fs::write(root.path().join("a"), "12").unwrap();
        let second = files.shared(open(&site, "/a"));
        assert!(!Arc::ptr_eq(&first, &second));
        assert!(Arc::ptr_eq(&second, &files.shared(open(&site, "/a"))));
    }

    #[test]
    fn what_is_closed_is_forgotten() {
        let root = tempfile::tempdir().unwrap();
        let site = Site::open(root.path()).unwrap();
        let mut files = OpenFiles::default();
        for number in 0..3 * CLOSED_MAX {
            let name = format!("/{number}");
            fs::write(root.path().join(&name[1..]), "1").unwrap();
            files.shared(open(&site, &name));
        }
        assert!(files.files.len() <= CLOSED_MAX + 1);
    }
}
