//! The studies' figures that `haul bench files` repeats, with their charts and tables.

use crate::{
    files::{
        ABSORBED, BEST, Found, IN_MEMORY, INSIDE, RECORDED, Recorded, intervals,
        tables::{RecordingLine, copies_per_byte, line_of, lines_of, milliseconds, mode_switches},
    },
    pair::Run,
    requests::FilesPart,
    series::Series,
    studies::{
        Figure,
        efficient_transfer::{
            self, EFFICIENT_TRANSFER, FILE_TIMES, FileTime, MeasuredSwitches, MeasuredTime,
            judge_switches, saved_percent,
        },
        massive_data::{
            self, MASSIVE_DATA, MeasuredRecording, Recording, STUDY_CACHED, STUDY_IN_MEMORY,
            STUDY_RECORDED, STUDY_TIMES, judge_cached, judge_in_memory, judge_recorded,
        },
    },
};
use haul_report::{
    chart::{Across, Line, lines},
    html_page::Section,
    spread::Spread,
    study_figure::{Judgement, StudyFigure},
    table::Table,
    units,
};

const RATE_UNIT: &str = "Gbit/s";

/// The figures of the parts that were asked for, in the order of their studies.
pub fn of(found: &Found) -> Vec<StudyFigure> {
    let mut figures = Vec::new();
    if found.parts.contains(&FilesPart::Recordings) {
        figures.extend([times_inside, cached, recorded, in_memory].map(|figure| figure(found)));
    }
    if found.parts.contains(&FilesPart::Times) {
        figures.extend([switches, times].map(|figure| figure(found)));
    }
    figures
}

/// The part of the time that the other method saves.
fn saved(traditional_ms: f64, zero_copy_ms: f64) -> String {
    format!("{:.0} %", saved_percent(traditional_ms, zero_copy_ms))
}

/// The first reason for which a file was not measured.
fn refusal(found: &Found) -> Option<&str> {
    let series = found.times.iter().flat_map(|(_, one, other)| [one, other]);
    series.into_iter().find_map(|series| series.refused.as_deref())
}

fn times(found: &Found) -> StudyFigure {
    let measured = found.times.iter().filter_map(|(file, traditional, zero_copy)| {
        Some(MeasuredTime {
            file: *file,
            traditional_ms: milliseconds(traditional)?.median,
            zero_copy_ms: milliseconds(zero_copy)?.median,
        })
    });
    let measured: Vec<MeasuredTime> = measured.collect();
    let chart = efficient_transfer::ratio_chart("sendfile", &measured);
    let section = Section {
        words: vec![
            "Traditional: read 4 KiB, send 4 KiB. Zero-copy: sendfile(2), which is what the JVM's \
             transferTo() calls. All files are in the page cache."
                .to_owned(),
        ],
        charts: vec![chart],
        tables: vec![times_table(found)],
        ..Section::default()
    };
    let judgement = efficient_transfer::judge_times(&measured, refusal(found));
    efficient_transfer::TIMES.judged(judgement, section)
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
        table.row(times_row(file, traditional, zero_copy));
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

fn times_row(file: &FileTime, traditional: &Series, zero_copy: &Series) -> Vec<String> {
    let theirs = [file.traditional_ms, file.zero_copy_ms].map(f64::from);
    let mut row = vec![file.name.to_owned()];
    let (Some(copied), Some(sent)) = (milliseconds(traditional), milliseconds(zero_copy)) else {
        let refused = traditional.refused.as_deref().or(zero_copy.refused.as_deref());
        row.push(refused.unwrap_or("no time was left").to_owned());
        return row;
    };
    for times in [copied, sent] {
        let times = [times.median, times.lowest, times.highest];
        row.extend(times.map(|time| format!("{time:.1}")));
    }
    row.push(format!("{:.1}x", copied.median / sent.median));
    row.push(saved(copied.median, sent.median));
    row.extend(theirs.map(|ms| format!("{ms:.0}")));
    row.push(format!("{:.1}x", theirs[0] / theirs[1]));
    row.push(saved(theirs[0], theirs[1]));
    row
}

/// Switches between user and kernel mode, which the study says that transferTo() halves, and the
/// copies in user space.
fn switches(found: &Found) -> StudyFigure {
    let uncounted = why_uncounted(found);
    let largest = found.times.last();
    let of = |series: &Series| {
        let megabytes = series.pair.len_bytes as f64 / 1e6;
        Some(MeasuredSwitches {
            copies_per_byte: copies_per_byte(series)?,
            switches_per_mb: mode_switches(series).map(|switches| switches / megabytes),
        })
    };
    let judgement = judge_switches(
        largest.and_then(|(_, traditional, _)| of(traditional)),
        largest.and_then(|(_, _, zero_copy)| of(zero_copy)),
        uncounted.as_deref().or_else(|| refusal(found)),
    );
    let words = "Each system call is a switch into the kernel and one back. For a block the study \
                 counts four of read and write and two of transferTo(); sendfile moves many blocks \
                 in one call. The sentence is of the largest file.";
    let section = Section {
        words: vec![words.to_owned()],
        tables: vec![switches_table(found)],
        ..Section::default()
    };
    efficient_transfer::SWITCHES.judged(judgement, section)
}

fn switches_table(found: &Found) -> Table {
    let columns = [
        "file",
        "read 4 KiB: switches",
        "for each MB",
        "copies of a byte",
        "sendfile: switches",
        "for each MB",
        "copies of a byte",
    ];
    let title = "The sender's switches between user and kernel mode, and copies in user space";
    let mut table = Table::new(title, 1, &columns);
    for (file, traditional, zero_copy) in &found.times {
        let mut row = vec![file.name.to_owned()];
        for series in [traditional, zero_copy] {
            let number = |value: Option<f64>, digits: usize| {
                value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
            };
            let switches = mode_switches(series);
            let megabytes = file.len_bytes as f64 / 1e6;
            row.push(number(switches, 0));
            row.push(number(switches.map(|switches| switches / megabytes), 1));
            row.push(number(copies_per_byte(series), 2));
        }
        table.row(row);
    }
    if let Some(why) = why_uncounted(found) {
        table.note(why);
    }
    table
}

/// The reason why system calls were not counted.
fn why_uncounted(found: &Found) -> Option<String> {
    let series = found.times.iter().flat_map(|(_, one, other)| [one, other]);
    let mut counted = series.filter_map(|series| series.counted.as_ref());
    let why = counted.find_map(|(run, _)| run.send.no_system_calls.as_ref())?;
    Some(format!(
        "needs the tracepoint raw_syscalls:sys_enter, which root may read (tracefs, \
         perf_event_open), found: {why}"
    ))
}

fn way<'found>(found: &'found Found, name: &str) -> Option<&'found Recorded> {
    found.recorded.iter().find(|recorded| recorded.name == name)
}

/// The seconds of each round of two ways.
fn rounds(found: &Found, names: [&str; 2]) -> [Vec<f64>; 2] {
    names.map(|name| {
        let runs = way(found, name).into_iter().flat_map(|recorded| &recorded.runs);
        runs.map(|run| run.seconds).collect()
    })
}

/// The reason why one of these ways did not run.
fn because<'found>(found: &'found Found, names: &[&str]) -> Option<&'found str> {
    let mut ways = names.iter().filter_map(|name| way(found, name));
    ways.find_map(|way| way.refused.as_deref()).or(found.large_note.as_deref())
}

/// A figure of the large file by these ways, beside the study's.
fn of_large(
    found: &Found,
    figure: &Figure,
    judgement: Judgement,
    chart: &str,
    rows: &[(&str, Recording)],
) -> StudyFigure {
    let names: Vec<&str> = rows.iter().map(|(name, _)| *name).collect();
    let section = Section {
        words: vec![large_in_words(found)],
        charts: curves(chart, found, &names).into_iter().collect(),
        tables: vec![totals(found, rows)],
        ..Section::default()
    };
    figure.judged(judgement, section)
}

/// The names of two ways with the study's figures of the same.
fn beside(names: [&str; 2], theirs: [Recording; 2]) -> Vec<(&str, Recording)> {
    names.into_iter().zip(theirs).collect()
}

fn times_inside(found: &Found) -> StudyFigure {
    let [zero_copy, copying] = rounds(found, INSIDE);
    let judgement = massive_data::judge_times([&zero_copy, &copying], because(found, &INSIDE));
    let section = Section {
        words: vec![small_in_words(found)],
        tables: vec![totals(found, &beside(INSIDE, STUDY_TIMES))],
        ..Section::default()
    };
    massive_data::TIMES.judged(judgement, section)
}

/// A smaller file, sent and recorded while the page cache absorbs it.
fn cached(found: &Found) -> StudyFigure {
    let names = [ABSORBED, RECORDED[1]];
    let of = |name: &str| -> Vec<MeasuredRecording> {
        let lines = way(found, name).into_iter().flat_map(lines_of);
        let rounds = lines.filter_map(|line| {
            Some(MeasuredRecording { sent_s: line.sent_seconds?, recorded_s: line.seconds? })
        });
        rounds.collect()
    };
    let too_small = (found.large_bytes < found.beyond_bytes).then(|| {
        let gigabytes = |bytes: u64| bytes as f64 / 1e9;
        format!(
            "needs a large file of {:.1} GB, which the page cache does not absorb, found {:.1} GB: \
             take a larger --size",
            gigabytes(found.beyond_bytes),
            gigabytes(found.large_bytes)
        )
    });
    let judgement = match &too_small {
        Some(why) if found.large_bytes > 0 => judge_cached(&[], &[], Some(why)),
        _ => judge_cached(&of(ABSORBED), &of(RECORDED[1]), because(found, &names)),
    };
    let rows = [(ABSORBED, STUDY_CACHED), (RECORDED[1], STUDY_RECORDED[1])];
    let section = Section {
        words: vec![small_in_words(found)],
        charts: curves("The smaller file, sent and recorded", found, &[ABSORBED])
            .into_iter()
            .collect(),
        tables: [Some(totals(found, &rows)), intervals_table(found)]
            .into_iter()
            .flatten()
            .collect(),
        ..Section::default()
    };
    massive_data::CACHED.judged(judgement, section)
}

/// The intervals of the smaller file's round in the middle, as iperf reports them.
fn intervals_table(found: &Found) -> Option<Table> {
    let run = middle(&way(found, ABSORBED)?.runs)?;
    let columns =
        ["interval, s", "GB sent", "sent, Gbit/s", "into the file, Gbit/s", "on the disk, Gbit/s"];
    let mut table =
        Table::new("The smaller file by interval, the round in the middle", 1, &columns);
    for interval in intervals::of(run) {
        let on_disk = interval.disk_gbit_per_s;
        table.row(vec![
            format!("{:.1} to {:.1}", interval.from_s, interval.to_s),
            format!("{:.2}", interval.sent_gb),
            format!("{:.1}", interval.sent_gbit_per_s),
            format!("{:.1}", interval.recorded_gbit_per_s),
            on_disk.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}")),
        ]);
    }
    table.note(
        "Theirs: 42.7 Gbit/s sent from 0 to 2.01 s, and 13.1 Gbit/s recorded from 0 to 6.54 s. \
         Into the file is into the receiver's page cache; the disk's own count is of all programs, \
         and of requests that are done.",
    );
    Some(table)
}

fn recorded(found: &Found) -> StudyFigure {
    let [zero_copy, copying] = rounds(found, RECORDED);
    let judgement = judge_recorded([&zero_copy, &copying], because(found, &RECORDED));
    let rows = beside(RECORDED, STUDY_RECORDED);
    of_large(found, &massive_data::RECORDED, judgement, "Sent and recorded", &rows)
}

fn in_memory(found: &Found) -> StudyFigure {
    let names = [IN_MEMORY, RECORDED].concat();
    let ours = [IN_MEMORY, RECORDED].map(|names| rounds(found, names));
    let [memory, disk] = ours.each_ref().map(|[zero_copy, copying]| [&zero_copy[..], copying]);
    let judgement = judge_in_memory(memory, disk, because(found, &names));
    let rows = beside(IN_MEMORY, STUDY_IN_MEMORY);
    let chart = "Sent and received, to memory only";
    of_large(found, &massive_data::IN_MEMORY, judgement, chart, &rows)
}

/// The section of haul's best pair, which no study has.
pub fn best_section(found: &Found) -> Option<Section> {
    way(found, BEST)?;
    Some(Section {
        title: "haul's best pair".to_owned(),
        words: vec![large_in_words(found)],
        charts: curves("Sent and recorded by haul's best pair", found, &[BEST])
            .into_iter()
            .collect(),
        tables: vec![totals(found, &[(BEST, Recording::default())])],
    })
}

fn small_in_words(found: &Found) -> String {
    let gigabytes = found.cached_bytes as f64 / 1e9;
    format!(
        "{gigabytes:.1} GB that the page cache holds, source and target: the study's 10 GB where \
         memory allows it. The receiver copies, and both methods move 64 KiB by a call. Sent is \
         what left the sender's socket; the file is recorded when it is synced."
    )
}

fn large_in_words(found: &Found) -> String {
    let gigabytes = found.large_bytes as f64 / 1e9;
    let rounds = found.recorded.iter().map(|recorded| recorded.runs.len()).max().unwrap_or(0);
    let note = found.large_note.as_ref().map_or_else(String::new, |note| format!(" {note}."));
    format!(
        "{gigabytes:.1} GB, {} source, one stream, {} interleaved. Both methods go to the same \
         receiver, which copies the bytes into its memory, and from there into the file where \
         there is one, and both move 64 KiB by a call: the copy is the only difference. Sent is \
         what left the sender's socket, recorded what is in the receiver's file; a file is synced \
         at the end, which counts. Curves are of the round in the middle. The disk's own curve is \
         all that it wrote then, for anybody; it lags behind a file that the page cache \
         takes.{note}",
        found.residency.name(),
        units::count(rounds as u64, "round"),
    )
}

/// The medians of these ways beside the study's.
fn totals(found: &Found, rows: &[(&str, Recording)]) -> Table {
    let columns = [
        "what",
        "engines",
        "seconds",
        "lowest",
        "highest",
        "sent in, s",
        "sent, Gbit/s",
        "recorded, Gbit/s",
        "theirs: seconds",
        "theirs: sent in, s",
        "theirs: sent, Gbit/s",
        "theirs: recorded, Gbit/s",
    ];
    let has_theirs = rows.iter().any(|(_, theirs)| theirs.seconds.is_some());
    let columns = if has_theirs { &columns[..] } else { &columns[..8] };
    let title = if has_theirs { "One large file, ours and the study's" } else { "One large file" };
    let mut table = Table::new(title, 2, columns);
    for (name, theirs) in rows {
        let Some(recorded) = way(found, name) else { continue };
        let mut row = totals_row(recorded);
        if has_theirs && row.len() == 8 {
            let theirs = [
                theirs.seconds,
                theirs.sent_seconds,
                theirs.sent_gbit_per_s,
                theirs.recorded_gbit_per_s,
            ];
            let shown = |value: Option<f64>| {
                value.map_or_else(|| "-".to_owned(), |value| value.to_string())
            };
            row.extend(theirs.map(shown));
        }
        table.row(row);
    }
    if has_theirs {
        let what: Vec<&str> = rows.iter().map(|(_, theirs)| theirs.what).collect();
        table.note(format!("Theirs: {MASSIVE_DATA}: {}.", what.join("; ")));
    }
    table
}

fn totals_row(recorded: &Recorded) -> Vec<String> {
    let pair = &recorded.pair;
    let engines = format!("{} to {}", pair.send_engine, pair.receive_engine);
    let mut row = vec![recorded.name.to_owned(), engines];
    let lines = lines_of(recorded);
    let spread =
        |value: fn(&RecordingLine<'_>) -> Option<f64>| Spread::of(lines.iter().filter_map(value));
    let Some(seconds) = spread(|line| line.seconds) else {
        row.push(recorded.refused.as_deref().unwrap_or("no reason").to_owned());
        return row;
    };
    let times = [seconds.median, seconds.lowest, seconds.highest];
    row.extend(times.map(|seconds| format!("{seconds:.2}")));
    let median = |spread: Option<Spread>, digits: usize| {
        spread.map_or_else(|| "-".to_owned(), |s| format!("{:.digits$}", s.median))
    };
    row.push(median(spread(|line| line.sent_seconds), 2));
    row.push(median(spread(|line| line.sent_gbit_per_s), 1));
    row.push(median(spread(|line| line.recorded_gbit_per_s), 1));
    row
}

/// One chart of the ways `names`, each by its round in the middle; `None` where none ran.
fn curves(title: &str, found: &Found, names: &[&str]) -> Option<String> {
    let mut drawn = Vec::new();
    for recorded in names.iter().filter_map(|name| way(found, name)) {
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
