//! Arguments of `haul report`.

use clap::Args;
use std::path::PathBuf;

/// Adds up what the runs of a plan have done, and says how to finish it
///
/// Each `haul push --plan PLAN --shard K` keeps a report in PLAN/reports. This command adds them
/// up: how much is at the target, the rate over time, each machine with what limited it, which
/// shards failed or never began, and the commands that finish them. It changes nothing, and can be
/// run while shards run.
#[derive(Debug, Args)]
pub struct LowReport {
    /// The directory that `haul plan` has written
    #[arg(value_name = "PLAN")]
    pub plan: PathBuf,
    /// Print one JSON object a line: a shard each, a node each, and last the fleet
    #[arg(long)]
    pub json: bool,
    /// Write a page with a chart for the fleet and one for each machine; nothing is fetched
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}
