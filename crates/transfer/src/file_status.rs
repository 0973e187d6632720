//! What became of a file.

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileStatus {
    Done,
    Skipped,
    Failed,
    /// `--delete`: the sources do not have it.
    Removed,
    /// `--dry-run`: nothing of that name is there.
    WouldCopy,
    WouldReplace,
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
