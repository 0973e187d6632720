//! The commands of `haul`, one file each.
//!
//! They take checked requests and print what the library tells.

pub mod bench;
pub mod copy;
pub mod demo;
pub mod ls;
pub mod media;
mod other_side;
pub mod plan;
pub mod probe;
pub mod pull;
pub mod push;
pub mod report;
mod results;
mod run_log;
pub mod serve;
mod serve_log;
pub mod token;
pub mod token_source;
pub mod tune;
pub mod verify;

use crate::{
    failure::{ExitStatus, Failure},
    ui::Screen,
};
use haul_transfer::{Event, Report, TransferError};

/// Shows a transfer from its first event to its end; returns its exit status.
fn show(
    mut screen: Box<dyn Screen>,
    transfer: impl FnOnce(&mut dyn FnMut(Event)) -> Result<Report, TransferError>,
) -> Result<ExitStatus, Failure> {
    let mut first_error = None;
    let result = transfer(&mut |event| {
        if let Event::Error(problem) = &event {
            first_error.get_or_insert_with(|| problem.to_string());
        }
        screen.event(&event);
    });
    screen.finish();
    let report = match result {
        // None of the sources could be offered, which was said of each.
        Err(error) if first_error == Some(error.to_string()) => {
            return Err(Failure { is_told: true, ..Failure::from(error) });
        }
        result => result?,
    };
    screen.report(&report);
    let all_done = report.ok && report.files.failed == 0;
    Ok(if all_done { ExitStatus::AllDone } else { ExitStatus::SomeFailed })
}
