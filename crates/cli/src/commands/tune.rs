//! `haul tune`: audits this host, applies changes, sets them back.

mod changes;
mod measure;
mod peer;
pub mod plan;
mod report;
mod script;

use crate::{
    args::tune::{LowTune, TuneTask},
    commands::tune::plan::{Line, Plan, ledger_failure},
    failure::{ExitStatus, Failure},
    ui::{self, json},
};
use haul_host::{
    checks,
    tune::{
        self, Finding, Goal, Machine, State,
        ledger::{Ledger, LedgerError, Standing},
    },
};
use haul_sys::ktls;
use haul_transfer::internals::net::NetReport;
use peer::Peer;

/// Audits the host, applies changes or sets them back.
///
/// # Errors
/// If nothing could start, or a change failed.
pub fn run(low: &LowTune) -> Result<ExitStatus, Failure> {
    let task = low.task()?;
    let machine = Machine::below(&low.root)
        .trying_kernel_tls(|| ktls::check(ktls::Version::Tls13, ktls::Cipher::Aes128Gcm));
    let peer = Peer::of(low)?;
    let path = peer.as_ref().map(|peer| peer.look(low)).transpose()?;
    let mut wanted = low.wanted();
    wanted.rtt_ms = wanted.rtt_ms.or_else(|| peer::rtt_ms(path.as_ref()?));
    let goal = Goal::of(&machine, &wanted);
    match task {
        TuneTask::Audit => audit(low, &machine, &goal, path.as_ref()),
        TuneTask::Explain(check) => {
            report::explain(check, &checks::look(check, &machine, &goal), low.json);
            Ok(ExitStatus::AllDone)
        }
        TuneTask::Apply(named) => {
            let looked = if named.is_empty() {
                checks::audit(&machine, &goal)
            } else {
                named.iter().flat_map(|check| checks::look(check, &machine, &goal)).collect()
            };
            let plan = Plan::of(&looked, !named.is_empty());
            if low.dry_run {
                ui::print_to_stdout(&script::to_apply(&plan, &goal, &machine));
                return Ok(ExitStatus::AllDone);
            }
            match peer {
                Some(peer) if low.measure => measure::apply(low, &machine, &plan, &peer),
                _ => changes::apply(low, &machine, &plan),
            }
        }
        TuneTask::Undo if low.dry_run => {
            let standing = Ledger::peek(&low.ledger).map_err(ledger_failure)?;
            ui::print_to_stdout(&script::to_undo(&standing));
            Ok(ExitStatus::AllDone)
        }
        TuneTask::Undo => changes::undo(low, &machine),
    }
}

fn audit(
    low: &LowTune,
    machine: &Machine,
    goal: &Goal,
    path: Option<&NetReport>,
) -> Result<ExitStatus, Failure> {
    let findings = checks::audit(machine, goal);
    // A stored host has no ledger, and whoever may not read it cannot have written it.
    let standing = if machine.is_live() {
        Ledger::peek(&low.ledger).unwrap_or_else(|error| {
            if matches!(error, LedgerError::Damaged { .. }) {
                ui::print_to_stderr(&ui::printable(&error.to_string()));
            }
            Standing::default()
        })
    } else {
        Standing::default()
    };
    if low.json {
        path.into_iter().for_each(peer::print_json);
        print_json(goal, &findings, &standing);
    } else {
        ui::print_to_stdout(&report::text(goal, &findings, &standing, low.all));
        if let Some(path) = path {
            ui::print_to_stdout(&format!("\n{}", peer::text(path, low.all)));
        }
    }
    if let Some(page) = &low.html {
        report::write_page(page, goal, &findings, path)?;
    }
    Ok(ExitStatus::AllDone)
}

fn print_json(goal: &Goal, findings: &[Finding], standing: &Standing) {
    json::print(&Line::Goal {
        role: goal.role,
        rate_bits_per_s: goal.rate_bits_per_s,
        rate_from: &goal.rate_from,
        rtt_ms: goal.rtt_ms,
        bdp_bytes: goal.bdp_bytes(),
        cards: &goal.cards,
    });
    if standing.broken_off_seconds.is_some() {
        json::print(&Line::BrokenOff { changes: standing.changes().count() });
    }
    for finding in findings {
        json::print(&Line::Finding { group: report::group_of(finding), finding });
    }
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    json::print(&Line::Report {
        score: tune::score(findings),
        good: count(State::Good),
        improve: count(State::Improve),
        unknown: count(State::Unknown),
        absent: count(State::Absent),
    });
}
