//! The plan of a run of haul tune: what it found, and what it would change.

use crate::{args::usage_problem, failure::Failure};
use haul_host::tune::{
    self, Caution, Change, Finding, State, change::Planned, ledger::LedgerError,
};
use serde::Serialize;

/// Findings by what becomes of them: changes that are made, and those that are left to a person.
pub(super) struct Plan {
    pub(super) findings: Vec<Finding>,
    /// Findings whose changes are made only when named: they can cut connections.
    pub(super) to_be_named: Vec<Finding>,
    /// Findings that haul makes no change for.
    pub(super) by_hand: Vec<Finding>,
}

impl Plan {
    pub(super) fn of(looked: &[Finding], by_name: bool) -> Self {
        let mut plan = Self { findings: vec![], to_be_named: vec![], by_hand: vec![] };
        for finding in looked.iter().filter(|finding| finding.state == State::Improve) {
            let list = if finding.changes.is_empty() {
                &mut plan.by_hand
            } else if finding.caution == Caution::OnlyByName && !by_name {
                &mut plan.to_be_named
            } else {
                &mut plan.findings
            };
            list.push(finding.clone());
        }
        plan
    }

    pub(super) fn planned(&self) -> Vec<Planned> {
        let of = |finding: &Finding| {
            let check = finding.check;
            let planned = |change: Change| Planned { check, change };
            finding.changes.clone().into_iter().map(planned).collect::<Vec<_>>()
        };
        self.findings.iter().flat_map(of).collect()
    }
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Line<'a> {
    Goal {
        role: tune::Role,
        rate_bits_per_s: u64,
        rate_from: &'a str,
        rtt_ms: Option<f64>,
        bdp_bytes: Option<u64>,
        cards: &'a [String],
    },
    Finding {
        group: haul_host::checks::Group,
        #[serde(flatten)]
        finding: &'a Finding,
    },
    /// A run that was killed and had made changes.
    BrokenOff {
        changes: usize,
    },
    Report {
        score: u32,
        good: usize,
        improve: usize,
        unknown: usize,
        absent: usize,
    },
}

pub(super) fn ledger_failure(error: LedgerError) -> Failure {
    let hint = match &error {
        LedgerError::Io { .. } => "run as root, or name another --ledger",
        LedgerError::Busy { .. } | LedgerError::Damaged { .. } => "",
    };
    usage_problem("cannot change anything", "", &error.to_string(), hint).into()
}
