//! The request of `haul bench media`.

use haul_host::control_group::ReadLimit;
use haul_media::{
    delivery::{METHODS, Method, Readahead},
    pace::Rate,
};
use std::{path::PathBuf, str::FromStr, time::Duration};

/// Shares of what a crowd asks for that the disk of a server gives, unless the user says others:
/// far too little, and little too little.
pub const DISK_SHARES: [f64; 2] = [0.6, 0.9];
/// Bytes that the kernel reads ahead at once by default (VM_READAHEAD_PAGES).
pub(super) const READ_AHEAD_BYTES: u64 = 128 << 10;
/// Suffix of a method's name where the kernel is asked not to read ahead.
const NO_READAHEAD: &str = "-no-readahead";

/// A part of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaPart {
    /// Deadlines of a crowd of viewers
    Crowd,
    /// Processor time of one file that is read whole
    SingleFile,
    /// Response times by the file's size
    Response,
    /// Small requests, by each engine that sends
    Combinations,
}

/// A way of sending, with or without the kernel's read-ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    pub method: Method,
    pub readahead: Readahead,
}

impl Variant {
    #[must_use]
    pub fn name(self) -> String {
        let suffix = if self.readahead == Readahead::Off { NO_READAHEAD } else { "" };
        format!("{}{suffix}", self.method.name())
    }

    /// All ways of sending, the study's first.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let of = |readahead| METHODS.map(|method| Self { method, readahead });
        of(Readahead::Kernel).into_iter().chain(of(Readahead::Off)).collect()
    }

    /// The ways that are compared: all methods, and the one that the kernel reads ahead for also
    /// without that.
    #[must_use]
    pub fn of_study() -> Vec<Self> {
        let plain = METHODS.map(|method| Self { method, readahead: Readahead::Kernel });
        let without = Self { method: Method::Normal, readahead: Readahead::Off };
        plain.into_iter().chain([without]).collect()
    }
}

impl FromStr for Variant {
    type Err = UnknownMethod;

    fn from_str(name: &str) -> Result<Self, UnknownMethod> {
        let found = Self::all().into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| UnknownMethod(name.to_owned()))
    }
}

/// A name that no way of sending has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no method {0:?}, there are: {names}", names = names_of_all().join(", "))]
pub struct UnknownMethod(pub String);

fn names_of_all() -> Vec<String> {
    Variant::all().into_iter().map(Variant::name).collect()
}

/// The crowd that each method meets.
#[derive(Clone, Debug, PartialEq)]
pub struct CrowdPlan {
    pub users: u32,
    pub mean_gap: Duration,
    pub films: u32,
    pub film_bytes: u64,
    pub rate: Rate,
    pub theta: f64,
    pub periods: u32,
    pub period: Duration,
    pub seed: u64,
}

impl CrowdPlan {
    /// The time of all periods.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.period * self.periods
    }
}

/// Limit of the disk of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DiskBound {
    /// The share of the bytes that each crowd asks for when most of it watches, in as many reads as
    /// these are at the kernel's default read-ahead.
    Share(f64),
    /// Rates that the user named.
    Rates(ReadLimit),
}

/// Limits on what a server may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    /// Disks, one after the other, each for a server that the same crowd meets.
    pub disks: Vec<DiskBound>,
    pub memory_bytes: u64,
}

/// The request of `haul bench media`, as its words were checked.
#[derive(Clone, Debug)]
pub struct BenchMedia {
    pub parts: Vec<MediaPart>,
    pub crowd: CrowdPlan,
    pub variants: Vec<Variant>,
    pub rounds: u32,
    /// Rounds of the parts that take little time.
    pub small_rounds: u32,
    /// Limits on the server; `None` limits neither disk nor memory.
    pub bounds: Option<Bounds>,
    pub file_bytes: u64,
    pub sizes: Vec<u64>,
    pub directory: PathBuf,
    pub against: Option<Against>,
}

/// An HTTP server other than haul.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Against {
    /// Host and port of the server.
    pub server: String,
    /// Path of a film, or of a page with links where it ends in a slash.
    pub path: String,
    pub pids: Vec<u32>,
}
