//! Settings of a probe's runs on a disk: writing or reading, by which method, in which blocks.

use super::scratch_file::Caching;
use crate::words;
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// Block sizes of the sweep, in bytes: what one call moves, if the user names none.
pub(super) const BLOCK_SIZES: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Depths of the sweep, blocks under way, if the user names none. pread(2) and pwrite(2) are a
/// depth of 1.
pub(super) const DEPTHS: [u32; 3] = [2, 8, 32];
pub(super) const TIME_MAX: Duration = Duration::from_secs(30);
const ROUNDS: u32 = 3;
/// The part of a profile's time that a run of the sweep takes, within these limits.
const CELL_PARTS: u32 = 30;
const CELL_TIME_MIN: Duration = Duration::from_millis(200);
const CELL_TIME_MAX: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Write,
    Read,
}

impl Operation {
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }

    pub(super) fn things(self) -> &'static str {
        match self {
            Self::Write => "Writes",
            Self::Read => "Reads",
        }
    }
}

/// The way in which bytes go between memory and disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// O_DIRECT through io_uring, with many blocks under way.
    IoUring,
    /// O_DIRECT by pread(2) and pwrite(2), one block after the other.
    Direct,
    /// The page cache; a write is synced at its end, a read begins with an empty cache.
    Buffered,
}

impl Method {
    pub const ALL: [Self; 3] = [Self::IoUring, Self::Direct, Self::Buffered];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io-uring",
            Self::Direct => "direct",
            Self::Buffered => "buffered",
        }
    }

    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::IoUring => "O_DIRECT through io_uring",
            Self::Direct => "O_DIRECT one block after the other",
            Self::Buffered => "the page cache",
        }
    }

    pub(super) fn caching(self) -> Caching {
        match self {
            Self::IoUring | Self::Direct => Caching::Direct,
            Self::Buffered => Caching::PageCache,
        }
    }
}

/// The way a run moves its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Setting {
    pub method: Method,
    pub block_bytes: usize,
    /// Blocks under way at a time.
    pub depth: u32,
}

impl Setting {
    /// The method in words, with its block and depth.
    #[must_use]
    pub fn in_words(&self) -> String {
        let block = words::bytes(self.block_bytes as u64);
        match self.method {
            Method::IoUring => {
                format!("{}, blocks of {block}, {} at a time", self.method.in_words(), self.depth)
            }
            Method::Direct | Method::Buffered => {
                format!("{}, blocks of {block}", self.method.in_words())
            }
        }
    }
}

/// A request to measure a disk.
#[derive(Clone, Debug)]
pub struct DiskRequest {
    pub directory: PathBuf,
    /// The size of the file; `None`: what `plan.rs` says.
    pub len_bytes: Option<u64>,
    /// The largest file that a probe takes by itself.
    pub len_bytes_max: u64,
    /// The time after which a profile ends.
    pub time_max: Duration,
    /// Block sizes in bytes: not empty, each a multiple of 4096.
    pub block_sizes: Vec<usize>,
    /// Depths of io_uring: not empty.
    pub depths: Vec<u32>,
    pub methods: Vec<Method>,
    /// Rounds of the sweep; 0 leaves it out.
    pub rounds: u32,
}

impl DiskRequest {
    /// Makes a request for a directory, with all else as it is by itself.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            len_bytes: None,
            len_bytes_max: u64::MAX,
            time_max: TIME_MAX,
            block_sizes: BLOCK_SIZES.to_vec(),
            depths: DEPTHS.to_vec(),
            methods: Method::ALL.to_vec(),
            rounds: ROUNDS,
        }
    }

    pub(super) fn cell_time(&self) -> Duration {
        (self.time_max / CELL_PARTS).clamp(CELL_TIME_MIN, CELL_TIME_MAX).min(self.time_max)
    }

    pub(super) fn wants(&self, method: Method) -> bool {
        self.methods.contains(&method)
    }
}
