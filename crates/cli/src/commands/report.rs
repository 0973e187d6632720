//! `haul report`: adds up what the runs of a plan have done, and says how to finish it.

mod finishing;
mod json;
mod page;
mod tables;

use crate::{
    args::{report::LowReport, usage_problem},
    failure::{ExitStatus, Failure},
    ui,
};
use haul_transfer::{Fleet, Plan, ShardState};

/// Shows the fleet as it was asked for. All done is status 0.
///
/// # Errors
/// If there is no plan, or the page cannot be written; the fleet was shown then.
pub fn run(low: &LowReport) -> Result<ExitStatus, Failure> {
    let mut plan = Plan::open(&low.plan)?;
    plan.note_lost_planner();
    let fleet = Fleet::read(&plan)?;
    for problem in &fleet.faults {
        ui::print_to_stderr(&problem.to_string());
    }
    if low.json {
        json::print(&plan, &fleet, &low.plan);
    } else {
        ui::print_to_stdout(&tables::text(&plan, &fleet, &low.plan));
    }
    if let Some(path) = &low.html {
        let page = page::page(&plan, &fleet, &low.plan);
        std::fs::write(path, page.html()).map_err(|error| {
            let what = format!("cannot write the page {}", path.display());
            let problem = usage_problem(&what, "", &error.to_string(), "name another --html");
            Failure { status: ExitStatus::SomeFailed, ..Failure::from(problem) }
        })?;
    }
    let is_whole = plan.growing.is_none() && plan.failed == 0;
    let all_done = is_whole && fleet.count(ShardState::Done) == fleet.shards.len();
    Ok(if all_done { ExitStatus::AllDone } else { ExitStatus::SomeFailed })
}
