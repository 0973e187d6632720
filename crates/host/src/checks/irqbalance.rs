//! irqbalance, a service that moves interrupts from processor to processor.

use super::{Check, FAST_BITS_PER_S, Group};
use crate::tune::{Finding, Goal, Machine, Setting, Weight};

const SERVICE: &str = "irqbalance.service";

pub const CHECK: Check = Check {
    name: "irqbalance",
    group: Group::NetworkCard,
    summary: "no service moves the interrupts of a fast card (irqbalance)",
    why: "irqbalance looks every ten seconds and spreads the load over all processors. On a \
        desktop that is right; a fast card's interrupts it takes away from where they were \
        bound, to the other NUMA node too, and a stream loses its cache each time.",
    source: "ESnet fasterdata.es.net, interrupt binding; Park, Noh et al., KIPS 2018",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    let subject = "irqbalance";
    if machine.names("/proc").is_empty() {
        return vec![Finding::absent(subject, "this host shows no processes")];
    }
    let is_fast = goal.rate_bits_per_s >= FAST_BITS_PER_S;
    let finding = match (machine.runs("irqbalance"), is_fast) {
        (false, _) => Finding::good(Weight::Low, subject, "does not run"),
        (true, false) => Finding::good(Weight::Low, subject, "runs, which is well below 40 Gbit/s"),
        (true, true) => running(machine, subject),
    };
    vec![finding]
}

fn running(machine: &Machine, subject: &str) -> Finding {
    let finding = Finding::improve(Weight::Medium, subject, "runs", "does not run");
    let setting = Setting::Service { name: SERVICE.to_owned() };
    match setting.read(machine) {
        Ok(state) if state.starts_with("active") => finding.change(setting, "inactive disabled"),
        // Somebody else than systemd started it.
        _ => finding.note("it is not systemd that runs it").command("pkill -x irqbalance"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    #[test]
    fn it_shall_stop_on_fast_hosts_only() {
        let host = stored::host(&[("proc/812/comm", "irqbalance\n")]);
        let host = host.answer(
            "systemctl show --property=ActiveState,UnitFileState irqbalance.service",
            "ActiveState=active\nUnitFileState=enabled\n",
        );
        let machine = host.machine();
        assert_eq!(look(&machine, &host.goal_of(10))[0].state, State::Good);
        let fast = &look(&machine, &host.goal_of(100))[0];
        assert_eq!(
            fast.command,
            "systemctl disable irqbalance.service && systemctl stop irqbalance.service"
        );
        let without = stored::host(&[("proc/812/comm", "irqbalance\n")]);
        let fast = &look(&without.machine(), &without.goal_of(100))[0];
        assert!(fast.changes.is_empty() && !fast.command.is_empty());
    }
}
