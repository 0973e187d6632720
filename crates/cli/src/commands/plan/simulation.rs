//! Answers of `haul plan --simulate`: the time, what limits it, and what would shorten it.

use crate::ui::{self, units};
use haul_report::table::Table;
use haul_transfer::{Cause, Change, Plan, Prediction, Resource, ResourceUse, SimulatedFleet};
use serde_json::{Value, json};

/// Changes that are told.
const CHANGES_MAX: usize = 3;
/// Part of a kind's hold that one machine must have to be named alone.
const ALONE_MIN: f64 = 0.9;

/// The prediction as text.
pub fn text(plan: &Plan, fleet: &SimulatedFleet, prediction: &Prediction) -> String {
    let mut lines = vec![
        format!(
            "simulated: {}, {} in {}, by {} with {} each to {}",
            units::count(prediction.load.files, "file"),
            units::bytes(prediction.load.bytes),
            units::count(plan.shards.into(), "shard"),
            units::count(fleet.nodes.into(), "node"),
            units::count(fleet.runs.into(), "run"),
            units::count(fleet.servers.into(), "server"),
        ),
        predicted(prediction),
    ];
    if let Some((cause, share)) = prediction.causes.first() {
        let name = limiting(fleet, prediction, *cause);
        lines.push(format!("limited by {name}: {} of the runs' time", units::percent(*share)));
    }
    let parts = [lines.join("\n"), uses(fleet, prediction).text(), next(prediction)];
    parts.join("\n\n")
}

fn predicted(prediction: &Prediction) -> String {
    let gbit_per_s = gbit_per_s(prediction);
    let (time, rate) = (units::time(prediction.seconds), units::rate(gbit_per_s));
    if prediction.courses == 1 {
        return format!("predicted: {time}, {rate}");
    }
    let (early, late) = prediction.seconds_5_95;
    format!(
        "predicted: {time}, {rate}; 5 % of {} end within {}, 95 % within {}\n\
         failures: {:.1} of nodes, {} sent again; without any it takes {}",
        units::count(prediction.courses, "course"),
        units::time(early),
        units::time(late),
        prediction.failures,
        units::bytes(prediction.lost_bytes as u64),
        units::time(prediction.sound_seconds),
    )
}

fn gbit_per_s(prediction: &Prediction) -> f64 {
    let seconds = prediction.seconds;
    if seconds > 0.0 { prediction.load.bytes as f64 * 8e-9 / seconds } else { 0.0 }
}

/// Name of what limits: of one machine, where it is that alone.
fn limiting(fleet: &SimulatedFleet, prediction: &Prediction, cause: Cause) -> String {
    let Cause::Resource(resource) = cause else { return name(cause).to_owned() };
    let uses: Vec<&ResourceUse> =
        prediction.resources.iter().filter(|it| it.resource == resource).collect();
    let all: f64 = uses.iter().map(|it| it.held).sum();
    match uses.iter().find(|it| it.held > all * ALONE_MIN) {
        Some(one) if fleet.count(resource) > 1 => single(resource, one.number),
        _ => name(cause).to_owned(),
    }
}

fn name(cause: Cause) -> &'static str {
    match cause {
        Cause::Resource(resource) => match resource {
            Resource::SharedSource => "the file system of the source",
            Resource::NodeDisk => "the nodes' disks",
            Resource::NodeNic => "the nodes' NICs",
            Resource::Core => "the core link",
            Resource::ServerNic => "the servers' NICs",
            Resource::ServerDisk => "the servers' disks",
            Resource::SharedTarget => "the file system of the target",
        },
        Cause::Run => "the rate of one run",
        Cause::Files => "the files that one run handles in a second",
        Cause::Start => "the start of runs",
        Cause::NoShard => "no shard left to take",
        Cause::Failures => "failures of nodes",
    }
}

fn single(resource: Resource, number: u32) -> String {
    match resource {
        Resource::NodeDisk => format!("the disk of node {number}"),
        Resource::NodeNic => format!("the NIC of node {number}"),
        Resource::ServerDisk => format!("the disk of server {number}"),
        Resource::ServerNic => format!("the NIC of server {number}"),
        other => name(Cause::Resource(other)).to_owned(),
    }
}

/// Resources, those of a kind and rate together, and what else the runs' time goes for.
fn uses(fleet: &SimulatedFleet, prediction: &Prediction) -> Table {
    let columns = ["part", "number", "rate of each", "used", "holds runs back"];
    let mut table = Table::new("What the time goes for", 1, &columns);
    for some in groups(fleet, prediction) {
        let first = some[0];
        let rate = fleet.rate(first.resource, first.number).unwrap_or_default() * 8e-9;
        let is_single = some.len() == 1 && fleet.count(first.resource) > 1;
        let name = match is_single {
            true => single(first.resource, first.number),
            false => name(Cause::Resource(first.resource)).to_owned(),
        };
        let used = some.iter().map(|it| it.used).sum::<f64>() / some.len() as f64;
        let held: f64 = some.iter().map(|it| it.held).sum();
        table.row(vec![
            name,
            some.len().to_string(),
            units::rate(rate),
            units::percent(used),
            units::percent(held),
        ]);
    }
    let others = prediction.causes.iter().filter(|it| !matches!(it.0, Cause::Resource(_)));
    for (cause, share) in others {
        let empty = String::new;
        let share = units::percent(*share);
        table.row(vec![name(*cause).to_owned(), empty(), empty(), empty(), share]);
    }
    table
}

fn groups<'a>(fleet: &SimulatedFleet, prediction: &'a Prediction) -> Vec<Vec<&'a ResourceUse>> {
    let mut groups: Vec<Vec<&ResourceUse>> = Vec::new();
    for one in &prediction.resources {
        let rate = |it: &ResourceUse| (it.resource, fleet.rate(it.resource, it.number));
        match groups.iter_mut().find(|group| rate(group[0]) == rate(one)) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// Words about what to add.
fn next(prediction: &Prediction) -> String {
    if prediction.changes.is_empty() {
        return "Nothing saves 5 % of the time if it alone is doubled.".into();
    }
    let with = if prediction.courses == 1 { "With" } else { "Without failures, with" };
    let told = prediction.changes.iter().take(CHANGES_MAX).map(|changed| {
        let (time, then) = (units::time(changed.seconds), name(changed.then));
        format!("{with} {}: {time}, then limited by {then}.", twice(changed.change))
    });
    told.collect::<Vec<_>>().join("\n")
}

fn twice(change: Change) -> String {
    match change {
        Change::Shards => "twice as many shards".into(),
        Change::Runs => "twice as many runs at a time on each node".into(),
        Change::RunRate => "runs twice as fast".into(),
        Change::Rate(resource) => {
            format!("twice the rate of {}", name(Cause::Resource(resource)))
        }
        Change::Nodes => "twice as many nodes".into(),
        Change::Servers => "twice as many servers".into(),
    }
}

/// Prints the prediction as one JSON object.
pub fn print_json(plan: &Plan, fleet: &SimulatedFleet, prediction: &Prediction) {
    let causes = prediction.causes.iter();
    let causes: Vec<Value> =
        causes.map(|(cause, share)| json!({ "cause": cause.word(), "share": share })).collect();
    let parts = prediction.resources.iter().map(|it| {
        json!({
            "part": it.resource.word(), "number": it.number, "bytes_per_s": it.bytes_per_s,
            "used": it.used, "held": it.held,
        })
    });
    let changes = prediction.changes.iter().map(|it| {
        json!({
            "twice": it.change.word(), "seconds": it.seconds, "limited_by": it.then.word(),
        })
    });
    let (early, late) = prediction.seconds_5_95;
    ui::json::print(&json!({
        "event": "simulation", "shards": plan.shards, "nodes": fleet.nodes, "runs": fleet.runs,
        "servers": fleet.servers, "files": prediction.load.files, "bytes": prediction.load.bytes,
        "seconds": prediction.seconds, "seconds_5": early, "seconds_95": late,
        "seconds_without_failures": prediction.sound_seconds, "courses": prediction.courses,
        "gbit_per_s": gbit_per_s(prediction),
        "failures": prediction.failures, "lost_bytes": prediction.lost_bytes,
        "limited_by": prediction.causes.first().map(|it| it.0.word()),
        "causes": causes, "parts": parts.collect::<Vec<_>>(),
        "changes": changes.collect::<Vec<_>>(),
    }));
}
