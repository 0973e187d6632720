//! Requests of the benches: what each is asked to measure.

use crate::media::request::BenchMedia;
use haul_datapath::EngineInfo;
pub use haul_fabric::Provider;
use haul_transfer::HaulUrl;
use std::{net::IpAddr, path::PathBuf, time::Duration};

/// The size of a file in the chooser's matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChooserSize {
    Bytes(u64),
    BeyondMemory,
}

/// A part of `haul bench engines`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnginesPart {
    /// Each engine that sends with each that receives
    Pairs,
    /// Each engine that sends, from the disk
    Cold,
    /// Each engine at each block size
    Blocks,
    /// A fixed offset and an advancing one
    Offsets,
    /// Numbers of streams
    Streams,
}

/// The request of `haul bench engines`.
#[derive(Clone, Debug, Default)]
pub struct BenchEngines {
    /// The parts to measure over loopback.
    pub parts: Vec<EnginesPart>,
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

/// A part of `haul bench files`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesPart {
    /// Times of files from 7 MB to 1 GB
    Times,
    /// Rates over time of one large file
    Recordings,
}

/// The request of `haul bench files`.
#[derive(Clone, Debug)]
pub struct BenchFiles {
    pub parts: Vec<FilesPart>,
    /// The large file in bytes; `None` takes what fits.
    pub len_bytes: Option<u64>,
    /// The file that the page cache is to absorb, in bytes; `None` takes what suits the memory.
    pub cached_bytes: Option<u64>,
    /// Largest file of the table that is measured, in bytes.
    pub table_bytes_max: u64,
    pub directory: PathBuf,
    pub rounds: u32,
    pub time_max: Duration,
}

/// A file system that small files are moved on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallFilesPlace {
    /// The directory's own
    Own,
    /// ext4 with a journal, in an image file
    Ext4,
    /// xfs, in an image file
    Xfs,
    /// btrfs, in an image file
    Btrfs,
}

/// The request of `haul bench files --small`.
#[derive(Clone, Debug)]
pub struct BenchSmallFiles {
    pub files: u64,
    pub file_bytes: u64,
    /// The file systems, in the order in which they are measured.
    pub places: Vec<SmallFilesPlace>,
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

/// The request of `haul bench protection`.
#[derive(Clone, Debug)]
pub struct BenchProtection {
    pub len_bytes: u64,
    /// Data streams; `None` as haul chooses.
    pub streams: Option<u32>,
    pub rounds: u32,
    pub time_max: Duration,
    pub directory: PathBuf,
}

/// The path between the two hosts of `haul bench tuning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TuningPath {
    /// A pair of virtual interfaces: memory
    Veth,
    /// An emulated long path
    Wan,
}

/// The disks that `haul bench tuning` compares.
#[derive(Clone, Debug)]
pub struct StoragePlan {
    /// Directories on two disks; if empty, two image files are made, one of them bound.
    pub disks: Vec<PathBuf>,
    pub file_bytes: u64,
}

/// The request of `haul bench tuning`.
#[derive(Clone, Debug)]
pub struct BenchTuning {
    pub paths: Vec<TuningPath>,
    /// Two disks before and after tuning, over the long path; `None` leaves them out.
    pub storage: Option<StoragePlan>,
    pub streams: Vec<u32>,
    pub rate_bits_per_s: u64,
    pub round_trip: Duration,
    pub time: Duration,
    pub omit: Duration,
    pub rounds: u32,
    pub time_max: Duration,
    pub directory: PathBuf,
}

/// A part of `haul bench fabric`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricPart {
    /// Latency, bandwidth and processor time of messages
    Messages,
    /// Times and processor time of files
    Files,
    /// Messages to and fro beside fi_pingpong
    PingPong,
}

/// The request of `haul bench fabric`.
#[derive(Clone, Debug)]
pub struct BenchFabric {
    pub parts: Vec<FabricPart>,
    /// The providers; if empty, those of verbs, shm and tcp that this host has.
    pub providers: Vec<Provider>,
    /// The address of the card; `None` finds it.
    pub address: Option<IpAddr>,
    /// Lengths of messages, in bytes.
    pub message_sizes: Vec<u64>,
    /// Lengths of files, in bytes.
    pub file_sizes: Vec<u64>,
    /// Most repeats of a message or a file in a round.
    pub repeats: u64,
    /// Time of one message's length or one file in a round; `None` does all repeats.
    pub task_time: Option<Duration>,
    pub directory: PathBuf,
    pub rounds: u32,
    pub time_max: Duration,
}

/// The request of the JVM client's bench.
#[derive(Clone, Debug)]
pub struct BenchJava {
    /// The client's program, `haul.jar`.
    pub jar: PathBuf,
    /// Rounds of each size that count.
    pub rounds: u32,
    /// Sizes of the files; without any the study's.
    pub sizes: Vec<u64>,
    pub directory: PathBuf,
}

/// The plan of a bench that takes part in `haul bench studies`.
#[derive(Clone, Debug)]
pub enum StudyPlan {
    Engines(Box<BenchEngines>),
    Files(BenchFiles),
    Tuning(BenchTuning),
    Media(Box<BenchMedia>),
    Fabric(BenchFabric),
    Java(BenchJava),
}

/// A bench that takes part in `haul bench studies`, with the command that runs it alone.
#[derive(Clone, Debug)]
pub struct StudyBench {
    pub command: String,
    pub plan: StudyPlan,
}

/// The request of `haul bench studies`.
#[derive(Clone, Debug)]
pub struct BenchStudies {
    /// The benches, in the order in which they run.
    pub benches: Vec<StudyBench>,
    pub directory: PathBuf,
}
