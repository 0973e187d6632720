//! `haul probe`: measures the parts of a path.

mod disk;
mod net;
mod net_tables;
mod path;

use crate::{
    args::probe::{LowProbe, LowProbeCommand},
    failure::{ExitStatus, Failure},
};

/// Runs the probe that was asked for.
///
/// # Errors
/// If nothing could start, or it was interrupted.
pub fn run(low: &LowProbe) -> Result<ExitStatus, Failure> {
    haul_transfer::raise_open_files_limit();
    match &low.command {
        LowProbeCommand::Disk(low) => disk::run(low),
        LowProbeCommand::Net(low) => net::run(low),
        LowProbeCommand::Path(low) => path::run(low),
    }
}
