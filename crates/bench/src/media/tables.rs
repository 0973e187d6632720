//! Results of `haul bench media`: a section a part, each with its table and chart.

use super::{Found, combinations, crowd_tables, response, single_file};
use crate::{
    host_facts,
    media::request::BenchMedia,
    series::Series,
    studies::MEDIA_ON_DEMAND,
    workshop::{Residency, Workshop},
};
use haul_report::{
    chart::{Across, Bar, BarValue, Line, bars, lines},
    host_facts::BenchWire,
    html_page::Section,
    results::Results,
    spread::Spread,
    table::Table,
    units,
};
use serde::Serialize;

pub(super) fn results(plan: &BenchMedia, workshop: &Workshop, found: &Found) -> Results {
    let cores = workshop.host.cores;
    let file_system = workshop.file_system().ok().map(|system| system.kind.to_string());
    let mut words = Vec::new();
    let mut sections = Vec::new();
    if !found.crowd.is_empty() {
        words.extend(crowd_tables::words(plan, &found.crowd, cores));
        let title = "A crowd of viewers (the study's figure 11)";
        sections.push(crowd_tables::section(plan, title, &found.crowd, cores));
    }
    words.push(bounds_in_words(plan, found));
    words.extend(found.notes.iter().cloned());
    words.push(format!(
        "After {MEDIA_ON_DEMAND}: its host, disk and kernel are of 2002, so its order is the shape \
         of a result, and its numbers are none to compare with."
    ));
    sections.extend(single_section(&found.single));
    sections.extend(response_section(plan, &found.response));
    sections.extend(combinations_section(plan, &found.combinations));
    let measured = crowd_tables::is_measured(&found.crowd)
        || found.single.iter().any(|cell| cell.seconds.is_some())
        || found.response.iter().any(|cell| cell.whole_ms.is_some())
        || found.combinations.iter().any(|series| series.seconds().is_some());
    let mut results = Results {
        title: "haul bench media".to_owned(),
        facts: host_facts::of_media(&workshop.host, file_system, BenchWire::Loopback),
        sections,
        figures: Vec::new(),
        studies: Vec::new(),
        lines: Vec::new(),
        measured,
        verdict: Vec::new(),
        words,
    };
    add_lines(&mut results, plan, found, cores);
    results
}

/// The verdict as a line of JSON.
#[derive(Debug, Serialize)]
struct VerdictLine<'words> {
    event: &'static str,
    words: &'words [String],
}

/// The bounds as a line of JSON, with notes on what could not be bound.
#[derive(Debug, Serialize)]
struct BoundsLine<'notes> {
    event: &'static str,
    read_bytes_per_s: Option<u64>,
    reads_per_s: Option<u64>,
    memory_bytes: Option<u64>,
    notes: &'notes [String],
}

fn add_lines(results: &mut Results, plan: &BenchMedia, found: &Found, cores: u32) {
    results.line(&BoundsLine {
        event: "bounds",
        read_bytes_per_s: plan.bounds.and_then(|bounds| bounds.reads.bytes_per_s),
        reads_per_s: plan.bounds.and_then(|bounds| bounds.reads.reads_per_s),
        memory_bytes: plan.bounds.map(|bounds| bounds.memory_bytes),
        notes: &found.notes,
    });
    if let Some(disk) = &found.disk {
        results.line(disk);
    }
    crowd_tables::add_lines(results, plan, &found.crowd, cores);
    found.single.iter().for_each(|cell| results.line(cell));
    found.response.iter().for_each(|cell| results.line(cell));
    found.combinations.iter().for_each(|series| results.line(&series.line()));
    if !found.crowd.is_empty() {
        let words = crowd_tables::words(plan, &found.crowd, cores);
        results.line(&VerdictLine { event: "verdict", words: &words });
    }
}

fn bounds_in_words(plan: &BenchMedia, found: &Found) -> String {
    let read_ahead = found.disk.as_ref().and_then(|disk| {
        let image =
            if disk.is_image { "an image file's own device" } else { "the directory's disk" };
        Some(format!(" The films are on {image}, which reads {} KiB ahead.", disk.read_ahead_kib?))
    });
    let read_ahead = read_ahead.unwrap_or_default();
    let Some(bounds) = plan.bounds else {
        return format!("Neither disk nor memory of the servers is bound.{read_ahead}");
    };
    let rate = bounds.reads.bytes_per_s.map_or_else(
        || "any number of bytes".to_owned(),
        |bytes| format!("{} a second", units::bytes(bytes)),
    );
    let reads = bounds.reads.reads_per_s.map_or_else(
        || "any number of reads".to_owned(),
        |reads| format!("{reads} reads a second"),
    );
    format!(
        "For the crowd each server's disk is bound to {rate} and {reads}, and its memory with the \
         page cache to {}.{read_ahead}",
        units::bytes(bounds.memory_bytes)
    )
}

fn value(spread: Option<Spread>) -> Option<BarValue> {
    spread.map(|spread| BarValue {
        value: spread.median,
        lowest: spread.lowest,
        highest: spread.highest,
    })
}

fn digits(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.digits$}", spread.median))
}

/// Names of the methods in their order, each once.
fn methods<'cells>(names: impl Iterator<Item = &'cells str>) -> Vec<&'cells str> {
    let mut methods = Vec::new();
    for name in names {
        if !methods.contains(&name) {
            methods.push(name);
        }
    }
    methods
}

fn single_section(cells: &[single_file::Cell]) -> Option<Section> {
    let bytes = cells.first()?.bytes;
    let columns = ["method", "warm CPU s/GB", "warm s", "cold CPU s/GB", "cold s"];
    let title =
        format!("One client reads {} whole; the server's processor time", units::bytes(bytes));
    let mut table = Table::new(title, 1, &columns);
    let mut drawn = Vec::new();
    for method in methods(cells.iter().map(|cell| cell.method.as_str())) {
        let of = |source| cells.iter().find(|cell| cell.method == method && cell.source == source);
        let both = [Residency::Warm, Residency::Cold].map(of);
        if let Some(why) = both.iter().flatten().find_map(|cell| cell.refused.clone()) {
            table.row(vec![method.to_owned(), why]);
            continue;
        }
        let mut row = vec![method.to_owned()];
        for cell in both.iter().flatten() {
            row.push(digits(cell.cpu_s_per_gb, 3));
            row.push(digits(cell.seconds, 3));
        }
        table.row(row);
        let values = both.map(|cell| value(cell?.cpu_s_per_gb)).to_vec();
        drawn.push(Bar { label: method.to_owned(), values });
    }
    table.note("Medians of the rounds. The disk is not bound. The receiver is the bench.");
    let chart = bars("Processor time of one file", "s/GB", &["warm", "cold"], &drawn);
    Some(Section {
        title: "One file (the study's figure 8)".to_owned(),
        words: Vec::new(),
        charts: vec![chart],
        tables: vec![table],
    })
}

fn response_section(plan: &BenchMedia, cells: &[response::Cell]) -> Option<Section> {
    cells.first()?;
    let mut section =
        Section { title: "Response times (the study's figure 9)".to_owned(), ..Section::default() };
    for source in [Residency::Warm, Residency::Cold] {
        let of_source: Vec<&response::Cell> =
            cells.iter().filter(|cell| cell.source == source).collect();
        let names: Vec<String> = plan.sizes.iter().map(|bytes| units::bytes(*bytes)).collect();
        let columns: Vec<&str> =
            ["method"].into_iter().chain(names.iter().map(String::as_str)).collect();
        let title = format!("{} files, from the request to the last byte, in ms", source.name());
        let mut table = Table::new(title, 1, &columns);
        let mut drawn = Vec::new();
        for method in methods(of_source.iter().map(|cell| cell.method.as_str())) {
            let row: Vec<&&response::Cell> =
                of_source.iter().filter(|cell| cell.method == method).collect();
            if let Some(why) = row.iter().find_map(|cell| cell.refused.clone()) {
                table.row(vec![method.to_owned(), why]);
                continue;
            }
            let times = row.iter().map(|cell| digits(cell.whole_ms, 2));
            table.row([method.to_owned()].into_iter().chain(times).collect());
            let point = |cell: &&&response::Cell| {
                let mebibytes = cell.bytes as f64 / f64::from(1 << 20);
                Some((cell.bytes as f64, cell.whole_ms?.median / mebibytes))
            };
            let points = row.iter().filter_map(point).collect();
            drawn.push(Line { label: method.to_owned(), points });
        }
        let title = format!("Response time of {} files, for each MiB", source.name());
        section.charts.push(lines(&title, "ms/MiB", Across::Bytes, &drawn));
        section.tables.push(table);
    }
    if let Some(table) = section.tables.last_mut() {
        table.note("Medians of the rounds. Neither disk nor memory is bound here.");
    }
    Some(section)
}

fn combinations_section(plan: &BenchMedia, all: &[Series]) -> Option<Section> {
    all.first()?;
    let base = all.iter().find(|series| series.pair.send_engine == combinations::READ_WRITE);
    let base = base.and_then(Series::seconds).map(|spread| spread.median);
    let columns = ["engine", "s", "beside read-write", "CPU s/GB", "copies"];
    let title = format!("{} in requests of 32 KiB, cold", units::bytes(plan.file_bytes));
    let mut table = Table::new(title, 1, &columns);
    let mut drawn = Vec::new();
    for series in all {
        let name = series.pair.send_engine;
        if let Some(why) = &series.refused {
            table.row(vec![name.to_owned(), why.clone()]);
            continue;
        }
        let seconds = series.seconds();
        let beside = seconds.zip(base).map(|(seconds, base)| seconds.median / base - 1.0);
        let cost = series.send_cost();
        let dash = || "-".to_owned();
        table.row(vec![
            name.to_owned(),
            digits(seconds, 3),
            beside.map_or_else(dash, |beside| format!("{:+.0} %", beside * 100.0)),
            cost.map_or_else(dash, |cost| format!("{:.3}", cost.cpu_s_per_gb)),
            cost.map_or_else(dash, |cost| format!("{:.2}", cost.copies_per_byte)),
        ]);
        drawn.push(Bar { label: name.to_owned(), values: vec![value(seconds)] });
    }
    table.note("In the study one-copy (sendfile) took 5 to 15 % less than read and write.");
    let chart = bars("From the disk to the network by 32 KiB", "s", &["time"], &drawn);
    Some(Section {
        title: "Small requests, by each way of reading and sending (the study's figure 10)"
            .to_owned(),
        words: vec![
            "Between two processes of this program, over loopback, into nothing. The disk is not \
             bound; copies are those of each byte at the sender."
                .to_owned(),
        ],
        charts: vec![chart],
        tables: vec![table],
    })
}
