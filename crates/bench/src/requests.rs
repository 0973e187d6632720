//! Requests of the benches: what each is asked to measure.

use haul_datapath::EngineInfo;
use haul_transfer::HaulUrl;
use std::{path::PathBuf, time::Duration};

/// The size of a file in the chooser's matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChooserSize {
    Bytes(u64),
    BeyondMemory,
}

/// The request of `haul bench engines`.
#[derive(Clone, Debug, Default)]
pub struct BenchEngines {
    pub url: Option<HaulUrl>,
    pub target: Option<String>,
    pub len_bytes: u64,
    pub directory: PathBuf,
    pub rounds: u32,
    pub time_max: Duration,
    pub streams: Vec<u32>,
    pub block_sizes: Vec<usize>,
    pub senders: Vec<&'static EngineInfo>,
    pub receivers: Vec<&'static EngineInfo>,
    pub full: bool,
}

/// The request of `haul bench files`.
#[derive(Clone, Debug)]
pub struct BenchFiles {
    /// The large file in bytes; `None` takes what fits.
    pub len_bytes: Option<u64>,
    /// Largest file of the table that is measured, in bytes.
    pub table_bytes_max: u64,
    pub directory: PathBuf,
    pub rounds: u32,
    pub time_max: Duration,
}

/// The request of `haul bench chooser`.
#[derive(Clone, Debug)]
pub struct BenchChooser {
    /// Directories to measure; if empty, the file systems that this host has.
    pub directories: Vec<PathBuf>,
    pub sizes: Vec<ChooserSize>,
    pub streams: Vec<u32>,
    pub senders: Vec<&'static EngineInfo>,
    pub receivers: Vec<&'static EngineInfo>,
    pub rounds: u32,
    pub time_max: Duration,
}

/// The path between the two hosts of `haul bench tuning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TuningPath {
    /// A pair of virtual interfaces: memory
    Veth,
    /// An emulated long path
    Wan,
}

/// The request of `haul bench tuning`.
#[derive(Clone, Debug)]
pub struct BenchTuning {
    pub paths: Vec<TuningPath>,
    pub streams: Vec<u32>,
    pub rate_bits_per_s: u64,
    pub round_trip: Duration,
    pub time: Duration,
    pub omit: Duration,
    pub rounds: u32,
    pub time_max: Duration,
    pub directory: PathBuf,
}
