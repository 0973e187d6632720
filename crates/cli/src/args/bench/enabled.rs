//! Arguments of `haul bench` where it is built in, and their check.

use super::{
    fabric,
    file_size::checked_size,
    media, protection,
    small_files::{LowShared, LowSmallFiles},
    studies, tuning,
};
use crate::args::{
    block_sizes::{BlockSizes, parse_block_sizes},
    results::LowResults,
    usage_problem,
    values::Period,
};
use clap::{
    Args, Subcommand, ValueEnum,
    builder::{PossibleValue, PossibleValuesParser},
};
use haul_bench::requests::{
    BenchChooser, BenchEngines, BenchFiles, BenchSmallFiles, ChooserSize, EnginesPart, FilesPart,
};
use haul_datapath::{EngineInfo, engines::ENGINES};
use haul_transfer::{HaulUrl, Problem, internals::parse_size};
use std::{path::PathBuf, time::Duration};

/// A file of `haul bench engines`, in bytes: large beside what a pair needs to start.
const ENGINES_BYTES_DEFAULT: u64 = 256 << 20;
/// A file of `haul bench engines --quick`, in bytes.
const QUICK_BYTES: u64 = 64 << 20;
/// Rounds of each measurement, for a median.
const ROUNDS_DEFAULT: u32 = 3;
/// `haul bench engines` adds no more rounds after this.
const ENGINES_TIME_MAX: Duration = Duration::from_secs(3 * 60);
/// Time that --full may take, for its several hundred measurements.
const FULL_TIME_MAX: Duration = Duration::from_secs(60 * 60);
const FILES_TIME_MAX: Duration = Duration::from_secs(10 * 60);
const CHOOSER_TIME_MAX: Duration = Duration::from_secs(60 * 60);
/// Measures this host's engines and haul's choices, and repeats studies
///
/// Without set-up, and with charts where --html is given. All but `haul bench engines URL` runs
/// over loopback, which has no network card: its numbers compare engines and tell nothing of a
/// network. Everything is made in a fresh directory and removed at the end.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "BENCH")]
pub struct LowBench {
    #[command(subcommand)]
    pub command: LowBenchCommand,
}

#[derive(Debug, Subcommand)]
pub enum LowBenchCommand {
    Engines(LowBenchEngines),
    Files(LowBenchFiles),
    Chooser(LowBenchChooser),
    Tuning(tuning::LowBenchTuning),
    Media(media::LowBenchMedia),
    Fabric(fabric::LowBenchFabric),
    Protection(protection::LowBenchProtection),
    Studies(studies::LowBenchStudies),
}

impl LowBench {
    #[must_use]
    pub fn json(&self) -> bool {
        match &self.command {
            LowBenchCommand::Engines(low) => low.output.json,
            LowBenchCommand::Files(low) => low.output.json,
            LowBenchCommand::Chooser(low) => low.output.json,
            LowBenchCommand::Tuning(low) => low.output.json,
            LowBenchCommand::Media(low) => low.output.json,
            LowBenchCommand::Fabric(low) => low.output.json,
            LowBenchCommand::Protection(low) => low.output.json,
            LowBenchCommand::Studies(low) => low.json,
        }
    }
}

/// Measures every engine that sends with every engine that receives
///
/// In one run over loopback: all pairs from a warm source, all that send from a cold one, block
/// sizes, a fixed offset against an advancing one, and numbers of streams. Each line has GB/s
/// (median, lowest and highest of the rounds), and for both sides processor seconds, context
/// switches and system calls per GB, and how often each byte was copied. `null:` throws away what
/// arrives; a file is new, and synced at the end.
///
/// With URL the bytes go to a `haul serve` elsewhere, by real transfers with --protection clear
/// --digest none, and each engine forced in turn.
#[derive(Debug, Args)]
pub struct LowBenchEngines {
    #[arg(value_name = "URL")]
    #[arg(help = "A server: haul://[TOKEN@]HOST[:PORT]; without it loopback")]
    pub url: Option<String>,
    /// File below the server's root to write to, with URL; it stays there
    #[arg(long, value_name = "PATH", requires = "url")]
    pub target: Option<String>,
    /// Bytes that each measurement moves, like 1G; without it 256M, with --quick 64M
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Directory for the files; without it the current one
    #[arg(long = "dir", value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// How often each is measured, if time allows; without it 3, with --quick 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// No more rounds after this time; without it 3m, with --full 1h
    #[arg(long, value_name = "TIME")]
    pub budget: Option<Period>,
    /// Numbers of streams, like 1,2,4,8; with URL the first of them
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub streams: Vec<u32>,
    /// Bytes that one call moves: a list like 4K,1M, or a range in steps of four, 4K..4M
    #[arg(long, value_name = "LIST", value_parser = parse_block_sizes)]
    pub block_sizes: Option<BlockSizes>,
    /// Only these engines send
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = send_names())]
    pub send_engine: Vec<String>,
    /// Only these engines receive
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = receive_names())]
    pub receive_engine: Vec<String>,
    /// Less of everything: a look, no measurement
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// All pairs with all block sizes and numbers of streams, warm and cold: hours
    #[arg(long)]
    pub full: bool,
    /// Only these parts, over loopback
    #[arg(long, value_name = "PART", value_delimiter = ',', conflicts_with_all = ["full", "url"])]
    pub only: Vec<LowEnginesPart>,
    #[command(flatten)]
    pub output: LowResults,
}

/// Repeats two studies: times of files against read and write, and rates over time
///
/// First the table of "Efficient data transfer through zero copy": files of 7 MB to 1 GB from the
/// page cache, by reading and sending 4 KiB at a time and by sendfile. Then the curves of
/// "Zero-copy for transmission and recording of massive data": one large file, sent and recorded,
/// with zero-copy and with read and write, looked at ten times a second.
///
/// With --small a tree of small files in place of both: by haul push and pull, by tar over a socket
/// and rsync with its daemon where they are installed, and by the bare floor, which only makes the
/// files. All of them durable, in interleaved rounds, on each file system: as root on ext4 with a
/// journal, xfs and btrfs in image files, and on that of --dir. Shown are times, processor time and
/// system calls a file, and whether haul reaches its targets.
#[derive(Debug, Args)]
pub struct LowBenchFiles {
    /// Bytes of the large file; without it 10 GB, or what fits
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Bytes of the file that the page cache is to absorb; without it up to 10 GB, an eighth of the
    /// free memory
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub cached_size: Option<u64>,
    /// Directory for the files; without it the current one
    #[arg(long = "dir", value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Rounds of each measurement, if time allows; without it 3, with --small 5, with --quick 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// No more rounds after this time; without it 10m, with --small 30m
    #[arg(long, value_name = "TIME")]
    pub budget: Option<Period>,
    /// Less of everything: the table's files up to --size only, 64M without it
    #[arg(long)]
    pub quick: bool,
    /// Only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<LowFilesPart>,
    #[command(flatten)]
    pub small_files: LowSmallFiles,
    #[command(flatten)]
    pub output: LowResults,
}

/// Compares what haul chooses with every pair of engines that works
///
/// By real transfers over loopback with their usual protection, durable at the end: for warm and
/// cold sources, on each file system, for each size and number of streams. In each round the choice
/// and the pairs take turns; pairs that are far behind after the first are not repeated. Shown are
/// the choice, the best pair, and the median of the rounds' ratios.
///
/// As root, and without --dir, file systems are made in image files and mounted for the time; a
/// file larger than memory is one larger than a control group's limit.
#[derive(Debug, Args)]
pub struct LowBenchChooser {
    /// A directory to work in, one for each file system; without it the current one, tmpfs, and
    /// for root xfs and btrfs
    #[arg(long = "dir", value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Sizes of the file, like 1M,1G,beyond; `beyond` is larger than memory
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_chooser_size)]
    pub sizes: Vec<ChooserSize>,
    /// Numbers of streams; without it 1,4
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub streams: Vec<u32>,
    /// Only pairs with these engines that send
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = send_names())]
    pub send_engine: Vec<String>,
    /// Only pairs with these engines that receive
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = receive_names())]
    pub receive_engine: Vec<String>,
    /// How often each pair is measured, if time allows; without it 5, with --quick 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// No more rounds after this time; without it 1h
    #[arg(long, value_name = "TIME")]
    pub budget: Option<Period>,
    /// One round of a few sizes: a look, no measurement
    #[arg(long)]
    pub quick: bool,
    #[command(flatten)]
    pub output: LowResults,
}

/// A part of `haul bench engines`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LowEnginesPart {
    /// Each engine that sends with each that receives
    Pairs,
    /// Each engine that sends, from the disk
    Cold,
    /// Each engine at each block size
    Blocks,
    /// A fixed offset and an advancing one: table 2 of the study of massive data
    Offsets,
    /// Numbers of streams
    Streams,
}

impl From<LowEnginesPart> for EnginesPart {
    fn from(part: LowEnginesPart) -> Self {
        match part {
            LowEnginesPart::Pairs => Self::Pairs,
            LowEnginesPart::Cold => Self::Cold,
            LowEnginesPart::Blocks => Self::Blocks,
            LowEnginesPart::Offsets => Self::Offsets,
            LowEnginesPart::Streams => Self::Streams,
        }
    }
}

/// A part of `haul bench files`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LowFilesPart {
    /// Times of files from 7 MB to 1 GB: table 1 of the study of transferTo()
    Times,
    /// One large file over time: table 3 and figures 12 to 15 of the study of massive data
    Recordings,
}

impl From<LowFilesPart> for FilesPart {
    fn from(part: LowFilesPart) -> Self {
        match part {
            LowFilesPart::Times => Self::Times,
            LowFilesPart::Recordings => Self::Recordings,
        }
    }
}

/// The parts that were asked for, or all.
fn parts<Low: ValueEnum + Into<Part> + Copy, Part>(only: &[Low]) -> Vec<Part> {
    let parts = if only.is_empty() { Low::value_variants() } else { only };
    parts.iter().map(|part| (*part).into()).collect()
}

/// One side of a measurement; `haul bench` starts it.
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct LowBenchSide {
    /// Task to do, as JSON
    pub spec: String,
}

impl LowBenchEngines {
    /// Checks the words of `haul bench engines`.
    ///
    /// # Errors
    /// Says which argument cannot be taken and why.
    pub fn checked(&self) -> Result<BenchEngines, Problem> {
        let url = self.url.as_ref().map(|text| {
            let read = text.parse::<HaulUrl>();
            // The word itself is not shown: it may hold a token.
            read.map_err(|error| usage_problem(&error.to_string(), "", "", ""))
        });
        let own_blocks = if self.quick { "4K,1M" } else { "4K..4M" };
        let blocks = match &self.block_sizes {
            Some(blocks) => blocks.clone(),
            None => parse_block_sizes(own_blocks).unwrap_or(BlockSizes(Vec::new())),
        };
        let streams: &[u32] = if self.quick { &[1, 2] } else { &[1, 2, 4, 8] };
        let time_max = if self.full { FULL_TIME_MAX } else { ENGINES_TIME_MAX };
        Ok(BenchEngines {
            parts: parts(&self.only),
            url: url.transpose()?,
            target: self.target.clone(),
            len_bytes: checked_size(self.size)?.unwrap_or(if self.quick {
                QUICK_BYTES
            } else {
                ENGINES_BYTES_DEFAULT
            }),
            directory: self.directory.clone().unwrap_or_else(|| ".".into()),
            rounds: self.rounds.unwrap_or(if self.quick { 1 } else { ROUNDS_DEFAULT }),
            time_max: self.budget.map_or(time_max, |budget| budget.0),
            streams: if self.streams.is_empty() { streams.into() } else { self.streams.clone() },
            block_sizes: blocks.0,
            senders: named(&self.send_engine, |engine| engine.open_send.is_some()),
            receivers: named(&self.receive_engine, |engine| engine.open_receive.is_some()),
            full: self.full,
        })
    }
}

impl LowBenchFiles {
    /// Checks the words of `haul bench files`.
    ///
    /// # Errors
    /// Says which argument cannot be taken and why.
    pub fn checked(&self) -> Result<BenchFiles, Problem> {
        let asked = checked_size(self.size)?;
        let len_bytes = if self.quick { Some(asked.unwrap_or(QUICK_BYTES)) } else { asked };
        Ok(BenchFiles {
            parts: parts(&self.only),
            len_bytes,
            cached_bytes: checked_size(self.cached_size)?,
            table_bytes_max: len_bytes.filter(|_| self.quick).unwrap_or(u64::MAX),
            directory: self.directory.clone().unwrap_or_else(|| ".".into()),
            rounds: self.rounds.unwrap_or(if self.quick { 1 } else { ROUNDS_DEFAULT }),
            time_max: self.budget.map_or(FILES_TIME_MAX, |budget| budget.0),
        })
    }

    /// The request of `haul bench files --small`; `None` without this word.
    #[must_use]
    pub fn small_files(&self) -> Option<BenchSmallFiles> {
        let Self { rounds, budget, quick, .. } = *self;
        let directory = self.directory.as_deref();
        self.small_files.request(LowShared { directory, rounds, budget, quick })
    }

    /// The output of small files.
    #[must_use]
    pub fn small_output(&self) -> LowResults {
        self.small_files.output(&self.output)
    }
}

impl LowBenchChooser {
    #[must_use]
    pub fn checked(&self) -> BenchChooser {
        const ROUNDS: u32 = 5;
        const FULL_SIZES: [ChooserSize; 3] =
            [ChooserSize::Bytes(1 << 20), ChooserSize::Bytes(1 << 30), ChooserSize::BeyondMemory];
        let sizes = if self.quick { &FULL_SIZES[..1] } else { &FULL_SIZES };
        let streams: &[u32] = if self.quick { &[1] } else { &[1, 4] };
        BenchChooser {
            directories: self.directories.clone(),
            sizes: if self.sizes.is_empty() { sizes.into() } else { self.sizes.clone() },
            streams: if self.streams.is_empty() { streams.into() } else { self.streams.clone() },
            senders: named(&self.send_engine, |engine| engine.open_send.is_some()),
            receivers: named(&self.receive_engine, |engine| engine.open_receive.is_some()),
            rounds: self.rounds.unwrap_or(if self.quick { 1 } else { ROUNDS }),
            time_max: self.budget.map_or(CHOOSER_TIME_MAX, |budget| budget.0),
        }
    }
}

/// The engines of these names, or all, that are able.
fn named(names: &[String], able: fn(&EngineInfo) -> bool) -> Vec<&'static EngineInfo> {
    let wanted = |engine: &&EngineInfo| {
        engine.takes_tcp()
            && able(engine)
            && (names.is_empty() || names.iter().any(|name| name == engine.name))
    };
    ENGINES.iter().copied().filter(wanted).collect()
}

fn send_names() -> PossibleValuesParser {
    names(|engine| engine.open_send.is_some())
}

fn receive_names() -> PossibleValuesParser {
    names(|engine| engine.open_receive.is_some())
}

fn names(able: fn(&EngineInfo) -> bool) -> PossibleValuesParser {
    let able = ENGINES.iter().filter(|engine| engine.takes_tcp() && able(engine));
    let named = able.map(|engine| PossibleValue::new(engine.name).help(engine.summary));
    PossibleValuesParser::new(named)
}

fn parse_chooser_size(text: &str) -> Result<ChooserSize, String> {
    if text == "beyond" {
        return Ok(ChooserSize::BeyondMemory);
    }
    match parse_size(text).map_err(|error| error.to_string())? {
        0 => Err("an empty file has no rate".to_owned()),
        bytes => Ok(ChooserSize::Bytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{LowArgs, LowCommand};
    use clap::Parser;

    fn bench(words: &[&str]) -> Result<LowBenchCommand, String> {
        let words = [&["haul", "bench"], words].concat();
        match LowArgs::try_parse_from(words).map_err(|error| error.to_string())?.command {
            LowCommand::Bench(low) => Ok(low.command),
            other => panic!("not a bench: {other:?}"),
        }
    }

    fn engines(words: &[&str]) -> Result<BenchEngines, String> {
        match bench(&[&["engines"], words].concat())? {
            LowBenchCommand::Engines(low) => low.checked().map_err(|problem| problem.to_string()),
            other => panic!("not of engines: {other:?}"),
        }
    }

    #[test]
    fn all_engines_of_the_list_take_part_unless_some_are_named() {
        let all = engines(&[]).unwrap();
        let able = |able: fn(&EngineInfo) -> bool| {
            ENGINES.iter().filter(|e| e.takes_tcp() && able(e)).count()
        };
        assert_eq!(all.senders.len(), able(|engine| engine.open_send.is_some()));
        assert_eq!(all.receivers.len(), able(|engine| engine.open_receive.is_some()));
        assert_eq!((all.len_bytes, all.rounds), (ENGINES_BYTES_DEFAULT, ROUNDS_DEFAULT));
        assert_eq!(all.block_sizes.len(), 6);
        let some = engines(&["--send-engine", "sendfile,mmap", "--streams=1,3"]).unwrap();
        let names: Vec<_> = some.senders.iter().map(|engine| engine.name).collect();
        assert_eq!((names, some.streams), (vec!["mmap", "sendfile"], vec![1, 3]));
        let wrong = engines(&["--send-engine", "discard"]).unwrap_err();
        assert!(wrong.contains("sendfile"), "{wrong}");
    }

    #[test]
    fn a_url_is_read_and_never_shown() {
        assert_eq!(engines(&["haul://h"]).unwrap().url.unwrap().server(), "h:7117");
        let token = haul_transfer::Token::generate([3; 16]).unwrap().reveal();
        let wrong = engines(&[&format!("haul:/{token}@h")]).unwrap_err();
        assert!(!wrong.contains(&token), "{wrong}");
        assert!(engines(&["--target", "x"]).unwrap_err().contains("URL"));
    }

    #[test]
    fn quick_is_less_of_everything_and_never_full() {
        let quick = engines(&["--quick"]).unwrap();
        assert_eq!((quick.len_bytes, quick.rounds), (QUICK_BYTES, 1));
        assert!(engines(&["--quick", "--full"]).is_err());
        assert!(engines(&["--size", "1"]).unwrap_err().contains("4096 bytes"));
        let LowBenchCommand::Files(files) = bench(&["files", "--quick", "--size=8M"]).unwrap()
        else {
            panic!("not of files")
        };
        let files = files.checked().unwrap();
        assert_eq!((files.len_bytes, files.table_bytes_max), (Some(8 << 20), 8 << 20));
    }

    #[test]
    fn the_choosers_matrix_has_a_size_beyond_memory() {
        let sizes = |words: &[&str]| match bench(&[&["chooser"], words].concat())? {
            LowBenchCommand::Chooser(low) => Ok::<_, String>(low.checked().sizes),
            other => panic!("not of the chooser: {other:?}"),
        };
        let (mib, gib) = (ChooserSize::Bytes(1 << 20), ChooserSize::Bytes(1 << 30));
        assert_eq!(sizes(&[]).unwrap(), [mib, gib, ChooserSize::BeyondMemory]);
        let some = sizes(&["--sizes=1M,beyond"]).unwrap();
        assert_eq!(some, [mib, ChooserSize::BeyondMemory]);
        assert!(sizes(&["--sizes=0"]).is_err());
    }
}
