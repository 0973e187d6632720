//! The study's figure 9: time for files of different sizes, from the request to the last byte.

use super::{
    bed::{Bed, file_name},
    server::MediaServer,
    single_file::PATIENCE,
};
use crate::{
    media::request::BenchMedia,
    workshop::{Residency, Workshop},
};
use anyhow::{Context, Result};
use haul_media::viewers::single::take;
use haul_report::spread::Spread;
use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Cell {
    event: &'static str,
    table: &'static str,
    pub method: String,
    pub source: Residency,
    pub bytes: u64,
    pub rounds: usize,
    pub whole_ms: Option<Spread>,
    pub first_byte_ms: Option<Spread>,
    pub refused: Option<String>,
}

pub(super) fn measure(plan: &BenchMedia, workshop: &Workshop, bed: &Bed) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    let steps = workshop.steps(plan.variants.len() * plan.sizes.len());
    for variant in &plan.variants {
        let server =
            MediaServer::start(workshop, bed, *variant, plan.crowd.period, None, &mut Vec::new());
        workshop.go_on()?;
        for &bytes in &plan.sizes {
            steps.begin(&format!("response, {}", variant.name()));
            for source in [Residency::Warm, Residency::Cold] {
                let mut cell = Cell {
                    event: "cell",
                    table: "response",
                    method: variant.name(),
                    source,
                    bytes,
                    rounds: 0,
                    whole_ms: None,
                    first_byte_ms: None,
                    refused: None,
                };
                match &server {
                    Ok(server) => fill(plan, workshop, bed, server, &mut cell)?,
                    Err(error) => cell.refused = Some(format!("{error:#}")),
                }
                cells.push(cell);
            }
        }
    }
    Ok(cells)
}

fn fill(
    plan: &BenchMedia,
    workshop: &Workshop,
    bed: &Bed,
    server: &MediaServer,
    cell: &mut Cell,
) -> Result<()> {
    let name = file_name(cell.bytes);
    let (mut whole_ms, mut first_byte_ms) = (Vec::new(), Vec::new());
    for _ in 0..plan.small_rounds {
        workshop.go_on()?;
        cell.refused = bed.bring(workshop, &name, cell.source)?;
        if cell.refused.is_some() {
            return Ok(());
        }
        match take(server.address, &format!("/{name}"), PATIENCE).context("it did not come") {
            Ok(taken) => {
                whole_ms.push(taken.whole.as_secs_f64() * 1e3);
                first_byte_ms.push(taken.first_byte.as_secs_f64() * 1e3);
            }
            Err(error) => {
                cell.refused = Some(format!("{error:#}"));
                return Ok(());
            }
        }
    }
    cell.rounds = whole_ms.len();
    cell.whole_ms = Spread::of(whole_ms);
    cell.first_byte_ms = Spread::of(first_byte_ms);
    Ok(())
}
