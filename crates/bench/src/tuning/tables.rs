//! Results of `haul bench tuning`: a table and a chart for each path, beside the study's figures.

use crate::{
    host_facts,
    requests::BenchTuning,
    studies::{
        NODE_TUNING, TUNED_RATES,
        node_tuning::{CHANGES, MeasuredChange, judge_change},
    },
    tuning::{Cell, Step, storage, storage_tables},
    workshop::Workshop,
};
use haul_report::{
    chart::{Across, Line, lines},
    html_page::Section,
    results::Results,
    study_figure::StudyFigure,
    table::Table,
    units,
};

/// Results of the tuning bench; `removed` are the namespaces that a killed run had left.
pub fn results(
    plan: &BenchTuning,
    workshop: &Workshop,
    cells: &[Cell],
    stored: Option<&storage::Found>,
    removed: &[String],
) -> Results {
    let measured = cells.iter().any(|cell| cell.gbit_per_s.is_some())
        || stored.is_some_and(|found| found.pushes.iter().any(|push| push.refused.is_none()));
    let paths = [("veth", veth_title()), ("wan", wan_title(plan))];
    let sections: Vec<Section> = paths
        .into_iter()
        .filter_map(|(path, title)| {
            let of_path: Vec<&Cell> = cells.iter().filter(|cell| cell.path == path).collect();
            (!of_path.is_empty()).then(|| section(plan, title, &of_path))
        })
        .collect();
    let mut figures = Vec::new();
    if !plan.paths.is_empty() {
        figures.push(figure(plan, workshop.host.cores, cells, sections));
    }
    figures.extend(stored.into_iter().flat_map(|found| storage_tables::figures(plan, found)));
    let mut words = Vec::new();
    if !plan.paths.is_empty() {
        words.push(verdict(cells));
        words.push(format!(
            "Real pushes of zeros to null:, clear and without digest, between two network \
             namespaces of this host; {} s each, after {} s that are left out.",
            plan.time.as_secs_f64(),
            plan.omit.as_secs_f64()
        ));
    }
    if !removed.is_empty() {
        words.push(format!("Removed what a killed run had left: {}.", removed.join(", ")));
    }
    let mut results = Results {
        title: "haul bench tuning".to_owned(),
        verdict: Vec::new(),
        words,
        facts: host_facts::of_transfers("tuning", &workshop.host),
        sections: Vec::new(),
        figures,
        studies: Vec::new(),
        lines: Vec::new(),
        measured,
    };
    cells.iter().for_each(|cell| results.line(cell));
    if let Some(found) = stored {
        found.delays.iter().for_each(|delays| results.line(delays));
        found.pushes.iter().for_each(|push| results.line(push));
    }
    results
}

fn veth_title() -> String {
    "A pair of virtual interfaces (veth): the processors are the limit".to_owned()
}

fn wan_title(plan: &BenchTuning) -> String {
    let rate = units::rate(plan.rate_bits_per_s as f64 / 1e9);
    let ms = plan.round_trip.as_secs_f64() * 1e3;
    let product = plan.rate_bits_per_s as f64 / 8.0 * plan.round_trip.as_secs_f64();
    let product = units::bytes(product as u64);
    format!("An emulated path of {rate} and {ms} ms: {product} are on the way")
}

fn rate(cells: &[&Cell], step: Step, streams: u32) -> Option<f64> {
    let cell = cells.iter().find(|cell| cell.step == step && cell.streams == streams)?;
    cell.gbit_per_s.map(|spread| spread.median)
}

fn steps_of(cells: &[&Cell]) -> Vec<Step> {
    let mut steps: Vec<Step> = cells.iter().map(|cell| cell.step).collect();
    steps.dedup();
    steps
}

/// The verdict: for each path the first rate, the best, and what it took.
fn verdict(cells: &[Cell]) -> String {
    let mut parts = Vec::new();
    for (path, name) in [("veth", "over veth"), ("wan", "over the long path")] {
        let of_path: Vec<&Cell> = cells.iter().filter(|cell| cell.path == path).collect();
        let rates = of_path.iter().filter_map(|cell| Some((cell.gbit_per_s?.median, *cell)));
        let Some((best, cell)) = rates.max_by(|one, other| one.0.total_cmp(&other.0)) else {
            continue;
        };
        let fewest = of_path.iter().map(|cell| cell.streams).min().unwrap_or(1);
        let first = rate(&of_path, Step::Default, fewest).unwrap_or(0.0);
        parts.push(format!(
            "{name} {} with {} at MTU 1500, {} at best ({}, {})",
            units::rate(first),
            units::count(fewest.into(), "stream"),
            units::rate(best),
            cell.step.name(),
            units::count(cell.streams.into(), "stream")
        ));
    }
    if parts.is_empty() {
        return "Nothing could be measured.".to_owned();
    }
    let mut words = parts.join("; ") + ".";
    words[..1].make_ascii_uppercase();
    words
}

fn section(plan: &BenchTuning, title: String, cells: &[&Cell]) -> Section {
    let columns: Vec<String> =
        plan.streams.iter().map(|streams| units::count((*streams).into(), "stream")).collect();
    let mut heads = vec!["step"];
    heads.extend(columns.iter().map(String::as_str));
    heads.push("times default");
    let mut table = Table::new(format!("{title}, in Gbit/s"), 1, &heads);
    let mut settings = Table::new("What each step is", 2, &["step", "both hosts"]);
    let mut held = Table::new("What held the last interval back", heads.len() - 1, &{
        let mut heads = heads.clone();
        heads.pop();
        heads
    });
    let mut drawn = Vec::new();
    let fewest = plan.streams.iter().copied().min().unwrap_or(1);
    let base = rate(cells, Step::Default, fewest);
    for step in steps_of(cells) {
        let of_step: Vec<&&Cell> = cells.iter().filter(|cell| cell.step == step).collect();
        if let Some(refused) = of_step.iter().find_map(|cell| cell.refused.as_ref()) {
            table.row(vec![step.name().to_owned(), refused.clone()]);
            continue;
        }
        let rates: Vec<Option<f64>> =
            plan.streams.iter().map(|streams| rate(cells, step, *streams)).collect();
        let best = rates.iter().flatten().copied().fold(0.0, f64::max);
        let times = base.filter(|base| *base > 0.0).map(|base| format!("{:.1}", best / base));
        let mut row = vec![step.name().to_owned()];
        let number = |rate: &Option<f64>| rate.map_or_else(|| "-".into(), |r| format!("{r:.3}"));
        row.extend(rates.iter().map(number));
        row.push(times.unwrap_or_else(|| "-".to_owned()));
        table.row(row);
        let limits = of_step.iter().map(|cell| cell.limiting.replace('_', " "));
        held.row([step.name().to_owned()].into_iter().chain(limits).collect());
        if let Some(cell) = of_step.first() {
            settings.row(vec![step.name().to_owned(), cell.setting.clone()]);
        }
        let points = plan.streams.iter().zip(&rates);
        let points =
            points.filter_map(|(streams, rate)| Some((f64::from(*streams), (*rate)?))).collect();
        drawn.push(Line { label: step.name().to_owned(), points });
    }
    table.note("Times default: the best of a row beside the first of the first.");
    table.note(
        "Bytes that came out of the network, by the count of the receiver's interface, without \
         headers.",
    );
    let again: u64 = cells.iter().map(|cell| cell.retransmits).sum();
    table.note(format!("{again} segments went out again in the times that were measured."));
    let chart = lines(&title, "Gbit/s", Across::Streams, &drawn);
    Section { title, charts: vec![chart], tables: vec![table, held, settings], words: Vec::new() }
}

/// The study's figure 6: its rates beside ours, then each path of this bench.
fn figure(plan: &BenchTuning, cores: u32, cells: &[Cell], paths: Vec<Section>) -> StudyFigure {
    let veth: Vec<&Cell> = cells.iter().filter(|cell| cell.path == "veth").collect();
    let most_streams = plan.streams.iter().copied().max().unwrap_or(0);
    let found = MeasuredChange {
        default_one_stream: rate(&veth, Step::Default, 1),
        jumbo_one_stream: rate(&veth, Step::Jumbo, 1),
        jumbo_most_streams: rate(&veth, Step::Jumbo, most_streams),
        most_streams,
        cores,
    };
    let of_others = (veth.is_empty()).then_some("needs the path veth, which --only left out");
    let refused = veth.iter().find_map(|cell| cell.refused.as_deref()).or(of_others);
    let mut section = study(cells);
    for path in paths {
        section.words.push(format!("{}.", path.title));
        section.words.extend(path.words);
        section.charts.extend(path.charts);
        section.tables.extend(path.tables);
    }
    CHANGES.judged(judge_change(&found, refused), section)
}

/// The section of the study's rates that its text names, each beside its first one and beside this
/// bench's.
fn study(cells: &[Cell]) -> Section {
    let columns = ["step", "streams", "theirs Gbit/s", "times default", "ours veth", "ours wan"];
    let mut table = Table::new(NODE_TUNING, 1, &columns);
    let base = TUNED_RATES[0].gbit_per_s;
    for theirs in &TUNED_RATES {
        let step = if theirs.step == "default" { Step::Default } else { Step::Jumbo };
        let ours = |path: &str| {
            let cells: Vec<&Cell> = cells.iter().filter(|cell| cell.path == path).collect();
            let base = rate(&cells, Step::Default, 1).filter(|base| *base > 0.0);
            let of = rate(&cells, step, theirs.streams);
            let times = base.zip(of).map(|(base, of)| format!("{:.1} times", of / base));
            times.unwrap_or_else(|| "-".to_owned())
        };
        table.row(vec![
            theirs.step.to_owned(),
            theirs.streams.to_string(),
            format!("{:.0}", theirs.gbit_per_s),
            format!("{:.1}", theirs.gbit_per_s / base),
            ours("veth"),
            ours("wan"),
        ]);
    }
    table.note("With the governor `performance` as well, 4 streams filled their link.");
    table.note(
        "Segmentation offload is off until its own step over veth: without a wire the kernel hands \
         64 KiB across as one packet, whatever the MTU is.",
    );
    let words = vec![
        "Theirs is a network card of 100 Gbit/s between two hosts: the shape of a result, no \
         number to compare with."
            .to_owned(),
    ];
    Section {
        title: "The study's figure 6".to_owned(),
        words,
        tables: vec![table],
        charts: Vec::new(),
    }
}
