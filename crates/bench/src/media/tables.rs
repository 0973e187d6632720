//! Results of `haul bench media`: a section a part, each with its table and chart.

use super::{Found, combinations, crowd_tables, response, single_file};
use crate::{
    host_facts,
    media::request::{BenchMedia, Bounds, DiskBound},
    pair::Source,
    series::Series,
    studies::{
        MEDIA_ON_DEMAND,
        media_on_demand::{
            self,
            costs::{self, Compared, Comparison, judge},
        },
    },
    workshop::{Residency, Workshop},
};
use haul_report::{
    chart::{Across, Bar, BarValue, Line, bars, lines},
    host_facts::BenchWire,
    html_page::Section,
    results::Results,
    spread::Spread,
    study_figure::StudyFigure,
    table::Table,
    units,
};
use serde::Serialize;

pub(super) fn results(plan: &BenchMedia, workshop: &Workshop, found: &Found) -> Results {
    let cores = workshop.host.cores;
    let file_system = workshop.file_system().ok().map(|system| system.kind.to_string());
    let mut words = Vec::new();
    let mut figures = Vec::new();
    if !found.crowd.is_empty() {
        let bounds = bounds_in_words(plan, found);
        figures.push(crowd_tables::figure(plan, &found.crowd, cores, bounds));
    }
    words.extend(found.notes.iter().cloned());
    words.push(format!(
        "After {MEDIA_ON_DEMAND}: its host, disk and kernel are of 2002, so its order is the shape \
         of a result, and its numbers are none to compare with."
    ));
    figures.splice(0..0, small_figures(plan, found));
    let measured = crowd_tables::is_measured(&found.crowd)
        || found.single.iter().any(|cell| cell.seconds.is_some())
        || found.response.iter().any(|cell| cell.whole_ms.is_some())
        || found.combinations.iter().any(|series| series.seconds().is_some());
    let mut results = Results {
        title: "haul bench media".to_owned(),
        facts: host_facts::of_media(&workshop.host, file_system, BenchWire::Loopback),
        sections: Vec::new(),
        figures,
        studies: Vec::new(),
        lines: Vec::new(),
        measured,
        verdict: Vec::new(),
        words,
    };
    add_lines(&mut results, plan, found, cores);
    results
}

/// The bounds as a line of JSON, with notes on what could not be bound.
#[derive(Debug, Serialize)]
struct BoundsLine<'notes> {
    event: &'static str,
    /// Shares of what a crowd asks for that its disk was bound to, one after the other.
    disk_shares: Vec<f64>,
    memory_bytes: Option<u64>,
    notes: &'notes [String],
}

fn add_lines(results: &mut Results, plan: &BenchMedia, found: &Found, cores: u32) {
    results.line(&BoundsLine {
        event: "bounds",
        disk_shares: plan.bounds.as_ref().map(disk_shares).unwrap_or_default(),
        memory_bytes: plan.bounds.as_ref().map(|bounds| bounds.memory_bytes),
        notes: &found.notes,
    });
    if let Some(disk) = &found.disk {
        results.line(disk);
    }
    crowd_tables::add_lines(results, plan, &found.crowd, cores);
    found.single.iter().for_each(|cell| results.line(cell));
    found.response.iter().for_each(|cell| results.line(cell));
    found.combinations.iter().for_each(|series| results.line(&series.line()));
}

fn bounds_in_words(plan: &BenchMedia, found: &Found) -> String {
    let read_ahead = found.disk.as_ref().and_then(|disk| {
        let image =
            if disk.is_image { "an image file's own device" } else { "the directory's disk" };
        Some(format!(" The films are on {image}, which reads {} KiB ahead.", disk.read_ahead_kib?))
    });
    let read_ahead = read_ahead.unwrap_or_default();
    let Some(bounds) = &plan.bounds else {
        return format!("Neither disk nor memory of the servers is bound.{read_ahead}");
    };
    let memory = units::bytes(bounds.memory_bytes);
    let shares: Vec<String> = disk_shares(bounds).into_iter().map(units::percent).collect();
    let disk = if shares.is_empty() {
        "bound as was asked".to_owned()
    } else {
        format!(
            "bound by a rule that was settled before the run: it gives {} of the bytes that a \
             crowd plays when most of it watches ({} a second), in as many reads as these are at \
             the kernel's default read-ahead",
            shares.join(" and then "),
            crowd_tables::asked(&found.crowd).join(", ")
        )
    };
    format!(
        "For the crowd each server's disk is {disk}; its memory with the page cache is bound to \
         {memory}.{read_ahead}"
    )
}

fn disk_shares(bounds: &Bounds) -> Vec<f64> {
    let share = |disk: &DiskBound| match disk {
        DiskBound::Share(share) => Some(*share),
        DiskBound::Rates(_) => None,
    };
    bounds.disks.iter().filter_map(share).collect()
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

/// The study's figures 8 to 10, as far as their parts were asked for.
fn small_figures(plan: &BenchMedia, found: &Found) -> Vec<StudyFigure> {
    let mut figures = Vec::new();
    if let Some(section) = single_section(&found.single) {
        let of = |name: &str, source| {
            let is_this = |cell: &&single_file::Cell| cell.method == name && cell.source == source;
            found.single.iter().find(is_this).and_then(|cell| cell.cpu_s_per_gb)
        };
        let refused = found.single.iter().find_map(|cell| cell.refused.as_deref());
        let judgement = judge(costs::SINGLE_FILE, &compared(costs::SINGLE_FILE, of), refused);
        figures.push(media_on_demand::SINGLE_FILE.judged(judgement, section));
    }
    if let Some(section) = response_section(plan, &found.response) {
        let largest = found.response.iter().map(|cell| cell.bytes).max();
        let of = |name: &str, source| {
            let is_this = |cell: &&response::Cell| {
                cell.method == name && cell.source == source && Some(cell.bytes) == largest
            };
            found.response.iter().find(is_this).and_then(|cell| cell.whole_ms)
        };
        let refused = found.response.iter().find_map(|cell| cell.refused.as_deref());
        let judgement = judge(costs::RESPONSE, &compared(costs::RESPONSE, of), refused);
        figures.push(media_on_demand::RESPONSE.judged(judgement, section));
    }
    if let Some(section) = combinations_section(plan, &found.combinations) {
        let of =
            |name: &str, source| combinations::of(&found.combinations, name, source)?.seconds();
        let refused = found.combinations.iter().find_map(|series| series.refused.as_deref());
        let comparison = costs::SMALL_REQUESTS;
        let judgement = judge(comparison, &compared(comparison, of), refused);
        figures.push(media_on_demand::SMALL_REQUESTS.judged(judgement, section));
    }
    figures
}

/// Both methods of a comparison, warm and cold.
fn compared(
    comparison: Comparison,
    of: impl Fn(&str, Residency) -> Option<Spread>,
) -> Vec<Compared> {
    let from = |source: Residency| Compared {
        source: source.name(),
        less: of(comparison.less, source),
        more: of(comparison.more, source),
    };
    [Residency::Warm, Residency::Cold].into_iter().map(from).collect()
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
    let columns = ["engine", "from", "s", "beside read-write", "CPU s/GB", "copies"];
    let title = format!("{} in requests of 32 KiB", units::bytes(plan.file_bytes));
    let mut table = Table::new(title, 2, &columns);
    for series in all {
        let Source::File(source) = series.pair.source else { continue };
        let name = series.pair.send_engine;
        let mut row = vec![name.to_owned(), source.name().to_owned()];
        if let Some(why) = &series.refused {
            row.push(why.clone());
            table.row(row);
            continue;
        }
        let base = combinations::of(all, costs::SMALL_REQUESTS.more, source);
        let base = base.and_then(Series::seconds);
        let seconds = series.seconds();
        let beside = seconds.zip(base).map(|(seconds, base)| seconds.median / base.median - 1.0);
        let cost = series.send_cost();
        let dash = || "-".to_owned();
        row.extend([
            digits(seconds, 3),
            beside.map_or_else(dash, |beside| format!("{:+.0} %", beside * 100.0)),
            cost.map_or_else(dash, |cost| format!("{:.3}", cost.cpu_s_per_gb)),
            cost.map_or_else(dash, |cost| format!("{:.2}", cost.copies_per_byte)),
        ]);
        table.row(row);
    }
    table.note("In the study one-copy (sendfile) took 5 to 15 % less than read and write.");
    let seconds =
        |name: &str, source| value(combinations::of(all, name, source).and_then(Series::seconds));
    let bar = |name: &str| Bar {
        label: name.to_owned(),
        values: [Residency::Warm, Residency::Cold].map(|source| seconds(name, source)).to_vec(),
    };
    let drawn: Vec<Bar> =
        methods(all.iter().map(|series| series.pair.send_engine)).into_iter().map(bar).collect();
    let chart = bars("A file to the network by 32 KiB", "s", &["warm", "cold"], &drawn);
    Some(Section {
        title: "Small requests, by each way of reading and sending".to_owned(),
        words: vec![
            "Between two processes of this program, over loopback, into nothing. The disk is not \
             bound; copies are those of each byte at the sender."
                .to_owned(),
        ],
        charts: vec![chart],
        tables: vec![table],
    })
}
