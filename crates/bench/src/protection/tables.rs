//! Tables and verdict of `haul bench protection`.

use super::{Cell, Found, Target, Way};
use crate::transfers::PushReport;
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

/// Share of the bare cipher's rate that `private` by this program is to reach.
const SHARE_WANTED: f64 = 0.8;

/// A cell as a line for programs.
#[derive(Serialize)]
struct CellLine<'a> {
    event: &'static str,
    table: &'static str,
    protection: &'static str,
    encrypted_by: &'static str,
    target: &'static str,
    gb_per_s: Option<Spread>,
    rounds_gb_per_s: Vec<f64>,
    send_cpu_s_per_gb: Option<f64>,
    receive_cpu_s_per_gb: Option<f64>,
    copies_per_byte: Option<f64>,
    /// The median rate, in shares of the bare cipher's.
    of_bare: Option<f64>,
    engines: Option<String>,
    refused: Option<&'a str>,
}

/// The target of the bench, and how far it was reached.
#[derive(Serialize)]
struct TargetLine {
    event: &'static str,
    needs: f64,
    found: f64,
    /// Share that processors allow which do the work of `clear` and the cipher's, both sides.
    allowed: f64,
    met: bool,
}

impl Cell {
    fn median(&self, figure: impl Fn(&PushReport) -> f64) -> Option<f64> {
        Spread::of(self.runs.iter().map(figure)).map(|spread| spread.median)
    }

    fn rate(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.gb_per_s))
    }

    fn line(&self, bare: f64) -> CellLine<'_> {
        let engines =
            self.runs.first().map(|run| [&*run.send_engine, &run.receive_engine].join(" to "));
        CellLine {
            event: "cell",
            table: "protection",
            protection: self.way.protection(),
            encrypted_by: self.way.encrypted_by(),
            target: self.target.name(),
            gb_per_s: self.rate(),
            rounds_gb_per_s: self.runs.iter().map(|run| run.gb_per_s).collect(),
            send_cpu_s_per_gb: self.median(|run| run.send_cpu_s_per_gb),
            receive_cpu_s_per_gb: self.median(|run| run.receive_cpu_s_per_gb),
            copies_per_byte: self
                .median(|run| run.copied_bytes as f64 / run.moved_bytes.max(1) as f64),
            of_bare: self.rate().map(|rate| rate.median / bare),
            engines,
            refused: self.refused.as_deref(),
        }
    }
}

impl Found {
    fn cell(&self, way: Way, target: Target) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.way == way && cell.target == target)
    }

    /// Median rates of the bare cipher: sealing, opening.
    fn bare(&self) -> Option<(Spread, Spread)> {
        let seal = Spread::of(self.bare.iter().map(|rates| rates.seal_gb_per_s))?;
        Some((seal, Spread::of(self.bare.iter().map(|rates| rates.open_gb_per_s))?))
    }

    /// The target's line; `None` where it was not measured.
    fn target(&self) -> Option<TargetLine> {
        let (seal, open) = self.bare()?;
        let private = self.cell(Way::PrivateByProcess, Target::Null)?.rate()?.median;
        // A transfer in the clear that copies on both sides as TLS in a process must.
        let clear = self.cell(Way::Clear, Target::Null)?;
        let clear_s_per_gb = clear.median(|run| run.send_cpu_s_per_gb)?
            + clear.median(|run| run.receive_cpu_s_per_gb)?;
        let cipher_s_per_gb = 1.0 / seal.median + 1.0 / open.median;
        let allowed_gb_per_s = f64::from(self.cores) / (clear_s_per_gb + cipher_s_per_gb);
        let (needs, found) = (SHARE_WANTED, private / seal.median);
        let allowed = allowed_gb_per_s / seal.median;
        Some(TargetLine { event: "target", needs, found, allowed, met: found >= needs })
    }
}

/// Results of the bench.
pub fn results(found: &Found, facts: HostFacts) -> Results {
    let bare = found.bare().map_or(f64::NAN, |(seal, _)| seal.median);
    let lines: Vec<CellLine<'_>> = found.cells.iter().map(|cell| cell.line(bare)).collect();
    let mut results = Results {
        title: "haul bench protection".to_owned(),
        verdict: found.target().iter().map(verdict).collect(),
        words: vec![format!(
            "{} out of the page cache, {} interleaved: the median, and the lowest and highest. \
             Both sides share this host's processors. A file is synced at the end, which counts. \
             The bare cipher is AES-128-GCM on 16 records of 16 KiB in a core's cache, by one \
             thread. A GB is 10^9 bytes.",
            units::bytes(found.len_bytes),
            units::count(u64::from(found.rounds), "round"),
        )],
        facts,
        sections: vec![Section {
            title: "Each protection".to_owned(),
            charts: charts(&lines),
            tables: [rates(&lines), rounds(&lines, found)]
                .into_iter()
                .chain(bare_table(found))
                .collect(),
            ..Section::default()
        }],
        figures: Vec::new(),
        studies: Vec::new(),
        lines: Vec::new(),
        measured: found.cells.iter().any(|cell| !cell.runs.is_empty()),
    };
    lines.iter().for_each(|line| results.line(line));
    for rates in &found.bare {
        let of_both = serde_json::json!({"event": "cell", "table": "cipher",
            "seal_gb_per_s": rates.seal_gb_per_s, "open_gb_per_s": rates.open_gb_per_s});
        results.line(&of_both);
    }
    found.target().iter().for_each(|target| results.line(target));
    results
}

fn verdict(target: &TargetLine) -> String {
    let TargetLine { needs, found, allowed, met, .. } = target;
    let word = if *met { "met" } else { "missed" };
    format!(
        "private by this program, to null: at least {needs:.1} of the bare cipher's rate needed, \
         {found:.2} found: {word}. Processors that do the work of clear and the cipher's, on both \
         sides, allow {allowed:.2}."
    )
}

fn or_dash(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

fn charts(lines: &[CellLine<'_>]) -> Vec<String> {
    let measured = lines.iter().filter(|line| line.gb_per_s.is_some());
    let label = |line: &CellLine<'_>| {
        let CellLine { protection, encrypted_by, target, .. } = line;
        match *encrypted_by {
            "nobody" => format!("{protection}, to {target}"),
            by => format!("{protection} by {by}, to {target}"),
        }
    };
    let rate = |spread: Spread| BarValue {
        value: spread.median,
        lowest: spread.lowest,
        highest: spread.highest,
    };
    let rates = measured
        .clone()
        .map(|line| Bar { label: label(line), values: vec![line.gb_per_s.map(rate)] });
    let costs = measured.map(|line| Bar {
        label: label(line),
        values: [line.send_cpu_s_per_gb, line.receive_cpu_s_per_gb]
            .map(|cost| cost.map(BarValue::from))
            .into(),
    });
    let (rates, costs): (Vec<_>, Vec<_>) = (rates.collect(), costs.collect());
    vec![
        bars("Rate", "GB/s (10^9 bytes)", &["rate"], &rates),
        bars("Processor time", "CPU s/GB", &["sends", "receives"], &costs),
    ]
}

fn rates(lines: &[CellLine<'_>]) -> Table {
    let columns = [
        "protection",
        "encrypted by",
        "to",
        "engines",
        "GB/s",
        "lowest",
        "highest",
        "CPU s/GB send",
        "receive",
        "copies",
        "of the bare cipher",
    ];
    let mut table = Table::new("Rates and costs", 4, &columns);
    for line in lines {
        let mut cells =
            [line.protection, line.encrypted_by, line.target].map(str::to_owned).to_vec();
        let Some(rate) = line.gb_per_s else {
            cells.push(line.refused.unwrap_or("no time was left").to_owned());
            table.row(cells);
            continue;
        };
        cells.push(line.engines.clone().unwrap_or_default());
        cells.extend([rate.median, rate.lowest, rate.highest].map(|rate| format!("{rate:.2}")));
        cells.push(or_dash(line.send_cpu_s_per_gb, 3));
        cells.push(or_dash(line.receive_cpu_s_per_gb, 3));
        cells.push(or_dash(line.copies_per_byte, 2));
        cells.push(or_dash(line.of_bare, 2));
        table.row(cells);
    }
    table
}

fn rounds(lines: &[CellLine<'_>], found: &Found) -> Table {
    let numbers: Vec<String> = (1..=found.bare.len()).map(|round| round.to_string()).collect();
    let columns = ["protection", "encrypted by", "to"].into_iter();
    let columns: Vec<&str> = columns.chain(numbers.iter().map(String::as_str)).collect();
    let mut table = Table::new("Each round, GB/s", 3, &columns);
    for line in lines.iter().filter(|line| !line.rounds_gb_per_s.is_empty()) {
        let mut cells =
            [line.protection, line.encrypted_by, line.target].map(str::to_owned).to_vec();
        cells.extend(line.rounds_gb_per_s.iter().map(|rate| format!("{rate:.2}")));
        table.row(cells);
    }
    table
}

fn bare_table(found: &Found) -> Option<Table> {
    let (seal, open) = found.bare()?;
    let mut table = Table::new("The bare cipher, GB/s", 1, &["", "median", "lowest", "highest"]);
    for (name, rate) in [("AES-128-GCM, sealing", seal), ("AES-128-GCM, opening", open)] {
        let rates = [rate.median, rate.lowest, rate.highest].map(|rate| format!("{rate:.2}"));
        table.row([name.to_owned()].into_iter().chain(rates).collect());
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protection::cipher::CipherRates;

    fn cell(way: Way, rates: &[f64], cpu: (f64, f64)) -> Cell {
        let run = |rate: &f64| PushReport {
            gb_per_s: *rate,
            send_cpu_s_per_gb: cpu.0,
            receive_cpu_s_per_gb: cpu.1,
            copied_bytes: 20,
            moved_bytes: 10,
            ..PushReport::default()
        };
        let runs = rates.iter().map(run).collect();
        Cell { way, target: Target::Null, engine: None, runs, refused: None }
    }

    fn found(private: &[f64]) -> Found {
        Found {
            len_bytes: 1,
            rounds: 3,
            cores: 2,
            cells: vec![
                cell(Way::Clear, &[3.0], (0.25, 0.25)),
                cell(Way::PrivateByProcess, private, (0.4, 0.5)),
            ],
            bare: vec![CipherRates { seal_gb_per_s: 4.0, open_gb_per_s: 4.0 }],
        }
    }

    #[test]
    fn the_verdict_is_of_medians_and_says_what_the_processors_allow() {
        let target = found(&[1.0, 2.0, 9.0]).target().unwrap();
        assert_eq!((target.found, target.met), (0.5, false));
        // Two cores, half a second for clear and half a second for the cipher, a GB.
        assert_eq!(target.allowed, 0.5);
        assert!(verdict(&target).ends_with(
            "0.50 found: missed. Processors that do the work of \
             clear and the cipher's, on both sides, allow 0.50."
        ));
        assert!(found(&[3.2]).target().unwrap().met);
        assert!(found(&[]).target().is_none());
    }

    #[test]
    fn a_line_has_the_figures_of_its_rounds_or_why_there_are_none() {
        let one = cell(Way::Safe, &[1.0, 3.0], (0.1, 0.2));
        let line = serde_json::to_value(one.line(4.0)).unwrap();
        assert_eq!((&line["of_bare"], &line["copies_per_byte"]), (&0.5.into(), &2.0.into()));
        assert_eq!(line["rounds_gb_per_s"], serde_json::json!([1.0, 3.0]));
        let none = Cell { runs: Vec::new(), refused: Some("needs it".into()), ..one };
        let line = serde_json::to_value(none.line(4.0)).unwrap();
        assert_eq!((&line["gb_per_s"], &line["refused"]), (&().into(), &"needs it".into()));
    }
}
