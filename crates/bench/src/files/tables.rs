//! The results of `haul bench files`: its lines of JSON, and the points of its curves.

use crate::{
    files::{ABSORBED, Found, Recorded, figures, intervals},
    pair::{Run, Target},
    series::Series,
    side::Sample,
};
use haul_report::{host_facts::HostFacts, results::Results, spread::Spread};
use serde::Serialize;

/// A point of a curve: a rate at a time, both from the sender's first call on.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    pub seconds: f64,
    pub gbit_per_s: f64,
}

/// A round of a recording as a line of JSON.
#[derive(Debug, Serialize)]
pub struct RecordingLine<'found> {
    event: &'static str,
    table: &'static str,
    name: &'static str,
    #[serde(flatten)]
    pair: &'found crate::pair::Pair,
    /// Number of the round, from 1; 0 for a way of which there is none.
    round: usize,
    pub seconds: Option<f64>,
    pub sent_seconds: Option<f64>,
    pub sent_gbit_per_s: Option<f64>,
    pub recorded_gbit_per_s: Option<f64>,
    pub sending: Vec<Point>,
    pub recording: Vec<Point>,
    /// Rates at which the disk below wrote, for any program.
    pub disk: Vec<Point>,
    refused: Option<&'found str>,
}

/// An interval of a round as a line of JSON.
#[derive(Debug, Serialize)]
struct IntervalLine {
    event: &'static str,
    table: &'static str,
    name: &'static str,
    round: usize,
    #[serde(flatten)]
    interval: intervals::Interval,
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
    /// Bytes that passed through the sender's user space, for each byte.
    traditional_copies_per_byte: Option<f64>,
    zero_copy_copies_per_byte: Option<f64>,
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
        sections: figures::best_section(found).into_iter().collect(),
        figures: figures::of(found),
        studies: Vec::new(),
        lines: Vec::new(),
        measured: found
            .times
            .iter()
            .any(|(_, one, other)| !one.runs.is_empty() || !other.runs.is_empty())
            || found.recorded.iter().any(|recorded| !recorded.runs.is_empty()),
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
            traditional_copies_per_byte: copies_per_byte(traditional),
            zero_copy_copies_per_byte: copies_per_byte(zero_copy),
            study_traditional_ms: file.traditional_ms,
            study_zero_copy_ms: file.zero_copy_ms,
            refused: traditional.refused.clone().or_else(|| zero_copy.refused.clone()),
        });
    }
    for recorded in &found.recorded {
        lines_of(recorded).iter().for_each(|line| results.line(line));
    }
    for recorded in found.recorded.iter().filter(|recorded| recorded.name == ABSORBED) {
        for (run, round) in recorded.runs.iter().zip(1..) {
            for interval in intervals::of(run) {
                let (event, table) = ("interval", "intervals");
                results.line(&IntervalLine { event, table, name: ABSORBED, round, interval });
            }
        }
    }
    results
}

pub fn milliseconds(series: &Series) -> Option<Spread> {
    let Spread { median, lowest, highest } = series.seconds()?;
    Some(Spread { median: median * 1e3, lowest: lowest * 1e3, highest: highest * 1e3 })
}

/// Switches of the sender between user and kernel mode for the whole file: each system call is one
/// into the kernel and one back. `None` where calls cannot be counted.
pub fn mode_switches(series: &Series) -> Option<f64> {
    let calls_per_gb = series.send_cost()?.system_calls_per_gb?;
    Some(2.0 * calls_per_gb * series.pair.len_bytes as f64 / 1e9)
}

/// Bytes that passed through the sender's user space for each byte.
pub fn copies_per_byte(series: &Series) -> Option<f64> {
    Some(series.send_cost()?.copies_per_byte)
}

/// A line for each round, or one with the reason why there is none.
pub fn lines_of(recorded: &Recorded) -> Vec<RecordingLine<'_>> {
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

pub fn line_of<'found>(
    recorded: &'found Recorded,
    round: usize,
    run: &Run,
) -> RecordingLine<'found> {
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
        files::{IN_MEMORY, INSIDE, RECORDED},
        pair::{Pair, Source},
        requests::FilesPart,
        side::SideDone,
        studies::efficient_transfer::FILE_TIMES,
        workshop::Residency,
    };
    use haul_report::{
        host_facts::{BenchWire, HostFigures},
        study_figure::{StudyFigure, Verdict},
        table::Table,
    };

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
        way(RECORDED[0], [8.0, 2.0, 4.0])
    }

    /// A recording of this name that left the socket within 2 s and took so long each time.
    fn way(name: &'static str, seconds: [f64; 3]) -> Recorded {
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
        let runs = seconds.map(run).into();
        Recorded { name, pair: pair(Target::File), runs, refused: None }
    }

    fn found() -> Found {
        let times = [(FILE_TIMES[0], series([10, 30, 20]), series([4, 5, 8]))];
        Found {
            parts: [FilesPart::Times, FilesPart::Recordings].into(),
            times: times.into(),
            large_bytes: 1_000_000_000,
            large_note: None,
            residency: Residency::Warm,
            cached_bytes: 1_000_000_000,
            beyond_bytes: 1_000_000_000,
            recorded: vec![recorded()],
        }
    }

    fn shown() -> Results {
        shown_of(&found())
    }

    fn shown_of(found: &Found) -> Results {
        let facts = HostFacts::new("files", HostFigures::default(), BenchWire::Loopback, None);
        results(found, facts)
    }

    fn figure<'a>(results: &'a Results, number: &str) -> &'a StudyFigure {
        results.figures.iter().find(|figure| figure.number == number).expect("a figure")
    }

    fn table<'a>(results: &'a Results, number: &str) -> &'a Table {
        &figure(results, number).section.tables[0]
    }

    #[test]
    fn each_ratio_is_that_of_the_times_beside_it() {
        let results = shown();
        let row = &table(&results, "table 1").rows[0];
        let ours = ["7 MB", "20.0", "10.0", "30.0", "5.0", "4.0", "8.0", "4.0x", "75 %"];
        let theirs = ["156", "45", "3.5x", "71 %"];
        assert_eq!(row, &[&ours[..], &theirs[..]].concat());
        let columns = &table(&results, "table 1").columns;
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
        let row = &table(&results, "copies and switches").rows[0];
        assert_eq!(row, &["7 MB", "80000", "11428.6", "0.00", "32000", "4571.4", "0.00"]);
        let line = &results.lines[0];
        let judged = &figure(&results, "copies and switches").judgement;
        assert_eq!(judged.verdict, Verdict::DidNotComeOut, "neither copied a byte");
        let says = "switches modes 32.0 times for each MB by sendfile and 80.0 times by 4 KiB";
        assert!(judged.sentence.contains(says), "{}", judged.sentence);
        assert_eq!(line["traditional_mode_switches"], 80_000.0);
        assert_eq!(line["zero_copy_mode_switches"], 32_000.0);
    }

    #[test]
    fn what_was_sent_is_not_what_was_recorded_and_no_look_is_left_out() {
        let results = shown();
        let table = table(&results, "figures 12 to 15, 100 GB recorded");
        assert_eq!(
            table.columns[2..8],
            ["seconds", "lowest", "highest", "sent in, s", "sent, Gbit/s", "recorded, Gbit/s"]
        );
        let row = &table.rows[0];
        assert_eq!(row[..2], ["zero-copy, recorded", "sendfile to io-uring"]);
        assert_eq!(row[2..8], ["4.00", "2.00", "8.00", "2.00", "4.0", "2.0"]);
        assert!(table.columns[8..].iter().all(|column| column.starts_with("theirs")));
        assert_eq!(row[8..], ["76.9", "-", "-", "11.2"], "Song et al.");
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

    fn verdict(results: &Results, number: &str) -> Verdict {
        figure(results, number).judgement.verdict
    }

    const TO_DISK: &str = "figures 12 to 15, 100 GB recorded";
    const TO_MEMORY: &str = "figures 12 to 15, to memory only";
    const CACHED: &str = "figures 12 to 15, 10 GB recorded";

    #[test]
    fn each_verdict_is_of_the_ways_that_it_names() {
        let of = |to_disk: [f64; 2], to_memory: [f64; 2], inside: [f64; 2], absorbed: f64| {
            let ways =
                RECORDED.into_iter().zip(to_disk).chain(IN_MEMORY.into_iter().zip(to_memory));
            let ways = ways.chain(INSIDE.into_iter().zip(inside)).chain([(ABSORBED, absorbed)]);
            let recorded = ways.map(|(name, seconds)| way(name, [seconds; 3])).collect();
            shown_of(&Found { recorded, ..found() })
        };
        // Zero-copy, then read-write, alike in all rounds; all left the socket after 2 s.
        let came_out = of([4.0, 5.0], [2.0, 4.0], [2.0, 3.0], 6.0);
        for number in [TO_DISK, TO_MEMORY, CACHED, "table 3", "table 1"] {
            assert_eq!(verdict(&came_out, number), Verdict::CameOut, "{number}");
        }
        let table_3 = &figure(&came_out, "table 3").judgement.sentence;
        assert!(table_3.contains("2.00 s by zero-copy and 3.00 s by read-write"), "{table_3}");
        let did_not = |results: &Results| {
            let all = [TO_DISK, TO_MEMORY, "table 3", CACHED];
            let did_not = |number: &&str| verdict(results, number) == Verdict::DidNotComeOut;
            all.into_iter().filter(did_not).collect::<Vec<_>>()
        };
        assert_eq!(did_not(&of([5.0, 4.0], [2.0, 4.0], [2.0, 3.0], 6.0)), [TO_DISK]);
        assert_eq!(did_not(&of([2.0, 4.0], [4.0, 5.0], [2.0, 3.0], 6.0)), [TO_MEMORY]);
        assert_eq!(did_not(&of([4.0, 5.0], [2.0, 4.0], [3.0, 2.0], 6.0)), ["table 3"]);
        assert_eq!(did_not(&of([4.0, 5.0], [2.0, 4.0], [2.0, 3.0], 4.0)), [CACHED]);
        let times = [(FILE_TIMES[0], series([4, 5, 8]), series([10, 30, 20]))].into();
        let slower = shown_of(&Found { times, ..found() });
        assert_eq!(verdict(&slower, "table 1"), Verdict::DidNotComeOut);
    }

    #[test]
    fn what_did_not_run_has_its_reason_in_place_of_a_verdict() {
        let refused = Some("no such call".to_owned());
        let none = Recorded { runs: Vec::new(), refused, ..recorded() };
        let results = shown_of(&Found { recorded: vec![none], times: Vec::new(), ..found() });
        for number in [TO_DISK, TO_MEMORY] {
            assert_eq!(verdict(&results, number), Verdict::NotMeasured);
            assert_eq!(figure(&results, number).judgement.sentence, "no such call");
        }
        assert_eq!(verdict(&results, "table 1"), Verdict::NotMeasured);
        let ways = [ABSORBED, RECORDED[1]].map(|name| way(name, [4.0, 4.0, 4.0]));
        let small = Found { recorded: ways.into(), beyond_bytes: 2_000_000_000, ..found() };
        let small = shown_of(&small);
        assert_eq!(verdict(&small, CACHED), Verdict::NotMeasured);
        let why = &figure(&small, CACHED).judgement.sentence;
        assert!(why.contains("a large file of 2.0 GB") && why.contains("found 1.0 GB"), "{why}");
    }

    #[test]
    fn each_interval_of_the_absorbed_file_is_shown_and_told() {
        let recorded = vec![way(ABSORBED, [4.0, 8.0, 2.0])];
        let results = shown_of(&Found { recorded, ..found() });
        let table = &figure(&results, CACHED).section.tables[1];
        let lines = results.lines.iter().filter(|line| line["event"] == "interval");
        let middle: Vec<_> = lines.filter(|line| line["round"] == 1).collect();
        assert_eq!(table.rows.len(), middle.len());
        for (row, line) in table.rows.iter().zip(middle) {
            let number = |key: &str| line[key].as_f64().unwrap();
            let expected = [
                format!("{:.1} to {:.1}", number("from_s"), number("to_s")),
                format!("{:.2}", number("sent_gb")),
                format!("{:.1}", number("sent_gbit_per_s")),
                format!("{:.1}", number("recorded_gbit_per_s")),
                "-".to_owned(),
            ];
            assert_eq!(row, &expected);
        }
        assert_eq!(table.rows[0], ["0.0 to 0.5", "0.25", "4.0", "1.0", "-"]);
        assert_eq!(table.rows[7], ["3.5 to 4.0", "0.00", "0.0", "3.0", "-"]);
    }

    #[test]
    fn a_disk_that_does_not_count_has_no_curve() {
        let samples = [sample(0, 0), sample(100, 7)];
        assert!(points(&samples, 0, 1, |sample| sample.disk_bytes).is_empty());
    }
}
