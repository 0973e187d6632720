//! A token as its server knows it: what the file of tokens holds, and what is told of it.
//!
//! Only the file has secrets and their hashes. What is told has none, so that it may be printed.

use crate::{rights::Rights, served_root::ServedRoot};
use serde::{Deserialize, Serialize};
use std::{
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

/// A token as the server knows it, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenRecord {
    /// First digits of the secret's hash, which name the token in lists and logs.
    pub id: String,
    /// Rights of its bearer.
    pub rights: Rights,
    served: ServedRoot,
    /// Path below what is served that the token opens; empty for all of it.
    pub root: PathBuf,
    /// Words that tell the token's user what it is for.
    pub label: String,
    /// Time when the token was made, in seconds since 1970.
    pub created_s: u64,
    /// Time when the token expires, in seconds since 1970; `None` for never.
    pub expires_s: Option<u64>,
    /// Whether the token is good for one transfer only, which may resume until it is complete.
    pub single_use: bool,
    used_up: bool,
    /// Whether the token was revoked.
    pub revoked: bool,
}

impl TokenRecord {
    /// State of the token in a word: `valid`, `expired`, `used` or `revoked`.
    #[must_use]
    pub fn status(&self) -> &'static str {
        if self.revoked {
            "revoked"
        } else if self.expires_s.is_some_and(|end| end <= now_s()) {
            "expired"
        } else if self.used_up {
            "used"
        } else {
            "valid"
        }
    }

    /// Directory that the token opens, or one that holds that.
    #[must_use]
    pub fn served(&self) -> &ServedRoot {
        &self.served
    }
}

/// A token as the file of tokens holds it. It has a secret in it, and so no way to be printed.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct StoredToken {
    pub id: String,
    pub secret_hash: String,
    /// Secret, only of the token that `haul serve` prints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    pub rights: Rights,
    /// Root that the token is for; `None` as an older version wrote it, until a server has looked
    /// at it.
    #[serde(default)]
    pub served: Option<ServedRoot>,
    pub root: PathBuf,
    pub label: String,
    pub created_s: u64,
    pub expires_s: Option<u64>,
    pub single_use: bool,
    /// Hash of the request that a single-use token was first shown for; the same may go on until it
    /// is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_for: Option<String>,
    /// Whether the transfer of a single-use token is complete.
    #[serde(default)]
    pub used_up: bool,
    pub revoked: bool,
}

impl StoredToken {
    /// Record of the token, which may be told.
    pub fn record(&self) -> TokenRecord {
        TokenRecord {
            id: self.id.clone(),
            rights: self.rights,
            served: self.served().clone(),
            root: self.root.clone(),
            label: self.label.clone(),
            created_s: self.created_s,
            expires_s: self.expires_s,
            single_use: self.single_use,
            used_up: self.used_up,
            revoked: self.revoked,
        }
    }

    /// Directory that the token opens, or one that holds that.
    pub fn served(&self) -> &ServedRoot {
        self.served.as_ref().unwrap_or(&ServedRoot::Unknown)
    }
}

/// Time now, in seconds since 1970.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
