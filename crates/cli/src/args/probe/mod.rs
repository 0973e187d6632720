//! `haul probe`: what can be measured before anything is moved.

pub mod net;

use clap::{Args, Subcommand};

/// Measures what a path could carry, part by part, before anything is moved
///
/// Each part says what it carries, what limits it, and one thing to do about that.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "PROBE")]
pub struct LowProbe {
    #[command(subcommand)]
    pub command: LowProbeCommand,
}

#[derive(Debug, Subcommand)]
pub enum LowProbeCommand {
    Net(net::LowProbeNet),
}

impl LowProbe {
    #[must_use]
    pub fn json(&self) -> bool {
        match &self.command {
            LowProbeCommand::Net(low) => low.output.json,
        }
    }
}
