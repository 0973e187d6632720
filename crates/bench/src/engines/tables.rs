//! The tables and charts of `haul bench engines`.

use crate::{
    engines::{BLOCKS, COLD, FULL, OFFSETS, PAIRS, STREAMS, offsets},
    requests::BenchEngines,
    series::{Series, SideCost},
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

/// The unit of rates, of 10^9 bytes as in the reports of transfers.
const RATE_UNIT: &str = "GB/s (10^9 bytes)";
const RATES_AND_COSTS: &str = "Rates, and what they cost each side";
const COST_UNIT: &str = "CPU s/GB";

/// Results of the engines' bench, with a section for each table that was measured.
pub fn results(plan: &BenchEngines, facts: HostFacts, all: &[Series]) -> Results {
    let rounds = all.iter().map(|series| series.runs.len()).max().unwrap_or(0);
    let mut words = vec![format!(
        "{} each, up to {} interleaved: the median, and the lowest and highest. A GB is 10^9 \
         bytes. A file is new, has its space before the first byte, and is synced at the end, \
         which counts. CPU is that of all threads of a side; what the kernel's own threads do for \
         it, as writing back, is not in it. No digest is computed.",
        units::bytes(plan.len_bytes),
        units::count(rounds as u64, "round"),
    )];
    words.extend(no_system_calls(all));
    let of = |name: &str| all.iter().filter(|series| series.table == name).collect::<Vec<_>>();
    let mut sections = vec![
        plain_section("Every pair, from the page cache", &of(PAIRS), &[]),
        plain_section("From the disk, thrown away", &of(COLD), &[]),
        blocks_section(&of(BLOCKS)),
        plain_section("Numbers of streams", &of(STREAMS), &["streams"]),
        full_section(&of(FULL)),
    ];
    sections.retain(|section| section.tables.iter().any(|table| !table.rows.is_empty()));
    let mut results = Results {
        title: "haul bench engines".to_owned(),
        verdict: Vec::new(),
        words,
        facts,
        sections,
        figures: offsets::figure(&of(OFFSETS)).into_iter().collect(),
        studies: Vec::new(),
        lines: Vec::new(),
        measured: all.iter().any(|series| !series.runs.is_empty()),
    };
    for series in all {
        results.line(&series.line());
    }
    results
}

/// The sentence that says why system calls are not counted, once for all measurements.
fn no_system_calls(all: &[Series]) -> Option<String> {
    let runs = all.iter().filter_map(|series| series.counted.as_ref());
    let found = runs.into_iter().find_map(|(run, _)| run.send.no_system_calls.as_ref())?;
    Some(format!(
        "System calls are not counted: needs the tracepoint raw_syscalls:sys_enter, which root may \
         read (tracefs, perf_event_open), found: {found}."
    ))
}

const COLUMNS: [&str; 12] = [
    "send",
    "receive",
    "into",
    "GB/s",
    "lowest",
    "highest",
    "CPU s/GB send",
    "receive",
    "switches/GB",
    "calls/GB send",
    "receive",
    "copies",
];

/// A table of series with the columns `more` behind the engines.
fn table(title: &str, all: &[&Series], more: &[&str]) -> Table {
    let words = 3 + more.len();
    let columns = [&COLUMNS[..3], more, &COLUMNS[3..]].concat();
    let mut table = Table::new(title, words, &columns);
    for series in all {
        table.row(cells(series, more));
    }
    table
}

fn cells(series: &Series, more: &[&str]) -> Vec<String> {
    let pair = &series.pair;
    let mut cells: Vec<String> =
        [pair.send_engine, pair.receive_engine, pair.target.name()].map(str::to_owned).into();
    cells.extend(more.iter().map(|column| match *column {
        "streams" => pair.streams.to_string(),
        "source" => pair.source.name().to_owned(),
        _ => block_name(pair.send_block_bytes.or(pair.receive_block_bytes)),
    }));
    let (Some(rate), Some(send), Some(receive)) =
        (series.rate(), series.send_cost(), series.receive_cost())
    else {
        cells.push(series.refused.clone().unwrap_or_else(|| "no time was left".to_owned()));
        return cells;
    };
    let switches = send.context_switches_per_gb + receive.context_switches_per_gb;
    cells.extend([rate.median, rate.lowest, rate.highest].map(|rate| format!("{rate:.2}")));
    cells.extend([send.cpu_s_per_gb, receive.cpu_s_per_gb].map(|cost| format!("{cost:.3}")));
    cells.push(format!("{switches:.0}"));
    cells.extend([send, receive].map(calls));
    cells.push(format!("{:.2}", send.copies_per_byte + receive.copies_per_byte));
    cells
}

fn calls(cost: SideCost) -> String {
    cost.system_calls_per_gb.map_or_else(|| "-".to_owned(), |calls| format!("{calls:.0}"))
}

fn block_name(block_bytes: Option<usize>) -> String {
    match block_bytes {
        Some(bytes) if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => {
            format!("{} MiB", bytes >> 20)
        }
        Some(bytes) => format!("{} KiB", bytes >> 10),
        None => "own".to_owned(),
    }
}

fn plain_section(title: &str, all: &[&Series], more: &[&str]) -> Section {
    let label = |series: &Series| {
        let pair = &series.pair;
        let streams = match pair.streams {
            _ if more.is_empty() => String::new(),
            streams => format!(", {}", units::count(streams.into(), "stream")),
        };
        format!("{} to {}{streams}", pair.send_engine, pair.receive_engine)
    };
    Section {
        title: title.to_owned(),
        charts: charts(title, all, label),
        tables: vec![table(RATES_AND_COSTS, all, more)],
        words: Vec::new(),
    }
}

/// Charts of rates with their ranges, and of what both sides paid.
fn charts(title: &str, all: &[&Series], label: impl Fn(&Series) -> String) -> Vec<String> {
    let measured: Vec<&&Series> = all.iter().filter(|series| !series.runs.is_empty()).collect();
    let rates = measured
        .iter()
        .map(|series| Bar { label: label(series), values: vec![series.rate().map(bar_value)] });
    let costs = measured.iter().map(|series| Bar {
        label: label(series),
        values: [series.send_cost(), series.receive_cost()]
            .map(|cost| cost.map(|cost| cost.cpu_s_per_gb.into()))
            .into(),
    });
    vec![
        bars(&format!("{title}: rate"), RATE_UNIT, &["rate"], &rates.collect::<Vec<_>>()),
        bars(
            &format!("{title}: processor time"),
            COST_UNIT,
            &["sending side", "receiving side"],
            &costs.collect::<Vec<_>>(),
        ),
    ]
}

fn bar_value(rate: Spread) -> BarValue {
    BarValue { value: rate.median, lowest: rate.lowest, highest: rate.highest }
}

fn blocks_section(all: &[&Series]) -> Section {
    let (senders, receivers): (Vec<&Series>, Vec<&Series>) =
        all.iter().partition(|series| series.pair.send_block_bytes.is_some());
    let send = |series: &Series| series.pair.send_engine;
    let receive = |series: &Series| series.pair.receive_engine;
    let rate = |series: &Series| series.rate().map(|rate| rate.median);
    let send_cost = |series: &Series| series.send_cost().map(|cost| cost.cpu_s_per_gb);
    let receive_cost = |series: &Series| series.receive_cost().map(|cost| cost.cpu_s_per_gb);
    let draw =
        |title: &str, unit: &str, drawn: Vec<Line>| lines(title, unit, Across::Bytes, &drawn);
    let more = ["block"];
    Section {
        title: "Block sizes".to_owned(),
        words: vec![
            "What one call moves at most. Each engine that sends goes into nothing, and sendfile \
             goes to each engine that receives. Small blocks move less in all."
                .to_owned(),
        ],
        charts: vec![
            draw("Sending, by block size", RATE_UNIT, lines_of(&senders, send, rate)),
            draw("Sending, by block size", COST_UNIT, lines_of(&senders, send, send_cost)),
            draw("Receiving, by block size", RATE_UNIT, lines_of(&receivers, receive, rate)),
            draw(
                "Receiving, by block size",
                COST_UNIT,
                lines_of(&receivers, receive, receive_cost),
            ),
        ],
        tables: vec![
            table("Engines that send, to null:", &senders, &more),
            table("sendfile to engines that receive", &receivers, &more),
        ],
    }
}

/// The lines of a chart, one for each engine, in the order of the list.
fn lines_of(
    all: &[&Series],
    engine: impl Fn(&Series) -> &'static str,
    value: impl Fn(&Series) -> Option<f64>,
) -> Vec<Line> {
    let mut drawn: Vec<Line> = Vec::new();
    for series in all {
        let name = engine(series);
        let block_bytes = series.pair.send_block_bytes.or(series.pair.receive_block_bytes);
        let (Some(block_bytes), Some(value)) = (block_bytes, value(series)) else { continue };
        let point = (block_bytes as f64, value);
        match drawn.iter_mut().find(|line| line.label == name) {
            Some(line) => line.points.push(point),
            None => drawn.push(Line { label: name.to_owned(), points: vec![point] }),
        }
    }
    drawn
}

fn full_section(all: &[&Series]) -> Section {
    let title = "Everything with everything";
    let more = ["block", "source", "streams"];
    Section {
        title: title.to_owned(),
        tables: vec![table(RATES_AND_COSTS, all, &more)],
        ..Section::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        pair::{Pair, Run, Source, Target},
        side::SideDone,
        studies::massive_data::BLOCK_BYTES,
        workshop::Residency,
    };
    use haul_report::host_facts::{BenchWire, HostFigures};
    use serde_json::Value;

    const FIXED: Source = Source::Fixed { window_bytes: 1 << 20 };
    const WARM: Source = Source::File(Residency::Warm);

    /// A series of the offsets, by the blocks of the study's table.
    fn offsets(engine: &'static str, source: Source, gb_per_s: f64) -> Series {
        let mut series = series(OFFSETS, engine, source, gb_per_s);
        series.pair.send_block_bytes = Some(BLOCK_BYTES);
        series
    }

    /// A series of three rounds at `gb_per_s` and a third less and more.
    fn series(table: &'static str, engine: &'static str, source: Source, gb_per_s: f64) -> Series {
        let pair = Pair {
            send_engine: engine,
            receive_engine: "read-write",
            source,
            target: Target::Null,
            len_bytes: 2_000_000_000,
            streams: 1,
            send_block_bytes: None,
            receive_block_bytes: None,
        };
        let run = |gb_per_s: f64| Run {
            seconds: 2.0 / gb_per_s,
            gb_per_s,
            send: SideDone {
                cpu_ns: 3_000_000_000,
                copied_bytes: 1_000_000_000,
                ..SideDone::default()
            },
            receive: SideDone {
                cpu_ns: 500_000_000,
                voluntary_switches: 40,
                ..SideDone::default()
            },
        };
        let runs = [1.5, 0.5, 1.0].map(|times| run(gb_per_s * times)).into();
        Series { runs, ..Series::new(table, pair) }
    }

    fn shown(all: &[Series]) -> Results {
        let plan = BenchEngines { len_bytes: 2_000_000_000, ..BenchEngines::default() };
        let facts = HostFacts::new("engines", HostFigures::default(), BenchWire::Loopback, None);
        results(&plan, facts, all)
    }

    fn table_of<'a>(results: &'a Results, title: &str) -> &'a Table {
        let figures = results.figures.iter().map(|figure| &figure.section);
        let mut tables = results.sections.iter().chain(figures).flat_map(|section| &section.tables);
        tables.find(|table| table.title == title).expect("a table of this title")
    }

    fn number(value: &Value) -> f64 {
        value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
    }

    #[test]
    fn each_rate_and_cost_of_a_table_is_that_of_its_line() {
        let all = [series(PAIRS, "sendfile", WARM, 4.0), series(PAIRS, "read-write", WARM, 1.0)];
        let results = shown(&all);
        let table = table_of(&results, RATES_AND_COSTS);
        assert_eq!(table.rows.len(), 2);
        for (row, line) in table.rows.iter().zip(&results.lines) {
            let (send, receive) = (&line["send"], &line["receive"]);
            let sum = |key: &str| number(&send[key]) + number(&receive[key]);
            let rates = ["median", "lowest", "highest"].map(|part| number(&line["gb_per_s"][part]));
            let expected = [
                line["send_engine"].as_str().unwrap().to_owned(),
                line["receive_engine"].as_str().unwrap().to_owned(),
                line["target"].as_str().unwrap().to_owned(),
                format!("{:.2}", rates[0]),
                format!("{:.2}", rates[1]),
                format!("{:.2}", rates[2]),
                format!("{:.3}", number(&send["cpu_s_per_gb"])),
                format!("{:.3}", number(&receive["cpu_s_per_gb"])),
                format!("{:.0}", sum("context_switches_per_gb")),
                "-".to_owned(),
                "-".to_owned(),
                format!("{:.2}", sum("copies_per_byte")),
            ];
            assert_eq!(row, &expected);
        }
        assert_eq!(table.rows[0][3..8], ["4.00", "2.00", "6.00", "1.500", "0.250"]);
        assert_eq!(table.rows[0][8..], ["20", "-", "-", "0.50"]);
    }

    #[test]
    fn the_studys_offsets_stand_beside_ours_and_neither_in_the_place_of_the_other() {
        let all = [
            offsets("sendfile", FIXED, 3.0),
            offsets("sendfile", WARM, 2.0),
            offsets("read-write", FIXED, 1.5),
            offsets("read-write", WARM, 0.5),
        ];
        let results = shown(&all);
        let table = table_of(&results, "Gbit/s, ours and the study's");
        assert_eq!(
            table.columns,
            ["engine", "fixed", "advancing", "theirs, fixed", "theirs, advancing"]
        );
        // Song et al., table 2.
        assert_eq!(table.rows[0], ["sendfile", "24.0", "16.0", "73.7", "51.5"]);
        assert_eq!(table.rows[1], ["read-write", "12.0", "4.0", "29.2", "24.7"]);
        assert_eq!(table.rows[2], ["ratio", "2.0x", "4.0x", "2.5x", "2.1x"]);
        let judged = results.objects().last().unwrap();
        assert_eq!((&judged["event"], &judged["figure"]), (&"figure".into(), &"table 2".into()));
        assert_eq!(judged["verdict"], "came_out", "24 > 16 > 12 > 4: {judged}");
        let says = "moves 2.0 times what read-write does (theirs 2.5), with an advancing one 4.0";
        assert!(judged["sentence"].as_str().unwrap().contains(says), "{judged}");
        for (line, (engine, source, gbit)) in results.lines.iter().zip([
            ("sendfile", "fixed", 24.0),
            ("sendfile", "warm", 16.0),
            ("read-write", "fixed", 12.0),
            ("read-write", "warm", 4.0),
        ]) {
            assert_eq!((&line["send_engine"], &line["source"]), (&engine.into(), &source.into()));
            assert_eq!(number(&line["gb_per_s"]["median"]) * 8.0, gbit);
        }
    }

    /// The receiver of the verdict is the study's, and each row of a region is of its own series.
    #[test]
    fn each_region_and_receiver_has_its_own_row_and_the_verdict_is_of_those_that_copy() {
        let to_nothing = |engine, source, gb_per_s| {
            let mut series = offsets(engine, source, gb_per_s);
            series.pair.receive_engine = "discard";
            series
        };
        let all = [
            to_nothing("sendfile", FIXED, 9.0),
            to_nothing("read-write", FIXED, 10.0),
            offsets("sendfile", Source::Fixed { window_bytes: 1 << 16 }, 8.0),
            series(OFFSETS, "sendfile", FIXED, 1.0),
            offsets("sendfile", FIXED, 3.0),
            offsets("sendfile", WARM, 2.0),
            series(OFFSETS, "read-write", FIXED, 7.0),
            offsets("read-write", Source::Fixed { window_bytes: 1 << 16 }, 4.0),
            offsets("read-write", FIXED, 1.5),
            offsets("read-write", WARM, 0.5),
        ];
        let results = shown(&all);
        let says = &results.figures[0].judgement.sentence;
        assert!(says.contains("2.0 times what read-write does"), "{says}");
        let rows = &results.figures[0].section.tables[1].rows;
        let shown = rows.iter().map(|row| [0, 1, 2, 3, 6, 9].map(|at| row[at].as_str()));
        let expected = [
            ["1.00 MiB", "64.0 KiB", "throws away", "72.0", "80.0", "0.90x"],
            ["64.0 KiB", "64.0 KiB", "copies", "64.0", "32.0", "2.00x"],
            ["1.00 MiB", "1.00 MiB", "copies", "8.0", "56.0", "0.14x"],
            ["1.00 MiB", "64.0 KiB", "copies", "24.0", "12.0", "2.00x"],
            ["whole file", "64.0 KiB", "copies", "16.0", "4.0", "4.00x"],
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        // 3 s and 0.5 s of the sides for 2 GB, and 40 switches.
        assert_eq!(rows[0][10..], ["1.750", "1.750", "20", "20"]);
        let line = &results.lines[2];
        assert_eq!(
            (&line["region_bytes"], &line["receive_engine"]),
            (&65_536.into(), &"read-write".into())
        );
        assert!(results.lines[5]["region_bytes"].is_null());
    }

    #[test]
    fn what_was_not_measured_has_no_figure_of_ours() {
        let mut refused = offsets("sendfile", FIXED, 3.0);
        refused.runs.clear();
        refused.refused = Some("the kernel has none".to_owned());
        let copied = offsets("read-write", FIXED, 1.5);
        let results = shown(&[refused, copied]);
        let table = table_of(&results, "Gbit/s, ours and the study's");
        assert_eq!(table.rows[0][1..3], ["-", "-"]);
        assert_eq!(table.rows[2][1..3], ["-", "-"]);
        let judged = results.objects().last().unwrap();
        assert_eq!(judged["verdict"], "not_measured");
        assert_eq!(judged["sentence"], "the kernel has none");
        let regions = &results.figures[0].section.tables[1];
        assert_eq!(regions.rows[0], ["1.00 MiB", "64.0 KiB", "copies", "the kernel has none"]);
    }
}
