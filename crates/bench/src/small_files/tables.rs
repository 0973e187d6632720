//! Results of `haul bench files --small`: targets, a section for each file system, lines of JSON.

use super::{
    Found, MoverFound, PlaceFound, Round,
    movers::Mover,
    per_file_us,
    targets::{self, Target},
    tree::{FILES_A_DIRECTORY, Tree},
};
use haul_report::{
    chart::{Bar, BarValue, bars},
    host_facts::HostFacts,
    html_page::Section,
    results::Results,
    spread::Spread,
    table::Table,
    units,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// Calls a file from which on a call has a row of its own.
const CALLS_SHOWN_MIN: f64 = 0.02;

/// Load for each core up to which a host is quiet.
const QUIET_LOAD_OF_CORE: f64 = 0.5;

/// A mover on a file system as a line of JSON.
#[derive(Debug, Serialize)]
struct CellLine<'found> {
    event: &'static str,
    table: &'static str,
    file_system: &'found str,
    mover: Mover,
    files: u64,
    file_bytes: u64,
    rounds: usize,
    seconds: Option<Spread>,
    /// Times as fast as tar, and times as long as the floor, by medians.
    times_of_tar: Option<f64>,
    times_of_floor: Option<f64>,
    /// Processor time a file in microseconds, user and kernel mode, without the kernel's threads.
    send_cpu_us: Option<Spread>,
    receive_cpu_us: Option<Spread>,
    cpu_us: Option<Spread>,
    /// Time a file that the host's processors worked, for anybody.
    host_us: Option<Spread>,
    calls_per_file: Option<f64>,
    calls_by: Option<&'static str>,
    refused: Option<&'found str>,
}

/// A round as a line of JSON.
#[derive(Debug, Serialize)]
struct RoundLine<'found> {
    event: &'static str,
    table: &'static str,
    file_system: &'found str,
    mover: Mover,
    /// Number of the round, from 1.
    round: usize,
    seconds: f64,
    send_cpu_s: f64,
    receive_cpu_s: f64,
    host_s: Option<f64>,
    /// Seconds of one more sync after the clock's end.
    sync_after_s: f64,
}

/// System calls of a mover as a line of JSON.
#[derive(Debug, Serialize)]
struct CallsLine<'found> {
    event: &'static str,
    table: &'static str,
    file_system: &'found str,
    mover: Mover,
    by: &'static str,
    calls: u64,
    /// Calls by name, of both sides, for the whole tree.
    named: &'found BTreeMap<String, u64>,
}

pub fn results(found: &Found, facts: HostFacts) -> Results {
    let targets = targets::targets(found);
    let mut verdict = targets::verdict(&targets);
    verdict.extend(busy(found));
    let mut sections = vec![targets_section(&targets)];
    if found.places.iter().any(|place| place.movers.iter().any(|one| !one.rounds.is_empty())) {
        sections.push(charts(found));
    }
    sections.extend(found.places.iter().map(|place| section(found, place)));
    let mut results = Results {
        title: "haul bench files --small".to_owned(),
        verdict,
        words: words(found),
        facts,
        sections,
        figures: Vec::new(),
        studies: Vec::new(),
        lines: Vec::new(),
        measured: found
            .places
            .iter()
            .any(|place| place.movers.iter().any(|one| !one.rounds.is_empty())),
    };
    results.line(&serde_json::json!({
        "event": "host_before",
        "load_of_a_minute": found.load,
        "programs": found.versions,
        "calls_not_counted": found.not_counted,
    }));
    for place in &found.places {
        for one in &place.movers {
            lines(&mut results, found.tree, place, one);
        }
        if place.refused.is_some() {
            results.line(&serde_json::json!({
                "event": "file_system",
                "file_system": place.file_system,
                "refused": place.refused,
            }));
        }
    }
    targets.iter().for_each(|target| results.line(target));
    results
}

/// A warning where the host had other work when the bench began.
fn busy(found: &Found) -> Option<String> {
    let load = found.load.filter(|load| *load > f64::from(found.cores) * QUIET_LOAD_OF_CORE)?;
    Some(format!(
        "The host was busy before the first run, with a load of {load:.2}: the times are those of \
         a busy host."
    ))
}

fn words(found: &Found) -> Vec<String> {
    let Tree { files, file_bytes } = found.tree;
    let mut words = vec![
        format!(
            "{files} files of {}, {FILES_A_DIRECTORY} in a directory, from one directory to a new \
             one on the same file system, by {} interleaved. Before each run the source is read \
             once, as much memory as source and target take is touched and given back, and the \
             file system is synced. The clock begins before the first process and ends when all \
             is durable.",
            units::bytes_in_words(file_bytes),
            units::count(found.rounds.into(), "round"),
        ),
        "haul: `haul serve --once`, which listens already, and push or pull with --protection \
         safe, over loopback. tar: one that packs into a TCP connection and one that unpacks from \
         it, with --no-same-owner, then a sync of the file system. rsync: --archive --whole-file \
         and a daemon of its own, then a sync. The bare floor: two threads of one process make \
         the files under their names, from memory, write, set the time, close, and sync once: no \
         source, no network."
            .to_owned(),
        "Processor time is that of both sides' processes in user and kernel mode (wait4), with \
         the sync. It is without the kernel's own threads, which write back; these are in the \
         host's column, with whatever else ran there."
            .to_owned(),
    ];
    if let Some(load) = found.load {
        let count = units::count(found.cores.into(), "core");
        words.push(format!(
            "Load of the host before the first run, by the last minute: {load:.2} on {count}. What \
             else runs takes its part of the times."
        ));
    }
    if !found.versions.is_empty() {
        words.push(format!("Installed: {}.", found.versions.join("; ")));
    }
    if let Some(why) = &found.not_counted {
        words.push(format!("System calls are not counted: {why}."));
    }
    words
}

fn targets_section(targets: &[Target]) -> Section {
    let columns = ["file system", "mover", "target", "found", "verdict"];
    let mut table = Table::new("Medians of one run", 3, &columns);
    for target in targets {
        let verdict = match target.is_met {
            Some(true) => "met",
            Some(false) => "missed",
            None if target.is_of_rule() => "not judged",
            None => "shown only",
        };
        let found = target.found.map_or_else(|| "-".to_owned(), |found| format!("{found:.2}"));
        let mover = target.mover.name().to_owned();
        let file_system = target.file_system.clone();
        table.row(vec![file_system, mover, target.needs.clone(), found, verdict.to_owned()]);
    }
    Section {
        title: "Targets".to_owned(),
        words: vec![format!(
            "The rule stood before the run: on {}, by push and by pull, medians of at least {} \
             rounds of {} files of {}.",
            targets::FILE_SYSTEMS.join(" and "),
            targets::ROUNDS_MIN,
            targets::FILES_MIN,
            units::bytes_in_words(targets::FILE_BYTES),
        )],
        tables: vec![table],
        ..Section::default()
    }
}

/// Bars of each mover, a colour for each file system.
fn charts(found: &Found) -> Section {
    let places: Vec<&PlaceFound> =
        found.places.iter().filter(|place| place.refused.is_none()).collect();
    let series: Vec<&str> = places.iter().map(|place| &place.file_system[..]).collect();
    let drawn = |value: &dyn Fn(&MoverFound) -> Option<BarValue>| -> Vec<Bar> {
        let bar = |mover: Mover| Bar {
            label: mover.name().to_owned(),
            values: places
                .iter()
                .map(|place| value(place.movers.iter().find(|one| one.mover == mover)?))
                .collect(),
        };
        Mover::ALL.into_iter().map(bar).collect()
    };
    let tree = found.tree;
    let of_spread = |spread: Spread| BarValue {
        value: spread.median,
        lowest: spread.lowest,
        highest: spread.highest,
    };
    let files_per_s = drawn(&|one| files_per_s(one, tree).map(of_spread));
    let cpu = drawn(&|one| one.cpu_us(tree).map(of_spread));
    let calls = drawn(&|one| calls_per_file(one, tree).map(BarValue::from));
    Section {
        title: "All file systems".to_owned(),
        charts: vec![
            bars("Files a second", "files/s", &series, &files_per_s),
            bars("Processor time a file, both sides", "us", &series, &cpu),
            bars("System calls a file, both sides", "calls", &series, &calls),
        ],
        ..Section::default()
    }
}

fn files_per_s(one: &MoverFound, tree: Tree) -> Option<Spread> {
    one.spread(|round| tree.files as f64 / round.moved.seconds)
}

fn calls_per_file(one: &MoverFound, tree: Tree) -> Option<f64> {
    Some(one.counts.as_ref()?.all as f64 / tree.files.max(1) as f64)
}

fn host_us(one: &MoverFound, tree: Tree) -> Option<Spread> {
    let all = one.rounds.iter().map(|round| Some(per_file_us(round.moved.host?, tree)));
    Spread::of(all.collect::<Option<Vec<f64>>>()?)
}

fn section(found: &Found, place: &PlaceFound) -> Section {
    let title = place.file_system.clone();
    if let Some(why) = &place.refused {
        let words = vec![format!("Not measured: {why}.")];
        return Section { title, words, ..Section::default() };
    }
    let tree = found.tree;
    let mut tables = vec![
        times(tree, place),
        rounds("Each round, seconds", place, |round| format!("{:.3}", round.moved.seconds)),
        rounds("Each round, processor time a file, us", place, |round| {
            format!("{:.1}", per_file_us(round.moved.sends + round.moved.receives, tree))
        }),
    ];
    tables.extend(calls(tree, place));
    Section { title, tables, ..Section::default() }
}

fn times(tree: Tree, place: &PlaceFound) -> Table {
    let columns = [
        "mover",
        "seconds",
        "lowest",
        "highest",
        "files/s",
        "times as fast as tar",
        "times the floor",
        "sends, us a file",
        "receives, us",
        "both, us",
        "host, us",
        "calls a file",
    ];
    let mut table = Table::new("Medians", 1, &columns);
    for one in &place.movers {
        let name = one.mover.name().to_owned();
        let Some(seconds) = one.seconds() else {
            let why = one.refused.clone().unwrap_or_else(|| "no time was left".to_owned());
            table.row(vec![name, why]);
            continue;
        };
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let median = |spread: Option<Spread>| spread.map(|spread| spread.median);
        let [sends, receives] = sides(one, tree).map(median);
        let is_floor = one.mover == Mover::Floor;
        table.row(vec![
            name,
            number(Some(seconds.median), 3),
            number(Some(seconds.lowest), 3),
            number(Some(seconds.highest), 3),
            number(median(files_per_s(one, tree)), 0),
            number(times_of_tar(place, one), 2),
            number(times_of_floor(place, one), 2),
            number(sends.filter(|_| !is_floor), 1),
            number(receives.filter(|_| !is_floor), 1),
            number(median(one.cpu_us(tree)), 1),
            number(median(host_us(one, tree)), 1),
            number(calls_per_file(one, tree), 2),
        ]);
        if let Some(why) = &one.refused {
            table.note(format!("{} ended early: {why}.", one.mover.name()));
        }
    }
    table
}

/// Processor time a file of the sending and the receiving side.
fn sides(one: &MoverFound, tree: Tree) -> [Option<Spread>; 2] {
    [
        one.spread(|round| per_file_us(round.moved.sends, tree)),
        one.spread(|round| per_file_us(round.moved.receives, tree)),
    ]
}

fn median_of(place: &PlaceFound, mover: Mover) -> Option<f64> {
    let found = place.movers.iter().find(|one| one.mover == mover)?;
    Some(found.seconds()?.median)
}

fn times_of_tar(place: &PlaceFound, one: &MoverFound) -> Option<f64> {
    Some(median_of(place, Mover::Tar)? / one.seconds()?.median)
}

fn times_of_floor(place: &PlaceFound, one: &MoverFound) -> Option<f64> {
    Some(one.seconds()?.median / median_of(place, Mover::Floor)?)
}

fn rounds(title: &str, place: &PlaceFound, shown: impl Fn(&Round) -> String) -> Table {
    let count = place.movers.iter().map(|one| one.rounds.len()).max().unwrap_or(0);
    let numbers: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
    let columns: Vec<&str> =
        ["mover"].into_iter().chain(numbers.iter().map(String::as_str)).collect();
    let mut table = Table::new(title, 1, &columns);
    for one in place.movers.iter().filter(|one| !one.rounds.is_empty()) {
        let cells = one.rounds.iter().map(&shown);
        let mut row: Vec<String> = [one.mover.name().to_owned()].into_iter().chain(cells).collect();
        row.resize(columns.len(), "-".to_owned());
        table.row(row);
    }
    table
}

/// The calls of all movers by name, the most frequent first; `None` where none were counted.
fn calls(tree: Tree, place: &PlaceFound) -> Option<Table> {
    let counted: Vec<_> =
        place.movers.iter().filter_map(|one| Some((one.mover, one.counts.as_ref()?))).collect();
    let by = counted.first()?.1.by;
    let per_file = |count: u64| count as f64 / tree.files.max(1) as f64;
    let mut most: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, count) in counted.iter().flat_map(|(_, counts)| &counts.named) {
        let most = most.entry(name).or_default();
        *most = most.max(per_file(*count));
    }
    let mut shown: Vec<(&str, f64)> =
        most.into_iter().filter(|(_, most)| *most >= CALLS_SHOWN_MIN).collect();
    shown.sort_by(|one, other| other.1.total_cmp(&one.1));
    let names = counted.iter().map(|(mover, _)| mover.name());
    let columns: Vec<&str> = ["call"].into_iter().chain(names).collect();
    let title = format!("System calls a file, both sides, in a run of its own, by {by}");
    let mut table = Table::new(title, 1, &columns);
    let mut row = |name: &str, count: &dyn Fn(&super::CallCounts) -> u64| {
        let cells = counted.iter().map(|(_, counts)| format!("{:.2}", per_file(count(counts))));
        table.row([name.to_owned()].into_iter().chain(cells).collect());
    };
    for (name, _) in &shown {
        row(name, &|counts| counts.named.get(*name).copied().unwrap_or(0));
    }
    row("others", &|counts| {
        let named = shown.iter().filter_map(|(name, _)| counts.named.get(*name));
        counts.all.saturating_sub(named.sum())
    });
    row("all", &|counts| counts.all);
    Some(table)
}

fn lines(results: &mut Results, tree: Tree, place: &PlaceFound, one: &MoverFound) {
    let file_system = &place.file_system[..];
    let [send_cpu_us, receive_cpu_us] = sides(one, tree);
    results.line(&CellLine {
        event: "cell",
        table: "small_files",
        file_system,
        mover: one.mover,
        files: tree.files,
        file_bytes: tree.file_bytes,
        rounds: one.rounds.len(),
        seconds: one.seconds(),
        times_of_tar: times_of_tar(place, one),
        times_of_floor: times_of_floor(place, one),
        send_cpu_us,
        receive_cpu_us,
        cpu_us: one.cpu_us(tree),
        host_us: host_us(one, tree),
        calls_per_file: calls_per_file(one, tree),
        calls_by: one.counts.as_ref().map(|counts| counts.by),
        refused: one.refused.as_deref(),
    });
    for (round, number) in one.rounds.iter().zip(1..) {
        results.line(&RoundLine {
            event: "round",
            table: "small_file_rounds",
            file_system,
            mover: one.mover,
            round: number,
            seconds: round.moved.seconds,
            send_cpu_s: round.moved.sends.as_secs_f64(),
            receive_cpu_s: round.moved.receives.as_secs_f64(),
            host_s: round.moved.host.map(|host| host.as_secs_f64()),
            sync_after_s: round.sync_after.as_secs_f64(),
        });
    }
    if let Some(counts) = &one.counts {
        results.line(&CallsLine {
            event: "calls",
            table: "small_file_calls",
            file_system,
            mover: one.mover,
            by: counts.by,
            calls: counts.all,
            named: &counts.named,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::found, *};
    use haul_report::host_facts::{BenchWire, HostFigures};
    use serde_json::Value;

    fn shown(found: &Found) -> Results {
        let facts = HostFacts::new("files", HostFigures::default(), BenchWire::Loopback, None);
        results(found, facts)
    }

    fn number(value: &Value) -> f64 {
        value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
    }

    #[test]
    fn each_printed_figure_is_that_of_the_lines() {
        let results = shown(&found("xfs", 1.2, 50));
        let table = &results.sections[2].tables[0];
        let cells: Vec<&Value> =
            results.lines.iter().filter(|line| line["event"] == "cell").collect();
        assert_eq!(table.rows.len(), cells.len());
        let median = |cell: &Value, key: &str| number(&cell[key]["median"]);
        let of = |mover: &str| cells.iter().find(|cell| cell["mover"] == mover).copied().unwrap();
        for (row, cell) in table.rows.iter().zip(&cells) {
            let seconds = median(cell, "seconds");
            let expected = [
                format!("{seconds:.3}"),
                format!("{:.3}", number(&cell["seconds"]["lowest"])),
                format!("{:.3}", number(&cell["seconds"]["highest"])),
                format!("{:.0}", number(&cell["files"]) / seconds),
                format!("{:.2}", median(of("tar"), "seconds") / seconds),
                format!("{:.2}", seconds / median(of("floor"), "seconds")),
            ];
            assert_eq!(row[1..7], expected);
            if cell["mover"] != "floor" {
                assert_eq!(row[7], format!("{:.1}", median(cell, "send_cpu_us")));
                assert_eq!(row[8], format!("{:.1}", median(cell, "receive_cpu_us")));
            }
            assert_eq!(row[9], format!("{:.1}", median(cell, "cpu_us")));
            assert_eq!(row[10], format!("{:.1}", median(cell, "host_us")));
            assert_eq!(row[11], format!("{:.2}", number(&cell["calls_per_file"])));
        }
        assert_eq!(table.rows[1][1..7], ["1.200", "0.600", "3.600", "16667", "2.50", "1.20"]);
        assert_eq!(table.rows[1][7..], ["12.5", "37.5", "50.0", "100.0", "3.50"]);
    }

    #[test]
    fn every_round_is_shown_and_told() {
        let results = shown(&found("xfs", 1.2, 50));
        let [seconds, cpu] = [1, 2].map(|at| &results.sections[2].tables[at]);
        assert_eq!(seconds.rows[1], ["haul push", "1.200", "3.600", "0.600", "1.200", "1.080"]);
        assert_eq!(cpu.rows[1], ["haul push", "50.0", "50.0", "50.0", "50.0", "50.0"]);
        let rounds = results.lines.iter().filter(|line| line["event"] == "round");
        let of_push: Vec<_> = rounds.filter(|line| line["mover"] == "haul_push").collect();
        assert_eq!(of_push.len(), 5);
        assert_eq!((&of_push[1]["round"], number(&of_push[1]["seconds"])), (&2.into(), 1.2 * 3.0));
    }

    #[test]
    fn calls_are_named_by_how_often_they_come_and_add_up() {
        let results = shown(&found("xfs", 1.2, 50));
        let table = &results.sections[2].tables[3];
        let first: Vec<&str> = table.rows.iter().map(|row| &row[0][..]).collect();
        assert_eq!(first, ["openat", "write", "others", "all"]);
        let own: Vec<&str> = table.rows.iter().map(|row| &row[1][..]).collect();
        assert_eq!(own, ["2.00", "1.00", "0.50", "3.50"]);
    }

    #[test]
    fn a_busy_host_is_told_with_the_verdict() {
        let mut found = found("xfs", 1.2, 50);
        let quiet = shown(&found).verdict;
        assert!(!quiet.iter().any(|words| words.contains("busy")), "{quiet:?}");
        found.load = Some(1.5);
        let busy = shown(&found).verdict;
        assert!(busy.iter().any(|words| words.contains("busy") && words.contains("1.50")));
    }

    #[test]
    fn what_was_not_measured_stands_with_its_reason() {
        let mut found = found("xfs", 1.2, 50);
        let tar = &mut found.places[0].movers[3];
        tar.rounds.clear();
        tar.refused = Some("needs tar, found no such program".to_owned());
        let refused = Some("needs mkfs.btrfs, found no such program".to_owned());
        let file_system = "btrfs".to_owned();
        found.places.push(PlaceFound { file_system, movers: Vec::new(), refused });
        let results = shown(&found);
        let table = &results.sections[2].tables[0];
        assert_eq!(table.rows[3], ["tar", "needs tar, found no such program"]);
        assert_eq!(table.rows[1][5], "-", "without tar there is no ratio to it");
        let text = results.text();
        assert!(text.contains("Not measured: needs mkfs.btrfs"), "{text}");
        assert!(!text.contains("NaN") && !results.page().html().contains("NaN"));
    }
}
