//! Arguments of `haul ls`, and their check.

use super::{
    connections::LowConnections,
    proxy::LowProxy,
    ssh::{LowSsh, OtherSide},
};
use clap::Args;
use haul_transfer::{Depth, Problem};
use std::{ffi::OsString, path::PathBuf};

/// Lists what a server has, or a machine that ssh reaches
///
/// URL is what `haul serve` printed, with the path of a directory or file behind, and no pattern:
/// `haul pull -n` shows what one fits. A line has size
/// in bytes, time in UTC, and name; a directory ends in `/`. The right to list is enough (`haul
/// token new --list`). In its place, user@host:path means a machine that ssh reaches and that has
/// haul, too.
#[derive(Debug, Args)]
pub struct LowLs {
    #[arg(value_name = "URL", help = "haul://[TOKEN@]HOST[:PORT]/path or [USER@]HOST:path")]
    pub url: OsString,
    /// All that is below, and not only what the directory itself holds
    #[arg(long, short = 'R')]
    pub recursive: bool,
    /// Read the token from a file, not from the URL or HAUL_TOKEN
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub connections: LowConnections,
    #[command(flatten)]
    pub ssh: LowSsh,
    #[command(flatten)]
    pub proxy: LowProxy,
    /// Print one JSON object a line: path, kind, bytes, modified, mode
    #[arg(long)]
    pub json: bool,
}

impl LowLs {
    /// Checks the words of `haul ls`.
    ///
    /// # Errors
    /// If the URL is none.
    pub fn checked(&self) -> Result<(OtherSide, Depth), Problem> {
        let depth = if self.recursive { Depth::All } else { Depth::Names(1) };
        let mut side = OtherSide::named_by(&[&self.url], &self.ssh, self.token_file.as_deref())?;
        self.proxy.give_to(&mut side)?;
        self.connections.check_way(side.way())?;
        Ok((side, depth))
    }
}
