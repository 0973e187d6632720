//! The tables, charts and JSON lines of `haul probe disk`.

use crate::disk::{
    course::Course,
    explanation::Explanation,
    plan::Plan,
    report::{Cell, DiskReport, Profile, Profiled},
    run::Ended,
    scratch_file::{Nameless, Space},
    series::{Delays, Interval},
    setting::{Method, Operation, Setting},
    verdict::Verdict,
};
use crate::host_figures::host_figures;
use haul_host::block_device::{BlockDevice, Place, Storage};
use haul_report::{
    chart::{Across, Bar, BarValue, Line, bars, lines},
    host_facts::{BenchWire, HostFacts},
    html_page::Section,
    results::Results,
    spread::Spread,
    table::Table,
    units,
};
use serde::Serialize;
use serde_json::{Value, json};

const GB: f64 = 1e9;
const BITS: f64 = 8.0;
/// Rows of the table of rates over time.
const SLICES: usize = 10;

/// The line of JSON for the disk, and for the file that it is measured with.
#[derive(Debug, Serialize)]
struct DiskLine<'found> {
    event: &'static str,
    directory: String,
    file_system: &'found str,
    source: &'found str,
    mount_options: &'found [String],
    place: &'static str,
    device: Option<Value>,
    plan: &'found Plan,
    dirty_limit_bytes: u64,
    nameless: &'static str,
    space_taken: bool,
    refused: Vec<Value>,
}

/// The line of JSON for one profile.
#[derive(Debug, Serialize)]
struct ProfileLine<'found> {
    event: &'static str,
    table: &'static str,
    operation: Operation,
    #[serde(flatten)]
    setting: Setting,
    bytes: Option<u64>,
    seconds: Option<f64>,
    gb_per_s: Option<f64>,
    gbit_per_s: Option<f64>,
    /// Time after the last block, until all was durable.
    sync_seconds: Option<f64>,
    /// The rate with that sync at the end.
    durable_gb_per_s: Option<f64>,
    cpu_s_per_gb: Option<f64>,
    cached_share: Option<f64>,
    ended: Option<Ended>,
    delays: Option<Delays>,
    course: Option<&'found Course>,
    explanation: Option<&'found Explanation>,
    intervals: &'found [Interval],
    refused: Option<String>,
}

/// The line of JSON for one setting of the sweep.
#[derive(Debug, Serialize)]
struct CellLine<'found> {
    event: &'static str,
    table: &'static str,
    operation: Operation,
    #[serde(flatten)]
    setting: Setting,
    gb_per_s: Option<Spread>,
    gbit_per_s: Option<f64>,
    cpu_s_per_gb: Option<f64>,
    delays: Option<Delays>,
    refused: Option<&'found str>,
}

#[derive(Debug, Serialize)]
struct VerdictLine<'found> {
    event: &'static str,
    #[serde(flatten)]
    verdict: &'found Verdict,
}

/// All findings of a disk's probe as tables, charts and lines.
#[must_use]
pub fn results(report: &DiskReport) -> Results {
    let kind = report.file_system.kind.to_string();
    let facts =
        HostFacts::new("probe disk", host_figures(&report.host), BenchWire::None, Some(kind));
    let mut sections = vec![disk_section(report)];
    if !report.profiles.is_empty() {
        sections.push(profile_section(report));
    }
    let operations = [Operation::Write, Operation::Read];
    if !report.cells.is_empty() {
        sections.extend(operations.map(|operation| sweep_section(report, operation)));
    }
    let is_measured = |profile: &Profile| profile.outcome.is_ok();
    let measured = report.profiles.iter().any(is_measured)
        || report.cells.iter().any(|cell| !cell.rates.is_empty());
    let mut results = Results {
        title: format!("haul probe disk {}", report.directory.display()),
        verdict: report.verdict.sentences.clone(),
        words: Vec::new(),
        facts,
        sections,
        figures: Vec::new(),
        studies: Vec::new(),
        lines: Vec::new(),
        measured,
    };
    results.line(&disk_line(report));
    for profile in &report.profiles {
        results.line(&profile_line(profile));
    }
    for cell in &report.cells {
        results.line(&cell_line(cell));
    }
    results.line(&VerdictLine { event: "verdict", verdict: &report.verdict });
    results
}

fn disk_line(report: &DiskReport) -> DiskLine<'_> {
    let storage = &report.storage;
    let refused = report.refused.iter();
    DiskLine {
        event: "disk",
        directory: report.directory.display().to_string(),
        file_system: &storage.file_system,
        source: &storage.source,
        mount_options: &storage.options,
        place: place_name(storage),
        device: storage.device().map(device_json),
        plan: &report.plan,
        dirty_limit_bytes: report.host.dirty_limit_bytes,
        nameless: match report.nameless {
            Nameless::FromTheStart => "from_the_start",
            Nameless::ByUnlink => "by_unlink",
        },
        space_taken: report.space == Space::Taken,
        refused: refused.map(|(method, why)| json!({"method": method, "refused": why})).collect(),
    }
}

fn place_name(storage: &Storage) -> &'static str {
    match storage.place {
        Place::Device(_) => "device",
        Place::Memory => "memory",
        Place::Network => "network",
        Place::Overlay { .. } => "overlay",
        Place::Hidden => "hidden",
    }
}

fn device_json(device: &BlockDevice) -> Value {
    json!({
        "name": device.name,
        "kind": device.kind.name(),
        "model": device.model,
        "level": device.level,
        "degraded": device.degraded,
        "size_bytes": device.size_bytes,
        "rotational": device.rotational,
        "scheduler": device.scheduler,
        "readahead_bytes": device.readahead_bytes,
        "write_cache": device.write_cache.map(|cache| cache.name()),
        "request_bytes_max": device.request_bytes_max,
        "requests_max": device.requests_max,
        "logical_block_bytes": device.logical_block_bytes,
        "members": device.members.iter().map(device_json).collect::<Vec<_>>(),
    })
}

fn profile_line(profile: &Profile) -> ProfileLine<'_> {
    let done = profile.outcome.as_ref().ok();
    let run = done.map(|done| &done.run);
    let rate = run.map(crate::disk::run::Run::bytes_per_s);
    ProfileLine {
        event: "profile",
        table: "profiles",
        operation: profile.operation,
        setting: profile.setting,
        bytes: run.map(|run| run.series.bytes),
        seconds: run.map(|run| run.series.seconds),
        gb_per_s: rate.map(|rate| rate / GB),
        gbit_per_s: rate.map(|rate| rate * BITS / GB),
        sync_seconds: run.and_then(|run| run.sync_s),
        durable_gb_per_s: run
            .filter(|run| run.sync_s.is_some())
            .map(|run| run.durable_bytes_per_s() / GB),
        cpu_s_per_gb: run.map(|run| run.cpu_s / (run.series.bytes as f64 / GB)),
        cached_share: run.and_then(|run| run.cached_share),
        ended: run.map(|run| run.ended),
        delays: run.and_then(|run| Delays::of(&run.series.delays)),
        course: done.map(|done| &done.course),
        explanation: done.and_then(|done| done.explanation.as_ref()),
        intervals: run.map_or(&[], |run| run.series.intervals.as_slice()),
        refused: profile.outcome.as_ref().err().map(ToString::to_string),
    }
}

fn cell_line(cell: &Cell) -> CellLine<'_> {
    let median = cell.median_bytes_per_s();
    let fold = |pick: fn(f64, f64) -> f64| cell.rates.iter().copied().reduce(pick);
    let (lowest, highest) = (fold(f64::min), fold(f64::max));
    CellLine {
        event: "cell",
        table: "sweep",
        operation: cell.operation,
        setting: cell.setting,
        gb_per_s: median.zip(lowest).zip(highest).map(|((median, lowest), highest)| Spread {
            median: median / GB,
            lowest: lowest / GB,
            highest: highest / GB,
        }),
        gbit_per_s: median.map(|rate| rate * BITS / GB),
        cpu_s_per_gb: median.map(|_| cell.cpu_s_per_gb()),
        delays: Delays::of(&cell.delays),
        refused: cell.refused.as_deref(),
    }
}

fn disk_section(report: &DiskReport) -> Section {
    let title = format!("What {} lies on", report.directory.display());
    let mut table = Table::new(title, 2, &["fact", "found"]);
    let mut row = |fact: &str, value: String| {
        if !value.is_empty() {
            table.row(vec![fact.to_owned(), value]);
        }
    };
    let storage = &report.storage;
    let mounted = if storage.source.is_empty() {
        String::new()
    } else {
        format!("{} of {}", storage.file_system, storage.source)
    };
    row("mounted", mounted);
    row("options", storage.options.join(", "));
    match (&storage.place, storage.device()) {
        (_, Some(device)) => device_rows(&mut row, device, 0),
        (Place::Memory, _) => row("disk", "none: this is memory".to_owned()),
        (Place::Network, _) => row("disk", "of another host, behind a network".to_owned()),
        _ => row("disk", "not known: nothing in /sys belongs to it".to_owned()),
    }
    let plan = &report.plan;
    let len = units::bytes(plan.len_bytes);
    row("file", format!("{len}: {}", plan.because));
    let room = format!(
        "{}; {} of memory could cache the file, {} of it unwritten",
        units::free(plan.free_bytes),
        units::bytes(plan.cache_bytes),
        units::bytes(report.host.dirty_limit_bytes)
    );
    row("room", room);
    row(
        "its space",
        match report.space {
            Space::Taken => "taken before the first byte, as a transfer does".to_owned(),
            Space::FoundOnTheWay => "found while writing: the file system takes none".to_owned(),
        },
    );
    for (method, why) in &report.refused {
        row(&format!("not {}", method.name()), why.clone());
    }
    Section { title: "The disk".to_owned(), tables: vec![table], ..Section::default() }
}

/// Rows for a disk, and for what it is made of below it.
fn device_rows(row: &mut impl FnMut(&str, String), device: &BlockDevice, level: usize) {
    let fact = format!("{}disk", "  ".repeat(level));
    let mut parts = vec![format!("{}: {}", device.name, device.kind.name())];
    parts.extend(device.level.clone());
    parts.extend(device.model.clone());
    parts.extend(device.size_bytes.map(units::bytes));
    parts.extend(device.rotational.map(|rotates| {
        if rotates { "says that it rotates" } else { "does not rotate" }.to_owned()
    }));
    row(&fact, parts.join(", "));
    let mut set = Vec::new();
    set.extend(device.scheduler.as_ref().map(|name| format!("scheduler {name}")));
    set.extend(device.readahead_bytes.map(|bytes| format!("reads {} ahead", units::bytes(bytes))));
    set.extend(device.write_cache.map(|cache| format!("write cache: {}", cache.name())));
    let request = device.request_bytes_max.map(units::bytes);
    set.extend(request.map(|bytes| format!("requests up to {bytes}")));
    set.extend(device.requests_max.map(|count| format!("{count} in a queue")));
    row(&format!("{}set to", "  ".repeat(level)), set.join(", "));
    for member in &device.members {
        device_rows(row, member, level + 1);
    }
}

const PROFILE_COLUMNS: [&str; 13] = [
    "",
    "by",
    "block",
    "depth",
    "GB/s",
    "Gbit/s",
    "sync, s",
    "with sync",
    "p50, ms",
    "p99",
    "p99.9",
    "max",
    "CPU s/GB",
];

fn profile_section(report: &DiskReport) -> Section {
    let mut table = Table::new("A large file, from its begin on", 2, &PROFILE_COLUMNS);
    let mut charts = Vec::new();
    for profile in &report.profiles {
        let mut row = setting_cells(profile.operation, &profile.setting);
        match &profile.outcome {
            Ok(done) => row.extend(profile_cells(done)),
            Err(why) => row.push(why.to_string()),
        }
        table.row(row);
    }
    table.note("With sync: from the first block until all is durable, GB/s. p50 to max: delays.");
    table.note(ended_note(&report.profiles));
    for operation in [Operation::Write, Operation::Read] {
        charts.extend(rate_chart(&report.profiles, operation));
    }
    charts.extend(report.profiles.iter().filter_map(delay_chart));
    let tables = [table].into_iter().chain(course_table(&report.profiles)).collect();
    Section { title: "Over time".to_owned(), words: Vec::new(), charts, tables }
}

/// A table of rates by slices of the time, as a terminal has no charts.
fn course_table(profiles: &[Profile]) -> Option<Table> {
    let done: Vec<(&Profile, &[Interval])> = profiles
        .iter()
        .filter_map(|profile| {
            let run = &profile.outcome.as_ref().ok()?.run;
            Some((profile, run.series.intervals.as_slice()))
        })
        .collect();
    let ends = done.iter().filter_map(|(_, intervals)| Some(intervals.last()?.seconds));
    let longest_s = ends.reduce(f64::max)?;
    let names = done.iter().map(|(profile, _)| {
        format!("{} {}", profile.operation.verb(), profile.setting.method.name())
    });
    let columns: Vec<String> = ["seconds".to_owned()].into_iter().chain(names).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new("GB/s over time", 1, &columns);
    for slice in 0..SLICES {
        let [from_s, to_s] = [slice, slice + 1].map(|at| longest_s * at as f64 / SLICES as f64);
        let rates = done.iter().map(|(_, intervals)| slice_rate(intervals, from_s, to_s));
        let rates = rates.map(|rate| rate.map_or_else(String::new, |rate| format!("{rate:.2}")));
        table.row([format!("{from_s:.1} to {to_s:.1}")].into_iter().chain(rates).collect());
    }
    Some(table)
}

/// The rate of the intervals whose middle lies in the slice, in GB/s.
fn slice_rate(intervals: &[Interval], from_s: f64, to_s: f64) -> Option<f64> {
    let within = intervals.iter().filter(|interval| {
        let middle_s = interval.seconds - interval.len_s / 2.0;
        (from_s..to_s).contains(&middle_s)
    });
    let (bytes, seconds) = within.fold((0.0, 0.0), |(bytes, seconds), interval| {
        (bytes + interval.bytes as f64, seconds + interval.len_s)
    });
    (seconds > 0.0).then(|| bytes / GB / seconds)
}

fn setting_cells(operation: Operation, setting: &Setting) -> Vec<String> {
    vec![
        operation.verb().to_owned(),
        setting.method.name().to_owned(),
        units::bytes(setting.block_bytes as u64),
        setting.depth.to_string(),
    ]
}

fn profile_cells(done: &Profiled) -> Vec<String> {
    let run = &done.run;
    let rate = run.bytes_per_s();
    let sync = run.sync_s.map_or_else(|| "-".to_owned(), |sync_s| format!("{sync_s:.2}"));
    let durable = match run.sync_s {
        Some(_) => format!("{:.2}", run.durable_bytes_per_s() / GB),
        None => "-".to_owned(),
    };
    let mut cells =
        vec![format!("{:.2}", rate / GB), format!("{:.1}", rate * BITS / GB), sync, durable];
    cells.extend(delay_cells(Delays::of(&run.series.delays)));
    cells.push(format!("{:.3}", run.cpu_s / (run.series.bytes as f64 / GB)));
    cells
}

/// Cells for p50, p99, p99.9 and the longest delay, in milliseconds.
fn delay_cells(delays: Option<Delays>) -> [String; 4] {
    let ms = |us: f64| {
        let ms = us / 1e3;
        if ms < 10.0 { format!("{ms:.2}") } else { format!("{ms:.0}") }
    };
    delays.map_or_else(
        || [const { String::new() }; 4],
        |delays| [delays.p50_us, delays.p99_us, delays.p99_9_us, delays.max_us].map(ms),
    )
}

fn ended_note(profiles: &[Profile]) -> String {
    let ended = profiles.iter().filter_map(|profile| {
        let run = &profile.outcome.as_ref().ok()?.run;
        let why = match run.ended {
            Ended::Size => "all of it",
            Ended::Time => "until the time was up",
            Ended::DiskFull => "until the disk was full",
        };
        let (bytes, seconds) = (units::bytes(run.series.bytes), units::time(run.series.seconds));
        let cached = run.cached_share.filter(|share| *share > 0.0);
        let cached = cached.map_or_else(String::new, |share| {
            format!(", {} of it in the page cache before", units::percent(share))
        });
        let (verb, method) = (profile.operation.verb(), profile.setting.method.name());
        Some(format!("{verb} by {method}: {bytes} in {seconds}, {why}{cached}"))
    });
    format!("{}.", ended.collect::<Vec<_>>().join("; "))
}

fn rate_chart(profiles: &[Profile], operation: Operation) -> Option<String> {
    let drawn: Vec<Line> = profiles
        .iter()
        .filter(|profile| profile.operation == operation)
        .filter_map(|profile| {
            let intervals = whole_intervals(profile)?;
            Some(Line {
                label: profile.setting.method.in_words().to_owned(),
                points: points(&intervals, |interval| Some(interval.bytes_per_s() / GB)),
            })
        })
        .collect();
    let title = match operation {
        Operation::Write => "Writing over time",
        Operation::Read => "Reading over time",
    };
    (!drawn.is_empty()).then(|| lines(title, "GB/s", Across::Seconds, &drawn))
}

/// A chart of delays over time, as figure 8 of the study of tuned data transfer nodes.
fn delay_chart(profile: &Profile) -> Option<String> {
    let intervals = whole_intervals(profile)?;
    let line = |label: &str, of: fn(&Delays) -> f64| Line {
        label: label.to_owned(),
        points: points(&intervals, |interval| {
            interval.delays.as_ref().map(|delays| of(delays) / 1e3)
        }),
    };
    let drawn = [
        line("p50", |delays| delays.p50_us),
        line("p90", |delays| delays.p90_us),
        line("p99", |delays| delays.p99_us),
        line("p99.9", |delays| delays.p99_9_us),
        line("max", |delays| delays.max_us),
    ];
    let verb = profile.operation.verb();
    let title = format!("Delay of a {verb} over time: {}", profile.setting.in_words());
    Some(lines(&title, "ms", Across::Seconds, &drawn))
}

/// The intervals without a rest at the end that is too short for a rate.
fn whole_intervals(profile: &Profile) -> Option<Vec<&Interval>> {
    let intervals = &profile.outcome.as_ref().ok()?.run.series.intervals;
    let longest_s = intervals.iter().map(|interval| interval.len_s).fold(0.0, f64::max);
    Some(intervals.iter().filter(|interval| interval.len_s >= longest_s / 2.0).collect())
}

/// Points of a chart, in the middle of each interval.
fn points(intervals: &[&Interval], value: impl Fn(&Interval) -> Option<f64>) -> Vec<(f64, f64)> {
    let point =
        |interval: &&Interval| Some((interval.seconds - interval.len_s / 2.0, value(interval)?));
    intervals.iter().filter_map(point).collect()
}

fn sweep_section(report: &DiskReport, operation: Operation) -> Section {
    let columns = [
        "by", "block", "depth", "GB/s", "lowest", "highest", "Gbit/s", "p50, ms", "p99", "p99.9",
        "max", "CPU s/GB",
    ];
    let title = match operation {
        Operation::Write => "Writing by block size and depth",
        Operation::Read => "Reading by block size and depth",
    };
    let mut table = Table::new("Short runs, medians of the rounds", 1, &columns);
    let mut drawn = Vec::new();
    let cells = report.cells.iter().filter(|cell| cell.operation == operation);
    for cell in cells {
        let line = cell_line(cell);
        let mut row = setting_cells(operation, &cell.setting).split_off(1);
        match (line.gb_per_s, &cell.refused) {
            (Some(rate), _) => {
                row.extend([rate.median, rate.lowest, rate.highest].map(|gb| format!("{gb:.2}")));
                row.push(format!("{:.1}", rate.median * BITS));
                row.extend(delay_cells(line.delays));
                row.push(format!("{:.3}", cell.cpu_s_per_gb()));
                drawn.push(bar(&cell.setting, rate));
            }
            (None, Some(why)) => row.push(why.clone()),
            (None, None) => row.push("no time was left".to_owned()),
        }
        table.row(row);
    }
    if operation == Operation::Write {
        table.note("Rates are without the sync that follows; by the page cache with it.");
    }
    let charts =
        if drawn.is_empty() { Vec::new() } else { vec![bars(title, "GB/s", &["median"], &drawn)] };
    Section { title: title.to_owned(), words: Vec::new(), charts, tables: vec![table] }
}

fn bar(setting: &Setting, rate: Spread) -> Bar {
    let block = units::bytes(setting.block_bytes as u64);
    let depth = match setting.method {
        Method::IoUring => format!(" x {}", setting.depth),
        Method::Direct | Method::Buffered => String::new(),
    };
    let Spread { median: value, lowest, highest } = rate;
    Bar {
        label: format!("{} {block}{depth}", setting.method.name()),
        values: vec![Some(BarValue { value, lowest, highest })],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(seconds: f64, len_s: f64, bytes: u64) -> Interval {
        Interval { seconds, len_s, bytes, operations: 1, delays: None }
    }

    #[test]
    fn a_slice_has_the_rate_of_what_lies_in_it() {
        let intervals = [
            interval(0.1, 0.1, 100_000_000),
            interval(0.2, 0.1, 0),
            interval(0.25, 0.05, 50_000_000),
        ];
        assert_eq!(slice_rate(&intervals, 0.0, 0.2), Some(0.5));
        assert_eq!(slice_rate(&intervals, 0.2, 0.4), Some(1.0));
        assert_eq!(slice_rate(&intervals, 0.4, 0.6), None);
    }

    #[test]
    fn delays_are_in_milliseconds_with_the_digits_that_they_need() {
        let delays = Delays {
            mean_us: 0.0,
            p50_us: 1234.0,
            p90_us: 0.0,
            p99_us: 98_765.0,
            p99_9_us: 9999.0,
            max_us: 400_000.0,
        };
        assert_eq!(delay_cells(Some(delays)), ["1.23", "99", "10.00", "400"]);
        assert_eq!(delay_cells(None), [""; 4]);
    }
}
