//! `haul plan`: cuts a directory into shards that many machines move, or simulates that they do.

mod simulation;

use crate::{
    args::plan::{LowPlan, PlanWanted},
    failure::{ExitStatus, Failure},
    interrupt,
    ui::{self, shell::shell_word, units},
};
use haul_transfer::{Interrupt, Made, Plan, PlanRequest, ShardLoad, Shards, make_plan};
use serde_json::json;
use std::ops::RangeInclusive;

/// Makes a plan and says what is in it, or predicts its time on a fleet, or both.
///
/// # Errors
/// If the source is no directory, the plan cannot be written, or there is none to simulate.
pub fn run(low: &LowPlan) -> Result<ExitStatus, Failure> {
    let interrupt = interrupt::on_signals()?;
    let wanted = match low.checked()? {
        PlanWanted::New(checked) => checked,
        PlanWanted::Existing(place) => {
            let mut plan = Plan::open(&place)?;
            plan.note_lost_planner();
            plan.check_whole()?;
            simulate(low, &plan, &plan.loads()?, &interrupt)?;
            return Ok(ExitStatus::AllDone);
        }
    };
    // A fleet that cannot be is told before the tree is listed.
    if let Some(fleet) = &low.simulate {
        fleet.with_targets(wanted.targets.len())?;
    }
    let how_to_run = format!("haul push --plan {} --shard K", shell_word(wanted.place.as_os_str()));
    if matches!(wanted.shards, Shards::Size(_)) && !low.json {
        ui::print_to_stderr(&format!("from now on each shard can be run: {how_to_run}"));
    }
    let made = make(&wanted, &interrupt)?;
    if low.json {
        print_json(&made);
    } else {
        ui::print_to_stdout(&text(&made, &how_to_run));
    }
    simulate(low, &made.plan, &made.loads, &interrupt).map_err(|failure| beside(failure, &made))?;
    Ok(if made.failed.count == 0 { ExitStatus::AllDone } else { ExitStatus::SomeFailed })
}

/// The failure of a simulation behind a plan that was made: the plan stays, and needs no making
/// again.
fn beside(failure: Failure, made: &Made) -> Failure {
    let mut problem = failure.problem;
    let place = shell_word(made.plan.place().as_os_str());
    let again = format!("the plan is made: haul plan {place} --simulate FLEET simulates it again");
    // What it says of an interrupt is about the command as a whole.
    problem.hint = match &*problem.hint {
        hint if !failure.may_pass && !hint.is_empty() => format!("{hint}; {again}"),
        _ => again,
    };
    let words = problem.to_string();
    Failure { status: ExitStatus::SomeFailed, words, problem, may_pass: false, is_told: false }
}

fn make(wanted: &PlanRequest, interrupt: &Interrupt) -> Result<Made, Failure> {
    haul_transfer::raise_open_files_limit();
    let made = make_plan(wanted, interrupt)?;
    for (entries, what) in
        [(&made.left_out, "of a kind that is not moved"), (&made.failed, "that failed")]
    {
        entries.first.iter().for_each(|problem| ui::print_to_stderr(&problem.to_string()));
        if entries.left_out() > 0 {
            let more = units::count(entries.left_out(), "further name");
            ui::print_to_stderr(&format!("{more} {what}"));
        }
    }
    Ok(made)
}

/// Shows what `--simulate` wants to know, if it is there.
fn simulate(
    low: &LowPlan,
    plan: &Plan,
    loads: &[ShardLoad],
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let Some(fleet) = &low.simulate else { return Ok(()) };
    let fleet = fleet.with_targets(plan.targets.len())?;
    let prediction = haul_transfer::simulate(&fleet, loads, interrupt)?;
    if low.json {
        simulation::print_json(plan, &fleet, &prediction);
    } else {
        ui::print_to_stdout(&simulation::text(plan, &fleet, &prediction));
    }
    Ok(())
}

fn print_json(made: &Made) {
    made.failed.first.iter().for_each(ui::json::print_error);
    for (ShardLoad { files, bytes }, number) in made.loads.iter().zip(1..) {
        let target = (number - 1) % made.plan.targets.len() + 1;
        ui::json::print(&json!({
            "event": "shard", "shard": number, "files": files, "bytes": bytes, "target": target,
        }));
    }
    let mut plan = json!({
        "event": "plan", "shards": made.plan.shards, "files": made.plan.files,
        "bytes": made.plan.bytes, "targets": made.plan.targets.len(),
        "left_out": made.left_out.count, "failed": made.failed.count,
    });
    if let Some((unchanged, gone)) = made.unchanged_and_gone {
        plan["unchanged"] = unchanged.into();
        plan["gone"] = gone.into();
    }
    ui::json::print(&plan);
}

fn text(made: &Made, how_to_run: &str) -> String {
    let plan = &made.plan;
    let range = |of: fn(&ShardLoad) -> u64| -> RangeInclusive<u64> {
        let loads = made.loads.iter().map(of);
        loads.clone().min().unwrap_or(0)..=loads.max().unwrap_or(0)
    };
    let (files, bytes) = (range(|load| load.files), range(|load| load.bytes));
    let mut text = format!(
        "{}, {} in {}: each {} to {} files, {} to {}\n\
         run each, here or on other machines: {how_to_run}",
        units::count(plan.files, "file"),
        units::bytes(plan.bytes),
        units::count(plan.shards.into(), "shard"),
        files.start(),
        files.end(),
        units::bytes(*bytes.start()),
        units::bytes(*bytes.end()),
    );
    if let Some((unchanged, gone)) = made.unchanged_and_gone {
        let unchanged = units::count(unchanged, "name");
        text.push_str(&format!("\nunchanged since the earlier plan, and not in this: {unchanged}"));
        if gone > 0 {
            let gone = units::count(gone, "name");
            let or = if made.failed.count == 0 { "" } else { ", or could not be listed" };
            text.push_str(&format!("\ngone from the source{or}, and still at the target: {gone}"));
        }
    }
    if made.failed.count > 0 {
        let count = units::count(made.failed.count, "name");
        text.push_str(&format!("\nNOT PLANNED: {count} could not be listed"));
    }
    text
}
