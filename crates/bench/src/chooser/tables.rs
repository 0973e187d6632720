//! The verdicts of `haul bench chooser`: the choice, the best pair, and the ratio of both.

use crate::{
    chooser::{Cell, rate_of},
    requests::BenchChooser,
    transfers::PushReport,
};
use haul_report::{
    chart::{Bar, BarValue, bars},
    host_facts::HostFacts,
    html_page::Section,
    results::Results,
    spread::Spread,
    table::Table,
};
use serde::Serialize;
use std::collections::BTreeSet;

/// Share of the best pair's rate from which the choice is as good.
const AS_GOOD: f64 = 0.95;

/// A cell of the matrix as a line of JSON.
#[derive(Debug, Serialize)]
struct CellLine<'cells> {
    event: &'static str,
    table: &'static str,
    file_system: &'cells str,
    size: &'cells str,
    bytes: u64,
    source: &'static str,
    streams: u32,
    rounds: usize,
    /// Number of duels of the choice and the best pair, which the ratio is from.
    duels: usize,
    choice: Option<RatedPair>,
    best: Option<RatedPair>,
    /// The median of the rounds' ratios of the choice to the best pair; 1 if they are the same.
    ratio: Option<Spread>,
    within_5_percent: Option<bool>,
    because: Option<&'cells str>,
    pairs: Vec<PairLine<'cells>>,
    skipped: Option<&'cells str>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct RatedPair {
    send_engine: String,
    receive_engine: String,
    gb_per_s: Spread,
}

#[derive(Debug, Serialize)]
struct PairLine<'cells> {
    send_engine: &'static str,
    receive_engine: &'static str,
    rounds: usize,
    gb_per_s: Option<Spread>,
    left_out: bool,
    refused: Option<&'cells str>,
}

fn line(cell: &Cell) -> CellLine<'_> {
    let best = cell.best();
    let chosen = cell.choice.first();
    let duel_rate =
        |of: fn(&(PushReport, PushReport)) -> f64| Spread::of(cell.duels.iter().map(of));
    let choice_rate = duel_rate(|duel| duel.0.gb_per_s).or_else(|| rate_of(&cell.choice));
    let choice = chosen.zip(choice_rate).map(|(report, gb_per_s)| RatedPair {
        send_engine: report.send_engine.clone(),
        receive_engine: report.receive_engine.clone(),
        gb_per_s,
    });
    let ratio = best.filter(|_| choice.is_some()).and_then(|(best, _)| {
        if cell.chose(best) {
            return Spread::of([1.0]);
        }
        duel_rate(|(choice, best)| choice.gb_per_s / best.gb_per_s.max(f64::EPSILON))
    });
    CellLine {
        event: "cell",
        table: "chooser",
        file_system: &cell.file_system,
        size: &cell.size,
        bytes: cell.len_bytes,
        source: cell.residency.name(),
        streams: cell.streams,
        rounds: cell.choice.len(),
        duels: cell.duels.len(),
        best: best.map(|(pair, gb_per_s)| RatedPair {
            send_engine: pair.send.to_owned(),
            receive_engine: pair.receive.to_owned(),
            gb_per_s: duel_rate(|duel| duel.1.gb_per_s).unwrap_or(gb_per_s),
        }),
        choice,
        within_5_percent: ratio.map(|ratio| ratio.median >= AS_GOOD),
        ratio,
        because: chosen.map(|report| report.because.as_str()),
        pairs: cell
            .pairs
            .iter()
            .map(|pair| PairLine {
                send_engine: pair.send,
                receive_engine: pair.receive,
                rounds: pair.runs.len(),
                gb_per_s: rate_of(&pair.runs),
                left_out: pair.left_out,
                refused: pair.refused.as_deref(),
            })
            .collect(),
        skipped: cell.skipped.as_deref(),
    }
}

pub fn results(plan: &BenchChooser, facts: HostFacts, cells: &[Cell]) -> Results {
    let lines: Vec<CellLine<'_>> = cells.iter().map(line).collect();
    let judged = lines.iter().filter_map(|line| line.within_5_percent);
    let (good, all) = (judged.clone().filter(|good| *good).count(), judged.count());
    let words = vec![
        format!(
            "Real transfers with the default protection, durable at the end, up to {} rounds; four \
             times as many of short files. In each round the choice and the pairs take turns; \
             pairs below 0.8 of the best in the first are ended early and not repeated. The best \
             pair has the highest median. As it may be the luckiest, it and the choice then take \
             turns alone: their rates and the ratio, the median of the ratios within a round, are \
             of these rounds. It is 1 where the choice is the best pair.",
            plan.rounds
        ),
        format!("In {good} of {all} cells the choice is within 5 % of the best pair."),
    ];
    let mut results = Results {
        title: "haul bench chooser".to_owned(),
        verdict: Vec::new(),
        words,
        facts,
        sections: vec![Section {
            title: "The choice and the best pair".to_owned(),
            words: Vec::new(),
            charts: vec![chart(&lines)],
            tables: vec![table(&lines), refusals(&lines)],
        }],
        figures: Vec::new(),
        studies: Vec::new(),
        lines: Vec::new(),
        measured: all > 0,
    };
    results.sections[0].tables.retain(|table| !table.rows.is_empty());
    for line in &lines {
        results.line(line);
    }
    results
}

fn table(lines: &[CellLine<'_>]) -> Table {
    let columns = [
        "file system",
        "size",
        "source",
        "streams",
        "the choice",
        "the best pair",
        "choice, GB/s",
        "best, GB/s",
        "ratio",
        "rounds",
        "within 5 %",
    ];
    let mut table = Table::new("Choices", 6, &columns);
    for line in lines {
        let mut row = vec![line.file_system.to_owned(), line.size.to_owned()];
        match (&line.choice, &line.best, line.ratio) {
            (Some(choice), Some(best), Some(ratio)) => {
                row.extend([line.source.to_owned(), line.streams.to_string()]);
                row.extend([choice, best].map(pair_name));
                row.extend([choice, best].map(|pair| format!("{:.2}", pair.gb_per_s.median)));
                row.extend([format!("{:.2}", ratio.median), line.rounds.to_string()]);
                row.push(if line.within_5_percent == Some(true) { "yes" } else { "no" }.to_owned());
            }
            _ => {
                if line.streams > 0 {
                    row.extend([line.source.to_owned(), line.streams.to_string()]);
                }
                row.push(line.skipped.unwrap_or("no pair could be measured").to_owned());
            }
        }
        table.row(row);
    }
    table
}

fn pair_name(pair: &RatedPair) -> String {
    format!("{} to {}", pair.send_engine, pair.receive_engine)
}

/// A table of each reason to refuse, once for each file system; reasons that differ in numbers
/// alone are one.
fn refusals(lines: &[CellLine<'_>]) -> Table {
    let mut table = Table::new("Pairs that refused", 2, &["file system", "why"]);
    let mut seen = BTreeSet::new();
    for line in lines {
        for why in line.pairs.iter().filter_map(|pair| pair.refused) {
            let without_numbers = why.replace(|letter: char| letter.is_ascii_digit(), "");
            if seen.insert((line.file_system, without_numbers)) {
                table.row(vec![line.file_system.to_owned(), why.to_owned()]);
            }
        }
    }
    table
}

fn chart(lines: &[CellLine<'_>]) -> String {
    let drawn: Vec<Bar> = lines
        .iter()
        .filter(|line| line.ratio.is_some())
        .map(|line| {
            let CellLine { file_system, size, source, streams, .. } = line;
            let value = |pair: &RatedPair| {
                let Spread { median, lowest, highest } = pair.gb_per_s;
                BarValue { value: median, lowest, highest }
            };
            Bar {
                label: format!("{file_system}, {size}, {source}, {streams}"),
                values: [&line.choice, &line.best].map(|pair| pair.as_ref().map(value)).into(),
            }
        })
        .collect();
    bars("The choice and the best pair", "GB/s (10^9 bytes)", &["choice", "best pair"], &drawn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{chooser::PairRuns, workshop::Residency};

    fn runs(rates: &[f64]) -> Vec<PushReport> {
        let report = |rate: &f64| PushReport {
            gb_per_s: *rate,
            send_engine: "sendfile".into(),
            receive_engine: "splice".into(),
            ..PushReport::default()
        };
        rates.iter().map(report).collect()
    }

    fn pair(send: &'static str, receive: &'static str, rates: &[f64]) -> PairRuns {
        PairRuns { send, receive, runs: runs(rates), refused: None, left_out: false }
    }

    fn cell(pairs: Vec<PairRuns>) -> Cell {
        Cell {
            file_system: "ext4".into(),
            size: "1.00 GiB".into(),
            len_bytes: 1 << 30,
            residency: Residency::Warm,
            streams: 1,
            choice: runs(&[0.9, 1.8, 2.7]),
            pairs,
            duels: runs(&[0.9, 1.8, 2.7]).into_iter().zip(runs(&[1.0, 2.0, 3.0])).collect(),
            skipped: None,
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine became faster from round to round; the choice had 0.9 of the best in each.
        let lucky = pair("sendfile", "io-uring", &[1.5, 2.5, 3.5]);
        let found = cell(vec![pair("mmap", "mmap", &[0.5, 0.5, 0.5]), lucky]);
        let line = line(&found);
        let ratio = line.ratio.unwrap();
        assert!((ratio.median - 0.9).abs() < 1e-9 && (ratio.lowest - 0.9).abs() < 1e-9);
        assert_eq!(line.within_5_percent, Some(false));
        assert_eq!(line.best.unwrap().receive_engine, "io-uring");
    }

    #[test]
    fn a_choice_that_is_the_best_pair_is_as_good_as_it_however_lucky_that_was() {
        let found = cell(vec![pair("sendfile", "splice", &[1.0, 2.0, 3.0])]);
        let line = line(&found);
        assert_eq!((line.ratio.unwrap().median, line.within_5_percent), (1.0, Some(true)));
    }

    #[test]
    fn a_pair_that_was_left_out_or_refused_is_not_the_best() {
        let mut lucky = pair("mmap", "mmap", &[9.0]);
        lucky.left_out = true;
        let mut refused = pair("direct", "direct", &[9.0]);
        refused.refused = Some("needs O_DIRECT".to_owned());
        let found = cell(vec![lucky, refused, pair("sendfile", "mmap", &[0.9, 1.8, 2.7])]);
        assert_eq!(line(&found).best.unwrap().receive_engine, "mmap");
    }
}
