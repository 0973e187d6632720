//! The tables, charts and JSON lines of `haul probe path`.

use super::{
    Course, PathFindings, PathProbe, Residency, Round, Run, Sample,
    decision::{Capacity, Decision, Known, PathStage},
};
use crate::host_figures::host_figures;
use haul_host::{FileSystem, Host};
use haul_report::{
    chart::{Across, Bar, BarValue, Line, bars, lines},
    host_facts::{BenchWire, HostFacts},
    html_page::Section,
    results::Results,
    spread::Spread,
    table::Table,
    units,
};
use haul_transfer::Check;
use serde::Serialize;
use std::{fs::File, path::Path};

/// Stages of a run that are shown in its row, at most.
const STAGES_SHOWN: usize = 3;
const SHARE_SHOWN_MIN: f64 = 0.005;
/// The factor from bytes to Gbit.
const GBIT_PER_BYTE: f64 = 8.0 / 1e9;

#[derive(Debug, Serialize)]
struct PreflightLine<'a> {
    event: &'static str,
    checks: &'a [Check],
}

#[derive(Debug, Serialize)]
struct RunLine<'a> {
    event: &'static str,
    run: Course,
    bytes: u64,
    files: usize,
    rounds: usize,
    gbit_per_s: Option<Spread>,
    seconds: f64,
    #[serde(flatten)]
    residency: Residency,
    streams: u32,
    protection: &'a str,
    send_engine: &'a str,
    receive_engine: &'a str,
    source_cpu_s_per_gb: f64,
    target_cpu_s_per_gb: f64,
    retransmits: u64,
    stages: &'a [(String, f64)],
    samples: &'a [Sample],
}

#[derive(Debug, Serialize)]
struct VerdictLine<'a> {
    event: &'static str,
    #[serde(flatten)]
    decision: &'a Decision,
}

/// All findings of a path's probe as tables, charts and lines.
#[must_use]
pub fn results(probe: &PathProbe, checks: &[Check], found: &PathFindings) -> Results {
    let decision = &found.decision;
    let host = Host::read(Path::new("/"));
    let wire = BenchWire::to(&probe.url.server());
    let mut results = Results {
        title: format!(
            "haul probe path: {} limits at {}",
            decision.limiting.noun(),
            units::rate(decision.gbit_per_s)
        ),
        verdict: Vec::new(),
        words: words(probe, found),
        facts: HostFacts::new("probe path", host_figures(&host), wire, file_system(&probe.source))
            .chosen_by_path(),
        sections: vec![runs_section(found), stages_section(decision), time_section(found)],
        figures: Vec::new(),
        studies: Vec::new(),
        lines: Vec::new(),
        measured: true,
    };
    results.line(&PreflightLine { event: "preflight", checks });
    for run in &found.runs {
        results.line(&line_of(run));
    }
    results.line(&VerdictLine { event: "verdict", decision });
    results
}

fn file_system(source: &Path) -> Option<String> {
    let file = File::open(source).ok()?;
    FileSystem::of(&file).ok().map(|system| system.kind.to_string())
}

/// Words for the user: the verdict, then what has to be known to believe it.
fn words(probe: &PathProbe, found: &PathFindings) -> Vec<String> {
    let mut verdict = found.decision.verdict.clone();
    verdict[..1].make_ascii_uppercase();
    let mut words = vec![format!("{verdict}.")];
    let room = &found.room;
    let cut = if found.source_is_cut { ", and more that were not looked at" } else { "" };
    words.push(format!(
        "{} with {}{cut}, to {}: {} with {}. Real transfers, from connecting to the last \
         sync; nothing of them is there any more.",
        probe.source.display(),
        units::bytes(found.source_bytes),
        probe.url.server(),
        room.file_system,
        units::free(room.free_bytes),
    ));
    if ["btrfs", "zfs"].contains(&&*room.file_system) {
        words.push(
            "From memory zeros were written: where the target compresses, it takes them faster \
             than what cannot be compressed."
                .to_owned(),
        );
    }
    words
}

fn line_of(run: &Run) -> RunLine<'_> {
    let Round { report, residency, files, samples } = run.median();
    RunLine {
        event: "run",
        run: run.course,
        bytes: run.len_bytes,
        files: *files,
        rounds: run.rounds.len(),
        gbit_per_s: spread(run),
        seconds: report.seconds,
        residency: *residency,
        streams: report.streams,
        protection: &report.protection,
        send_engine: &report.send_engine,
        receive_engine: &report.receive_engine,
        source_cpu_s_per_gb: report.source.cpu_s_per_gb,
        target_cpu_s_per_gb: report.target.cpu_s_per_gb,
        retransmits: report.retransmits,
        stages: &report.stages,
        samples,
    }
}

fn spread(run: &Run) -> Option<Spread> {
    Spread::of(run.rounds.iter().map(Round::gbit_per_s))
}

fn residency(residency: Residency) -> String {
    match residency {
        Residency::Memory => "zeros".to_owned(),
        Residency::Cold => "cold".to_owned(),
        Residency::Warm { share } => format!("warm, {} cached", units::percent(share)),
        Residency::MemoryFileSystem => "in memory".to_owned(),
        Residency::NotKnown => "not known".to_owned(),
    }
}

fn runs_section(found: &PathFindings) -> Section {
    let columns =
        ["run", "source", "moved", "Gbit/s", "lowest", "highest", "CPU s/GB send", "receive"];
    let mut table = Table::new("The four runs", 2, &columns);
    let mut stages = Table::new("Where the streams' time went", 2, &["run", "stages"]);
    for run in &found.runs {
        let Round { report, residency: of, .. } = run.median();
        let rate = spread(run).unwrap_or(Spread { median: 0.0, lowest: 0.0, highest: 0.0 });
        let rates = [rate.median, rate.lowest, rate.highest].map(|rate| format!("{rate:.3}"));
        let costs = [&report.source, &report.target].map(|s| format!("{:.3}", s.cpu_s_per_gb));
        let first = [run.course.name().to_owned(), residency(*of), units::bytes(run.len_bytes)];
        table.row([&first[..], &rates, &costs].concat());
        let most = report.stages.iter().filter(|(_, share)| *share >= SHARE_SHOWN_MIN);
        let most: Vec<String> = most
            .take(STAGES_SHOWN)
            .map(|(stage, share)| format!("{} {}", stage.replace('_', " "), units::percent(*share)))
            .collect();
        stages.row(vec![run.course.name().to_owned(), most.join(", ")]);
    }
    if found.runs.iter().any(|run| matches!(run.median().residency, Residency::Warm { .. })) {
        table.note("A warm source is faster than its disk: others use it, or its pages are busy.");
    }
    let drawn = found.runs.iter().map(|run| Bar {
        label: run.course.name().to_owned(),
        values: vec![spread(run).map(|rate| BarValue {
            value: rate.median,
            lowest: rate.lowest,
            highest: rate.highest,
        })],
    });
    let chart = bars("The four runs", "Gbit/s", &["rate"], &drawn.collect::<Vec<_>>());
    Section {
        title: "Runs".to_owned(),
        charts: vec![chart],
        tables: vec![table, stages],
        words: Vec::new(),
    }
}

fn stages_section(decision: &Decision) -> Section {
    let columns = ["stage", "known", "could carry Gbit/s", "of the time disk to disk"];
    let mut table = Table::new("What each stage could carry", 2, &columns);
    for capacity in &decision.capacities {
        let Capacity { stage, gbit_per_s, known, share } = *capacity;
        let known = match known {
            Known::Measured => "measured",
            Known::About => "about, by its share of a run",
            Known::AtLeast => "at least: something else was slower",
        };
        let limits = if stage == decision.limiting { " LIMITS" } else { "" };
        let name = stage.noun().strip_prefix("the ").unwrap_or(stage.noun());
        let (rate, share) = (format!("{gbit_per_s:.3}"), units::percent(share));
        table.row(vec![format!("{name}{limits}"), known.to_owned(), rate, share]);
    }
    if decision.limiting == PathStage::Network || is_least(decision, PathStage::Network) {
        table.note("The network with the TCP windows of both hosts, as they are.");
    }
    table.note("The network's bytes are those of files: its own headers take some per cent more.");
    let section = Section { title: "Stages".to_owned(), ..Section::default() };
    Section { tables: vec![table], ..section }
}

fn is_least(decision: &Decision, stage: PathStage) -> bool {
    let of = decision.capacities.iter().find(|capacity| capacity.stage == stage);
    of.is_some_and(|capacity| capacity.known == Known::AtLeast)
}

/// Charts of sending and recording over time, as rates between two samples.
fn time_section(found: &PathFindings) -> Section {
    let mut charts = Vec::new();
    for run in &found.runs {
        let samples = &run.median().samples;
        let sending = curve(samples, |sample| sample.sent_bytes);
        let recording = curve(samples, |sample| sample.recorded_bytes);
        let title = format!("Sending and recording over time, {}", run.course.name());
        let drawn = [
            Line { label: "sent".to_owned(), points: sending },
            Line { label: "recorded (durable)".to_owned(), points: recording },
        ];
        charts.push(lines(&title, "Gbit/s", Across::Seconds, &drawn));
    }
    let words = vec![
        "Sent is what went through the sender's sockets, recorded what the receiver has synced; \
         what lies between them was on its way or in the receiver's memory."
            .to_owned(),
    ];
    Section { title: "Over time".to_owned(), charts, words, tables: vec![over_time(found)] }
}

fn over_time(found: &PathFindings) -> Table {
    let columns = ["run", "after s", "sent Gbit/s", "recorded Gbit/s"];
    let mut table = Table::new("Over time, disk to disk", 1, &columns);
    let Some(run) = found.runs.iter().find(|run| run.course == Course::DiskToDisk) else {
        return table;
    };
    let samples = &run.median().samples;
    let curves = [curve(samples, |s| s.sent_bytes), curve(samples, |s| s.recorded_bytes)];
    for (sent, recorded) in curves[0].iter().zip(&curves[1]) {
        let numbers = [sent.0, sent.1, recorded.1].map(|number| format!("{number:.2}"));
        table.row([&[run.course.name().to_owned()][..], &numbers].concat());
    }
    table
}

fn curve(samples: &[Sample], bytes: fn(&Sample) -> u64) -> Vec<(f64, f64)> {
    let rate = |pair: &[Sample]| {
        let seconds = pair[1].seconds - pair[0].seconds;
        let moved = bytes(&pair[1]).saturating_sub(bytes(&pair[0])) as f64;
        (seconds > 0.0).then(|| (pair[1].seconds, moved * GBIT_PER_BYTE / seconds))
    };
    samples.windows(2).filter_map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_the_rate_between_two_looks() {
        let sample = |seconds, sent_bytes| Sample { seconds, sent_bytes, recorded_bytes: 0 };
        let samples = [sample(0.0, 0), sample(1.0, 125_000_000), sample(1.0, 1), sample(3.0, 1)];
        let drawn = curve(&samples, |sample| sample.sent_bytes);
        assert_eq!(drawn, [(1.0, 1.0), (3.0, 0.0)]);
    }
}
