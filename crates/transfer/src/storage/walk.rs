//! Lists what is to be sent: the sources that the user named and everything below them, in order,
//! one entry at a time.

use super::{
    root::{Links, Root, join},
    source::{Location, SourceEntry, stat_offer},
};
use crate::error::io_fault;
use haul_protocol::wire::{self, FaultCode, Side};
use rustix::fs::{Dir, Mode, OFlags};
use std::{collections::VecDeque, ffi::CString, sync::Arc};

/// A source that could not be listed: it is named at the end, and the rest goes on.
pub type Listed = Result<SourceEntry, wire::Fault>;

/// A tree whose entries are yet to be listed.
#[derive(Debug)]
pub struct Tree {
    pub root: Arc<Root>,
    /// Below `root`.
    pub path: Vec<u8>,
    /// What the receiver calls it; empty for `dir/`.
    pub name: Vec<u8>,
}

/// A directory that is being listed.
#[derive(Debug)]
struct Level {
    tree: Tree,
    names: VecDeque<CString>,
}

#[derive(Debug, Default)]
pub struct Walk {
    top: VecDeque<Top>,
    levels: Vec<Level>,
}

/// A source as the user named it.
#[derive(Debug)]
pub enum Top {
    Entry(Box<Listed>),
    Tree(Tree),
}

impl Walk {
    #[must_use]
    pub fn new(top: impl IntoIterator<Item = Top>) -> Self {
        Self { top: top.into_iter().collect(), levels: Vec::new() }
    }

    fn enter(&mut self, tree: Tree) -> Result<(), wire::Fault> {
        let names = list(&tree).map_err(|error| {
            io_fault(Side::Source, &tree.name, "the directory cannot be listed", &error)
        })?;
        self.levels.push(Level { tree, names });
        Ok(())
    }

    /// The next entry of the deepest directory.
    fn next_below(&mut self) -> Option<Listed> {
        let level = self.levels.last_mut()?;
        let Some(component) = level.names.pop_front() else {
            self.levels.pop();
            return self.next();
        };
        let tree = Tree {
            root: level.tree.root.clone(),
            path: join(&level.tree.path, component.as_bytes()),
            name: join(&level.tree.name, component.as_bytes()),
        };
        Some(self.entry_of(tree))
    }

    /// The entry itself; a directory is entered behind it.
    fn entry_of(&mut self, tree: Tree) -> Listed {
        let location = Location::Beneath(tree.root.clone(), tree.path.clone());
        let entry = tree
            .root
            .stat(&tree.path, Links::Refuse)
            .map_err(|error| io_fault(Side::Source, &tree.name, "cannot be looked at", &error))
            .and_then(|stat| {
                stat_offer(&stat, &tree.name)
                    .ok_or_else(|| unsupported(&tree.name))
                    .and_then(|offer| SourceEntry { offer, location }.with_link())
            })?;
        if entry.offer.kind() == wire::FileKind::Directory {
            self.enter(tree)?;
        }
        Ok(entry)
    }
}

impl Iterator for Walk {
    type Item = Listed;

    fn next(&mut self) -> Option<Listed> {
        if !self.levels.is_empty() {
            return self.next_below();
        }
        match self.top.pop_front()? {
            Top::Entry(entry) => Some(*entry),
            Top::Tree(tree) if tree.name.is_empty() => match self.enter(tree) {
                Ok(()) => self.next(),
                Err(fault) => Some(Err(fault)),
            },
            Top::Tree(tree) => Some(self.entry_of(tree)),
        }
    }
}

pub(super) fn unsupported(name: &[u8]) -> wire::Fault {
    wire::Fault::new(FaultCode::KindUnsupported, Side::Source, "is not moved")
        .at(name)
        .needs("a regular file, a directory or a symbolic link")
        .found("a FIFO, socket or device")
        .hint("leave it out, or make it anew on the other side")
}

/// The names in a directory, sorted, without `.`, `..` and haul's own hidden files.
fn list(tree: &Tree) -> std::io::Result<VecDeque<CString>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let directory = tree.root.open_beneath(&tree.path, flags, Mode::empty(), Links::Refuse)?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") && !super::target::is_hidden(name.to_bytes()) {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names.into())
}
