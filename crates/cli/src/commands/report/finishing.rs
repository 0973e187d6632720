//! Commands that finish a plan: each shard by hand, or many of them by a loop and by an array.

use crate::ui::shell::shell_word;
use haul_transfer::{Fleet, Plan, ShardReport, Side};
use std::path::Path;

/// Shards that have a line each.
const LINES_MAX: usize = 8;

/// The command that runs a shard again.
pub fn command(place: &Path, shard: &ShardReport) -> String {
    format!("haul push --plan {} --shard {}", shell_word(place.as_os_str()), shard.number)
}

/// Lines for a shell that finish the plan: a command each, or a loop over many shards.
pub fn commands(place: &Path, fleet: &Fleet) -> Vec<String> {
    let left: Vec<_> = fleet.left().collect();
    if left.len() <= LINES_MAX {
        return left.iter().map(|shard| command(place, shard)).collect();
    }
    let ranges = ranges(fleet);
    let numbers: Vec<String> = ranges
        .iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            _ => format!("$(seq {first} {last})"),
        })
        .collect();
    let (place, numbers) = (shell_word(place.as_os_str()), numbers.join(" "));
    vec![format!("for shard in {numbers}; do haul push --plan {place} --shard $shard; done")]
}

/// The command that plans anew what shards lack that fail by their source: what is gone from there
/// fails whenever a shard is run. `None` where no shard does.
pub fn again(plan: &Plan, fleet: &Fleet, place: &Path) -> Option<String> {
    let by_source = |shard: &ShardReport| shard.failures.iter().any(|it| it.side == Side::Source);
    let left = fleet.left().count().max(plan.targets.len());
    fleet.left().any(by_source).then(|| {
        let place = shell_word(place.as_os_str());
        let shared =
            if plan.has_ranges() && plan.targets.len() > 1 { " --shared-target" } else { "" };
        format!("haul plan --again {place} --shards {left}{shared} --out ANOTHER-PLAN")
    })
}

/// The shards that are left as an array of Slurm has them: `3,7-12`.
pub fn array(fleet: &Fleet) -> String {
    let range = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    ranges(fleet).iter().map(range).collect::<Vec<_>>().join(",")
}

/// First and last number of the shards that are left and lie one behind the other.
fn ranges(fleet: &Fleet) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for shard in fleet.left() {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == shard.number => *last = shard.number,
            _ => ranges.push((shard.number, shard.number)),
        }
    }
    ranges
}
