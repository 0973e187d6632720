//! Checks of what a push is to send, before any server is asked.

use super::whereabouts::source_text;
use crate::{
    error::{TransferError, problem},
    name::Name,
    options::SourceSpec,
    plan::unread,
    storage::tree,
};
use std::{io, path::Path};

/// Checks that one of the sources is there: with none of them, no server needs to be asked.
pub fn check_sources(sources: &[SourceSpec]) -> Result<(), TransferError> {
    let mut first = None;
    for source in sources {
        let looked_at = match source {
            SourceSpec::Path(path) => std::fs::metadata(path).map(drop),
            SourceSpec::Beginning(part) => std::fs::metadata(&part.path).map(drop),
            SourceSpec::Beneath(place) => place.stat().map(drop),
            SourceSpec::Zero(_) => return Ok(()),
        };
        let Err(error) = looked_at else { return Ok(()) };
        first.get_or_insert((source, error));
    }
    let Some((source, error)) = first else {
        return Err(TransferError::start(problem("nothing to push", "a source", "none", "")));
    };
    let what = format!("cannot read the source {}", Name(source_text(source)));
    let hint = "check the name and its rights";
    let problem = problem(&what, "", &error.to_string(), hint);
    Err(match error.kind() {
        // A mount may be missing on this host alone, and for a while.
        io::ErrorKind::NotFound => TransferError::Unavailable(Box::new(problem)),
        _ => unread(problem, &error),
    })
}

/// Checks that all sources are directories: only these can be watched.
pub fn check_watched(sources: &[SourceSpec]) -> Result<(), TransferError> {
    let Some(other) = sources.iter().find(|source| !is_directory(source)) else { return Ok(()) };
    let found = Name(source_text(other)).to_string();
    let hint = "watch the directory that holds it, or leave --watch out";
    Err(TransferError::start(problem("cannot watch this source", "a directory", &found, hint)))
}

/// Whether the source is a directory.
pub fn is_directory(source: &SourceSpec) -> bool {
    match source {
        SourceSpec::Path(path) => Path::new(path).is_dir(),
        SourceSpec::Beneath(place) => place.stat().is_ok_and(|there| tree::is_directory(&there)),
        SourceSpec::Zero(_) | SourceSpec::Beginning(_) => false,
    }
}
