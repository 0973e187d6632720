//! List of tokens as a running server saw it last: it is read again when it was changed.

use super::{StateDirectory, TokenRecord, check_good, unknown};
use haul_protocol::message::Fault;
use std::{
    fs::{File, Metadata},
    io::Read,
    os::unix::fs::MetadataExt,
};

/// The list of tokens, and what it was read from.
#[derive(Debug, Default)]
pub(crate) struct SeenTokens {
    stamp: Option<Stamp>,
    tokens: Vec<TokenRecord>,
}

/// Marks by which a list differs from the one that it took the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    len_bytes: u64,
    ctime: (i64, i64),
}

impl Stamp {
    fn of(file: &File) -> Option<Self> {
        let found = file.metadata().ok().filter(Metadata::is_file)?;
        let ctime = (found.ctime(), found.ctime_nsec());
        Some(Self { inode: found.ino(), len_bytes: found.len(), ctime })
    }
}

impl SeenTokens {
    /// Sees the list as it is now; false where it cannot be seen.
    ///
    /// Nothing can be told of a token then, so that its sessions go on: a copy over ssh outlives
    /// the login, with which the directory of its state may go.
    pub fn look(&mut self, state: &StateDirectory) -> bool {
        // Opened at each look: an NFS client asks its server then, and answers stat(2) out of its
        // cache. And what is read is what was looked at, so that a list that goes is no empty one.
        let Ok(mut file) = File::open(state.tokens_path()) else { return false };
        let Some(stamp) = Stamp::of(&file) else { return false };
        if self.stamp == Some(stamp) {
            return true;
        }
        let mut text = Vec::new();
        let Ok(_) = file.read_to_end(&mut text) else { return false };
        let Ok(tokens) = state.tokens_in(&text) else { return false };
        *self = Self { stamp: Some(stamp), tokens };
        true
    }

    /// The fault of a token that is good no more; `None` while it is.
    pub fn fault_of(&self, token_id: &str) -> Option<Fault> {
        let Some(token) = self.tokens.iter().find(|token| token.id == token_id) else {
            return Some(unknown());
        };
        check_good(token).err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rights, ServedRoot, state::NewToken};
    use haul_protocol::message::FaultCode;
    use std::time::Duration;

    #[test]
    fn a_token_is_good_until_it_is_revoked_or_expires_or_is_not_in_the_list() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(&place.path().join("state")).unwrap();
        let mut seen = SeenTokens::default();
        assert!(!seen.look(&state), "there is no list");
        let new = NewToken::new(ServedRoot::Null, Rights::ALL);
        let id = |new: &NewToken| state.new_token(new).unwrap().1.id;
        let (kept, revoked) = (id(&new), id(&new));
        let over = id(&NewToken { valid_for: Some(Duration::ZERO), ..new.clone() });
        let code = |seen: &SeenTokens, id: &str| seen.fault_of(id).map(|fault| fault.code);
        for _ in 0..2 {
            assert!(seen.look(&state));
            assert_eq!((code(&seen, &kept), code(&seen, &revoked)), (None, None));
            assert_eq!(code(&seen, &over), Some(FaultCode::TokenExpired));
            assert_eq!(code(&seen, "of nobody"), Some(FaultCode::TokenWrong));
        }
        state.revoke(&revoked).unwrap();
        assert!(seen.look(&state));
        assert_eq!(code(&seen, &revoked), Some(FaultCode::TokenRevoked));
        assert_eq!(code(&seen, &kept), None);
        // What is half a list, or none any more, tells nothing.
        std::fs::write(state.tokens_path(), b"[").unwrap();
        assert!(!seen.look(&state));
        std::fs::remove_file(state.tokens_path()).unwrap();
        assert!(!seen.look(&state));
    }
}
