//! Outcomes for a file.

use serde::{Deserialize, Serialize};

/// Outcome for a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FileStatus {
    /// The file is in place and verified.
    Done,
    /// The file was there already, and is the same.
    Skipped,
    /// The file is not in place; an error tells why.
    Failed,
    /// The file was removed by `--delete`: the sources do not have it.
    Removed,
    /// The file would be copied (`--dry-run`): nothing of that name is there.
    WouldCopy,
    /// The file would replace another one of its name (`--dry-run`).
    WouldReplace,
    /// The file would be removed (`--dry-run` with `--delete`): the sources do not have it.
    WouldRemove,
}

impl FileStatus {
    /// Outcome in a dry run for a file that would be sent.
    #[must_use]
    pub(crate) fn planned(replaces: bool) -> Self {
        if replaces { Self::WouldReplace } else { Self::WouldCopy }
    }

    /// Name of the outcome in `--json` and in the server's log.
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
