//! `haul tune --apply --measure`: changes one at a time, each kept only if it helps.
//!
//! Each is measured before and after.

use super::{
    changes,
    peer::{self, Peer},
};
use crate::{
    args::tune::LowTune,
    commands::tune::plan::{Plan, ledger_failure},
    failure::{ExitStatus, Failure},
    ui::{self, json, units},
};
use haul_host::tune::{
    Machine,
    change::{self, Planned},
    ledger::Ledger,
};
use haul_report::table::Table;
use serde::Serialize;

/// Number of probes of one state, of which the median counts.
pub const ROUNDS: usize = 3;
/// Smallest gain of a change that is kept: a smaller one is noise, whatever the rounds say.
const GAIN_MIN: f64 = 0.02;

/// Rates that were measured in one state of the host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    pub gbit_per_s: f64,
    lowest: f64,
    highest: f64,
}

impl Measured {
    /// The median of the figures and their range.
    ///
    /// # Panics
    /// Without a figure.
    pub fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_unstable_by(f64::total_cmp);
        let (lowest, highest) = (figures[0], figures[figures.len() - 1]);
        Self { gbit_per_s: figures[figures.len() / 2], lowest, highest }
    }

    /// Whether a change helps: the rate is higher by more than either state's rounds differ from
    /// each other.
    fn helps(self, before: Self) -> bool {
        let gain = self.gbit_per_s / before.gbit_per_s - 1.0;
        gain >= GAIN_MIN && self.lowest > before.highest
    }
}

#[derive(Clone, Debug, Serialize)]
struct StepResult {
    event: &'static str,
    check: &'static str,
    settings: usize,
    before: Measured,
    after: Measured,
    kept: bool,
}

/// Applies the plan check by check, with probes of the path before and after.
///
/// # Errors
/// If a change or a probe failed; the ledger knows what was kept until then.
pub fn apply(
    low: &LowTune,
    machine: &Machine,
    plan: &Plan,
    peer: &Peer,
) -> Result<ExitStatus, Failure> {
    changes::needs_root("change settings")?;
    let mut ledger = Ledger::open(&low.ledger).map_err(ledger_failure)?;
    let steps = steps(plan);
    peer::tell_measuring(low, steps.len());
    let probe = || peer.measure(low.measure_time.0);
    let measure = || (0..ROUNDS).map(|_| probe()).collect::<Result<Vec<_>, _>>().map(Measured::of);
    let mut before = measure()?;
    if !low.json {
        let rate = units::rate(before.gbit_per_s);
        ui::print_to_stdout(&format!("Before: {rate}, the median of {ROUNDS} probes."));
    }
    let mut results = Vec::new();
    for planned in steps {
        let (check, settings) = (planned[0].check, planned.len());
        change::apply(machine, &mut ledger, &planned, None, &mut |_| {})
            .map_err(changes::failure)?;
        // A probe that breaks off leaves the host as it was before this change.
        let after = match measure() {
            Ok(after) => after,
            Err(failure) => {
                change::take_back_run(machine, &mut ledger).map_err(changes::failure)?;
                return Err(failure);
            }
        };
        let kept = after.helps(before);
        let result = StepResult { event: "measured", check, settings, before, after, kept };
        if kept {
            before = after;
        } else {
            change::take_back_run(machine, &mut ledger).map_err(changes::failure)?;
        }
        tell(low.json, &result);
        results.push(result);
    }
    if let (Some(persisted), false) = (changes::persisted(low), ledger.standing().is_empty()) {
        let tell = &mut |step: change::Step<'_>| changes::tell_step(low.json, &step);
        change::apply(machine, &mut ledger, &[], Some(&persisted), tell)
            .map_err(changes::failure)?;
    }
    show(low, &results);
    Ok(ExitStatus::AllDone)
}

/// The steps of a plan: the changes of each check together, in the plan's order.
fn steps(plan: &Plan) -> Vec<Vec<Planned>> {
    let mut steps: Vec<Vec<Planned>> = Vec::new();
    for planned in plan.planned() {
        match steps.last_mut() {
            Some(step) if step[0].check == planned.check => step.push(planned),
            _ => steps.push(vec![planned]),
        }
    }
    steps
}

fn tell(as_json: bool, result: &StepResult) {
    if as_json {
        json::print(result);
        return;
    }
    let StepResult { check, before, after, kept, .. } = result;
    let word = if *kept { "kept     " } else { "set back " };
    let (before, after) = (before.gbit_per_s, after.gbit_per_s);
    let gain = (after / before - 1.0) * 100.0;
    let (before, after) = (units::rate(before), units::rate(after));
    ui::print_to_stdout(&format!("  {word} {check}: {before} -> {after} ({gain:+.1} %)"));
}

fn show(low: &LowTune, results: &[StepResult]) {
    let kept = results.iter().filter(|result| result.kept).count();
    if low.json {
        json::print(&serde_json::json!({
            "event": "applied", "tried": results.len(), "kept": kept,
        }));
        return;
    }
    let columns = ["check", "before", "after", "range after", "kept"];
    let mut table = Table::new("One change at a time", 1, &columns);
    for StepResult { check, before, after, kept, .. } in results {
        table.row(vec![
            (*check).to_owned(),
            units::rate(before.gbit_per_s),
            units::rate(after.gbit_per_s),
            format!("{} .. {}", units::rate(after.lowest), units::rate(after.highest)),
            if *kept { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table.note(format!(
        "Kept: at least {:.0} % more, with every round above those before.",
        GAIN_MIN * 100.0
    ));
    ui::print_to_stdout(&table.text());
    let end = match kept {
        0 => "Nothing helped on this path, so nothing was changed.".to_owned(),
        kept => format!("{kept} of {} kept; haul tune --undo sets them back.", results.len()),
    };
    ui::print_to_stdout(&end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_within_the_rounds_own_range_does_not_help() {
        let before = Measured::of(vec![10.0, 9.0, 11.0]);
        assert_eq!(before.gbit_per_s, 10.0);
        assert!(Measured::of(vec![13.0, 12.0, 14.0]).helps(before));
        assert!(!Measured::of(vec![13.0, 10.5, 14.0]).helps(before), "a round was as before");
        let steady = Measured::of(vec![10.0, 10.0, 10.0]);
        assert!(!Measured::of(vec![10.1, 10.1, 10.1]).helps(steady), "too little");
        assert!(!Measured::of(vec![5.0, 5.0, 5.0]).helps(steady));
    }
}
