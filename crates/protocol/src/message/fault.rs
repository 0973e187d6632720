//! What went wrong, by whose fault, in words that a user can act on.

use super::{Fault, FaultCode, Side};
use crate::protocol_error::ProtocolError;
use alloc::{format, string::String, vec::Vec};

impl ProtocolError {
    /// The message that tells the peer.
    #[must_use]
    pub fn to_fault(&self) -> Fault {
        Fault {
            code: FaultCode::ProtocolViolation as i32,
            what: format!("the peer broke the protocol: {}", self.what),
            hint: "run the same haul version on both ends; if it is, report this".into(),
            ..Fault::default()
        }
    }
}

impl Fault {
    #[must_use]
    pub fn new(code: FaultCode, side: Side, what: impl Into<String>) -> Self {
        Self { code: code as i32, side: side as i32, what: what.into(), ..Self::default() }
    }

    #[must_use]
    pub fn at(mut self, path: impl Into<Vec<u8>>) -> Self {
        self.path = path.into();
        self
    }

    #[must_use]
    pub fn needs(mut self, needs: impl Into<String>) -> Self {
        self.needs = needs.into();
        self
    }

    #[must_use]
    pub fn found(mut self, found: impl Into<String>) -> Self {
        self.found = found.into();
        self
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}
