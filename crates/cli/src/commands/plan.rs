//! `haul plan`: cuts a directory into shards that many machines move.

use crate::{
    args::plan::LowPlan,
    failure::{ExitStatus, Failure},
    interrupt,
    ui::{self, units},
};
use haul_transfer::{Made, ShardLoad, make_plan};
use serde_json::json;
use std::ops::RangeInclusive;

/// Makes a plan and says what is in it.
///
/// # Errors
/// If the source is no directory, or the plan cannot be written.
pub fn run(low: &LowPlan) -> Result<ExitStatus, Failure> {
    let checked = low.checked()?;
    let interrupt = interrupt::on_signals()?;
    haul_transfer::raise_open_files_limit();
    let place = (&checked.selection, checked.large_files, &*low.out);
    let made = make_plan(&checked.source, checked.targets, low.shards, place, &interrupt)?;
    for problem in made.left_out.iter().chain(&made.failed) {
        ui::print_to_stderr(&problem.to_string());
    }
    if low.json {
        print_json(&made);
    } else {
        ui::print_to_stdout(&text(&made, &low.out.display().to_string()));
    }
    Ok(if made.failed.is_empty() { ExitStatus::AllDone } else { ExitStatus::SomeFailed })
}

fn print_json(made: &Made) {
    made.failed.iter().for_each(ui::json::print_error);
    for (ShardLoad { files, bytes }, number) in made.loads.iter().zip(1..) {
        let target = (number - 1) % made.plan.targets.len() + 1;
        ui::json::print(&json!({
            "event": "shard", "shard": number, "files": files, "bytes": bytes, "target": target,
        }));
    }
    ui::json::print(&json!({
        "event": "plan", "shards": made.plan.shards, "files": made.plan.files,
        "bytes": made.plan.bytes, "targets": made.plan.targets.len(),
        "left_out": made.left_out.len(), "failed": made.failed.len(),
    }));
}

fn text(made: &Made, place: &str) -> String {
    let plan = &made.plan;
    let range = |of: fn(&ShardLoad) -> u64| -> RangeInclusive<u64> {
        let loads = made.loads.iter().map(of);
        loads.clone().min().unwrap_or(0)..=loads.max().unwrap_or(0)
    };
    let (files, bytes) = (range(|load| load.files), range(|load| load.bytes));
    let mut text = format!(
        "{}, {} in {}: each {} to {} files, {} to {}\n\
         run each, here or on other machines: haul push --plan {place} --shard K",
        units::count(plan.files, "file"),
        units::bytes(plan.bytes),
        units::count(plan.shards.into(), "shard"),
        files.start(),
        files.end(),
        units::bytes(*bytes.start()),
        units::bytes(*bytes.end()),
    );
    if !made.failed.is_empty() {
        let count = units::count(made.failed.len() as u64, "entry");
        text.push_str(&format!("\nNOT PLANNED: {count} could not be listed"));
    }
    text
}
