//! `haul bench`: measures the engines, repeats the studies' tables, checks haul's own choices.

mod chooser;
mod chooser_tables;
mod engine_tables;
mod engines;
mod file_tables;
mod files;
mod host_facts;
mod media;
mod mounts;
mod pair;
mod remote;
mod series;
pub mod side;
mod side_samples;
mod transfers;
mod tuning;
mod tuning_tables;
mod workshop;

use crate::{
    args::{
        bench::{LowBench, LowBenchCommand},
        usage_problem,
    },
    failure::{ExitStatus, Failure},
};

/// Of the control groups that benches make.
const GROUP_PREFIX: &str = "haul-bench";

/// # Errors
/// If nothing could start, or it was interrupted.
pub fn run(low: &LowBench) -> Result<ExitStatus, Failure> {
    haul_transfer::raise_open_files_limit();
    match &low.command {
        LowBenchCommand::Engines(low) => engines::run(low),
        LowBenchCommand::Files(low) => files::run(low),
        LowBenchCommand::Chooser(low) => chooser::run(low),
        LowBenchCommand::Tuning(low) => tuning::run(low),
        LowBenchCommand::Media(low) => media::run(low),
    }
}

/// A bench that broke off.
fn broke_off(bench: &str, error: &anyhow::Error) -> Failure {
    let what = format!("haul bench {bench} broke off");
    let problem = usage_problem(&what, "", &format!("{error:#}"), "");
    Failure { status: ExitStatus::SomeFailed, ..Failure::from(problem) }
}
