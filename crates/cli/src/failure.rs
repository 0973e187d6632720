//! The end of a command: its exit status, and its error in words and as JSON.

use crate::ui;
use haul_transfer::{Problem, TransferError};

/// The exit statuses of haul.
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

/// The reason why a command ended before its work was done.
#[derive(Debug)]
pub struct Failure {
    pub status: ExitStatus,
    /// The error in words for standard error.
    pub words: String,
    /// The error as an object for `--json`.
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

/// Makes the failure of a problem that let nothing start.
impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self { status: ExitStatus::CouldNotStart, words: problem.to_string(), problem }
    }
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        let status = match &error {
            TransferError::CouldNotStart(_) => ExitStatus::CouldNotStart,
            _ => ExitStatus::SomeFailed,
        };
        Self { status, words: error.to_string(), problem: error.problem() }
    }
}
