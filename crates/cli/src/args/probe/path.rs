//! Arguments of `haul probe path`, and their check.

use crate::args::{
    proxy::LowProxy,
    results::LowResults,
    transfer::{ProtectionName, parse_url},
    usage_problem,
    values::Period,
};
use clap::Args;
use haul_probe::path::{PathProbe, TIME_DEFAULT};
use haul_protocol::limits::STREAMS_MAX;
use haul_transfer::{Problem, Protection, TransferOptions, internals::parse_size};
use std::{ffi::OsString, os::unix::ffi::OsStrExt, path::PathBuf, time::Duration};

/// Shortest run: shorter ones say little, as connecting and the last sync are a part of them.
const TIME_MIN: Duration = Duration::from_secs(1);

/// Finds out what limits a transfer from SOURCE to a server's directory
///
/// Looks at both hosts as --preflight does, then makes four runs of real transfers: memory to
/// memory, disk to memory, memory to disk, disk to disk. Says what each stage could carry, which
/// one limits, and what a change would bring.
///
/// The disk at the source is read cold where the page cache can be told to forget SOURCE. At the
/// target files without a name are written and synced, and are gone at the end, however that comes;
/// no directory is made. A run moves what takes about --time: of a file or directory at most all of
/// it, of zeros from memory at most 64 GiB, and at most four fifths of the free space.
#[derive(Debug, Args)]
pub struct LowProbePath {
    /// The file or directory that is to be moved, or one like it
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    #[arg(value_name = "URL")]
    #[arg(help = "Where it is to go: haul://[TOKEN@]HOST[:PORT]/dir/")]
    pub url: OsString,
    /// Most bytes that a run moves; without it what takes about --time
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// How long a run takes, about
    #[arg(long, value_name = "TIME", default_value_t = Period(TIME_DEFAULT))]
    pub time: Period,
    /// How often each run is made; the one in the middle counts
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Data connections; without it chosen as a transfer does
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(STREAMS_MAX)))]
    pub streams: Option<u32>,
    /// How the data is protected on its way
    #[arg(long, value_name = "PROTECTION", default_value = Protection::default().name())]
    pub protection: ProtectionName,
    /// Read the token from a file, not from the URL or HAUL_TOKEN
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub proxy: LowProxy,
    #[command(flatten)]
    pub output: LowResults,
}

impl LowProbePath {
    /// Checks the words into a request, which may still lack its token.
    ///
    /// # Errors
    /// Says which argument cannot be taken and why.
    pub fn checked(&self) -> Result<PathProbe, Problem> {
        let mut url = parse_url(&self.url)?;
        self.proxy.give_to_url(&mut url)?;
        if url.path == b"null:" || self.source.as_os_str().as_bytes().starts_with(b"zero:") {
            let hint = "name a file and a directory; the runs without disks are made anyway";
            let needs = "disks at both ends";
            return Err(usage_problem("cannot probe this path", needs, "zero: or null:", hint));
        }
        if !url.path.is_empty() && !url.path.ends_with(b"/") {
            url.path.push(b'/');
        }
        if self.size == Some(0) {
            let hint = "write it like --size 1G";
            return Err(usage_problem("cannot take --size", "a byte or more", "0", hint));
        }
        if self.time.0 < TIME_MIN {
            let hint = "write it like --time 10s";
            return Err(usage_problem("cannot take --time", "1 s or more", "less", hint));
        }
        let mut options = TransferOptions::default();
        options.streams = self.streams;
        options.protection = self.protection.into();
        Ok(PathProbe {
            source: self.source.clone(),
            url,
            len_bytes_max: self.size,
            time: self.time.0,
            rounds: self.rounds,
            options,
        })
    }
}
