//! `haul report --json`: a shard a line, a node a line, and last the fleet.

use super::finishing::{again, array, command, commands};
use crate::ui::json;
use haul_transfer::{Fleet, NodeReport, Plan, Rates, ShardReport, ShardState};
use serde_json::{Value, json};
use std::path::Path;

/// Prints the fleet, a line each.
pub fn print(plan: &Plan, fleet: &Fleet, place: &Path) {
    fleet.faults.iter().for_each(json::print_error);
    fleet.shards.iter().for_each(|shard| json::print(&of_shard(shard, place)));
    let origin_ms = fleet.span_ms.map_or(0, |span| span.0);
    fleet.nodes.iter().for_each(|node| json::print(&of_node(node, origin_ms)));
    json::print(&of_fleet(plan, fleet, place));
}

fn of_shard(shard: &ShardReport, place: &Path) -> Value {
    let is_left = !matches!(shard.state, ShardState::Done | ShardState::Running);
    json!({
        "event": "shard",
        "shard": shard.number,
        "state": shard.state.word(),
        "runs": shard.runs,
        "runs_elsewhere": shard.runs_elsewhere,
        "elsewhere": Some(&shard.elsewhere).filter(|target| !target.is_empty()),
        "attempt": shard.attempt,
        "host": shard.host,
        "target": shard.target,
        "status": shard.status,
        "seconds": rounded(shard.seconds),
        "files": shard.files,
        "bytes": shard.bytes,
        "files_moved": shard.files_moved,
        "files_skipped": shard.files_skipped,
        "moved_bytes": shard.moved_bytes,
        "failed": shard.failed,
        "failures": shard.failures,
        "failures_left_out": shard.failures_left_out,
        "limited_by": shard.limited_by,
        "verdict": shard.verdict,
        "command": is_left.then(|| command(place, shard)),
    })
}

fn of_node(node: &NodeReport, origin_ms: u64) -> Value {
    json!({
        "event": "node",
        "host": node.host,
        "runs": node.runs,
        "running": node.running,
        "shards_done": node.shards_done,
        "files_moved": node.files_moved,
        "moved_bytes": node.moved_bytes,
        "busy_seconds": rounded(node.busy_s),
        "gbit_per_s": rounded(node.gbit_per_s),
        "limited_by": node.limited_by,
        "share": rounded(node.share),
        "verdict": node.verdict,
        "remedy": node.remedy,
        "interval_seconds": node.rates.seconds(),
        "rates": of_rates(&node.rates, origin_ms),
    })
}

fn of_fleet(plan: &Plan, fleet: &Fleet, place: &Path) -> Value {
    let states = [
        ShardState::Done,
        ShardState::Failed,
        ShardState::Stopped,
        ShardState::Running,
        ShardState::NotBegun,
    ];
    let counts = states.map(|state| (state.word().to_owned(), json!(fleet.count(state))));
    let origin_ms = fleet.span_ms.map_or(0, |span| span.0);
    json!({
        "event": "fleet",
        "plan": plan.id,
        "source": plan.source,
        "shards": plan.shards,
        "whole": plan.growing.is_none(),
        "not_planned": plan.failed,
        "states": counts.into_iter().collect::<serde_json::Map<_, _>>(),
        "planned_files": plan.files,
        "planned_bytes": plan.bytes,
        "files": fleet.sum(|shard| shard.files),
        "bytes": fleet.sum(|shard| shard.bytes),
        "files_moved": fleet.sum(|shard| shard.files_moved),
        "files_skipped": fleet.sum(|shard| shard.files_skipped),
        "moved_bytes": fleet.sum(|shard| shard.moved_bytes),
        "failed": fleet.sum(|shard| shard.failed),
        "nodes": fleet.nodes.len(),
        "began_ms": fleet.span_ms.map(|span| span.0),
        "last_ms": fleet.span_ms.map(|span| span.1),
        "busy_seconds": rounded(fleet.busy_s),
        "gbit_per_s": rounded(fleet.gbit_per_s()),
        "interval_seconds": fleet.rates.seconds(),
        "rates": of_rates(&fleet.rates, origin_ms),
        "slowest_node": fleet.slowest_node().map(|node| &node.host),
        "slowest_shard": fleet.slowest_shard().map(|shard| shard.number),
        "unreadable": fleet.faults.len() as u64 + fleet.faults_left_out,
        "of_another_plan": fleet.of_another_plan,
        "left": array(fleet),
        "commands": commands(place, fleet),
        "again": again(plan, fleet, place),
    })
}

/// Seconds since the first run began, and the rate from then on, in Gbit/s.
fn of_rates(rates: &Rates, origin_ms: u64) -> Vec<(f64, f64)> {
    let points = rates.points().into_iter();
    points.map(|(at_ms, rate)| (seconds_from(origin_ms, at_ms), rounded(rate))).collect()
}

/// Seconds from the first run to a time; 0 for an interval that began before it.
pub fn seconds_from(origin_ms: u64, at_ms: u64) -> f64 {
    at_ms.saturating_sub(origin_ms) as f64 / 1000.0
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
