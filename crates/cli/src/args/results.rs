//! Options for how the results of a bench or a probe are shown.

use clap::Args;
use std::path::PathBuf;

/// How results are shown.
#[derive(Clone, Debug, Args)]
pub struct LowResults {
    /// Print one JSON object a line: host, cell, and what else a bench has
    #[arg(long)]
    pub json: bool,
    /// Write a page with charts, tables and the host's facts; one file, nothing is fetched
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// File for the JSON lines beside the page, which links to it.
    #[arg(skip)]
    pub lines_file: Option<PathBuf>,
}
