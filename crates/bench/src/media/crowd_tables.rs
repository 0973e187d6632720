//! Tables, charts and lines of what a crowd of viewers saw.

use super::{
    crowd::{Cell, EXHAUSTED_SHARE, PROCESSORS, Run},
    server::Counted,
};
use crate::{
    media::request::{BenchMedia, DiskBound},
    studies::media_on_demand::{
        MISSES,
        misses::{Missed, judge},
    },
};
use haul_media::viewers::{Quantiles, Seen};
use haul_report::{
    chart::{Across, Bar, BarValue, Line, bars, lines},
    host_facts::HostFacts,
    html_page::Section,
    results::Results,
    spread::Spread,
    study_figure::{Judgement, StudyFigure},
    table::Table,
    units,
};
use serde::Serialize;

const MEGABYTE: f64 = 1e6;

#[derive(Debug, Serialize)]
struct Times {
    p50: f64,
    p99: f64,
    max: f64,
}

impl From<Quantiles> for Times {
    fn from(times: Quantiles) -> Self {
        Self { p50: times.p50_ms, p99: times.p99_ms, max: times.max_ms }
    }
}

/// A method as a line of JSON: all of its rounds together, but for spreads over them.
#[derive(Debug, Serialize)]
struct CrowdLine<'cell> {
    event: &'static str,
    table: &'static str,
    method: &'cell str,
    /// Share of what a crowd asks for that the disk was bound to.
    disk_share: Option<f64>,
    rounds: usize,
    streams: u64,
    turned_away: u64,
    failed: u64,
    why_failed: Option<String>,
    periods: u64,
    misses: u64,
    miss_share: Option<Spread>,
    late_ms: Option<Times>,
    first_byte_ms: Option<Times>,
    start_up_ms: Option<Times>,
    received_bytes: u64,
    watched_s: f64,
    cpu_us_per_stream_s: Option<Spread>,
    cpu_s: Option<f64>,
    disk_read_bytes: Option<u64>,
    disk_reads: Option<u64>,
    memory_bytes: Option<u64>,
    server: Option<Counted>,
    shares_when_busiest: Vec<Share>,
    disk_is_bound: bool,
    crowds: Vec<CrowdSeen>,
    refused: Option<&'cell str>,
}

/// A crowd's experience with one method and one disk.
#[derive(Debug, Serialize)]
struct CrowdSeen {
    seed: u64,
    periods: u64,
    misses: u64,
    /// Bytes a second that the crowd asked for when most of it watched.
    asked_bytes_per_s: u64,
    read_bytes_per_s: Option<u64>,
    reads_per_s: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Share {
    of: &'static str,
    share: f64,
}

/// Experience of the viewers in all rounds of a method.
fn seen(cell: &Cell) -> Option<Seen> {
    let mut runs = cell.runs.iter();
    let mut all = runs.next()?.seen.clone();
    runs.for_each(|run| all.add(&run.seen));
    Some(all)
}

/// The reason why nothing can be said of a method, if there is one.
fn refusal(cell: &Cell) -> Option<String> {
    if let Some(why) = &cell.refused {
        return Some(why.clone());
    }
    let seen = seen(cell)?;
    cell.miss_share().is_none().then(|| {
        let why = seen.why_failed.unwrap_or_else(|| "nobody came".to_owned());
        format!("nothing was played: {why}")
    })
}

/// The crowds that met a method, one a round.
fn crowds(plan: &BenchMedia, cell: &Cell) -> Vec<CrowdSeen> {
    let of_run = |(round, run): (usize, &Run)| CrowdSeen {
        seed: plan.crowd.seed.wrapping_add(round as u64),
        periods: run.seen.periods,
        misses: run.seen.misses,
        asked_bytes_per_s: run.asked_bytes_per_s,
        read_bytes_per_s: run.disk.and_then(|limit| limit.bytes_per_s),
        reads_per_s: run.disk.and_then(|limit| limit.reads_per_s),
    };
    cell.runs.iter().enumerate().map(of_run).collect()
}

fn line<'cell>(
    plan: &BenchMedia,
    cell: &'cell Cell,
    refused: Option<&'cell str>,
    cores: u32,
) -> CrowdLine<'cell> {
    let all = seen(cell);
    let sum = |of: &dyn Fn(&Run) -> Option<u64>| {
        cell.runs.iter().map(of).try_fold(0, |sum, one| Some(sum + one?))
    };
    let count = |of: fn(&Seen) -> u64| all.as_ref().map_or(0, of);
    let times = |of: fn(&Seen) -> Option<Quantiles>| all.as_ref().and_then(of).map(Times::from);
    let has_process = cell.runs.iter().any(|run| run.used.is_some());
    let of_process = |of: &dyn Fn(&Run) -> Option<u64>| sum(of).filter(|_| has_process);
    CrowdLine {
        event: "cell",
        table: "crowd",
        method: &cell.name,
        disk_share: match cell.disk {
            Some(DiskBound::Share(share)) => Some(share),
            Some(DiskBound::Rates(_)) | None => None,
        },
        rounds: cell.runs.len(),
        streams: count(|seen| seen.streams),
        turned_away: count(|seen| seen.refused),
        failed: count(|seen| seen.failed),
        why_failed: all.as_ref().and_then(|seen| seen.why_failed.clone()),
        periods: count(|seen| seen.periods),
        misses: count(|seen| seen.misses),
        miss_share: cell.miss_share(),
        late_ms: times(Seen::lateness),
        first_byte_ms: times(Seen::first_byte),
        start_up_ms: times(Seen::start_up),
        received_bytes: count(|seen| seen.received_bytes),
        watched_s: all.as_ref().map_or(0.0, |seen| seen.watched.as_secs_f64()),
        cpu_us_per_stream_s: cell.spread(Run::cpu_us_per_stream_s),
        cpu_s: cell
            .runs
            .iter()
            .map(|run| Some(run.used?.cpu_s))
            .sum::<Option<f64>>()
            .filter(|_| has_process),
        disk_read_bytes: of_process(&|run| Some(run.used?.read_bytes)),
        disk_reads: of_process(&|run| run.used?.reads),
        memory_bytes: cell.runs.iter().map(|run| run.memory_bytes).max().filter(|_| has_process),
        server: cell.runs.last().and_then(|run| run.counted),
        shares_when_busiest: shares(cell, cores),
        disk_is_bound: cell.runs.iter().all(|run| run.disk.is_some()) && !cell.runs.is_empty(),
        crowds: crowds(plan, cell),
        refused,
    }
}

/// The largest share of each bound over all rounds.
fn shares(cell: &Cell, cores: u32) -> Vec<Share> {
    let mut all: Vec<Share> = Vec::new();
    for run in cell.runs.iter().filter(|run| run.used.is_some()) {
        for (of, share) in run.shares(cores) {
            match all.iter_mut().find(|one| one.of == of) {
                Some(one) => one.share = one.share.max(share),
                None => all.push(Share { of, share }),
            }
        }
    }
    all
}

/// The resource that was used up in the busiest time, in words.
fn limit(shares: &[Share]) -> String {
    let most = shares.iter().max_by(|one, other| one.share.total_cmp(&other.share));
    match most {
        Some(Share { of, share }) if *share >= EXHAUSTED_SHARE => {
            format!("{of} ({})", units::percent(*share))
        }
        Some(Share { of, share }) => format!("none ({of} {})", units::percent(*share)),
        None => "not known".to_owned(),
    }
}

/// Figures of each method over all disks, for the judgement.
fn missed(cells: &[Cell], cores: u32) -> Vec<Missed> {
    let played = || cells.iter().filter(|cell| refusal(cell).is_none());
    let mut all: Vec<Missed> = Vec::new();
    for name in methods(cells) {
        let of_method: Vec<&Cell> = played().filter(|cell| cell.name == name).collect();
        let Some(first) = of_method.first() else { continue };
        let of_round = |round: usize| {
            let runs = of_method.iter().filter_map(|cell| cell.runs.get(round));
            let (misses, periods) = runs.fold((0, 0), |(misses, periods), run| {
                (misses + run.seen.misses, periods + run.seen.periods)
            });
            misses as f64 / periods.max(1) as f64
        };
        let processors = of_method.iter().flat_map(|cell| shares(cell, cores));
        let processors = processors.filter(|share| share.of == PROCESSORS).map(|one| one.share);
        let runs = || of_method.iter().flat_map(|cell| &cell.runs);
        all.push(Missed {
            name: name.to_owned(),
            shares: (0..first.runs.len()).map(of_round).collect(),
            cpu_us_per_stream_s: Spread::of(runs().filter_map(Run::cpu_us_per_stream_s))
                .map(|spread| spread.median),
            disk_read_bytes: runs().map(|run| Some(run.used?.read_bytes)).sum(),
            processors_share: processors.reduce(f64::max),
        });
    }
    all
}

/// Names of the methods in their order, each once.
fn methods(cells: &[Cell]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for cell in cells {
        if !names.contains(&cell.name.as_str()) {
            names.push(&cell.name);
        }
    }
    names
}

/// Bytes a second that each crowd asked for when most of it watched, in words.
pub(super) fn asked(cells: &[Cell]) -> Vec<String> {
    let met_all = cells.iter().max_by_key(|cell| cell.runs.len());
    let runs = met_all.into_iter().flat_map(|cell| &cell.runs);
    runs.map(|run| units::bytes(run.asked_bytes_per_s)).collect()
}

/// The study's figure 11 with what the crowd met here.
pub(super) fn figure(plan: &BenchMedia, cells: &[Cell], cores: u32, bounds: String) -> StudyFigure {
    let mut section = section(plan, cells, cores);
    section.words.push(bounds);
    section.words.extend(limits(cells, cores));
    let judgement = if plan.bounds.is_some() {
        judge(&missed(cells, cores))
    } else {
        Judgement::not_measured("The disk was not bound: run it without --unbound.")
    };
    MISSES.judged(judgement, section)
}

/// The resources that were used up, in a sentence.
fn limits(cells: &[Cell], cores: u32) -> Option<String> {
    let of_cell = |cell: &Cell| {
        let shares = shares(cell, cores);
        let name = format!("{} ({})", cell.name, disk_name(cell));
        (!shares.is_empty()).then(|| format!("{name}: {}", limit(&shares)))
    };
    let limits: Vec<String> = cells.iter().filter_map(of_cell).collect();
    (!limits.is_empty()).then(|| {
        let limits = limits.join("; ");
        format!("What was used up in the busiest seconds, of what there was: {limits}.")
    })
}

pub(super) fn add_lines(results: &mut Results, plan: &BenchMedia, cells: &[Cell], cores: u32) {
    for cell in cells {
        let refused = refusal(cell);
        results.line(&line(plan, cell, refused.as_deref(), cores));
    }
}

/// Whether any method played something.
pub(super) fn is_measured(cells: &[Cell]) -> bool {
    cells.iter().any(|cell| refusal(cell).is_none() && !cell.runs.is_empty())
}

fn section(plan: &BenchMedia, cells: &[Cell], cores: u32) -> Section {
    let mut section = Section {
        title: "A crowd of viewers".to_owned(),
        words: vec![crowd_in_words(plan)],
        tables: vec![deadlines(cells), waiting(cells), costs(plan, cells, cores)],
        charts: vec![missed_chart(cells)],
    };
    let has_disk = cells.iter().flat_map(|cell| &cell.runs).any(|run| run.samples.len() > 1);
    if has_disk {
        section.charts.push(disk_chart(cells));
        section.charts.push(cpu_chart(cells));
    }
    section
}

fn crowd_in_words(plan: &BenchMedia) -> String {
    let crowd = &plan.crowd;
    format!(
        "Up to {} viewers come {:.2} s apart on average (a Poisson process, seed {}) and choose \
         among {} of {} by Zipf's law with theta {}; each plays {}, for up to {} of {} s. What a \
         player plays in a period has to be there when the period begins, the first one period \
         after its request.",
        crowd.users,
        crowd.mean_gap.as_secs_f64(),
        crowd.seed,
        units::count(crowd.films.into(), "film"),
        units::bytes(crowd.film_bytes),
        crowd.theta,
        units::rate(crowd.rate.bits_per_s as f64 / 1e9),
        units::count(crowd.periods.into(), "period"),
        crowd.period.as_secs_f64(),
    )
}

fn ms(time: Option<f64>) -> String {
    match time {
        None => "-".to_owned(),
        Some(ms) if ms < 10.0 => format!("{ms:.1}"),
        Some(ms) => format!("{ms:.0}"),
    }
}

/// Adds a row for each method that played, and for each other the reason why not.
fn of_seen(table: &mut Table, cells: &[Cell], row: impl Fn(&Cell, &Seen) -> Vec<String>) {
    for cell in cells {
        let why = refusal(cell);
        let name = || vec![cell.name.clone(), disk_name(cell)];
        match seen(cell).filter(|_| why.is_none()) {
            Some(seen) => table.row([name(), row(cell, &seen)].concat()),
            None => table.row([name(), vec![why.unwrap_or_default()]].concat()),
        }
    }
}

/// The disk of a cell in a table.
fn disk_name(cell: &Cell) -> String {
    match cell.disk {
        Some(DiskBound::Share(share)) => units::percent(share),
        Some(DiskBound::Rates(_)) => "as asked".to_owned(),
        None => "not bound".to_owned(),
    }
}

fn quantiles(times: Option<Quantiles>) -> [String; 3] {
    let [p50, p99, max] = match times {
        Some(times) => [times.p50_ms, times.p99_ms, times.max_ms].map(Some),
        None => [None; 3],
    };
    [ms(p50), ms(p99), ms(max)]
}

fn deadlines(cells: &[Cell]) -> Table {
    let columns = [
        "method",
        "disk",
        "streams",
        "away",
        "failed",
        "periods",
        "missed",
        "missed %",
        "late p50 ms",
        "p99",
        "max",
    ];
    let mut table = Table::new("Deadlines, as the viewers saw them", 2, &columns);
    of_seen(&mut table, cells, |cell, seen| {
        let counts = [seen.streams, seen.refused, seen.failed, seen.periods, seen.misses];
        let share = cell.miss_share().map(|share| format!("{:.2} %", share.median * 100.0));
        let counts = counts.map(|count| count.to_string()).to_vec();
        [counts, vec![share.unwrap_or_default()], quantiles(seen.lateness()).to_vec()].concat()
    });
    table.note("Disk: the share of what a crowd asks for when most of it watches.");
    table.note("Late: of all periods, 0 where one was in time. Away: answered with 503.");
    table.note("Missed %: the median of the rounds; counts are of all rounds.");
    table
}

fn waiting(cells: &[Cell]) -> Table {
    let columns = ["method", "disk", "first byte p50", "p99", "max", "start-up p50", "p99", "max"];
    let mut table = Table::new("From a viewer's request, in ms", 2, &columns);
    of_seen(&mut table, cells, |_, seen| {
        [quantiles(seen.first_byte()), quantiles(seen.start_up())].concat()
    });
    table.note("Start-up: until the first period is there whole.");
    table
}

fn costs(plan: &BenchMedia, cells: &[Cell], cores: u32) -> Table {
    let columns = [
        "method",
        "disk",
        "CPU us a stream and s",
        "CPU s",
        "memory",
        "read from disk",
        "reads",
        "KiB a read",
        "used up when busiest",
    ];
    let mut table = Table::new("What it cost the server", 2, &columns);
    for cell in cells.iter().filter(|cell| refusal(cell).is_none()) {
        let line = line(plan, cell, None, cores);
        let dash = || "-".to_owned();
        let each = line.disk_read_bytes.zip(line.disk_reads).filter(|(_, reads)| *reads > 0);
        table.row(vec![
            cell.name.clone(),
            disk_name(cell),
            line.cpu_us_per_stream_s.map_or_else(dash, |cpu| format!("{:.0}", cpu.median)),
            line.cpu_s.map_or_else(dash, |cpu_s| format!("{cpu_s:.2}")),
            line.memory_bytes.map_or_else(dash, units::bytes),
            line.disk_read_bytes.map_or_else(dash, units::bytes),
            line.disk_reads.map_or_else(dash, |reads| reads.to_string()),
            each.map_or_else(dash, |(bytes, reads)| format!("{}", (bytes / reads) >> 10)),
            limit(&line.shares_when_busiest),
        ]);
    }
    table.note("Memory: the most that was resident, without the page cache.");
    table
}

fn missed_chart(cells: &[Cell]) -> String {
    let share = |cell: &Cell| cell.miss_share().filter(|_| refusal(cell).is_none());
    let percents = |share: Spread| BarValue {
        value: share.median * 100.0,
        lowest: share.lowest * 100.0,
        highest: share.highest * 100.0,
    };
    let drawn = by_disk(cells, |cell| share(cell).map(percents));
    bars("Deadlines missed", "% of all periods", &names(&disks(cells)), &drawn)
}

fn cpu_chart(cells: &[Cell]) -> String {
    let value =
        |cpu: Spread| BarValue { value: cpu.median, lowest: cpu.lowest, highest: cpu.highest };
    let drawn = by_disk(cells, |cell| cell.spread(Run::cpu_us_per_stream_s).map(value));
    bars("Processor time", "us a stream and second", &names(&disks(cells)), &drawn)
}

/// Names of the disks in their order, as series of a chart.
fn disks(cells: &[Cell]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in cells.iter().map(|cell| format!("disk {}", disk_name(cell))) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn names(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// Bars of each method, a value for each disk.
fn by_disk(cells: &[Cell], value: impl Fn(&Cell) -> Option<BarValue>) -> Vec<Bar> {
    let bar = |name: &str| {
        let of_method = cells.iter().filter(|cell| cell.name == name);
        Bar { label: name.to_owned(), values: of_method.map(&value).collect() }
    };
    methods(cells).into_iter().map(bar).collect()
}

/// A chart of reads from the first disk in the last round, over two seconds each.
fn disk_chart(cells: &[Cell]) -> String {
    const OVER_S: f64 = 2.0;
    let narrowest = cells.first().and_then(|cell| cell.disk);
    let drawn = cells.iter().filter(|cell| cell.disk == narrowest).filter_map(|cell| {
        let samples = &cell.runs.last()?.samples;
        let mut points = Vec::new();
        let mut from = samples.first()?;
        for sample in samples {
            let over_s = sample.at_s - from.at_s;
            if over_s >= OVER_S {
                let bytes = sample.used.read_bytes - from.used.read_bytes;
                points.push((sample.at_s, bytes as f64 / over_s / MEGABYTE));
                from = sample;
            }
        }
        Some(Line { label: cell.name.clone(), points })
    });
    let drawn: Vec<Line> = drawn.collect();
    lines("Read from the disk while viewers come and go", "MB/s", Across::Seconds, &drawn)
}

/// Results of a crowd at another server.
pub(super) fn against(plan: &BenchMedia, facts: HostFacts, films: usize, cell: &Cell) -> Results {
    let cells = std::slice::from_ref(cell);
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let mut words = Vec::new();
    if films < plan.crowd.films as usize {
        words.push(format!(
            "The server shows {}, and the crowd chooses among these.",
            units::count(films as u64, "film")
        ));
    }
    words.push(
        "Nothing of that server is bound here: its disk, memory and network are its own."
            .to_owned(),
    );
    let is_measured = is_measured(cells);
    let mut results = Results {
        title: "haul bench media --against".to_owned(),
        verdict: Vec::new(),
        words,
        facts,
        sections: vec![section(plan, cells, cores)],
        figures: Vec::new(),
        studies: Vec::new(),
        lines: Vec::new(),
        measured: is_measured,
    };
    add_lines(&mut results, plan, cells, cores);
    results
}
