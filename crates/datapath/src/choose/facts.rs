//! Facts that an engine is chosen by.

use crate::{
    Host, WireKind,
    choose::cases::{in_words, percent},
};
use haul_host::FsKind;

/// Facts that the choice of an engine that sends depends on.
#[derive(Clone, Copy, Debug)]
pub struct SendFacts<'facts> {
    pub host: &'facts Host,
    pub wire: WireKind,
    pub source: Source,
    /// Bytes that are to be sent in all.
    pub size_bytes: u64,
    /// Share of the source in the page cache, 0 to 1.
    pub resident_share: f64,
    /// Whether a digest or MAC is computed over the bytes.
    pub digest: bool,
    /// The value of --send-engine.
    pub forced: Option<&'facts str>,
}

impl SendFacts<'_> {
    /// Whether memory cannot hold the whole source; false where it is not known how much memory
    /// there is.
    pub(super) fn is_beyond_memory(&self) -> bool {
        self.host.memory_bytes > 0 && self.size_bytes > self.host.memory_bytes
    }

    /// Describes in words what is to be sent, and how.
    #[must_use]
    pub fn in_words(&self) -> String {
        let size = in_words(self.size_bytes);
        let digested = digested(self.digest);
        let place = match self.source {
            Source::File(place) => place,
            Source::Zeros => return format!("{size} of zeros, {digested}"),
            Source::Unknown => return format!("{size} of which nothing is known, {digested}"),
        };
        let percent = percent(self.resident_share);
        format!("{size} on {place}, {percent} % of it in the page cache, {digested}")
    }
}

pub(crate) fn digested(digest: bool) -> &'static str {
    if digest { "a digest of each byte" } else { "no digest" }
}

/// Facts that the choice of an engine that receives depends on.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveFacts<'facts> {
    pub host: &'facts Host,
    pub wire: WireKind,
    pub target: Target,
    /// Bytes of the whole transfer.
    pub size_bytes: u64,
    /// Whether the transfer is done only once its bytes are on the disk.
    pub durable: bool,
    /// Whether the file is written while it is sent, and read once more at its end.
    pub grows: bool,
    /// Whether a digest or MAC is computed over the bytes.
    pub digest: bool,
    /// Whether the target's disk says that it rotates; `None` if it says nothing.
    pub rotational: Option<bool>,
    /// The value of --receive-engine.
    pub forced: Option<&'facts str>,
}

impl ReceiveFacts<'_> {
    /// Describes in words what is to be received, and how.
    #[must_use]
    pub fn in_words(&self) -> String {
        let size = in_words(self.size_bytes);
        let digested = digested(self.digest);
        let Target::File(place) = self.target else {
            return format!("{size} to null:, {digested}");
        };
        let disk = match self.rotational {
            Some(true) => "the disk rotates",
            Some(false) => "the disk does not rotate",
            None => "no disk tells whether it rotates",
        };
        let durable = if self.durable { "durable at the end" } else { "not synced" };
        format!("{size} to {place}, {durable}, {digested}; {disk}")
    }
}

/// The origin of sent bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The source `zero:SIZE`.
    Zeros,
    File(FsKind),
    /// A source that could not be opened, or whose file system is not known.
    Unknown,
}

/// The destination of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The target `null:`.
    Null,
    File(FsKind),
}

pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_said_with_all_that_is_known() {
        let host = Host { memory_bytes: 1 << 30, ..Host::default() };
        let facts = SendFacts {
            host: &host,
            wire: WireKind::Tcp,
            source: Source::File(FsKind::Ext),
            size_bytes: 1 << 30,
            resident_share: 0.5,
            digest: true,
            forced: None,
        };
        let said = "1 GiB on ext4, 50 % of it in the page cache, a digest of each byte";
        assert_eq!(facts.in_words(), said);
        assert!(!facts.is_beyond_memory(), "it holds just that");
        let larger = SendFacts { size_bytes: (1 << 30) + 1, ..facts };
        assert!(larger.is_beyond_memory());
        let unknown = Host::default();
        assert!(!SendFacts { host: &unknown, ..larger }.is_beyond_memory());
        let zeros = SendFacts { source: Source::Zeros, digest: false, ..facts };
        assert_eq!(zeros.in_words(), "1 GiB of zeros, no digest");
    }

    #[test]
    fn what_is_received_is_said_with_all_that_is_known() {
        let host = Host::default();
        let facts = ReceiveFacts {
            host: &host,
            wire: WireKind::Tcp,
            target: Target::File(FsKind::Xfs),
            size_bytes: 1 << 30,
            durable: true,
            grows: false,
            digest: true,
            rotational: Some(true),
            forced: None,
        };
        let said = "1 GiB to xfs, durable at the end, a digest of each byte; the disk rotates";
        assert_eq!(facts.in_words(), said);
        let null = ReceiveFacts { target: Target::Null, digest: false, ..facts };
        assert_eq!(null.in_words(), "1 GiB to null:, no digest");
    }
}
