//! Arguments of `haul bench tuning`, and their check.

use crate::args::{
    results::LowResults,
    usage_problem,
    values::{Period, parse_rate},
};
use clap::{Args, ValueEnum};
use haul_bench::requests::{BenchTuning, StoragePlan, TuningPath};
use haul_transfer::{Problem, internals::parse_size};
use std::{path::PathBuf, time::Duration};

/// Rounds of each measurement, for a median.
const ROUNDS_DEFAULT: u32 = 1;
/// Time over which a rate is measured; what is left out before is below, as a window grows in each
/// round trip.
const TIME_DEFAULT: Duration = Duration::from_secs(4);
const OMIT_DEFAULT: Duration = Duration::from_secs(3);
const QUICK_TIME: Duration = Duration::from_secs(1);
const TIME_MAX: Duration = Duration::from_secs(30 * 60);
/// Rate of the long path: a link whose bandwidth-delay product is above what a distribution lets a
/// window grow to, at a rate that the emulator carries on two cores.
const RATE_BYTES_PER_S: u64 = 1_000_000_000 / 8;
const ROUND_TRIP: Duration = Duration::from_millis(100);
/// The file that leaves each disk, in bytes.
const FILE_BYTES: u64 = 256 << 20;
const QUICK_BYTES: u64 = 8 << 20;
/// Fastest link of the emulator; the longest round trip is below.
const RATE_BYTES_PER_S_MAX: u64 = 10_000_000_000 / 8;
const ROUND_TRIP_MAX: Duration = Duration::from_secs(2);

/// Repeats a study of tuned hosts: one change at a time, with 1 to 8 streams
///
/// Between two network namespaces that it makes and removes: over a pair of virtual interfaces
/// (veth), where the processors are the limit, and over an emulated long path, where the windows
/// are. Each step adds a change to those before: MTU 1500 and the buffers of distributions, MTU
/// 9000, buffers for the bandwidth-delay product, BBR, pacing by fq. Measured are real pushes of
/// zero:SIZE to null:, without protection or digests, as "Science DMZ data transfer node tuning"
/// did with iperf. Then a file goes over the long path from each of two disks, before and after the
/// hosts are tuned, and the delays of both disks are measured.
///
/// Needs root, ip(8), nsenter(1) and TUN devices. Settings are changed in the namespaces only: the
/// host's own stay as they are. What a killed run left is removed by the next.
#[derive(Debug, Args)]
pub struct LowBenchTuning {
    /// Only one part
    #[arg(long, value_name = "PART")]
    pub only: Option<LowTuningPart>,
    /// Directories on two disks to compare; without it two image files, one of them bound
    #[arg(long, value_name = "DIR,DIR", value_delimiter = ',')]
    pub disks: Vec<PathBuf>,
    /// The file that leaves each disk; without it 256M, with --quick 8M
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub file_size: Option<u64>,
    /// Numbers of streams; without it 1,2,4,8, with --quick 1,4
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16))]
    pub streams: Vec<u32>,
    /// The rate of the long path; without it 1Gbit
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub rate: Option<u64>,
    /// The round trip of the long path
    #[arg(long, value_name = "TIME", default_value_t = Period(ROUND_TRIP))]
    pub rtt: Period,
    /// How long each rate is measured; without it 4s, with --quick 1s
    #[arg(long, value_name = "TIME")]
    pub time: Option<Period>,
    /// Time left out at the begin, while windows grow; without it 3s, with --quick 1s
    #[arg(long, value_name = "TIME")]
    pub omit: Option<Period>,
    /// How often each is measured, if time allows; without it once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: Option<u32>,
    /// No more rounds after this time; without it 30m
    #[arg(long, value_name = "TIME")]
    pub budget: Option<Period>,
    /// Directory for the state of its servers; without it the one for temporary files
    #[arg(long = "dir", value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Less of everything: a look, no measurement
    #[arg(long)]
    pub quick: bool,
    #[command(flatten)]
    pub output: LowResults,
}

/// A part of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LowTuningPart {
    /// Streams over a pair of virtual interfaces: memory
    Veth,
    /// Streams over an emulated long path
    Wan,
    /// Files from two disks over the long path
    Storage,
}

impl LowBenchTuning {
    /// Checks the words of `haul bench tuning`.
    ///
    /// # Errors
    /// Says which argument cannot be taken and why.
    pub fn checked(&self) -> Result<BenchTuning, Problem> {
        let rate = self.rate.unwrap_or(RATE_BYTES_PER_S);
        if rate == 0 || rate > RATE_BYTES_PER_S_MAX {
            let hint = "write it like --rate 1Gbit; the emulator carries no more";
            return Err(usage_problem("cannot take --rate", "a rate up to 10Gbit", "", hint));
        }
        if self.rtt.0.is_zero() || self.rtt.0 > ROUND_TRIP_MAX {
            let hint = "write it like --rtt 100ms; without one there is --only veth";
            return Err(usage_problem("cannot take --rtt", "a time up to 2s", "", hint));
        }
        let time = self.time.map_or(TIME_DEFAULT, |time| time.0);
        if time < QUICK_TIME {
            let hint = "write it like --time 4s";
            return Err(usage_problem("cannot take --time", "1 s or more", "less", hint));
        }
        let quick = |full, quick| if self.quick { quick } else { full };
        let streams: &[u32] = if self.quick { &[1, 4] } else { &[1, 2, 4, 8] };
        let has = |part| self.only.is_none_or(|only| only == part);
        let paths =
            [(LowTuningPart::Veth, TuningPath::Veth), (LowTuningPart::Wan, TuningPath::Wan)];
        let paths = paths.into_iter().filter(|(part, _)| has(*part)).map(|(_, path)| path);
        let file_bytes =
            self.file_size.unwrap_or(if self.quick { QUICK_BYTES } else { FILE_BYTES });
        if file_bytes == 0 || !matches!(self.disks.len(), 0 | 2) {
            let needs = "two directories, and a file of some bytes";
            let found = format!("{} directories, {file_bytes} bytes", self.disks.len());
            let hint = "write it like --disks /hdd,/nvme --file-size 1G";
            return Err(usage_problem("cannot take --disks", needs, &found, hint));
        }
        let storage = StoragePlan { disks: self.disks.clone(), file_bytes };
        Ok(BenchTuning {
            paths: paths.collect(),
            storage: has(LowTuningPart::Storage).then_some(storage),
            streams: if self.streams.is_empty() { streams.into() } else { self.streams.clone() },
            rate_bits_per_s: rate * 8,
            round_trip: self.rtt.0,
            time: self.time.map_or(quick(TIME_DEFAULT, QUICK_TIME), |time| time.0),
            omit: self.omit.map_or(quick(OMIT_DEFAULT, QUICK_TIME), |omit| omit.0),
            rounds: self.rounds.unwrap_or(ROUNDS_DEFAULT),
            time_max: self.budget.map_or(TIME_MAX, |budget| budget.0),
            directory: self.directory.clone().unwrap_or_else(std::env::temp_dir),
        })
    }
}
