//! Hidden directories get their names once all of a session is settled.
//!
//! The committer does that, whose renames and syncs wait for nobody else.

use super::{context::Context, stage::Stage};

/// The stage that has the hidden directories shown.
#[derive(Debug, Default)]
pub(super) enum Showing {
    #[default]
    Later,
    Asked,
    Done,
}

impl Stage for Showing {
    fn finish(&mut self, context: &mut Context<'_>) -> bool {
        let Some(root) = context.place.root() else { return true };
        let committer = &context.shared.committer;
        match self {
            Self::Done => return true,
            Self::Later if root.hidden_directories().is_empty() => {
                *self = Self::Done;
                return true;
            }
            Self::Later => {
                committer.show_all();
                *self = Self::Asked;
            }
            Self::Asked => {}
        }
        let Some(faults) = committer.take_shown() else { return false };
        *self = Self::Done;
        let hidden = root.hidden_directories();
        let cut_short = hidden.iter().filter(|directory| directory.stays_hidden());
        for fault in
            faults.into_iter().chain(cut_short.map(|directory| directory.cut_short_fault()))
        {
            context.failed_late(fault);
        }
        true
    }
}
