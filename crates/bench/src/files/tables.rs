//! The tables and curves of `haul bench files`.

use crate::{
    files::{BEST, Found, IN_MEMORY, RECORDED, Recorded},
    pair::{Run, Target},
    series::Series,
    side::Sample,
    studies::{EFFICIENT_TRANSFER, FILE_TIMES, MASSIVE_DATA, RECORDINGS},
};
use haul_report::{
    chart::{Across, Bar, BarValue, Line, bars, lines},
    host_facts::HostFacts,
    html_page::Section,
    results::Results,
    spread::Spread,
    table::Table,
    units,
};
use serde::Serialize;

const RATE_UNIT: &str = "Gbit/s";

/// A point of a curve: a rate at a time, both from the sender's first call on.
#[derive(Clone, Debug, Serialize)]
struct Point {
    seconds: f64,
    gbit_per_s: f64,
}

/// A round of a recording as a line of JSON.
#[derive(Debug, Serialize)]
struct RecordingLine<'found> {
    event: &'static str,
    table: &'static str,
    name: &'static str,
    #[serde(flatten)]
    pair: &'found crate::pair::Pair,
    /// Number of the round, from 1; 0 for a way of which there is none.
    round: usize,
    seconds: Option<f64>,
    sent_seconds: Option<f64>,
    sent_gbit_per_s: Option<f64>,
    recorded_gbit_per_s: Option<f64>,
    sending: Vec<Point>,
    recording: Vec<Point>,
    /// Rates at which the disk below wrote, for any program.
    disk: Vec<Point>,
    refused: Option<&'found str>,
}

/// A line of the study's table beside this bench's figures.
#[derive(Debug, Serialize)]
struct FileLine {
    event: &'static str,
    table: &'static str,
    file: &'static str,
    bytes: u64,
    traditional_ms: Option<Spread>,
    zero_copy_ms: Option<Spread>,
    /// Switches of the sender between user and kernel mode, for the whole file.
    traditional_mode_switches: Option<f64>,
    zero_copy_mode_switches: Option<f64>,
    study_traditional_ms: u32,
    study_zero_copy_ms: u32,
    refused: Option<String>,
}

pub fn results(found: &Found, facts: HostFacts) -> Results {
    let mut results = Results {
        title: "haul bench files".to_owned(),
        verdict: Vec::new(),
        words: vec![
            "The studies' own figures stand beside ours as the shape of a result: other hardware, \
             other years, a network between two machines."
                .to_owned(),
        ],
        facts,
        sections: vec![times_section(found), recordings_section(found)],
        figures: Vec::new(),
        lines: Vec::new(),
        measured: found
            .times
            .iter()
            .any(|(_, one, other)| !one.runs.is_empty() || !other.runs.is_empty()),
    };
    for (file, traditional, zero_copy) in &found.times {
        results.line(&FileLine {
            event: "cell",
            table: "files",
            file: file.name,
            bytes: file.len_bytes,
            traditional_ms: milliseconds(traditional),
            zero_copy_ms: milliseconds(zero_copy),
            traditional_mode_switches: mode_switches(traditional),
            zero_copy_mode_switches: mode_switches(zero_copy),
            study_traditional_ms: file.traditional_ms,
            study_zero_copy_ms: file.zero_copy_ms,
            refused: traditional.refused.clone().or_else(|| zero_copy.refused.clone()),
        });
    }
    for recorded in &found.recorded {
        lines_of(recorded).iter().for_each(|line| results.line(line));
    }
    results
}

fn milliseconds(series: &Series) -> Option<Spread> {
    let Spread { median, lowest, highest } = series.seconds()?;
    Some(Spread { median: median * 1e3, lowest: lowest * 1e3, highest: highest * 1e3 })
}

/// Switches of the sender between user and kernel mode for the whole file: each system call is one
/// into the kernel and one back. `None` where calls cannot be counted.
fn mode_switches(series: &Series) -> Option<f64> {
    let calls_per_gb = series.send_cost()?.system_calls_per_gb?;
    Some(2.0 * calls_per_gb * series.pair.len_bytes as f64 / 1e9)
}

/// The part of the time that the other method saves, in percent.
fn saved(copied_ms: f64, sent_ms: f64) -> String {
    format!("{:.0} %", 100.0 * (1.0 - sent_ms / copied_ms))
}

fn times_section(found: &Found) -> Section {
    let drawn = found.times.iter().filter_map(|(file, traditional, zero_copy)| {
        let ours = milliseconds(traditional)?.median / milliseconds(zero_copy)?.median;
        let theirs = f64::from(file.traditional_ms) / f64::from(file.zero_copy_ms);
        Some(ratio_bar(file.name, ours, theirs))
    });
    let drawn: Vec<Bar> = drawn.collect();
    let series = ["ours", "theirs"];
    Section {
        title: "Files from the page cache to a socket".to_owned(),
        words: vec![
            "Traditional: read 4 KiB, send 4 KiB. Zero-copy: sendfile(2), which is what the JVM's \
             transferTo() calls."
                .to_owned(),
        ],
        charts: vec![bars("How many times sendfile is as fast", "ratio", &series, &drawn)],
        tables: vec![times_table(found), switches_table(found)],
    }
}

fn times_table(found: &Found) -> Table {
    let columns = [
        "file",
        "read 4 KiB, ms",
        "lowest",
        "highest",
        "sendfile, ms",
        "lowest",
        "highest",
        "ratio",
        "saved",
        "theirs: read, ms",
        "theirs: transferTo, ms",
        "theirs: ratio",
        "theirs: saved",
    ];
    let mut table = Table::new("Milliseconds, ours and the study's", 1, &columns);
    for (file, traditional, zero_copy) in &found.times {
        let theirs = [file.traditional_ms, file.zero_copy_ms].map(f64::from);
        let mut row = vec![file.name.to_owned()];
        match (milliseconds(traditional), milliseconds(zero_copy)) {
            (Some(copied), Some(sent)) => {
                for times in [copied, sent] {
                    let times = [times.median, times.lowest, times.highest];
                    row.extend(times.map(|time| format!("{time:.1}")));
                }
                row.push(format!("{:.1}x", copied.median / sent.median));
                row.push(saved(copied.median, sent.median));
                row.extend(theirs.map(|ms| format!("{ms:.0}")));
                row.push(format!("{:.1}x", theirs[0] / theirs[1]));
                row.push(saved(theirs[0], theirs[1]));
            }
            _ => row.push(
                traditional
                    .refused
                    .clone()
                    .or_else(|| zero_copy.refused.clone())
                    .unwrap_or_else(|| "no time was left".to_owned()),
            ),
        }
        table.row(row);
    }
    table.note(format!(
        "Theirs: {EFFICIENT_TRANSFER}, table 1: traditional and transferTo(); about 65 % less \
         time, they say."
    ));
    table.note(
        "Both receivers read 4 KiB at a time, as theirs did, and write it to /dev/null; from the \
         sender's first call to the receiver's last.",
    );
    if found.times.len() < FILE_TIMES.len() {
        table.note("Larger files were left out: --quick.");
    }
    table
}

/// The switches between user and kernel mode, which the study says that transferTo() halves.
fn switches_table(found: &Found) -> Table {
    let columns = ["file", "read 4 KiB", "sendfile", "for each MB", "for each MB"];
    let mut table = Table::new("Switches of the sender between user and kernel mode", 1, &columns);
    for (file, traditional, zero_copy) in &found.times {
        let (Some(copied), Some(sent)) = (mode_switches(traditional), mode_switches(zero_copy))
        else {
            continue;
        };
        let megabytes = file.len_bytes as f64 / 1e6;
        table.row(vec![
            file.name.to_owned(),
            format!("{copied:.0}"),
            format!("{sent:.0}"),
            format!("{:.1}", copied / megabytes),
            format!("{:.1}", sent / megabytes),
        ]);
    }
    table.note(
        "Each system call is a switch into the kernel and one back. For a block the study counts \
         four of read and write and two of transferTo(); sendfile moves many blocks in one call.",
    );
    let series = found.times.iter().flat_map(|(_, one, other)| [one, other]);
    let counted = series.filter_map(|series| series.counted.as_ref());
    let found_none = counted.filter_map(|(run, _)| run.send.no_system_calls.as_ref()).next();
    if let Some(why) = found_none {
        table.note(format!(
            "Not counted: needs the tracepoint raw_syscalls:sys_enter, which root may read \
             (tracefs, perf_event_open), found: {why}."
        ));
    }
    table
}

fn ratio_bar(label: &str, ours: f64, theirs: f64) -> Bar {
    let values = [ours, theirs].map(|value| Some(BarValue::from(value))).into();
    Bar { label: label.to_owned(), values }
}

fn recordings_section(found: &Found) -> Section {
    let gigabytes = found.large_bytes as f64 / 1e9;
    let rounds = found.recorded.iter().map(|recorded| recorded.runs.len()).max().unwrap_or(0);
    let mut words = vec![format!(
        "{gigabytes:.1} GB, {} source, one stream, {} interleaved. Both methods go to the same \
         receiver, which copies the bytes into its memory, and from there into the file where \
         there is one: sending is the only difference. haul's best pair is a row of its own. Sent \
         is what left the sender's socket, recorded what is in the receiver's file; a file is \
         synced at the end, which counts. Curves are of the round in the middle. The disk's own \
         curve is all that it wrote then, for anybody; it lags behind a file that the page cache \
         takes.",
        found.residency.name(),
        units::count(rounds as u64, "round"),
    )];
    words.extend(found.large_note.clone());
    let charts = [
        ("Sent and recorded", &RECORDED[..]),
        ("Sent and received, to memory only", &IN_MEMORY[..]),
        ("Sent and recorded by haul's best pair", &[BEST][..]),
    ];
    let charts = charts.into_iter().filter_map(|(title, names)| curves(title, found, names));
    Section {
        title: "Sending and recording over time".to_owned(),
        words,
        charts: charts.collect(),
        tables: vec![recordings_table(found), theirs()],
    }
}

fn recordings_table(found: &Found) -> Table {
    let columns = [
        "what",
        "engines",
        "seconds",
        "lowest",
        "highest",
        "sent in, s",
        "sent, Gbit/s",
        "recorded, Gbit/s",
    ];
    let mut table = Table::new("One large file", 2, &columns);
    for recorded in &found.recorded {
        let pair = &recorded.pair;
        let engines = format!("{} to {}", pair.send_engine, pair.receive_engine);
        let mut row = vec![recorded.name.to_owned(), engines];
        let lines = lines_of(recorded);
        let spread = |value: fn(&RecordingLine<'_>) -> Option<f64>| {
            Spread::of(lines.iter().filter_map(value))
        };
        match spread(|line| line.seconds) {
            Some(seconds) => {
                let times = [seconds.median, seconds.lowest, seconds.highest];
                row.extend(times.map(|seconds| format!("{seconds:.2}")));
                let median = |spread: Option<Spread>, digits: usize| {
                    spread.map_or_else(|| "-".to_owned(), |s| format!("{:.digits$}", s.median))
                };
                row.push(median(spread(|line| line.sent_seconds), 2));
                row.push(median(spread(|line| line.sent_gbit_per_s), 1));
                row.push(median(spread(|line| line.recorded_gbit_per_s), 1));
            }
            None => row.push(recorded.refused.as_deref().unwrap_or("no reason").to_owned()),
        }
        table.row(row);
    }
    table
}

fn theirs() -> Table {
    let columns = ["the study's", "seconds", "sent in, s", "sent, Gbit/s", "recorded, Gbit/s"];
    let mut table = Table::new("The study's shape", 1, &columns);
    for theirs in RECORDINGS {
        let number = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
        };
        table.row(vec![
            theirs.what.to_owned(),
            number(theirs.seconds),
            number(theirs.sent_seconds),
            number(theirs.sent_gbit_per_s),
            number(theirs.recorded_gbit_per_s),
        ]);
    }
    table.note(format!(
        "{MASSIVE_DATA}, table 3, and figures 12 to 15 over a network of 100 Gbit/s."
    ));
    table
}

/// One chart of the ways `names`, each by its round in the middle; `None` where none ran.
fn curves(title: &str, found: &Found, names: &[&str]) -> Option<String> {
    let mut drawn = Vec::new();
    for recorded in found.recorded.iter().filter(|recorded| names.contains(&recorded.name)) {
        let Some(run) = middle(&recorded.runs) else { continue };
        let line = line_of(recorded, 1, run);
        let method = if names.len() == 1 { "" } else { method_of(recorded.name) };
        for (what, points) in
            [("sent", line.sending), ("recorded", line.recording), ("disk", line.disk)]
        {
            if !points.is_empty() {
                let points = points.iter().map(|point| (point.seconds, point.gbit_per_s));
                let label = format!("{method} {what}").trim_start().to_owned();
                drawn.push(Line { label, points: points.collect() });
            }
        }
    }
    (!drawn.is_empty()).then(|| lines(title, RATE_UNIT, Across::Seconds, &drawn))
}

/// The method in the name of a way.
fn method_of(name: &str) -> &str {
    name.split(',').next().unwrap_or(name)
}

/// The run whose time is in the middle.
fn middle(runs: &[Run]) -> Option<&Run> {
    let mut by_time: Vec<&Run> = runs.iter().collect();
    by_time.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    by_time.get(by_time.len().saturating_sub(1) / 2).copied()
}

/// A line for each round, or one with the reason why there is none.
fn lines_of(recorded: &Recorded) -> Vec<RecordingLine<'_>> {
    if recorded.runs.is_empty() {
        return vec![RecordingLine { refused: recorded.refused.as_deref(), ..no_line(recorded) }];
    }
    let rounds = recorded.runs.iter().enumerate();
    rounds.map(|(at, run)| line_of(recorded, at + 1, run)).collect()
}

fn no_line(recorded: &Recorded) -> RecordingLine<'_> {
    RecordingLine {
        event: "recording",
        table: "recordings",
        name: recorded.name,
        pair: &recorded.pair,
        round: 0,
        seconds: None,
        sent_seconds: None,
        sent_gbit_per_s: None,
        recorded_gbit_per_s: None,
        sending: Vec::new(),
        recording: Vec::new(),
        disk: Vec::new(),
        refused: None,
    }
}

fn line_of<'found>(recorded: &'found Recorded, round: usize, run: &Run) -> RecordingLine<'found> {
    let mut line = RecordingLine { round, ..no_line(recorded) };
    let bits = recorded.pair.len_bytes as f64 * 8.0;
    let start_ns = run.send.start_ns;
    let sent_ns = run.send.end_ns.saturating_sub(start_ns).max(1);
    let bytes = |sample: &Sample| Some(sample.bytes);
    line.seconds = Some(run.seconds);
    line.sent_seconds = Some(sent_ns as f64 / 1e9);
    line.sent_gbit_per_s = Some(bits / sent_ns as f64);
    line.recorded_gbit_per_s = Some(bits / run.seconds / 1e9);
    line.sending = points(&run.send.samples, start_ns, LOOKS_APART_NS_MIN, bytes);
    line.recording = points(&run.receive.samples, start_ns, LOOKS_APART_NS_MIN, bytes);
    if recorded.pair.target == Target::File {
        let disk = |sample: &Sample| sample.disk_bytes;
        line.disk = points(&run.receive.samples, start_ns, DISK_APART_NS_MIN, disk);
    }
    line
}

/// Shortest time between two samples that says anything of a rate; the last two may be closer.
const LOOKS_APART_NS_MIN: u64 = 20_000_000;
/// Shortest time between two samples of a disk: it counts a request when it is done, and many are
/// done at once.
const DISK_APART_NS_MIN: u64 = 450_000_000;

/// Points of a curve: between every two samples, the rate in the middle of them.
fn points(
    samples: &[Sample],
    start_ns: u64,
    apart_ns_min: u64,
    bytes: impl Fn(&Sample) -> Option<u64>,
) -> Vec<Point> {
    let mut points = Vec::new();
    let mut last: Option<(u64, u64)> = None;
    for sample in samples {
        let Some(now_bytes) = bytes(sample) else { continue };
        if let Some((at_ns, then_bytes)) = last {
            let ns = sample.at_ns.saturating_sub(at_ns);
            if ns < apart_ns_min {
                continue;
            }
            let middle_ns = (at_ns + ns / 2).saturating_sub(start_ns);
            points.push(Point {
                seconds: middle_ns as f64 / 1e9,
                gbit_per_s: now_bytes.saturating_sub(then_bytes) as f64 * 8.0 / ns as f64,
            });
        }
        last = Some((sample.at_ns, now_bytes));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        pair::{Pair, Source},
        side::SideDone,
        workshop::Residency,
    };
    use haul_report::host_facts::{BenchWire, HostFigures};

    fn sample(at_ms: u64, bytes: u64) -> Sample {
        Sample { at_ns: at_ms * 1_000_000, bytes, disk_bytes: None }
    }

    #[test]
    fn a_rate_is_what_came_between_two_looks() {
        let samples = [sample(1000, 0), sample(1100, 125_000_000), sample(1101, 125_000_000)];
        let points =
            points(&samples, 1_000_000_000, LOOKS_APART_NS_MIN, |sample| Some(sample.bytes));
        assert_eq!(points.len(), 1, "two looks a millisecond apart are one: {points:?}");
        assert!((points[0].gbit_per_s - 10.0).abs() < 1e-9);
        assert!((points[0].seconds - 0.05).abs() < 1e-9);
    }

    fn pair(target: Target) -> Pair {
        Pair {
            send_engine: "sendfile",
            receive_engine: "io-uring",
            source: Source::File(Residency::Warm),
            target,
            len_bytes: 1_000_000_000,
            streams: 1,
            send_block_bytes: None,
            receive_block_bytes: None,
        }
    }

    fn series(milliseconds: [u64; 3]) -> Series {
        let run = |ms: u64| Run {
            seconds: ms as f64 / 1e3,
            gb_per_s: 1e3 / ms as f64,
            send: SideDone { system_calls: Some(40 * ms), ..SideDone::default() },
            receive: SideDone::default(),
        };
        // The run that counted moved a hundredth of the file.
        let counted = Some((Box::new(run(milliseconds[0])), 10_000_000));
        let runs = milliseconds.map(run).into();
        Series { runs, counted, ..Series::new("files", pair(Target::Null)) }
    }

    /// A recording that left the socket within 2 s and was on the disk after 8, 2 and 4 s.
    fn recorded() -> Recorded {
        let samples = [sample(5000, 0), sample(6000, 500_000_000), sample(7000, 1_000_000_000)];
        let send = SideDone {
            start_ns: 5_000_000_000,
            end_ns: 7_000_000_000,
            samples: samples.into(),
            ..SideDone::default()
        };
        let slower = [sample(5000, 0), sample(7000, 250_000_000), sample(9000, 1_000_000_000)];
        let receive = SideDone { samples: slower.into(), ..SideDone::default() };
        let run = |seconds| Run {
            seconds,
            gb_per_s: 1.0 / seconds,
            send: send.clone(),
            receive: receive.clone(),
        };
        let runs = [8.0, 2.0, 4.0].map(run).into();
        Recorded { name: RECORDED[0], pair: pair(Target::File), runs, refused: None }
    }

    fn found() -> Found {
        let times = [(FILE_TIMES[0], series([10, 30, 20]), series([4, 5, 8]))];
        Found {
            times: times.into(),
            large_bytes: 1_000_000_000,
            large_note: None,
            residency: Residency::Warm,
            recorded: vec![recorded()],
        }
    }

    fn shown() -> Results {
        let facts = HostFacts::new("files", HostFigures::default(), BenchWire::Loopback, None);
        results(&found(), facts)
    }

    #[test]
    fn each_ratio_is_that_of_the_times_beside_it() {
        let results = shown();
        let row = &results.sections[0].tables[0].rows[0];
        let ours = ["7 MB", "20.0", "10.0", "30.0", "5.0", "4.0", "8.0", "4.0x", "75 %"];
        let theirs = ["156", "45", "3.5x", "71 %"];
        assert_eq!(row, &[&ours[..], &theirs[..]].concat());
        let columns = &results.sections[0].tables[0].columns;
        assert!(columns[..9].iter().all(|column| !column.starts_with("theirs")), "{columns:?}");
        assert!(columns[9..].iter().all(|column| column.starts_with("theirs")), "{columns:?}");
        let line = &results.lines[0];
        let number = |value: &serde_json::Value| value.as_f64().unwrap();
        let [copied, sent] =
            ["traditional_ms", "zero_copy_ms"].map(|key| number(&line[key]["median"]));
        assert_eq!(row[7], format!("{:.1}x", copied / sent));
        let [copied, sent] =
            ["study_traditional_ms", "study_zero_copy_ms"].map(|key| number(&line[key]));
        assert_eq!((copied, sent), (156.0, 45.0), "Palaniappan and Nagaraja, table 1");
        assert_eq!(row[11], format!("{:.1}x", copied / sent));
    }

    #[test]
    fn switches_between_modes_are_twice_the_calls_of_the_whole_file() {
        let results = shown();
        // 400 calls for 10 MB of a file of 1000 MB, and 160.
        let row = &results.sections[0].tables[1].rows[0];
        assert_eq!(row, &["7 MB", "80000", "32000", "11428.6", "4571.4"]);
        let line = &results.lines[0];
        assert_eq!(line["traditional_mode_switches"], 80_000.0);
        assert_eq!(line["zero_copy_mode_switches"], 32_000.0);
    }

    #[test]
    fn what_was_sent_is_not_what_was_recorded_and_no_look_is_left_out() {
        let results = shown();
        let table = &results.sections[1].tables[0];
        assert_eq!(
            table.columns[2..],
            ["seconds", "lowest", "highest", "sent in, s", "sent, Gbit/s", "recorded, Gbit/s"]
        );
        let row = &table.rows[0];
        assert_eq!(row[..2], ["zero-copy, recorded", "sendfile to io-uring"]);
        assert_eq!(row[2..], ["4.00", "2.00", "8.00", "2.00", "4.0", "2.0"]);
        let rounds: Vec<_> = results.lines[1..].iter().map(|line| &line["round"]).collect();
        assert_eq!(rounds, [1, 2, 3], "every round is shown");
        let line = &results.lines[3];
        let rate = |key: &str| line[key].as_f64().unwrap();
        assert_eq!((rate("sent_gbit_per_s"), rate("recorded_gbit_per_s")), (4.0, 2.0));
        let curve = |key: &str| {
            let points = line[key].as_array().unwrap().iter();
            let point = |point: &serde_json::Value| {
                (point["seconds"].as_f64().unwrap(), point["gbit_per_s"].as_f64().unwrap())
            };
            points.map(point).collect::<Vec<_>>()
        };
        assert_eq!(curve("sending"), [(0.5, 4.0), (1.5, 4.0)]);
        assert_eq!(curve("recording"), [(1.0, 1.0), (3.0, 3.0)]);
    }

    #[test]
    fn a_disk_that_does_not_count_has_no_curve() {
        let samples = [sample(0, 0), sample(100, 7)];
        assert!(points(&samples, 0, 1, |sample| sample.disk_bytes).is_empty());
    }
}
