//! Who runs a bench: how it is stopped, and who looks at its steps.

use haul_report::steps::{BeginSteps, unseen};
use haul_transfer::Interrupt;

/// The caller of a bench.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Set when the bench is to stop.
    pub interrupt: Interrupt,
    pub steps: BeginSteps,
}

impl Default for Caller {
    fn default() -> Self {
        Self { interrupt: Interrupt::default(), steps: unseen }
    }
}
