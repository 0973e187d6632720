//! Arguments of `haul bench protection`, and their check.

use super::file_size::checked_size;
use crate::args::{results::LowResults, values::Period};
use clap::Args;
use haul_bench::requests::BenchProtection;
use haul_transfer::{Problem, internals::parse_size};
use std::{path::PathBuf, time::Duration};

/// Bytes of the file: some seconds of each protection.
const BYTES_DEFAULT: u64 = 2 << 30;
const QUICK_BYTES: u64 = 64 << 20;
const ROUNDS_DEFAULT: u32 = 5;
const TIME_MAX: Duration = Duration::from_secs(5 * 60);

/// Compares the protections of the data: clear, safe, and private by the kernel and by haul
///
/// A file is pushed over loopback out of the page cache, to null: and to a file, with each
/// --protection in interleaved rounds: rates, processor time and copies of both sides. Private is
/// measured by the kernel where that has TLS, and by haul's own process; beside it stands the
/// bare cipher, AES-128-GCM on memory in a core's cache.
#[derive(Debug, Args)]
pub struct LowBenchProtection {
    /// Bytes of the file; without it 2G, with --quick 64M
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Data streams; without it as many as haul chooses
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub streams: Option<u32>,
    /// Rounds; without it 5, with --quick 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// No more rounds after this time; without it 5m
    #[arg(long, value_name = "TIME")]
    pub budget: Option<Period>,
    /// Directory for the files; without it the current one
    #[arg(long = "dir", value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Less of everything: a look, no measurement
    #[arg(long)]
    pub quick: bool,
    #[command(flatten)]
    pub output: LowResults,
}

impl LowBenchProtection {
    /// The request.
    ///
    /// # Errors
    /// If a size is too small.
    pub fn checked(&self) -> Result<BenchProtection, Problem> {
        let (bytes, rounds) =
            if self.quick { (QUICK_BYTES, 1) } else { (BYTES_DEFAULT, ROUNDS_DEFAULT) };
        Ok(BenchProtection {
            len_bytes: checked_size(self.size)?.unwrap_or(bytes),
            streams: self.streams,
            rounds: self.rounds.unwrap_or(rounds),
            time_max: self.budget.map_or(TIME_MAX, |budget| budget.0),
            directory: self.directory.clone().unwrap_or_else(|| ".".into()),
        })
    }
}
