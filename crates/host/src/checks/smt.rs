//! Simultaneous multithreading: two threads on one core.

use super::{Check, Group};
use crate::{
    tune::{Finding, Goal, Machine, Platform, Weight, machine::Unread},
    value_after,
};

/// The last model of family 6 that shares a core badly: Skylake and Cascade Lake (Intel SDM, volume
/// 4).
const OLD_INTEL_MODEL_MAX: u32 = 0x55;
/// The last family of AMD before Zen.
const OLD_AMD_FAMILY_MAX: u32 = 22;

pub const CHECK: Check = Check {
    name: "smt",
    group: Group::Processor,
    summary: "on older hosts, one thread a core (SMT, hyper-threading)",
    why: "Two threads share a core's units and caches. On older processors an interrupt and a \
        stream that land on one core hold each other up, and results differ from run to run. On \
        newer ones it seldom matters. Programs lose processors by it, so haul leaves it to you.",
    source: "ESnet fasterdata.es.net, 100G tuning; Linux, ABI/testing/sysfs-devices-system-cpu",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    const SUBJECT: &str = "SMT";
    const ACTIVE: &str = "/sys/devices/system/cpu/smt/active";
    let is_on = match machine.text(ACTIVE) {
        Ok(text) if text == "1" => true,
        Ok(text) if text == "0" => false,
        Ok(text) => return vec![Finding::unknown(SUBJECT, &Unread::nonsense(ACTIVE, &text))],
        Err(unread) => return vec![Finding::unknown(SUBJECT, &unread)],
    };
    vec![match (is_on, machine.platform()) {
        (false, _) => Finding::good(Weight::Low, SUBJECT, "off, one thread a core"),
        (true, Platform::Hardware) if is_old(machine) => {
            Finding::improve(Weight::Low, SUBJECT, "on, on an older processor", "off")
                .note("half of the processors go away: measure before and after")
                .command("echo off > /sys/devices/system/cpu/smt/control")
        }
        (true, _) => Finding::good(Weight::Low, SUBJECT, "on"),
    }]
}

fn is_old(machine: &Machine) -> bool {
    let text = machine.text("/proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| Some(value_after(&text, key)?.trim_start_matches(':').trim());
    let number = |key: &str| value(key)?.parse::<u32>().ok();
    // `model name` begins as `model` does, and stands behind it.
    let (family, model) = (number("cpu family\t"), number("model\t\t"));
    match value("vendor_id\t") {
        Some("GenuineIntel") => {
            family == Some(6) && model.is_some_and(|model| model <= OLD_INTEL_MODEL_MAX)
        }
        Some("AuthenticAMD") => family.is_some_and(|family| family <= OLD_AMD_FAMILY_MAX),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(active: &str, vendor: &str, family: u32, model: u32) -> Finding {
        let cpuinfo = format!(
            "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n\
             model name\t: A processor\n"
        );
        let host = stored::host(&[
            ("sys/devices/system/cpu/smt/active", active),
            ("proc/cpuinfo", &cpuinfo),
        ]);
        look(&host.machine(), &host.goal_of(100)).remove(0)
    }

    #[test]
    fn only_older_processors_are_better_without() {
        assert_eq!(found("1\n", "GenuineIntel", 6, 85).state, State::Improve);
        assert_eq!(found("1\n", "GenuineIntel", 6, 106).state, State::Good);
        assert_eq!(found("1\n", "AuthenticAMD", 25, 1).state, State::Good);
        assert_eq!(found("1\n", "AuthenticAMD", 21, 2).state, State::Improve);
        assert_eq!(found("0\n", "GenuineIntel", 6, 85).state, State::Good);
        assert_eq!(found("2\n", "GenuineIntel", 6, 85).state, State::Unknown);
    }
}
