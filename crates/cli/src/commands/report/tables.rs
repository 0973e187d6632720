//! The text of `haul report`: sums, a bar for each time, a line for each node, and what is left.

use super::{
    finishing::{again, array, commands},
    json::seconds_from,
};
use crate::ui::{shell::shell_word, units};
use haul_report::{printable, table::Table};
use haul_transfer::{Fleet, NodeReport, Plan, ShardReport, ShardState};
use std::path::Path;

/// Rows of the rate over time.
const TIMES_MAX: usize = 12;
/// Width of the longest bar.
const BAR_WIDTH: f64 = 40.0;
/// Nodes with a line each on a terminal; the page and `--json` have all.
const NODES_MAX: usize = 64;
/// Shards and failures with a line each.
const SHARDS_MAX: usize = 20;
const FAILURES_MAX: usize = 3;

/// The whole text.
pub fn text(plan: &Plan, fleet: &Fleet, place: &Path) -> String {
    let mut parts = vec![sums(plan, fleet).join("\n")];
    if fleet.nodes.iter().any(|node| node.moved_bytes > 0) {
        parts.push(times(fleet).text());
    }
    if !fleet.nodes.is_empty() {
        parts.push(nodes(fleet, NODES_MAX).text());
    }
    let slowest = slowest(fleet);
    if !slowest.is_empty() {
        parts.push(slowest.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n"));
    }
    let failed = failed(fleet);
    if !failed.is_empty() {
        parts.push(failed.join("\n"));
    }
    parts.push(finish(plan, fleet, place).join("\n"));
    parts.join("\n\n")
}

/// Sentences with the sums of a fleet.
pub fn sums(plan: &Plan, fleet: &Fleet) -> Vec<String> {
    let shards = units::count(plan.shards.into(), "shard");
    let mut lines = vec![format!("{shards} of {}: {}", plan.source, states(fleet).join(", "))];
    lines.extend(plan.growing.map(|growth| match growth.given_up {
        true => "NOT WHOLE: nobody makes the plan any more, and names are in no shard".to_owned(),
        false => "the plan is still made, and more shards come".to_owned(),
    }));
    if plan.failed > 0 {
        let count = units::count(plan.failed, "name");
        lines.push(format!("NOT PLANNED: {count} could not be listed; see haul plan --again"));
    }
    let (files, bytes) = (fleet.sum(|shard| shard.files), fleet.sum(|shard| shard.bytes));
    lines.push(format!(
        "at the target: {}, {}",
        units::count(files, "file"),
        units::of_bytes(bytes, plan.bytes.max(bytes)),
    ));
    let moved = fleet.sum(|shard| shard.moved_bytes);
    if !fleet.nodes.is_empty() {
        lines.push(format!(
            "moved: {} by {} in {}, {}",
            units::bytes(moved),
            units::count(fleet.nodes.len() as u64, "node"),
            units::time(fleet.busy_s),
            units::rate(fleet.gbit_per_s()),
        ));
    }
    let unreadable = fleet.faults.len() as u64 + fleet.faults_left_out;
    if unreadable > 0 {
        let count = units::count(unreadable, "report");
        lines.push(format!("NOT READ: {count}, whose shards count as not ended"));
    }
    if fleet.of_another_plan > 0 {
        let count = units::count(fleet.of_another_plan, "report");
        lines.push(format!("left out: {count} of a plan that was here before"));
    }
    lines
}

/// Numbers of the shards by state, without those that are none.
fn states(fleet: &Fleet) -> Vec<String> {
    let all = [
        (ShardState::Done, "done"),
        (ShardState::Failed, "failed"),
        (ShardState::Stopped, "stopped before their end"),
        (ShardState::Running, "running"),
        (ShardState::NotBegun, "not begun"),
    ];
    let counted = all.map(|(state, words)| (fleet.count(state), words));
    let said = counted.into_iter().filter(|(count, _)| *count > 0);
    said.map(|(count, words)| format!("{count} {words}")).collect()
}

/// The rate of the fleet, a bar for each of several times.
fn times(fleet: &Fleet) -> Table {
    let mut table = Table::new("Rate over time", 1, &["after", "rate", ""]);
    let points = fleet.rates.points();
    let origin_ms = points.first().map_or(0, |point| point.0);
    let each = points.len().div_ceil(TIMES_MAX).max(1);
    let mean = |some: &[(u64, f64)]| some.iter().map(|it| it.1).sum::<f64>() / some.len() as f64;
    let rows: Vec<_> = points.chunks(each).map(|some| (some[0].0, mean(some))).collect();
    let most = rows.iter().map(|row| row.1).fold(f64::MIN_POSITIVE, f64::max);
    for (at_ms, rate) in rows {
        let bar = "#".repeat((rate / most * BAR_WIDTH).round() as usize);
        let after = units::whole_time(seconds_from(origin_ms, at_ms));
        // The bar is the left-aligned end of the row.
        table.row(vec![after, format!("{:>11}  {bar}", units::rate(rate))]);
    }
    table
}

/// A line for each node, the slowest first.
pub fn nodes(fleet: &Fleet, most: usize) -> Table {
    let columns = ["node", "limited by", "runs", "shards done", "files", "moved", "busy", "rate"];
    let mut table = Table::new("Nodes", 2, &columns);
    let mut nodes: Vec<&NodeReport> = fleet.nodes.iter().collect();
    nodes.sort_by(|one, other| one.gbit_per_s.total_cmp(&other.gbit_per_s));
    for node in nodes.iter().take(most) {
        let runs = match node.running {
            0 => node.runs.to_string(),
            running => format!("{} ({running} now)", node.runs),
        };
        table.row(vec![
            node.host.clone(),
            limited_by(node),
            runs,
            node.shards_done.to_string(),
            node.files_moved.to_string(),
            units::bytes(node.moved_bytes),
            units::time(node.busy_s),
            units::rate(node.gbit_per_s),
        ]);
    }
    if nodes.len() > most {
        table.note(format!("{} more nodes: --html and --json have all", nodes.len() - most));
    }
    table
}

fn limited_by(node: &NodeReport) -> String {
    match &node.limited_by[..] {
        "" => "not known".to_owned(),
        stage => format!("{stage}, {} of the time", units::percent(node.share)),
    }
}

/// Sentences about the slowest node and the slowest shard, and what limited them.
pub fn slowest(fleet: &Fleet) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(node) = fleet.slowest_node() {
        let because = if node.verdict.is_empty() { limited_by(node) } else { node.verdict.clone() };
        let (host, rate) = (&node.host, units::rate(node.gbit_per_s));
        lines.push(format!("slowest node: {host}, {rate}: {because}"));
    }
    if let Some(shard) = fleet.slowest_shard() {
        let because = match &shard.verdict[..] {
            "" => String::new(),
            verdict => format!(": {verdict}"),
        };
        let (number, host, time) = (shard.number, &shard.host, units::time(shard.seconds));
        lines.push(format!("slowest shard: {number}, {time} on {host}{because}"));
    }
    lines
}

/// Lines about runs that were sent to another place than the plan's.
fn elsewhere(fleet: &Fleet) -> Vec<String> {
    let shards: Vec<_> = fleet.shards.iter().filter(|it| it.runs_elsewhere > 0).collect();
    let line = |shard: &&ShardReport| {
        let (number, target) = (shard.number, printable(&shard.elsewhere));
        let who = match shard.runs_elsewhere {
            1 => format!("a run went to {target}"),
            runs => {
                format!("{} went elsewhere, the last to {target}", units::count(runs.into(), "run"))
            }
        };
        format!("shard {number}: {who}, which is not the plan's target, and does not count")
    };
    let mut lines: Vec<String> = shards.iter().take(SHARDS_MAX).map(line).collect();
    if shards.len() > SHARDS_MAX {
        let more = shards.len() - SHARDS_MAX;
        lines.push(format!("and {}: --json has all", units::count(more as u64, "more shard")));
    }
    lines
}

/// Lines about runs that went elsewhere, and the shards that a run has left unfinished, and why.
pub fn failed(fleet: &Fleet) -> Vec<String> {
    let states = [ShardState::Failed, ShardState::Stopped];
    let shards: Vec<_> = fleet.shards.iter().filter(|it| states.contains(&it.state)).collect();
    let mut lines = elsewhere(fleet);
    lines.extend(shards.iter().take(SHARDS_MAX).flat_map(|shard| of_failed_shard(shard)));
    if shards.len() > SHARDS_MAX {
        let more = shards.len() - SHARDS_MAX;
        lines.push(format!("and {}: --json has all", units::count(more as u64, "more shard")));
    }
    lines
}

fn of_failed_shard(shard: &ShardReport) -> Vec<String> {
    let ShardReport { number, attempt, .. } = shard;
    let host = match &shard.host[..] {
        "" => String::new(),
        host => format!(" on {}", printable(host)),
    };
    let mut lines = vec![match (shard.state, shard.status) {
        (ShardState::Stopped, _) => {
            format!("shard {number}: run {attempt}{host} began and has not ended, and is gone")
        }
        (_, Some(2)) => format!(
            "shard {number}: run {attempt}{host} could not start (exit status 2): correct this \
             before it is run again"
        ),
        (_, status) => format!(
            "shard {number}: run {attempt}{host} ended with exit status {}, {}",
            status.unwrap_or(1),
            units::count(shard.failed, "failed file"),
        ),
    }];
    let said = shard.failures.iter().take(FAILURES_MAX);
    lines.extend(said.map(|failure| format!("  {failure}")));
    let more = shard.failures.len().saturating_sub(FAILURES_MAX) as u64 + shard.failures_left_out;
    if more > 0 {
        lines.push(format!("  {}", units::count(more, "more failure")));
    }
    lines
}

/// Lines that say how the plan is finished.
pub fn finish(plan: &Plan, fleet: &Fleet, place: &Path) -> Vec<String> {
    let running = fleet.count(ShardState::Running);
    let commands = commands(place, fleet);
    let mut lines = match (commands.is_empty(), running) {
        (true, 0) if plan.growing.is_some() => {
            vec!["all shards that are there are done".to_owned()]
        }
        (true, 0) => vec!["all shards are done".to_owned()],
        (true, _) => vec!["nothing to run: the other shards are being moved".to_owned()],
        (false, _) => {
            let array = array(fleet);
            let mut lines = vec![format!(
                "to finish, with the options that the runs had (as an array: {array}):"
            )];
            lines.extend(commands.iter().map(|command| format!("  {command}")));
            lines
        }
    };
    if let Some(again) = again(plan, fleet, place) {
        lines.push(format!(
            "if what failed is gone from the source, or is another file now, plan the rest anew \
             and run that in its place: {again}"
        ));
    }
    if plan.growing.is_some_and(|growth| growth.given_up) {
        let place = shell_word(place.as_os_str());
        let again = format!("haul plan --again {place} --shards N --out ANOTHER-PLAN");
        lines.push(format!("and then plan what is missing: {again}"));
    }
    lines
}
