//! Arguments of `haul bench fabric`, and their check.

use crate::args::{results::LowResults, usage_problem, values::Period};
use clap::{Args, ValueEnum};
use haul_bench::requests::{BenchFabric, FabricPart, Provider};
use haul_transfer::{Problem, internals::parse_size};
use std::{net::IpAddr, path::PathBuf, time::Duration};

/// Lengths of messages, in bytes: from 4 B to 4 MiB.
const MESSAGE_BYTES: [u64; 11] =
    [4, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// The study's files, in bytes, and larger ones.
const FILE_BYTES: [u64; 12] = [
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    1 << 20,
    16 << 20,
    256 << 20,
];
/// The largest file of `--paper`, in bytes.
const PAPER_FILE_BYTES: u64 = 4 << 30;
/// Largest message, in bytes: both sides have buffers of this length for it.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;
/// Repeats of each file in the study.
const PAPER_REPEATS: u64 = 100_000;
const REPEATS: u64 = 5000;
const ROUNDS: u32 = 3;
/// Time of one message's length or one file in a round.
const TASK_TIME: Duration = Duration::from_millis(60);
const QUICK_TASK_TIME: Duration = Duration::from_millis(10);
const TIME_MAX: Duration = Duration::from_secs(5 * 60);
const PAPER_TIME_MAX: Duration = Duration::from_secs(6 * 60 * 60);

/// Repeats a study of user-level networking: messages and files by RDMA endpoints
///
/// Two processes on this host, by each provider of libfabric that is here: verbs (a card, or
/// soft-RoCE), shm and tcp. Messages of 4 bytes to 4 MiB by endpoints that poll, sleep or do both,
/// and by TCP: latency, bandwidth and processor time. Files of 1 KiB and more by TCP's sendfile, by
/// an endpoint with one copy, and by send_file, which sends the page cache as VipSendFile did: the
/// sender's time and processor time, with counted bytes and copies. Beside fi_pingpong where it is
/// installed.
///
/// Needs a haul that was built with libfabric: docs/rdma.md.
#[derive(Debug, Args)]
pub struct LowBenchFabric {
    /// Only these providers: verbs, shm, tcp; without it each of them that this host has
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_provider)]
    pub fabric: Vec<Provider>,
    /// Address of the card for verbs; without it the first that a card of this host has
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// Only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<LowFabricPart>,
    /// Lengths of messages, like 4,4K,1M; without it 4 bytes to 4 MiB in steps of four
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_size)]
    pub message_sizes: Vec<u64>,
    /// Lengths of files, like 1K,64K,1G; without it 1K to 256K in steps of two, 1M, 16M, 256M, and
    /// with --paper 4G
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_size)]
    pub file_sizes: Vec<u64>,
    /// Most repeats of each message and file in a round; without it 5000, with --paper 100000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub repeats: Option<u64>,
    /// How often each is measured, if time allows; without it 3, with --quick 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// No more rounds after this time; without it 5m, with --paper 6h
    #[arg(long, value_name = "TIME")]
    pub budget: Option<Period>,
    /// Directory for the files; without it the current one
    #[arg(long = "dir", value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// The study's repeats, and a file of 4 GiB: an hour and more
    #[arg(long)]
    pub paper: bool,
    /// Less of everything: a look, no measurement
    #[arg(long, conflicts_with = "paper")]
    pub quick: bool,
    #[command(flatten)]
    pub output: LowResults,
}

/// A part of `haul bench fabric`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LowFabricPart {
    /// Latency, bandwidth and processor time of messages, polled and waited for
    Messages,
    /// Times and processor time of files
    Files,
    /// Messages to and fro beside fi_pingpong
    PingPong,
}

impl From<LowFabricPart> for FabricPart {
    fn from(part: LowFabricPart) -> Self {
        match part {
            LowFabricPart::Messages => Self::Messages,
            LowFabricPart::Files => Self::Files,
            LowFabricPart::PingPong => Self::PingPong,
        }
    }
}

/// Reads the name of a provider that the bench measures.
fn parse_provider(text: &str) -> Result<Provider, String> {
    let known = text.parse().ok();
    let measured = [Provider::Verbs, Provider::Shm, Provider::Tcp];
    known
        .filter(|provider| measured.contains(provider))
        .ok_or_else(|| "there are verbs, shm and tcp".to_owned())
}

impl LowBenchFabric {
    /// The parts that were asked for, or all.
    fn parts(&self) -> Vec<FabricPart> {
        let only = &self.only[..];
        let parts = if only.is_empty() { LowFabricPart::value_variants() } else { only };
        parts.iter().map(|part| (*part).into()).collect()
    }

    /// Checks the words of `haul bench fabric`.
    ///
    /// # Errors
    /// Says which argument cannot be taken and why.
    pub fn checked(&self) -> Result<BenchFabric, Problem> {
        let is_message = |bytes: &&u64| (1..=MESSAGE_BYTES_MAX).contains(*bytes);
        if let Some(odd) = self.message_sizes.iter().find(|bytes| !is_message(bytes)) {
            let needs = "messages of 1 byte to 64 MiB";
            return Err(usage_problem("cannot take --message-sizes", needs, &odd.to_string(), ""));
        }
        if self.file_sizes.contains(&0) {
            let needs = "files of 1 byte or more";
            return Err(usage_problem("cannot take --file-sizes", needs, "0", ""));
        }
        let mut files = FILE_BYTES.to_vec();
        if self.paper {
            files.push(PAPER_FILE_BYTES);
        }
        let task_time = match (self.paper, self.quick) {
            (true, _) => None,
            (false, true) => Some(QUICK_TASK_TIME),
            (false, false) => Some(TASK_TIME),
        };
        let default_repeats = if self.paper { PAPER_REPEATS } else { REPEATS };
        let time_max = if self.paper { PAPER_TIME_MAX } else { TIME_MAX };
        let sizes = |asked: &[u64], usual: &[u64]| {
            let mut sizes = if asked.is_empty() { usual.to_vec() } else { asked.to_vec() };
            sizes.sort_unstable();
            sizes.dedup();
            sizes
        };
        Ok(BenchFabric {
            parts: self.parts(),
            providers: self.fabric.clone(),
            address: self.address,
            message_sizes: sizes(&self.message_sizes, &MESSAGE_BYTES),
            file_sizes: sizes(&self.file_sizes, &files),
            repeats: self.repeats.unwrap_or(default_repeats),
            task_time,
            directory: self.directory.clone().unwrap_or_else(|| ".".into()),
            rounds: self.rounds.unwrap_or(if self.quick { 1 } else { ROUNDS }),
            time_max: self.budget.map_or(time_max, |budget| budget.0),
        })
    }
}
