//! The age of the running kernel.

use super::{Check, Group};
use crate::{
    kernel,
    tune::{
        Finding, Goal, Machine, Needs, Platform, Weight,
        goal::Speed,
        machine::Unread,
    },
};

/// The oldest kernel that haul supports.
const FLOOR: (u32, u32) = (5, 10);
const FAST: (u32, u32) = (6, 8);

pub const CHECK: Check = Check {
    name: "kernel-age",
    group: Group::System,
    summary: "the kernel is new enough for haul, and for the rate",
    why: "haul is made for Linux 5.10 and later. At 100 Gbit/s ESnet measured 30 to 38 % more \
        with Linux 6.8 than with 5.15 on the same hosts: its network stack takes fewer cache \
        misses a packet, and BIG TCP works with IPv4.",
    source: "ESnet fasterdata.es.net, 100G tuning",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    const NAME: &str = "kernel.osrelease";
    let release = match machine.sysctl(NAME) {
        Ok(release) => release,
        Err(unread) => return vec![Finding::unknown(NAME, &unread)],
    };
    let Some(version) = kernel::parse(&release) else {
        return vec![Finding::unknown(NAME, &Unread::nonsense(NAME, &release))];
    };
    let needs = match machine.platform() {
        Platform::Container => Needs::ContainerHost,
        Platform::Hardware | Platform::Virtual => Needs::Reboot,
    };
    let finding = if version < FLOOR {
        Finding::improve(Weight::High, NAME, &release, "5.10 or later")
            .note("haul is not tested with older ones, and may refuse engines")
            .needs(needs)
    } else if version < FAST && goal.speed() == Speed::Above40G {
        Finding::improve(Weight::Medium, NAME, &release, "6.8 or later")
            .note("others measured a third more with it at 100 Gbit/s")
            .needs(needs)
    } else {
        Finding::good(Weight::Medium, NAME, &release)
    };
    vec![finding]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    #[test]
    fn an_old_kernel_is_told_and_a_middle_aged_one_on_fast_hosts() {
        let found = |release: &str, gigabits| {
            let host = stored::host(&[("proc/sys/kernel/osrelease", release)]);
            look(&host.machine(), &host.goal_of(gigabits)).remove(0)
        };
        assert_eq!(found("4.18.0-553.el8\n", 1).weight, Weight::High);
        assert_eq!(found("5.15.0-100-generic\n", 100).weight, Weight::Medium);
        assert_eq!(found("5.15.0-100-generic\n", 10).state, State::Good);
        assert_eq!(found("6.8.0\n", 400).state, State::Good);
        assert_eq!(found("odd\n", 10).state, State::Unknown);
    }
}
