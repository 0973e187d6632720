//! Sleep states of idle processors: how deep they sleep, and how long they take to wake.

use super::{Check, FAST_BITS_PER_S, Group};
use crate::tune::{Finding, Goal, Machine, Platform, Setting, Weight, machine::Unread};

/// The longest time to wake: by then a ring of 100 Gbit/s is half full.
const WAKE_US_MAX: i64 = 100;
/// Sleep states that a processor has at most (CPUIDLE_STATE_MAX, include/linux/cpuidle.h).
const STATES_MAX: u32 = 10;

pub const CHECK: Check = Check {
    name: "c-states",
    group: Group::Processor,
    summary: "idle processors of a fast host do not sleep deeper than they can wake (C-states)",
    why: "From its deepest sleep a processor takes hundreds of microseconds to answer an \
        interrupt: at 100 Gbit/s more than a megabyte has come meanwhile. Without deep sleep idle \
        cores leave less power to the others' boost: measure it. To keep it over a boot without \
        haul: processor.max_cstate=1 intel_idle.max_cstate=1 on the kernel's command line.",
    source: "Documentation/admin-guide/pm/cpuidle.rst; ESnet fasterdata.es.net, 100G tuning",
    look,
};

struct Sleep {
    number: u32,
    name: String,
    wake_us: i64,
}

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    const SUBJECT: &str = "C-states";
    const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
    let driver = match machine.text(DRIVER) {
        Ok(driver) if driver.is_empty() => {
            return vec![Finding::unknown(SUBJECT, &Unread::nonsense(DRIVER, ""))];
        }
        Ok(driver) => driver,
        Err(unread) => return vec![Finding::unknown(SUBJECT, &unread)],
    };
    let sleeps = match sleeps(machine) {
        Ok(sleeps) => sleeps,
        Err(unread) => return vec![Finding::unknown(SUBJECT, &unread)],
    };
    let Some(deepest) = sleeps.iter().max_by_key(|sleep| sleep.wake_us) else {
        let why = match machine.platform() {
            Platform::Hardware => format!("no states are shown (driver {driver})"),
            _ => format!("the hypervisor decides how processors sleep (driver {driver})"),
        };
        return vec![Finding::absent(SUBJECT, &why)];
    };
    let found = format!("{driver}, {} takes {} us to wake", deepest.name, deepest.wake_us);
    let deep: Vec<&Sleep> = sleeps.iter().filter(|sleep| sleep.wake_us > WAKE_US_MAX).collect();
    if deep.is_empty() || goal.rate_bits_per_s < FAST_BITS_PER_S {
        return vec![Finding::good(Weight::Medium, SUBJECT, &found)];
    }
    let mut finding = Finding::improve(
        Weight::Medium,
        SUBJECT,
        &found,
        &format!("none that takes more than {WAKE_US_MAX} us"),
    );
    let mut files = Vec::new();
    for sleep in deep {
        files.push(format!("/sys/devices/system/cpu/cpu*/cpuidle/state{}/disable", sleep.number));
        for path in machine.processors().into_iter().map(|number| disable(number, sleep.number)) {
            if machine.number(&path) == Ok(0) {
                finding = finding.change(Setting::file(path), "1");
            }
        }
    }
    vec![finding.command(format!("echo 1 | tee {}", files.join(" ")))]
}

fn disable(processor: u32, state: u32) -> String {
    format!("/sys/devices/system/cpu/cpu{processor}/cpuidle/state{state}/disable")
}

/// Sleep states that are allowed on any processor. All processors have the same ones.
fn sleeps(machine: &Machine) -> Result<Vec<Sleep>, Unread> {
    let processors = machine.processors();
    let first = processors.first().copied().unwrap_or_default();
    let mut sleeps = Vec::new();
    for number in 0..STATES_MAX {
        let directory = format!("/sys/devices/system/cpu/cpu{first}/cpuidle/state{number}");
        if !machine.exists(&directory) {
            break;
        }
        let wake_us = machine.number(&format!("{directory}/latency"))?;
        let name = machine.text(&format!("{directory}/name"))?;
        let is_allowed =
            |processor: &u32| machine.number(&disable(*processor, number)) == Ok(0);
        if processors.iter().any(is_allowed) {
            sleeps.push(Sleep { number, name, wake_us });
        }
    }
    Ok(sleeps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(wake_us: &str, disable: &str, gigabits: u64) -> Finding {
        let state = |name: &str| format!("sys/devices/system/cpu/cpu0/cpuidle/state1/{name}");
        let host = stored::host(&[
            ("sys/devices/system/cpu/online", "0\n"),
            ("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0\n"),
            (&state("name"), "C6\n"),
            (&state("latency"), wake_us),
            (&state("disable"), disable),
        ]);
        look(&host.machine(), &host.goal_of(gigabits)).remove(0)
    }

    #[test]
    fn deep_sleep_is_turned_off_on_fast_hosts() {
        let finding = found("290\n", "0\n", 100);
        assert_eq!(finding.found, "intel_idle, C6 takes 290 us to wake");
        assert_eq!(finding.changes.len(), 1);
        assert_eq!(found("290\n", "1\n", 100).state, State::Good);
        assert_eq!(found("290\n", "0\n", 10).state, State::Good);
        assert_eq!(found("92\n", "0\n", 100).state, State::Good);
        assert_eq!(found("odd\n", "0\n", 100).state, State::Unknown);
    }
}
