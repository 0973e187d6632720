//! A tree of sources whose entries are yet to be listed.

use crate::storage::root::{Root, join};
use rustix::fs::{FileType, Stat};
use std::sync::Arc;

/// A tree whose entries are yet to be listed.
#[derive(Clone, Debug)]
pub struct Tree {
    pub root: Arc<Root>,
    /// Path below `root`.
    pub path: Vec<u8>,
    /// Name at the receiver; empty for `dir/`.
    pub name: Vec<u8>,
}

impl Tree {
    pub(super) fn below(&self, name: &[u8]) -> Self {
        let (path, name) = (join(&self.path, name), join(&self.name, name));
        Self { root: self.root.clone(), path, name }
    }
}

/// Whether a look at a source says that it is a directory.
pub fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}
