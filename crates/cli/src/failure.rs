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
    /// Whether the same command may help later, though nothing could start.
    pub may_pass: bool,
    /// Whether its words were printed before.
    pub is_told: bool,
}

impl Failure {
    /// This failure for a scheduler, which runs again what ended with 1, and never what ended with
    /// 2.
    #[must_use]
    pub fn of_one_of_many(self) -> Self {
        let status = if self.may_pass { ExitStatus::SomeFailed } else { self.status };
        Self { status, ..self }
    }

    /// Prints the error and returns the exit status.
    pub fn show(self, json: bool) -> ExitStatus {
        if !self.is_told {
            ui::print_to_stderr(&self.words);
            if json {
                ui::json::print_error(&self.problem);
            }
        }
        self.status
    }
}

/// Makes the failure of a problem that let nothing start.
impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let (status, words) = (ExitStatus::CouldNotStart, problem.to_string());
        Self { status, words, problem, may_pass: false, is_told: false }
    }
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        let status = match &error {
            TransferError::CouldNotStart(_) | TransferError::Unavailable(_) => {
                ExitStatus::CouldNotStart
            }
            _ => ExitStatus::SomeFailed,
        };
        let may_pass = !matches!(error, TransferError::CouldNotStart(_));
        let (words, problem) = (error.to_string(), error.problem());
        Self { status, words, problem, may_pass, is_told: false }
    }
}
