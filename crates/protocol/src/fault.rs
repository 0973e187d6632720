//! What went wrong, by whose fault, in words that a user can act on.

use crate::wire;
use alloc::{format, string::String, vec::Vec};
use core::fmt;

/// The peer said something that the protocol does not allow; the session ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError {
    pub what: String,
}

impl ProtocolError {
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }

    /// The message that tells the peer.
    #[must_use]
    pub fn to_fault(&self) -> wire::Fault {
        wire::Fault {
            code: wire::FaultCode::ProtocolViolation as i32,
            what: format!("the peer broke the protocol: {}", self.what),
            hint: "run the same haul version on both ends; if it is, report this".into(),
            ..wire::Fault::default()
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl core::error::Error for ProtocolError {}

impl wire::Fault {
    #[must_use]
    pub fn new(code: wire::FaultCode, side: wire::Side, what: impl Into<String>) -> Self {
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
