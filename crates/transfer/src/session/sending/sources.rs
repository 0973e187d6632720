//! Sources of a session, listed from its beginning or once the client has selected files.

use super::watching::Watching;
use crate::{
    file_options::FileOptions,
    selection::{Arriving, Selection},
    storage::walk::{Top, Walk, WalkOptions},
};
use haul_protocol::{
    ProtocolError,
    message::{self, Fault, FaultCode},
};
use std::time::Instant;

/// The sources to send, or those from which the client selects.
pub enum Sources {
    Listed(Box<Walk>),
    /// The client has yet to say which files it means.
    AwaitSelection {
        top: Vec<Top>,
        options: Box<WalkOptions>,
        arriving: Box<Arriving>,
    },
}

impl Sources {
    /// Sources of which the client has yet to say which files it means.
    pub fn awaiting(top: Vec<Top>, options: WalkOptions, arriving: Arriving) -> Self {
        let (options, arriving) = (Box::new(options), Box::new(arriving));
        Self::AwaitSelection { top, options, arriving }
    }

    /// Makes the watch on the sources, where one was asked for and they are known.
    pub(super) fn watching(&self, file_options: FileOptions) -> Option<Watching> {
        let Self::Listed(walk) = self else { return None };
        let watch = walk.watch()?;
        Some(Watching::new(file_options.recording, watch, Instant::now()))
    }

    /// Takes a part of the client's selection of files. True when it was the last.
    ///
    /// The inner error is a fault of the user's.
    pub(super) fn select(
        &mut self,
        part: message::Selection,
    ) -> Result<Result<bool, Fault>, ProtocolError> {
        let Self::AwaitSelection { top, options, arriving } = self else {
            return Err(ProtocolError::new("a selection that was not announced"));
        };
        let Some(selection) = arriving.take(part)? else { return Ok(Ok(false)) };
        let options = match compiled(&selection, std::mem::take(&mut **options)) {
            Ok(options) => options,
            Err(fault) => return Ok(Err(fault)),
        };
        *self = Self::Listed(Box::new(Walk::new(std::mem::take(top), options)));
        Ok(Ok(true))
    }
}

/// Adds the user's selection to the options of a walk.
///
/// # Errors
/// If a pattern is none: the fault for the user.
fn compiled(selection: &Selection, options: WalkOptions) -> Result<WalkOptions, Fault> {
    let matcher = selection.compile().map_err(|problem| {
        Fault::new(FaultCode::NameRefused, message::Side::Unknown, problem.what)
            .needs(problem.needs)
            .found(problem.found)
    })?;
    let (names, names_alone) = (selection.names.clone(), selection.names_alone);
    let ranges = selection.ranges.clone();
    Ok(WalkOptions { matcher: Some(matcher), names, names_alone, ranges, ..options })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        locks::Lock,
        storage::{root::Root, tree::Tree, walk::Listed, watch::DirectoryWatch},
    };
    use haul_protocol::message::FilterRule;
    use std::{fs, path::Path, sync::Arc};

    /// Sources of which the client has yet to say what it means.
    fn awaited(directory: &Path, is_moved: bool) -> Sources {
        let root = Root::open_without(directory, &[]).unwrap();
        let tree = Tree { root, path: Vec::new(), name: Vec::new() };
        let options = Box::new(WalkOptions { is_moved, ..WalkOptions::default() });
        let top = vec![Top::Tree(tree)];
        Sources::AwaitSelection { top, options, arriving: Box::default() }
    }

    fn listed(sources: Sources) -> Vec<(String, bool)> {
        let Sources::Listed(walk) = sources else { panic!("the selection is not whole") };
        let entry = |listed| match listed {
            Listed::Entry(entry) => (String::from_utf8(entry.offer.name).unwrap(), entry.is_moved),
            other => panic!("{other:?}"),
        };
        walk.map(entry).collect()
    }

    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a.txt", "b.log", "c.txt"] {
            fs::write(directory.path().join(name), name).unwrap();
        }
        directory
    }

    #[test]
    fn what_the_client_selected_is_listed_once_all_of_its_selection_is_there() {
        let directory = directory();
        let mut sources = awaited(directory.path(), true);
        let rule = FilterRule { include: false, pattern: b"*.log".to_vec() };
        let first = message::Selection { more_follows: true, ..message::Selection::default() };
        let last = message::Selection { rules: vec![rule], ..message::Selection::default() };
        assert_eq!(sources.select(first), Ok(Ok(false)));
        assert_eq!(sources.select(last.clone()), Ok(Ok(true)));
        assert!(sources.select(last).is_err(), "it was announced once");
        assert_eq!(listed(sources), [("a.txt".into(), true), ("c.txt".into(), true)]);
    }

    #[test]
    fn names_that_the_client_selected_are_those_that_are_listed() {
        let directory = directory();
        let mut sources = awaited(directory.path(), false);
        let names = vec![b"b.log".to_vec()];
        let selection =
            message::Selection { names, names_given: true, ..message::Selection::default() };
        assert_eq!(sources.select(selection), Ok(Ok(true)));
        assert_eq!(listed(sources), [("b.log".into(), false)]);
    }

    #[test]
    fn a_pattern_that_is_none_is_the_user_s_fault() {
        let directory = directory();
        let mut sources = awaited(directory.path(), false);
        let rules = vec![FilterRule { include: true, pattern: b"[".to_vec() }];
        let selection = message::Selection { rules, ..message::Selection::default() };
        let fault = sources.select(selection).unwrap().unwrap_err();
        assert_eq!(fault.code, FaultCode::NameRefused);
        assert!(!fault.what.is_empty() && !fault.found.is_empty(), "{fault:?}");
    }

    #[test]
    fn only_sources_that_are_known_and_to_be_watched_are_watched() {
        let file_options = FileOptions::default();
        let directory = directory();
        assert!(awaited(directory.path(), false).watching(file_options).is_none());
        let watch = Arc::new(Lock::new(DirectoryWatch::default()));
        for watch in [None, Some(watch)] {
            let is_watched = watch.is_some();
            let options = WalkOptions { watch, ..WalkOptions::default() };
            let sources = Sources::Listed(Box::new(Walk::new([], options)));
            assert_eq!(sources.watching(file_options).is_some(), is_watched);
        }
    }
}
