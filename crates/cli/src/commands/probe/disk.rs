//! `haul probe disk`: rates and delays of a disk, over time and by setting.

use crate::{
    args::{probe::disk::LowProbeDisk, usage_problem},
    commands::results,
    failure::{ExitStatus, Failure},
    interrupt,
    ui::steps::Steps,
};
use haul_probe::disk::{probe, tables};
use haul_report::steps::ShowSteps as _;
use haul_transfer::TransferError;

/// Runs the probe and shows what it found.
///
/// # Errors
/// If nothing could start, or it was interrupted.
pub fn run(low: &LowProbeDisk) -> Result<ExitStatus, Failure> {
    let request = low.checked()?;
    results::ready(&low.output)?;
    let interrupt = interrupt::on_signals()?;
    let mut steps = None;
    let report = probe(&request, &interrupt, &mut |count, what| {
        steps.get_or_insert_with(|| Steps::new(count)).begin(what);
    });
    drop(steps);
    let report = report.map_err(|error| match error {
        TransferError::Interrupted { .. } => {
            let found = "interrupted; nothing is left in the directory";
            let problem = usage_problem("haul probe disk broke off", "", found, "");
            Failure { status: ExitStatus::SomeFailed, ..Failure::from(problem) }
        }
        other => other.into(),
    })?;
    results::show(tables::results(&report), &low.output)
}
