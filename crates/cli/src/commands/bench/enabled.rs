//! `haul bench` where it is built in: checks what was asked for, has it measured, shows results.

use crate::{
    args::{
        bench::{LowBench, LowBenchCommand},
        results::LowResults,
    },
    commands::{results, token_source},
    failure::{ExitStatus, Failure},
    interrupt,
    ui::{json, steps::Steps},
};
use haul_bench::{
    BenchError, Caller, all_studies, chooser, engines, fabric, files, media, protection, side,
    small_files, tuning,
};
use haul_report::results::Results;

/// Runs the bench that was asked for.
///
/// # Errors
/// If nothing could start, or it was interrupted.
pub fn run(low: &LowBench) -> Result<ExitStatus, Failure> {
    haul_transfer::raise_open_files_limit();
    match &low.command {
        LowBenchCommand::Engines(low) => {
            let mut plan = low.checked()?;
            if let Some(url) = &mut plan.url {
                token_source::complete(std::slice::from_mut(url), None)?;
            }
            shown(&low.output, |caller| engines::run(&plan, caller))
        }
        LowBenchCommand::Files(low) => match low.small_files() {
            Some(plan) => shown(&low.small_output(), |caller| small_files::run(&plan, caller)),
            None => {
                let plan = low.checked()?;
                shown(&low.output, |caller| files::run(&plan, caller))
            }
        },
        LowBenchCommand::Chooser(low) => {
            let plan = low.checked();
            shown(&low.output, |caller| chooser::run(&plan, caller))
        }
        LowBenchCommand::Tuning(low) => {
            let plan = low.checked()?;
            shown(&low.output, |caller| tuning::run(&plan, caller))
        }
        LowBenchCommand::Media(low) => {
            let plan = low.checked()?;
            shown(&low.output, |caller| media::run(&plan, caller))
        }
        LowBenchCommand::Fabric(low) => {
            let plan = low.checked()?;
            shown(&low.output, |caller| fabric::run(&plan, caller))
        }
        LowBenchCommand::Protection(low) => {
            let plan = low.checked()?;
            shown(&low.output, |caller| protection::run(&plan, caller))
        }
        LowBenchCommand::Studies(low) => {
            let plan = low.checked()?;
            shown(&low.output(), |caller| all_studies::run(&plan, caller))
        }
    }
}

/// Runs a bench for a user who may stop it, and shows what it found.
fn shown(
    output: &LowResults,
    bench: impl FnOnce(&Caller) -> Result<Results, BenchError>,
) -> Result<ExitStatus, Failure> {
    results::ready(output)?;
    let caller = Caller { interrupt: interrupt::on_signals()?, steps: Steps::boxed };
    results::show(bench(&caller)?, output)
}

/// Runs one side of a measurement, as a process of its own. It tells all that goes wrong in its
/// lines.
///
/// # Errors
/// Never.
pub fn run_side(spec: &str) -> Result<ExitStatus, Failure> {
    side::run(spec, &mut |line| json::print(line));
    Ok(ExitStatus::AllDone)
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        match error {
            BenchError::CouldNotStart(problem) => problem.into(),
            BenchError::BrokeOff(problem) => {
                Self { status: ExitStatus::SomeFailed, ..Self::from(problem) }
            }
        }
    }
}
