//! Fault message: what went wrong, on which side, and what a user can do about it.

use super::edge::{Edge, enumeration, message};
use crate::{ProtocolError, wire};
use alloc::{format, string::String, vec::Vec};

enumeration! {
    /// A kind of fault, by what can be done about it.
    pub enum FaultCode, else FaultUnknown {
        FaultUnknown,
        // The session's faults.
        Version,
        TokenWrong,
        TokenExpired,
        TokenUsed,
        TokenRevoked,
        RightMissing,
        ProtectionTooLow,
        TooManySessions,
        ProtocolViolation,
        ShuttingDown,
        Stalled,
        /// The transfer came back on another connection, which takes over.
        Superseded,
        // A file's faults, or the session's where no file is concerned.
        NameRefused,
        NotFound,
        NotPermitted,
        NoSpace,
        ReadOnly,
        Locked,
        SourceChanged,
        DataDamaged,
        IoFailed,
        KindUnsupported,
        EngineRefused,
        /// A file of the name is there already, and it was to stay.
        Exists,
        TooManyRemovals,
        /// The name is taken by another file of the session.
        NameTaken,
    }
}

enumeration! {
    /// The side that something went wrong on.
    pub enum Side, else Unknown {
        Unknown,
        Source,
        Target,
        /// The network between the two sides.
        Path,
    }
}

message! {
    /// A fault: where it is, what was tried, what it needs, what was found, what to do.
    pub struct Fault {
        pub code: FaultCode,
        pub side: Side,
        pub path: Vec<u8>,
        pub what: String,
        pub needs: String,
        pub found: String,
        pub hint: String,
    }
}

impl ProtocolError {
    /// Makes the fault that tells the peer of its error.
    #[must_use]
    pub fn to_fault(&self) -> Fault {
        Fault {
            code: FaultCode::ProtocolViolation,
            what: format!("the peer broke the protocol: {}", self.what),
            hint: "run the same haul version on both ends; if it is, report this".into(),
            ..Fault::default()
        }
    }
}

impl Fault {
    #[must_use]
    pub fn new(code: FaultCode, side: Side, what: impl Into<String>) -> Self {
        Self { code, side, what: what.into(), ..Self::default() }
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
