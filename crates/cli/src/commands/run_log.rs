//! The report that a run of a shard keeps beside its plan; trouble with it is told and no more.

use crate::{failure::ExitStatus, ui};
use haul_transfer::{Event, Plan, Problem, Report, RunLog, TransferError};

/// Variable with the name of the machine, where that of the host is another: a container has its
/// own.
const NODE: &str = "HAUL_NODE";

/// The report of this run; none where it is no run of a plan, or no report can be kept.
#[derive(Debug)]
pub struct Kept(Option<RunLog>);

impl Kept {
    /// Begins the report of a shard's run.
    pub fn begin(shard: Option<(Plan, u32)>) -> Self {
        let node = std::env::var(NODE).ok().filter(|node| !node.is_empty());
        let log = shard.map(|(plan, number)| RunLog::begin(&plan, number, node.as_deref()));
        Self(log.and_then(|log| log.inspect_err(tell).ok()))
    }

    pub fn event(&mut self, event: &Event) {
        self.0.iter_mut().for_each(|log| log.event(event));
    }

    pub fn outcome(&mut self, result: &Result<Report, TransferError>) {
        self.0.iter_mut().for_each(|log| log.outcome(result));
    }

    /// Ends the report with the exit status of the run.
    pub fn end(self, status: ExitStatus) {
        let ended = self.0.map_or(Ok(()), |log| log.end(status as u8));
        ended.unwrap_or_else(|problem| tell(&problem));
    }
}

fn tell(problem: &Problem) {
    ui::print_to_stderr(&problem.to_string());
}
