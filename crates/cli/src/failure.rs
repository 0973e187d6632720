//! How a command ends: its exit status, and an error in words and as JSON.

use crate::ui;
use haul_transfer::{TransferError, problem::Problem};

/// What the exit status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitStatus {
    /// All done and verified.
    AllDone = 0,
    /// Some files failed, or the transfer was broken midway.
    SomeFailed = 1,
    /// Nothing could start.
    CouldNotStart = 2,
}

/// Why a command ended before its work was done.
#[derive(Debug)]
pub struct Failure {
    pub status: ExitStatus,
    /// For standard error.
    pub words: String,
    /// For `--json`.
    pub problem: Problem,
}

impl Failure {
    /// Prints the error and returns the exit status.
    pub fn show(self, json: bool) -> ExitStatus {
        ui::print_to_stderr(&self.words);
        if json {
            ui::json::print_error(&self.problem);
        }
        self.status
    }
}

/// A problem that let nothing start.
impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self { status: ExitStatus::CouldNotStart, words: problem.to_string(), problem }
    }
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        let status = match &error {
            TransferError::CouldNotStart(_) => ExitStatus::CouldNotStart,
            TransferError::Broken(_) | TransferError::Interrupted => ExitStatus::SomeFailed,
        };
        Self { status, words: error.to_string(), problem: error.problem() }
    }
}
