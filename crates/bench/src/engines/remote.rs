//! `haul bench engines URL`: the engines against a server elsewhere, by real transfers.
//!
//! Nothing is protected and no digest is computed, so that the engines and the network are all that
//! is measured. Zeros from memory show what the network can do, a file what the source can.

use crate::{
    host_facts,
    requests::BenchEngines,
    transfers::{Push, PushReport, Pushed, PushedWith},
    workshop::{Residency, SOURCE, Workshop},
};
use anyhow::Result;
use haul_report::{
    chart::{Bar, BarValue, bars},
    host_facts::{BenchWire, HostFacts},
    html_page::Section,
    results::Results,
    spread::Spread,
    table::Table,
    units,
};
use haul_transfer::HaulUrl;
use serde::Serialize;
use std::time::Instant;

const NULL: &str = "null:";
const DISCARD: &str = "discard";

/// The measurement of one source, pair of engines and target.
#[derive(Debug, Serialize)]
struct Cell<'plan> {
    event: &'static str,
    table: &'static str,
    source: &'static str,
    send_engine: &'static str,
    receive_engine: &'static str,
    target: &'plan str,
    bytes: u64,
    streams: u32,
    rounds: usize,
    gb_per_s: Option<Spread>,
    send_cpu_s_per_gb: Option<f64>,
    receive_cpu_s_per_gb: Option<f64>,
    copies_per_byte: Option<f64>,
    refused: Option<String>,
    #[serde(skip)]
    runs: Vec<PushReport>,
}

pub fn results(plan: &BenchEngines, server: &HaulUrl, workshop: &Workshop) -> Result<Results> {
    workshop.make_source(plan.len_bytes, 0)?;
    let mut cells = cells(plan);
    measure(plan, workshop, server, &mut cells)?;
    for cell in &mut cells {
        cell.sum_up();
    }
    let facts = host_facts::of_workshop("engines", workshop, BenchWire::to(&server.server()));
    Ok(shown(plan, server, facts, &cells))
}

fn cells(plan: &BenchEngines) -> Vec<Cell<'_>> {
    let mut cells = Vec::new();
    // As many streams as the first number says: to a server elsewhere the whole matrix is long.
    let streams = plan.streams.first().copied().unwrap_or(1);
    for source in ["zero", "file"] {
        for send in &plan.senders {
            for receive in &plan.receivers {
                let target = match (&plan.target, receive.name) {
                    (_, DISCARD) => NULL,
                    (Some(path), _) => path,
                    (None, _) => continue,
                };
                cells.push(Cell {
                    event: "cell",
                    table: "remote",
                    source,
                    send_engine: send.name,
                    receive_engine: receive.name,
                    target,
                    bytes: plan.len_bytes,
                    streams,
                    rounds: 0,
                    gb_per_s: None,
                    send_cpu_s_per_gb: None,
                    receive_cpu_s_per_gb: None,
                    copies_per_byte: None,
                    refused: None,
                    runs: Vec::new(),
                });
            }
        }
    }
    cells
}

fn measure(
    plan: &BenchEngines,
    workshop: &Workshop,
    server: &HaulUrl,
    cells: &mut [Cell<'_>],
) -> Result<()> {
    let started = Instant::now();
    let steps = workshop.steps(cells.len() * plan.rounds as usize);
    let zeros = format!("zero:{}", plan.len_bytes);
    for round in 0..plan.rounds {
        for cell in cells.iter_mut().filter(|cell| cell.refused.is_none()) {
            if round > 0 && started.elapsed() > plan.time_max {
                return Ok(());
            }
            steps.begin(&format!("{} to {}", cell.send_engine, cell.receive_engine));
            let push = Push {
                source: if cell.source == "zero" { &zeros } else { SOURCE },
                len_bytes: cell.bytes,
                server,
                target: cell.target,
                send_engine: Some(cell.send_engine),
                receive_engine: Some(cell.receive_engine),
                streams: Some(cell.streams),
                protection: PushedWith::Nothing,
                worth_waiting: None,
            };
            workshop.bring(&workshop.source(), plan.len_bytes, Residency::Warm)?;
            match push.run(workshop, &[])? {
                Pushed::Done(report) => cell.runs.push(*report),
                Pushed::Refused(why) => cell.refused = Some(why),
                Pushed::TooSlow => {}
            }
        }
    }
    Ok(())
}

impl Cell<'_> {
    fn sum_up(&mut self) {
        let spread = |value: fn(&PushReport) -> f64| Spread::of(self.runs.iter().map(value));
        let median = |value| spread(value).map(|spread| spread.median);
        let copies = |run: &PushReport| run.copied_bytes as f64 / run.moved_bytes.max(1) as f64;
        self.rounds = self.runs.len();
        self.gb_per_s = spread(|run| run.gb_per_s);
        self.send_cpu_s_per_gb = median(|run| run.send_cpu_s_per_gb);
        self.receive_cpu_s_per_gb = median(|run| run.receive_cpu_s_per_gb);
        self.copies_per_byte = median(copies);
    }

    fn row(&self) -> Vec<String> {
        let mut row: Vec<String> =
            [self.source, self.send_engine, self.receive_engine, self.target]
                .map(str::to_owned)
                .into();
        let Some(rate) = self.gb_per_s else {
            row.push(self.refused.clone().unwrap_or_else(|| "no time was left".to_owned()));
            return row;
        };
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        row.extend([rate.median, rate.lowest, rate.highest].map(|rate| number(Some(rate), 2)));
        row.extend([self.send_cpu_s_per_gb, self.receive_cpu_s_per_gb].map(|cpu| number(cpu, 3)));
        row.push(number(self.copies_per_byte, 2));
        row
    }
}

fn shown(plan: &BenchEngines, server: &HaulUrl, facts: HostFacts, cells: &[Cell<'_>]) -> Results {
    let columns = [
        "source",
        "send",
        "receive",
        "into",
        "GB/s",
        "lowest",
        "highest",
        "CPU s/GB send",
        "receive",
        "copies",
    ];
    let mut table = Table::new("Real transfers, clear and without digest", 4, &columns);
    for cell in cells {
        table.row(cell.row());
    }
    table.note("Context switches and system calls are not in the reports of real transfers.");
    if let Some(target) = &plan.target {
        table.note(format!("The file {target} is still at the server."));
    }
    let label = |cell: &&Cell<'_>| {
        format!("{}: {} to {}", cell.source, cell.send_engine, cell.receive_engine)
    };
    let measured = || cells.iter().filter(|cell| cell.gb_per_s.is_some());
    let rates = measured().map(|cell| Bar {
        label: label(&cell),
        values: vec![cell.gb_per_s.map(|rate| BarValue {
            value: rate.median,
            lowest: rate.lowest,
            highest: rate.highest,
        })],
    });
    let costs = measured().map(|cell| Bar {
        label: label(&cell),
        values: [cell.send_cpu_s_per_gb, cell.receive_cpu_s_per_gb]
            .map(|cost| cost.map(BarValue::from))
            .into(),
    });
    let charts = vec![
        bars("Rate", "GB/s (10^9 bytes)", &["rate"], &rates.collect::<Vec<_>>()),
        bars(
            "Processor time",
            "CPU s/GB",
            &["sending side", "receiving side"],
            &costs.collect::<Vec<_>>(),
        ),
    ];
    let title = format!("To {}", server.server());
    let mut results = Results {
        title: "haul bench engines, to a server".to_owned(),
        verdict: Vec::new(),
        words: vec![format!(
            "{} each, warm, by haul push with each engine forced, from connecting to the end.",
            units::bytes(plan.len_bytes)
        )],
        facts,
        sections: vec![Section { title, charts, tables: vec![table], words: Vec::new() }],
        figures: Vec::new(),
        studies: Vec::new(),
        lines: Vec::new(),
        measured: measured().next().is_some(),
    };
    for cell in cells {
        results.line(cell);
    }
    results
}
