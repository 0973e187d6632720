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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file_options::FileOptions,
        session::receiving::{with_sender::directory, with_target::Target, without_peer},
    };

    #[test]
    fn the_end_waits_for_hidden_directories_to_be_shown_and_for_nothing_where_there_are_none() {
        let place = tempfile::tempdir().unwrap();
        let mut hear = |_| {};
        let below = without_peer::place(place.path(), FileOptions::default());
        let mut begun = without_peer::begin(below, &mut hear);
        assert!(Showing::default().finish(&mut begun.context));
        // Nobody is there who shows any.
        begun.committer.stop();
        let target = Target::of(begun.context.place.clone()).prepare(&directory(0, "tree"));
        let mut showing = Showing::default();
        for _ in 0..3 {
            assert!(!showing.finish(&mut begun.context));
        }
        drop(target);
    }
}
