//! The findings of a disk's probe.

use super::{
    course::{self, Course},
    explanation::Explanation,
    plan::Plan,
    run::{Refusal, Run},
    scratch_file::{Nameless, Space},
    series,
    setting::{Method, Operation, Setting},
    verdict::Verdict,
};
use haul_host::{FileSystem, Host, block_device::Storage};
use hdrhistogram::Histogram;
use std::path::PathBuf;

/// A long run, measured over time.
#[derive(Debug)]
pub struct Profile {
    pub operation: Operation,
    pub setting: Setting,
    /// The run with its explanation, or why there is none.
    pub outcome: Result<Profiled, Refusal>,
}

#[derive(Clone, Debug)]
pub struct Profiled {
    pub run: Run,
    pub course: Course,
    pub explanation: Option<Explanation>,
}

/// The short runs of one setting in the sweep.
#[derive(Clone, Debug)]
pub struct Cell {
    pub operation: Operation,
    pub setting: Setting,
    /// Bytes a second of each round; those of writes by the page cache with their sync.
    pub rates: Vec<f64>,
    /// Delays of all rounds, in nanoseconds.
    pub delays: Histogram<u64>,
    /// Processor time of all rounds.
    pub cpu_s: f64,
    pub bytes: u64,
    pub refused: Option<String>,
}

impl Cell {
    pub(super) fn new(operation: Operation, setting: Setting) -> Self {
        Self {
            operation,
            setting,
            rates: Vec::new(),
            delays: series::no_delays(),
            cpu_s: 0.0,
            bytes: 0,
            refused: None,
        }
    }

    #[must_use]
    pub fn median_bytes_per_s(&self) -> Option<f64> {
        (!self.rates.is_empty()).then(|| course::quantile(&self.rates, 0.5))
    }

    /// Processor time of this process for each 10^9 bytes.
    #[must_use]
    pub fn cpu_s_per_gb(&self) -> f64 {
        self.cpu_s / (self.bytes.max(1) as f64 / 1e9)
    }
}

/// All findings of a disk's probe.
#[derive(Debug)]
pub struct DiskReport {
    pub directory: PathBuf,
    pub host: Host,
    pub storage: Storage,
    pub file_system: FileSystem,
    pub plan: Plan,
    pub nameless: Nameless,
    pub space: Space,
    /// Methods that were asked for and do not work here, and why.
    pub refused: Vec<(Method, String)>,
    pub profiles: Vec<Profile>,
    pub cells: Vec<Cell>,
    pub verdict: Verdict,
}
