//! Arguments of `haul ls`, and their check.

use super::transfer::parse_url;
use clap::Args;
use haul_transfer::{Depth, HaulUrl, Problem};
use std::{ffi::OsString, path::PathBuf};

/// Lists what a server has
///
/// URL is what `haul serve` printed, with the path of a directory or file behind, and no pattern:
/// `haul pull -n` shows what one fits. A line has size
/// in bytes, time in UTC, and name; a directory ends in `/`. The right to list is enough (`haul
/// token new --list`).
#[derive(Debug, Args)]
pub struct LowLs {
    #[arg(value_name = "URL", help = "haul://[TOKEN@]HOST[:PORT]/path")]
    pub url: OsString,
    /// All that is below, and not only what the directory itself holds
    #[arg(long, short = 'R')]
    pub recursive: bool,
    /// Read the token from a file, not from the URL or HAUL_TOKEN
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Print one JSON object a line: path, kind, bytes, modified, mode
    #[arg(long)]
    pub json: bool,
}

impl LowLs {
    /// Checks the words of `haul ls`.
    ///
    /// # Errors
    /// If the URL is none.
    pub fn checked(&self) -> Result<(HaulUrl, Depth), Problem> {
        let depth = if self.recursive { Depth::All } else { Depth::Names(1) };
        Ok((parse_url(&self.url)?, depth))
    }
}
