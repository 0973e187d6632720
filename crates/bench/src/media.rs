//! `haul bench media`: a crowd of viewers and each way of sending, and the study's other figures.
//!
//! Every method serves from a process of its own, so that processor time and memory are the
//! server's alone.

mod against;
mod bed;
mod combinations;
mod crowd;
mod crowd_tables;
mod demand;
pub mod request;
mod response;
mod server;
mod single_file;
mod tables;

use crate::{
    BenchError, Caller,
    media::request::{BenchMedia, MediaPart},
    series::Series,
    workshop::Workshop,
};
use anyhow::Result;
use bed::Bed;
use haul_report::results::Results;

/// Findings of all parts; a part that was not asked for is empty.
#[derive(Debug, Default)]
struct Found {
    crowd: Vec<crowd::Cell>,
    single: Vec<single_file::Cell>,
    response: Vec<response::Cell>,
    combinations: Vec<Series>,
    /// The disk that the films are on.
    disk: Option<bed::Disk>,
    /// Sentences about what could not be bound or made cold.
    notes: Vec<String>,
}

impl Found {
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// Takes a crowd of viewers to each way of sending, or to another server.
///
/// # Errors
/// If nothing could start, or it was interrupted.
pub fn run(plan: &BenchMedia, caller: &Caller) -> Result<Results, BenchError> {
    let workshop = Workshop::new(&plan.directory, caller)?;
    let results = match &plan.against {
        Some(other) => against::results(plan, other, &workshop),
        None => find(plan, &workshop).map(|found| tables::results(plan, &workshop, &found)),
    };
    // The films go before anything is shown, so that a reader who stops there leaves nothing.
    drop(workshop);
    results.map_err(|error| BenchError::broke_off("media", &error))
}

fn find(plan: &BenchMedia, workshop: &Workshop) -> Result<Found> {
    let mut found = Found::default();
    let has = |part| plan.parts.contains(&part);
    if has(MediaPart::Crowd) || has(MediaPart::SingleFile) || has(MediaPart::Response) {
        let bed = Bed::make(plan, workshop)?;
        bed.notes.iter().for_each(|note| found.note(note.clone()));
        if has(MediaPart::Crowd) {
            found.crowd = crowd::measure(plan, workshop, &bed)?;
        }
        if has(MediaPart::SingleFile) {
            found.single = single_file::measure(plan, workshop, &bed)?;
        }
        if has(MediaPart::Response) {
            found.response = response::measure(plan, workshop, &bed)?;
        }
        found.disk = Some(bed.disk.clone());
    }
    if has(MediaPart::Combinations) {
        found.combinations = combinations::measure(plan, workshop)?;
    }
    let of_cells = found.crowd.iter().flat_map(|cell| cell.notes.clone());
    let notes: Vec<String> = of_cells.collect();
    notes.into_iter().for_each(|note| found.note(note));
    Ok(found)
}
