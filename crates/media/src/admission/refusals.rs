//! Reasons why streams are refused, and how many were.

use std::time::Duration;

use super::capacity::Resource;

/// Refusal of a stream: the reason, and when it may ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub why: Why,
    /// Time after which the stream may ask again; `None` where it has no room even while nobody is
    /// there.
    pub retry_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A resource has too little left for the stream.
    Full(Resource),
    /// Streams that are there miss deadlines: whatever was measured, it is too much.
    Late,
    /// The cost of the stream is not found out in time.
    Busy,
}

impl Why {
    /// All reasons, each with its name for those who count.
    pub const ALL: [(Self, &str); 6] = [
        (Self::Full(Resource::Disk), "disk"),
        (Self::Full(Resource::Processors), "processors"),
        (Self::Full(Resource::Network), "network"),
        (Self::Full(Resource::Streams), "streams"),
        (Self::Late, "late"),
        (Self::Busy, "busy"),
    ];
}

/// Number of refused streams, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals([u64; Why::ALL.len()]);

impl Refusals {
    pub fn count(&mut self, why: Why) {
        for ((one, _), counted) in Why::ALL.iter().zip(&mut self.0) {
            *counted += u64::from(*one == why);
        }
    }

    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Names of all reasons, each with the number of streams refused for it.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Why::ALL.iter().zip(self.0).map(|((_, name), counted)| (*name, counted))
    }
}
