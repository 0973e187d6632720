//! The commands, one file each. They take checked requests and print what the library tells.

pub mod demo;
pub mod generate_docs;
pub mod pull;
pub mod push;
pub mod serve;
mod serve_log;
pub mod token;
pub mod token_source;
pub mod verify;

use crate::{
    failure::{ExitStatus, Failure},
    ui::Screen,
};
use haul_transfer::{Report, TransferError};

/// Shows the end of a transfer; its exit status.
fn finish(
    mut screen: Box<dyn Screen>,
    result: Result<Report, TransferError>,
) -> Result<ExitStatus, Failure> {
    screen.finish();
    let report = result?;
    screen.report(&report);
    let all_done = report.ok && report.files.failed == 0;
    Ok(if all_done { ExitStatus::AllDone } else { ExitStatus::SomeFailed })
}
