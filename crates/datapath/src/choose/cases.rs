//! The tables behind the choice: which engines suit which source and target.
//!
//! [`SendCase::order`] and [`ReceiveCase::order`] name the engines of each case, the best first.
//! The rates in the comments were measured on one 2-core virtual machine on loopback.

use haul_host::FsKind;

use crate::{
    WireKind,
    choose::facts::{ReceiveFacts, SendFacts, Source, Target, counted},
};

/// Share of the source in the page cache from which it counts as warm: above a third, sendfile (6.7
/// GB/s warm, 1.2 cold) beats reading all of it from the disk with O_DIRECT (1.65).
const WARM_SHARE: f64 = 0.5;
/// Share from which a source counts as warm where memory cannot hold all of it: see `again.rs`.
const WARM_SHARE_BEYOND: f64 = 0.9;

/// Size from which a transfer is large: a smaller one is over before O_DIRECT with its set-up and
/// its aligned rest has paid off.
pub const LARGE_BYTES: u64 = 64 << 20;

/// Kinds of source that differ in their best engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendCase {
    /// A pair of RDMA endpoints, whatever the source is.
    Fabric,
    /// TLS in this process, where the page cache gives the bytes.
    Tls,
    /// TLS in this process, of a source that is read past the page cache.
    TlsColdLargeOnDisk,
    Zeros,
    Unknown,
    Warm,
    ColdSmall,
    ColdLargeOnDisk,
    ColdElsewhere,
}

impl SendCase {
    #[cfg(test)]
    pub(super) const ALL: [Self; 9] = [
        Self::Fabric,
        Self::Tls,
        Self::TlsColdLargeOnDisk,
        Self::Zeros,
        Self::Unknown,
        Self::Warm,
        Self::ColdSmall,
        Self::ColdLargeOnDisk,
        Self::ColdElsewhere,
    ];

    /// The engines for each kind of source, the best first.
    pub(super) const fn order(self) -> &'static [&'static str] {
        match self {
            Self::Fabric => &["fabric"],
            Self::Tls => &["tls"],
            Self::TlsColdLargeOnDisk => &["io-uring", "direct", "tls"],
            Self::Zeros | Self::Unknown | Self::Warm | Self::ColdSmall | Self::ColdElsewhere => {
                &["sendfile", "splice", "read-write"]
            }
            Self::ColdLargeOnDisk => &["io-uring", "direct", "sendfile", "splice", "read-write"],
        }
    }

    pub(super) fn of(facts: &SendFacts<'_>) -> Self {
        match (facts.wire, Self::of_source(facts)) {
            (WireKind::Fabric, _) => Self::Fabric,
            (WireKind::Tls, Self::ColdLargeOnDisk) => Self::TlsColdLargeOnDisk,
            (WireKind::Tls, _) => Self::Tls,
            (WireKind::Tcp | WireKind::KernelTls, case) => case,
        }
    }

    fn of_source(facts: &SendFacts<'_>) -> Self {
        let file_system = match facts.source {
            Source::File(file_system) => file_system,
            Source::Zeros => return Self::Zeros,
            Source::Unknown => return Self::Unknown,
        };
        let warm = if facts.is_beyond_memory() { WARM_SHARE_BEYOND } else { WARM_SHARE };
        if facts.resident_share >= warm {
            return Self::Warm;
        }
        if facts.size_bytes < LARGE_BYTES {
            return Self::ColdSmall;
        }
        match file_system {
            FsKind::Ext | FsKind::Xfs | FsKind::Btrfs | FsKind::F2fs => Self::ColdLargeOnDisk,
            _ => Self::ColdElsewhere,
        }
    }

    /// The circumstance that begins the reason: "circumstance, so engine does this".
    pub(super) fn circumstance(self, facts: &SendFacts<'_>) -> String {
        let percent = percent(facts.resident_share);
        let size = in_words(facts.size_bytes);
        let place = match facts.source {
            Source::File(kind) => kind.to_string(),
            Source::Zeros | Source::Unknown => String::new(),
        };
        match self {
            Self::Fabric => "the wire is a pair of RDMA endpoints".to_owned(),
            Self::Tls => "the wire is TLS in this process".to_owned(),
            Self::Zeros => "the source is zeros".to_owned(),
            Self::Unknown => "nothing is known of the source".to_owned(),
            Self::Warm => format!("{percent} % of the source is in the page cache"),
            Self::ColdSmall => {
                format!("the source is small ({size}) and {percent} % of it in the page cache")
            }
            Self::ColdLargeOnDisk | Self::TlsColdLargeOnDisk => format!(
                "the source is large ({size}) on {place} and {percent} % of it in the page cache"
            ),
            Self::ColdElsewhere => format!(
                "{percent} % of the source is in the page cache and {place} may not read past it"
            ),
        }
    }
}

/// Kinds of target that differ in their best engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveCase {
    /// A pair of RDMA endpoints, whatever the target is.
    Fabric,
    /// TLS in this process, where the page cache takes the bytes, or nothing does.
    Tls,
    /// TLS in this process, onto a disk that is written past the page cache.
    TlsDisk,
    TlsBtrfs,
    Null,
    Small,
    /// A small transfer onto a disk, whose write-back begins with the first block.
    SmallDurable,
    Memory,
    MemoryDigested,
    /// A disk whose page cache takes all of it, with nobody waiting for the disk.
    PageCache,
    PageCacheDigested,
    Disk,
    Btrfs,
    Elsewhere,
}

impl ReceiveCase {
    #[cfg(test)]
    pub(super) const ALL: [Self; 14] = [
        Self::Fabric,
        Self::Tls,
        Self::TlsDisk,
        Self::TlsBtrfs,
        Self::Null,
        Self::Small,
        Self::SmallDurable,
        Self::Memory,
        Self::MemoryDigested,
        Self::PageCache,
        Self::PageCacheDigested,
        Self::Disk,
        Self::Btrfs,
        Self::Elsewhere,
    ];

    /// The engines for each kind of target, the best first.
    pub(super) const fn order(self) -> &'static [&'static str] {
        match self {
            Self::Fabric => &["fabric"],
            Self::Tls => &["tls"],
            Self::TlsDisk => &["io-uring", "direct", "tls"],
            Self::TlsBtrfs => &["direct", "tls"],
            Self::Null => &["discard", "read-write"],
            Self::Small => &["read-write"],
            // 1.03 to 1.06 times read-write on ext4 and xfs (1 MiB): pages that were just written
            // out are taken for the next block.
            Self::SmallDurable => &["dontcache", "read-write"],
            Self::Memory | Self::PageCache => &["splice", "read-write"],
            // Splice and reading back what it wrote may be as good: to be measured.
            Self::MemoryDigested | Self::PageCacheDigested => &["read-write"],
            // Where io_uring is switched off: direct is as fast as dontcache from cold sources
            // (0.94), 1.3 times from warm ones, and takes two thirds of the CPU.
            Self::Disk => &["io-uring", "direct", "dontcache", "read-write"],
            // O_DIRECT falls back to buffered writes where data has checksums (btrfs(5)), but one
            // thread of its own copies and computes checksums beside the stream: 1.2 times
            // read-write. RWF_DONTCACHE is refused (Linux 6.18).
            Self::Btrfs => &["direct", "read-write"],
            Self::Elsewhere => &["read-write"],
        }
    }

    pub(super) fn of(facts: &ReceiveFacts<'_>) -> Self {
        match (facts.wire, Self::of_target(facts)) {
            (WireKind::Fabric, _) => Self::Fabric,
            (WireKind::Tls, Self::Disk) => Self::TlsDisk,
            (WireKind::Tls, Self::Btrfs) => Self::TlsBtrfs,
            (WireKind::Tls, _) => Self::Tls,
            (WireKind::Tcp | WireKind::KernelTls, case) => case,
        }
    }

    fn of_target(facts: &ReceiveFacts<'_>) -> Self {
        let Target::File(file_system) = facts.target else { return Self::Null };
        if facts.size_bytes < LARGE_BYTES {
            let on_disk = matches!(file_system, FsKind::Ext | FsKind::Xfs);
            let at_once = on_disk && facts.durable && !facts.grows;
            return if at_once { Self::SmallDurable } else { Self::Small };
        }
        // A writer is slowed down from halfway to the limit on (balance_dirty_pages).
        let page_cache_takes_it =
            !facts.durable && facts.size_bytes <= facts.host.dirty_limit_bytes / 2;
        match (file_system, facts.digest) {
            (FsKind::Tmpfs, false) => Self::Memory,
            (FsKind::Tmpfs, true) => Self::MemoryDigested,
            (FsKind::Ext | FsKind::Xfs | FsKind::F2fs, false) if page_cache_takes_it => {
                Self::PageCache
            }
            (FsKind::Ext | FsKind::Xfs | FsKind::F2fs, true) if page_cache_takes_it => {
                Self::PageCacheDigested
            }
            (FsKind::Ext | FsKind::Xfs | FsKind::F2fs, _) => Self::Disk,
            (FsKind::Btrfs, _) => Self::Btrfs,
            _ => Self::Elsewhere,
        }
    }

    /// The circumstance that begins the reason: "circumstance, so engine does this".
    pub(super) fn circumstance(self, facts: &ReceiveFacts<'_>) -> String {
        let size = in_words(facts.size_bytes);
        let place = match facts.target {
            Target::Null => "null:".to_owned(),
            Target::File(kind) => kind.to_string(),
        };
        match self {
            Self::Fabric => "the wire is a pair of RDMA endpoints".to_owned(),
            Self::Tls => "the wire is TLS in this process".to_owned(),
            Self::Null => "the target keeps nothing".to_owned(),
            Self::Small | Self::SmallDurable => format!("the transfer is small ({size})"),
            Self::Memory => "the target is memory and no digest needs the bytes".to_owned(),
            Self::MemoryDigested => {
                "the target is memory and the digest needs each byte anyway".to_owned()
            }
            Self::PageCache => format!("the page cache takes all {size} and nobody waits for it"),
            Self::PageCacheDigested => {
                format!("the page cache takes all {size} and the digest needs each byte anyway")
            }
            Self::Disk | Self::TlsDisk => {
                let rotating = facts.rotational == Some(true);
                let disk = if rotating { ", on a disk that says it rotates" } else { "" };
                format!("{size} go to {place}{disk}")
            }
            Self::Btrfs | Self::TlsBtrfs => "btrfs computes checksums while it writes".into(),
            Self::Elsewhere => format!("{place} may not write past the page cache"),
        }
    }
}

/// Words for what an engine does for the sender, to stand behind its name.
pub(super) fn sending(engine: &str, wire: WireKind) -> &'static str {
    match (engine, wire) {
        ("sendfile", WireKind::Tcp) => "moves it without a copy",
        ("sendfile", WireKind::KernelTls) => "moves it without passing user space",
        ("splice", _) => "moves it through a pipe without passing user space",
        ("io-uring", _) => "reads it past the page cache, ahead of the wire",
        ("direct", _) => "reads it past the page cache",
        ("fabric", _) => "sends the pages of the page cache",
        ("tls", _) => "encrypts it in the buffer that it is read into",
        _ => "copies it through a buffer",
    }
}

/// Words for what an engine does for the receiver, to stand behind its name.
pub(super) fn receiving(engine: &str) -> &'static str {
    match engine {
        "discard" => "throws it away in the socket",
        "splice" => "moves it through a pipe without passing user space",
        "io-uring" => "writes it past the page cache, many writes at a time",
        "direct" => "writes it with a thread of its own, by O_DIRECT",
        "fabric" => "writes the registered memory that it comes into",
        "tls" => "decrypts it in the buffer that it comes into",
        "dontcache" => "writes it through the page cache and drops the pages at once",
        _ => "copies it through a buffer",
    }
}

/// A share in per cent, rounded down, so that 100 % means all of it.
pub(super) fn percent(share: f64) -> f64 {
    (share.max(0.0) * 100.0).floor().min(100.0)
}

/// Bytes in the largest unit of which there is at least one.
pub(super) fn in_words(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let steps = (bytes.max(1).ilog2() / 10) as usize;
    let Some(unit) = steps.checked_sub(1).and_then(|unit| UNITS.get(unit)) else {
        return counted(bytes, "byte");
    };
    let number = bytes as f64 / (1_u64 << (10 * steps)) as f64;
    // One decimal, and none where it would be 0.
    let number = format!("{number:.1}");
    format!("{} {unit}", number.trim_end_matches(".0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_said_in_the_largest_unit() {
        assert_eq!(in_words(0), "0 bytes");
        assert_eq!(in_words(1), "1 byte");
        assert_eq!(in_words(1023), "1023 bytes");
        assert_eq!(in_words(1536), "1.5 KiB");
        assert_eq!(in_words(10 << 30), "10 GiB");
        assert_eq!(in_words(u64::MAX), "16 EiB");
    }

    #[test]
    fn each_engine_has_its_own_words() {
        let pipe = "moves it through a pipe without passing user space";
        assert_eq!([sending("splice", WireKind::Tcp), receiving("splice")], [pipe; 2]);
        let words =
            ["discard", "splice", "io-uring", "direct", "dontcache", "fabric", "tls", "read-write"];
        let mut words = words.map(receiving).to_vec();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 8);
    }

    #[test]
    fn a_source_is_large_from_its_very_size_on() {
        let host = crate::Host::default();
        let of = |size_bytes| {
            SendCase::of(&SendFacts {
                host: &host,
                wire: WireKind::Tcp,
                source: Source::File(FsKind::Ext),
                size_bytes,
                resident_share: 0.0,
                digest: false,
                forced: None,
            })
        };
        assert_eq!(of(LARGE_BYTES - 1), SendCase::ColdSmall);
        assert_eq!(of(LARGE_BYTES), SendCase::ColdLargeOnDisk);
    }
}
