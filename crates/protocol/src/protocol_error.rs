//! Error of a peer that breaks the protocol: what it said, in words.

use alloc::string::String;
use core::fmt;

/// An error of the peer, which said what the protocol does not allow; the session ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError {
    pub what: String,
}

impl ProtocolError {
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl core::error::Error for ProtocolError {}
