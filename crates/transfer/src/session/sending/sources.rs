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
        arriving: Arriving,
    },
}

impl Sources {
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
    Ok(WalkOptions { matcher: Some(matcher), names: selection.names.clone(), ..options })
}
