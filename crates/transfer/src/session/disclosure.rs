//! Extent of what a sender may be told of the files at the target.

use crate::rights::{Right, Rights};

/// Knowledge of files that are there which a sender may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    All,
    Little,
}

impl Telling {
    /// Decides what to tell by the rights of a client.
    #[must_use]
    pub fn to(rights: Rights) -> Self {
        if rights.allows(Right::Read) { Self::All } else { Self::Little }
    }
}
