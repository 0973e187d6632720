//! The study's figures 7 and 8, with their charts and tables.

use super::storage::{Delays, Found, Push, STEPS, slow_bytes_per_s};
use crate::{
    requests::BenchTuning,
    studies::node_tuning::{
        DELAYS, MeasuredDelays, MeasuredStorage, STORAGE, judge_delays, judge_storage,
    },
};
use haul_report::{
    chart::{Across, Bar, BarValue, Line, bars, lines},
    html_page::Section,
    spread::Spread,
    study_figure::StudyFigure,
    table::Table,
    units,
};

/// Both figures; where nothing was measured they say why.
pub(super) fn figures(plan: &BenchTuning, found: &Found) -> Vec<StudyFigure> {
    vec![storage(plan, found), delays(plan, found)]
}

/// A sentence about the disks.
fn disks_in_words(plan: &BenchTuning, found: &Found) -> String {
    if !found.is_made {
        return format!("The disks are those of {}.", found.disks.join(" and "));
    }
    format!(
        "The disks are two image files on one disk of this host. The slow one is bound to {} a \
         second, half of what the path carries, and to as many requests as these are at 128 KiB.",
        units::bytes(slow_bytes_per_s(plan.rate_bits_per_s))
    )
}

fn storage(plan: &BenchTuning, found: &Found) -> StudyFigure {
    let push = |disk: &str, at: usize| {
        found.pushes.iter().find(|push| push.disk == disk && push.step == STEPS[at])
    };
    let rounds = |disk: &str, at| push(disk, at).map_or(&[][..], |push| &push.rounds_gbit_per_s);
    let measured: Vec<MeasuredStorage> = found
        .disks
        .iter()
        .map(|disk| MeasuredStorage {
            disk: disk.clone(),
            before: rounds(disk, 0).to_vec(),
            after: rounds(disk, 1).to_vec(),
        })
        .collect();
    let refused = found.pushes.iter().find_map(|push| push.refused.as_deref());
    let judgement = judge_storage(&measured, found.refused.as_deref().or(refused));
    let columns =
        ["disk", "hosts", "Gbit/s", "lowest", "highest", "theirs: hard disk", "theirs: NVMe"];
    let mut table = Table::new("A cold file over the long path, durable at the end", 2, &columns);
    for push in &found.pushes {
        table.row(push_row(push));
    }
    table.note("Theirs are 100 GB by FDT, in Gbit/s.");
    let value = |disk: &str, at| {
        Spread::of(rounds(disk, at).iter().copied()).map(|spread| BarValue {
            value: spread.median,
            lowest: spread.lowest,
            highest: spread.highest,
        })
    };
    let bar =
        |disk: &String| Bar { label: disk.clone(), values: vec![value(disk, 0), value(disk, 1)] };
    let drawn: Vec<Bar> = found.disks.iter().map(bar).collect();
    let chart = bars("A file from each disk", "Gbit/s", &["before", "after tuning"], &drawn);
    let section = Section {
        words: vec![
            disks_in_words(plan, found),
            "A push with one stream, `safe`, over the emulated path to a file on this host's disk. \
             After tuning: MTU 9000 and buffers for the bandwidth-delay product."
                .to_owned(),
        ],
        charts: vec![chart],
        tables: vec![table],
        ..Section::default()
    };
    STORAGE.judged(judgement, section)
}

fn push_row(push: &Push) -> Vec<String> {
    let is_before = push.step == STEPS[0];
    let hosts = if is_before { "as they come" } else { "tuned" };
    let begin = vec![push.disk.clone(), hosts.to_owned()];
    let Some(spread) = Spread::of(push.rounds_gbit_per_s.iter().copied()) else {
        let why = push.refused.clone().unwrap_or_else(|| "no time was left".to_owned());
        return [begin, vec![why]].concat();
    };
    let theirs = if is_before { ["3", "7"] } else { ["5.6", "11.6"] };
    let ours = [spread.median, spread.lowest, spread.highest].map(|rate| format!("{rate:.3}"));
    [begin, ours.to_vec(), theirs.map(str::to_owned).to_vec()].concat()
}

fn delays(plan: &BenchTuning, found: &Found) -> StudyFigure {
    let of = |disk: &str, operation: &str| {
        let is_it = |one: &&Delays| one.disk == disk && one.operation == operation;
        found.delays.iter().find(is_it)
    };
    let measured: Vec<MeasuredDelays> = match &found.disks[..] {
        [one, other] => ["write", "read"]
            .into_iter()
            .filter_map(|operation| {
                let p50 = |disk: &str| of(disk, operation)?.p50_us;
                let is_first_slower = by_rate(of(one, operation)?, of(other, operation)?);
                let (slower, faster) = if is_first_slower { (one, other) } else { (other, one) };
                let (slower_us, faster_us) = p50(slower).zip(p50(faster))?;
                Some(MeasuredDelays { operation, slower_us, faster_us })
            })
            .collect(),
        _ => Vec::new(),
    };
    let refused = found.delays.iter().find_map(|one| one.refused.as_deref());
    let judgement = judge_delays(&measured, found.is_made, found.refused.as_deref().or(refused));
    let columns = ["disk", "direction", "p50 us", "p99 us", "Gbit/s"];
    let mut table =
        Table::new("Past the page cache, one block of 1 MiB after the other", 2, &columns);
    for one in &found.delays {
        let begin = vec![one.disk.clone(), one.operation.to_owned()];
        let numbers = [(one.p50_us, 0), (one.p99_us, 0), (one.gbit_per_s, 2)];
        let numbers = numbers.map(|(number, digits)| Some(format!("{:.digits$}", number?)));
        let rest = match (&one.refused, numbers.into_iter().collect::<Option<Vec<_>>>()) {
            (None, Some(numbers)) => numbers,
            (why, _) => vec![why.clone().unwrap_or_else(|| "not told".to_owned())],
        };
        table.row([begin, rest].concat());
    }
    let line = |one: &Delays| Line {
        label: format!("{}, {}", one.disk, one.operation),
        points: one.intervals.iter().map(|one| (one.seconds, one.p50_us / 1e3)).collect(),
    };
    let drawn: Vec<Line> = found.delays.iter().map(line).collect();
    let chart = lines("The delay of a block over time", "ms, p50", Across::Seconds, &drawn);
    let section = Section {
        words: vec![disks_in_words(plan, found)],
        charts: vec![chart],
        tables: vec![table],
        ..Section::default()
    };
    DELAYS.judged(judgement, section)
}

/// Whether the first disk is the slower one, by its rate.
fn by_rate(one: &Delays, other: &Delays) -> bool {
    one.gbit_per_s.unwrap_or(0.0) <= other.gbit_per_s.unwrap_or(0.0)
}
