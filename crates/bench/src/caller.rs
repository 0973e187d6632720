//! Caller of a bench: it can stop the bench, and sees its steps.

use haul_report::steps::{BeginSteps, unseen};
use haul_transfer::Interrupt;

/// The flag by which a caller stops a bench, and the function that shows its steps.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Flag that is set when the bench is to stop.
    pub interrupt: Interrupt,
    pub steps: BeginSteps,
}

impl Default for Caller {
    fn default() -> Self {
        Self { interrupt: Interrupt::default(), steps: unseen }
    }
}
