//! The study's figure 8: the processor time of reading one file whole.

use super::{
    bed::{Bed, file_name},
    server::MediaServer,
};
use crate::{
    media::request::BenchMedia,
    workshop::{Residency, Workshop},
};
use anyhow::{Context, Result};
use haul_media::viewers::single::take;
use haul_report::spread::Spread;
use serde::Serialize;
use std::{thread, time::Duration};

/// Longest time without a byte: the server is of no use then.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Time after the last byte in which the server still closes the connection.
const SETTLE: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, Serialize)]
pub(super) struct Cell {
    event: &'static str,
    table: &'static str,
    pub method: String,
    pub source: Residency,
    pub bytes: u64,
    pub rounds: usize,
    /// Processor seconds of the server in user and kernel mode for 10^9 bytes.
    pub cpu_s_per_gb: Option<Spread>,
    pub seconds: Option<Spread>,
    pub refused: Option<String>,
    #[serde(skip)]
    taken: Vec<(f64, f64)>,
}

pub(super) fn measure(plan: &BenchMedia, workshop: &Workshop, bed: &Bed) -> Result<Vec<Cell>> {
    let name = file_name(plan.file_bytes);
    let mut cells = Vec::new();
    for variant in &plan.variants {
        for source in [Residency::Warm, Residency::Cold] {
            cells.push(Cell {
                event: "cell",
                table: "single-file",
                method: variant.name(),
                source,
                bytes: plan.file_bytes,
                rounds: 0,
                cpu_s_per_gb: None,
                seconds: None,
                refused: None,
                taken: Vec::new(),
            });
        }
    }
    let steps = workshop.steps(cells.len() * plan.small_rounds as usize);
    for _ in 0..plan.small_rounds {
        for (at, cell) in cells.iter_mut().enumerate() {
            steps.begin(&format!("one file, {}, {}", cell.method, cell.source.name()));
            workshop.go_on()?;
            if cell.refused.is_some() {
                continue;
            }
            cell.refused = bed.bring(workshop, &name, cell.source)?;
            if cell.refused.is_some() {
                continue;
            }
            let variant = plan.variants[at / 2];
            let period = plan.crowd.period;
            let mut notes = Vec::new();
            let server = MediaServer::start(workshop, bed, variant, period, None, &mut notes);
            match server.and_then(|server| one(workshop, &server, &name)) {
                Ok(taken) => cell.taken.push(taken),
                Err(error) => cell.refused = Some(format!("{error:#}")),
            }
        }
    }
    for cell in &mut cells {
        cell.rounds = cell.taken.len();
        let gigabytes = plan.file_bytes as f64 / 1e9;
        cell.cpu_s_per_gb = Spread::of(cell.taken.iter().map(|taken| taken.0 / gigabytes));
        cell.seconds = Spread::of(cell.taken.iter().map(|taken| taken.1));
    }
    Ok(cells)
}

/// Processor seconds of the server and wall seconds of one file.
fn one(workshop: &Workshop, server: &MediaServer, name: &str) -> Result<(f64, f64)> {
    let before = server.used()?;
    let taken = take(server.address, &format!("/{name}"), PATIENCE);
    workshop.go_on()?;
    let taken = taken.context("the file did not come")?;
    thread::sleep(SETTLE);
    let used = server.used()?.since(before);
    Ok((used.cpu_s, taken.whole.as_secs_f64()))
}
