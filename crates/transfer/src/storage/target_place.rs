//! Place where received files go, and what a path of a target means.

use crate::{
    error::io_fault,
    file_options::{FileOptions, Preserve},
    storage::{
        aborted::sync_directory,
        attributes::attributes_fault,
        conflict::{gives_way, is_directory},
        fresh::Fresh,
        hidden_names::is_hidden,
        name_at_target::{final_name, name_refused},
        prepare::{Prepared, Preparing, null_target},
        root::{DIRECTORY_MODE, Links, Root, join, split_last},
        target::TargetRules,
    },
};
use haul_protocol::{
    SpanGrid,
    message::{Digest, Fault, FaultCode, FileKind, FileOffer, Side},
};
use rustix::fs::{Mode, OFlags};
use std::{io, sync::Arc};

/// The place to which received files go.
#[derive(Clone, Debug)]
pub enum TargetPlace {
    /// The place `null:`, where nothing is kept.
    Null,
    Below {
        root: Arc<Root>,
        base: Vec<u8>,
        /// New name of the one source; `None` where sources keep theirs.
        rename: Option<Vec<u8>>,
        rules: Arc<TargetRules>,
        /// Whether the base was made for this transfer.
        is_new: bool,
    },
}

/// The meaning of the path of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathMeans {
    /// The path is the directory to receive into; made when missing.
    Directory,
    /// The path is the new name of the one source, whatever is there.
    Name,
    /// The path is a directory if one is there, or if it ends in `/`, and else the new name.
    WhatIsThere,
}

impl PathMeans {
    #[must_use]
    pub fn directory_if(is_directory: bool) -> Self {
        if is_directory { Self::Directory } else { Self::WhatIsThere }
    }
}

impl TargetPlace {
    /// Finds where `path` below `root` is: a directory to receive into, or the one file's new name.
    ///
    /// # Errors
    /// If the name is refused or the directory cannot be made.
    pub fn resolve(
        root: &Arc<Root>,
        path: &[u8],
        means: PathMeans,
        file_options: FileOptions,
    ) -> Result<Self, Fault> {
        if path == b"null:" {
            return Ok(Self::Null);
        }
        if file_options.removal.is_some()
            && file_options.on_conflict == crate::file_options::OnConflict::KeepBoth
        {
            return Err(super::conflict::keeps_and_removes(path));
        }
        let trimmed = path.strip_suffix(b"/").unwrap_or(path);
        let make = |name: &[u8]| {
            let leaves_nothing = file_options.leaves_nothing();
            let made = if leaves_nothing { Ok(0) } else { make_durable_directories(root, name) };
            made.map_err(|error| {
                io_fault(Side::Target, path, "the target directory cannot be made", &error)
            })
        };
        if !trimmed.is_empty()
            && let Err(why) = haul_protocol::name::check_relative_name(trimmed)
        {
            return Err(name_refused(path, why));
        }
        if trimmed.split(|&byte| byte == b'/').any(is_hidden) {
            return Err(name_refused(path, "haul's own temporaries have such names"));
        }
        let rules = TargetRules::new(file_options);
        let root = &root.of_session();
        let place = |base: &[u8], rename, levels_made: usize| {
            let (root, base, is_new) = (root.clone(), base.to_vec(), levels_made > 0);
            Ok(Self::Below { root, base, rename, rules, is_new })
        };
        let is_directory = match means {
            PathMeans::Directory => true,
            PathMeans::Name => false,
            PathMeans::WhatIsThere => path.ends_with(b"/") || root.is_directory(trimmed),
        };
        if is_directory || trimmed.is_empty() {
            return place(trimmed, None, make(trimmed)?);
        }
        let (base, name) = split_last(trimmed);
        place(base, Some(name.to_vec()), make(base)?)
    }

    /// Notes that the base of the place was made for this transfer already.
    #[must_use]
    pub fn made_before(mut self, made: bool) -> Self {
        if let Self::Below { is_new, .. } = &mut self {
            *is_new |= made;
        }
        self
    }

    /// Learns by an offer what the one source is: a directory keeps its name, below the path that a
    /// single file would take. True if that changes the place.
    pub fn learn_source(&mut self, offer: &FileOffer) -> bool {
        let Self::Below { base, rename, .. } = self else { return false };
        let is_directory = offer.kind == FileKind::Directory || offer.name.contains(&b'/');
        let Some(new) = rename.take_if(|_| is_directory) else { return false };
        *base = join(base, &new);
        true
    }

    #[must_use]
    pub fn root(&self) -> Option<Arc<Root>> {
        if let Self::Below { root, .. } = self { Some(root.clone()) } else { None }
    }

    /// Has every directory made under its name at once: its files are to be seen, or read, before
    /// the end.
    pub fn forbid_staging(&self) {
        if let Self::Below { root, .. } = self {
            root.forbid_staging();
        }
    }

    /// Number of entries that were there already and lacked some of the source's attributes.
    #[must_use]
    pub fn updated_attributes(&self) -> u64 {
        let Self::Below { rules, .. } = self else { return 0 };
        rules.attributes.updated()
    }

    #[must_use]
    pub fn file_options(&self) -> FileOptions {
        match self {
            Self::Null => FileOptions::default(),
            Self::Below { rules, .. } => rules.file_options,
        }
    }

    /// Makes ready to receive what is offered.
    ///
    /// # Errors
    /// The fault to answer with.
    pub fn prepare(
        &self,
        offer: &FileOffer,
        span_bytes: u64,
        digest: Digest,
        fresh: &mut Fresh,
    ) -> Result<Prepared, Fault> {
        let grid = SpanGrid::new(offer.size_bytes, span_bytes)
            .map_err(|error| Fault::new(FaultCode::ProtocolViolation, Side::Target, error.what))?;
        let Self::Below { root, base, rename, rules, .. } = self else {
            return Ok(null_target(offer, &grid));
        };
        let name = final_name(base, rename.as_deref(), &offer.name);
        if name.split(|&byte| byte == b'/').any(is_hidden) {
            return Err(name_refused(&name, "haul's own temporaries have such names"));
        }
        // A watch offers what it sent again: then it is there.
        let in_fresh = !rules.file_options.recording.watch && fresh.holds(split_last(&name).0);
        let there = if in_fresh { None } else { root.stat(&name, Links::Refuse).ok() };
        let staged = root.hidden_directory_of(&name);
        let preparing = Preparing { root, rules, offer, grid, digest, in_fresh, staged };
        match offer.kind {
            _ if rules.file_options.discard => preparing.discarded(base),
            FileKind::Directory => preparing.directory(name, there.as_ref(), fresh),
            FileKind::HardLink => {
                let first = final_name(base, rename.as_deref(), &offer.link_target);
                preparing.hard_link(name, there, &first, fresh)
            }
            FileKind::Regular | FileKind::Symlink => {
                preparing.file_or_link(name, base, there, fresh)
            }
            FileKind::Unknown => {
                let what = "is of a kind that this version does not know";
                Err(Fault::new(FaultCode::KindUnsupported, Side::Target, what).at(name))
            }
        }
    }

    /// The name below the root of what is offered.
    #[must_use]
    pub fn name_of(&self, offer: &FileOffer) -> Vec<u8> {
        match self {
            Self::Null => offer.name.clone(),
            Self::Below { base, rename, .. } => final_name(base, rename.as_deref(), &offer.name),
        }
    }

    /// Sets a directory's mode, time and the like, once everything below it is in place. One that
    /// belongs to somebody else keeps its own, unless --preserve asked for more than the default.
    ///
    /// # Errors
    /// If the directory is there and cannot be given what was offered.
    pub fn finish_directory(&self, offer: &FileOffer) -> Result<(), Fault> {
        let Self::Below { root, base, rename, rules, .. } = self else { return Ok(()) };
        let name = final_name(base, rename.as_deref(), &offer.name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let set = root
            .open_beneath(&name, flags, Mode::empty(), Links::Refuse)
            .and_then(|directory| rules.attributes.apply(&directory, offer, true));
        let Err(error) = set else { return Ok(()) };
        // On a read-only file system, when nothing is left to do: the same command ran before.
        let there = root.stat(&name, Links::Refuse);
        if there.is_ok_and(|there| !rules.attributes.may_differ(&there, offer)) {
            return Ok(());
        }
        let fault = attributes_fault(&name, &error);
        let is_default = rules.file_options.preserve == Preserve::default();
        if fault.code == FaultCode::NotPermitted && is_default { Ok(()) } else { Err(fault) }
    }
}

/// Whether a directory that stays in the way of this file is to be removed in the end.
pub fn is_in_the_way(place: &TargetPlace, offer: &FileOffer) -> bool {
    let TargetPlace::Below { root, base, rename, rules, .. } = place else { return false };
    let name = final_name(base, rename.as_deref(), &offer.name);
    let there = || root.stat(&name, Links::Refuse);
    gives_way(offer, rules.file_options) && there().is_ok_and(|there| is_directory(&there))
}

fn make_durable_directories(root: &Root, name: &[u8]) -> io::Result<usize> {
    let new_levels = root.make_directories(name, DIRECTORY_MODE)?;
    root.each_parent(name, new_levels, |directory| sync_directory(directory))?;
    Ok(new_levels)
}
