//! Arguments of `haul probe`: the probes to choose from.

pub mod disk;
pub mod net;
pub mod path;

use clap::{Args, Subcommand};

/// Measures what disks, network and path could carry, before anything is moved
///
/// A transfer is as fast as the slowest of what it goes through. Each probe says in its first
/// sentence what its part carries, what limits it, and one thing to do about that.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "PROBE")]
pub struct LowProbe {
    #[command(subcommand)]
    pub command: LowProbeCommand,
}

#[derive(Debug, Subcommand)]
pub enum LowProbeCommand {
    Disk(disk::LowProbeDisk),
    Net(net::LowProbeNet),
    Path(path::LowProbePath),
}

impl LowProbe {
    #[must_use]
    pub fn json(&self) -> bool {
        match &self.command {
            LowProbeCommand::Disk(low) => low.output.json,
            LowProbeCommand::Net(low) => low.output.json,
            LowProbeCommand::Path(low) => low.output.json,
        }
    }
}
