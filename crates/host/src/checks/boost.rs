//! Boost, by which the processors may run faster than their nominal clock.

use super::{Check, Group, weight_at};
use crate::tune::{Finding, Goal, Machine, Platform, Setting, machine::Unread};

/// Files that switch boost, each with the value that allows it.
const SWITCHES: [(&str, &str); 2] = [
    ("/sys/devices/system/cpu/intel_pstate/no_turbo", "0"),
    ("/sys/devices/system/cpu/cpufreq/boost", "1"),
];

pub const CHECK: Check = Check {
    name: "boost",
    group: Group::Processor,
    summary: "the processors may run faster than their nominal clock (turbo, boost)",
    why: "A stream is handled by one or two cores, and is as fast as they are. With the others \
        idle those two may run a third faster. Where the firmware forbids it, the kernel refuses \
        the change: that is why it is made only by name.",
    source: "ESnet fasterdata.es.net, 100G tuning; Documentation/admin-guide/pm/intel_pstate.rst",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    const SUBJECT: &str = "boost";
    let there = SWITCHES.iter().find(|(path, _)| machine.exists(path));
    let Some((path, wanted)) = there else {
        let why = match machine.platform() {
            Platform::Virtual => "the hypervisor decides on the clock: ask its administrator",
            Platform::Container => "the container's host decides on the clock",
            Platform::Hardware => "the kernel has no switch for it: see the BIOS",
        };
        return vec![Finding::absent(SUBJECT, why)];
    };
    // One that saves power may cost a media server little; a fast stream it costs its rate.
    let weight = weight_at(goal.rate_bits_per_s).min(crate::tune::Weight::Medium);
    vec![match machine.text(path) {
        Ok(found) if found == *wanted => Finding::good(weight, SUBJECT, "on"),
        Ok(found) if matches!(&found[..], "0" | "1") => {
            Finding::improve(weight, SUBJECT, "off", "on")
                .note("somebody turned it off, or the BIOS forbids it")
                .change(Setting::file(*path), *wanted)
                .only_by_name()
        }
        Ok(found) => Finding::unknown(SUBJECT, &Unread::nonsense(*path, &found)),
        Err(unread) => Finding::unknown(SUBJECT, &unread),
    }]
}
