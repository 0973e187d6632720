//! Reports of the runs of a plan: each is kept beside it, and `haul report` adds them up.
//!
//! Each run of a shard has a file of its own in the plan's directory `reports` (SPEC, "Plans"),
//! whose last line is there only when the run has ended. So a run that was killed is seen as one
//! that began and has not ended, and two runs of one shard never write to one file.

mod fleet_report;
mod line;
mod node;
mod place;
mod rates;
mod reading;
mod run_log;
mod simulation;

pub use fleet_report::{Fleet, ShardReport, ShardState, add_up};
pub use line::line_again;
pub use node::NodeReport;
pub use rates::Rates;
pub use run_log::RunLog;
pub use simulation::{
    Cause, Change, Changed, NodeFailures, Prediction, Resource, ResourceRates, ResourceUse,
    SIMULATED_MAX, SimulatedFleet, simulate,
};
