//! What became of a file.

use serde::Serialize;

/// Outcome for a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FileStatus {
    /// In place and verified.
    Done,
    /// There already, and the same.
    Skipped,
    /// Not in place; an error tells why.
    Failed,
    /// `--delete`: the sources do not have it.
    Removed,
    /// `--dry-run`: nothing of that name is there.
    WouldCopy,
    /// `--dry-run`: another file of that name is there, and would be replaced.
    WouldReplace,
    /// `--dry-run` with `--delete`: the sources do not have it.
    WouldRemove,
}

impl FileStatus {
    /// A dry run's word of a file that would be sent.
    #[must_use]
    pub(crate) fn planned(replaces: bool) -> Self {
        if replaces { Self::WouldReplace } else { Self::WouldCopy }
    }

    /// The word of `--json` and of the server's log.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Removed => "removed",
            Self::WouldCopy => "would-copy",
            Self::WouldReplace => "would-replace",
            Self::WouldRemove => "would-remove",
        }
    }
}
