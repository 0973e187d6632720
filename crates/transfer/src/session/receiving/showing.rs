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
            Self::Later if root.hidden_directories().is_empty() => {}
            Self::Later => {
                committer.show_all();
                *self = Self::Asked;
                return false;
            }
            Self::Asked if !committer.has_shown() => return false,
            Self::Asked => {}
        }
        *self = Self::Done;
        let mut faults = committer.take_show_faults();
        let hidden = root.hidden_directories();
        let cut_short = hidden.iter().filter(|directory| directory.stays_hidden());
        faults.extend(cut_short.map(|directory| directory.cut_short_fault()));
        for fault in faults {
            context.failed_late(fault);
        }
        true
    }
}
