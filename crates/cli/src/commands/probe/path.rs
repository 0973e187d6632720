//! `haul probe path SOURCE URL/dir/`: four runs, and one page that says what limits.

use crate::{
    args::probe::path::LowProbePath,
    commands::{results, token_source},
    failure::{ExitStatus, Failure},
    interrupt,
    ui::{self, report::check_line, steps::Steps, units},
};
use haul_probe::path::{COURSES, PathEvent, probe_path, tables};
use haul_report::steps::ShowSteps as _;
use haul_transfer::{Check, CheckVerdict, TransferError};

/// Runs the four probes and shows what limits.
///
/// # Errors
/// If nothing could start, a run failed, or it was interrupted.
pub fn run(low: &LowProbePath) -> Result<ExitStatus, Failure> {
    let mut probe = low.checked()?;
    token_source::complete(std::slice::from_mut(&mut probe.url), low.token_file.as_deref())?;
    results::ready(&low.output)?;
    let interrupt = interrupt::on_signals()?;
    let steps = Steps::new(COURSES.len() * probe.rounds as usize);
    let mut checks = Vec::new();
    let mut tell = |event| match event {
        PathEvent::Preflight(found) => {
            if !low.output.json {
                show_preflight(&found);
            }
            checks = found;
        }
        PathEvent::Begins { course, round, len_bytes } => {
            let (name, size) = (course.name(), units::bytes(len_bytes));
            let words = match round {
                0 => format!("{name}: how much it can move, {size}"),
                round => format!("{name}: round {round}, {size}"),
            };
            steps.begin(&words);
        }
    };
    let found = probe_path(&probe, &interrupt, &mut tell);
    drop(steps);
    let found = found.map_err(|error| match error {
        TransferError::Interrupted { .. } => {
            let words = "interrupted; nothing of the probe stays at the target".to_owned();
            Failure { words, ..Failure::from(error) }
        }
        error => error.into(),
    })?;
    results::show(tables::results(&probe, &checks, &found), &low.output)
}

fn show_preflight(checks: &[Check]) {
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let (warnings, failures) = (count(CheckVerdict::Warning), count(CheckVerdict::Failed));
    let mut lines = vec![format!(
        "preflight: {} looked at, {warnings} to look at, {failures} that would fail",
        units::count(checks.len() as u64, "thing")
    )];
    lines.extend(checks.iter().map(check_line));
    ui::print_to_stdout(&(lines.join("\n") + "\n"));
}
