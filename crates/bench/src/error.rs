//! Errors of benches: the reasons why one came to nothing.

use haul_transfer::Problem;

/// An error of a bench.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The bench could not start, so that nothing was measured.
    #[error("{0}")]
    CouldNotStart(Problem),
    /// The bench was interrupted, or something failed midway.
    #[error("{0}")]
    BrokeOff(Problem),
}

impl BenchError {
    /// The error of a bench that broke off.
    pub(crate) fn broke_off(bench: &str, error: &anyhow::Error) -> Self {
        let what = format!("haul bench {bench} broke off");
        Self::BrokeOff(Problem::in_general(&what, "", &format!("{error:#}"), ""))
    }
}

impl From<Problem> for BenchError {
    fn from(problem: Problem) -> Self {
        Self::CouldNotStart(problem)
    }
}
