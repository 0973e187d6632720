//! The number and speed of the processors, against the rate of the goal.

use std::collections::BTreeSet;

use super::{Check, Group, maker};
use crate::tune::{
    Finding, Goal, Machine, Weight,
    goal::{Speed, rate_words},
    machine::{Unread, Why},
};

const CORES: usize = 16;
const CLOCK_MHZ: u64 = 3000;

pub const CHECK: Check = Check {
    name: "cores",
    group: Group::Processor,
    summary: "for 100 Gbit/s, 16 cores and 3 GHz",
    why: "One stream is one core's work, and a core is as fast as its clock: fewer than 3 GHz do \
        not carry the streams of a 100 Gbit/s card, however many cores there are. Interrupts, \
        streams, disks and checksums of files want some cores each.",
    source: "ESnet fasterdata.es.net, DTN hardware selection",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    const SUBJECT: &str = "cores and clock";
    let cores = cores(machine);
    if cores == 0 {
        let what = "/sys/devices/system/cpu/online".to_owned();
        return vec![Finding::unknown(SUBJECT, &Unread { what, why: Why::Missing })];
    }
    let clock_mhz = clock_mhz(machine);
    let clock = |mhz: u64| format!("{:.1} GHz", mhz as f64 / 1000.0);
    let clock_found = clock_mhz.map_or_else(|| "a clock that is not told".to_owned(), clock);
    let found = format!("{cores} cores, {clock_found}");
    let is_slow = clock_mhz.is_some_and(|mhz| mhz < CLOCK_MHZ);
    let is_wanted = goal.speed() == Speed::Above40G;
    if !is_wanted || (cores >= CORES && !is_slow) {
        return vec![Finding::good(Weight::Medium, SUBJECT, &found)];
    }
    let wanted = format!("{CORES} cores, {}", clock(CLOCK_MHZ));
    let rate = rate_words(goal.rate_bits_per_s);
    let finding = Finding::improve(Weight::Medium, SUBJECT, &found, &wanted)
        .note(format!("no setting makes up for it: {rate} may not be reached"))
        .needs(maker(machine));
    vec![finding]
}

/// The number of cores; threads of one core count once.
fn cores(machine: &Machine) -> usize {
    let siblings = |number: u32| {
        let topology = format!("/sys/devices/system/cpu/cpu{number}/topology");
        let text = machine.text(&format!("{topology}/thread_siblings_list"));
        text.unwrap_or_else(|_| number.to_string())
    };
    machine.processors().into_iter().map(siblings).collect::<BTreeSet<_>>().len()
}

/// The highest clock that a core may have; where nothing tells it, the highest that one has now.
fn clock_mhz(machine: &Machine) -> Option<u64> {
    let of = |number: u32| {
        let path = format!("/sys/devices/system/cpu/cpu{number}/cpufreq/cpuinfo_max_freq");
        machine.number(&path).ok().and_then(|khz| u64::try_from(khz).ok())
    };
    let most_khz = machine.processors().into_iter().filter_map(of).max();
    if let Some(khz) = most_khz.filter(|&khz| khz > 0) {
        return Some(khz / 1000);
    }
    let text = machine.text("/proc/cpuinfo").unwrap_or_default();
    let clocks = text.lines().filter_map(|line| {
        let (_, value) = line.strip_prefix("cpu MHz")?.split_once(':')?;
        value.trim().parse::<f64>().ok().filter(|mhz| (1.0..100_000.0).contains(mhz))
    });
    clocks.map(|mhz| mhz.round() as u64).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    #[test]
    fn threads_of_a_core_count_once_and_the_clock_is_the_highest() {
        let host = stored::host(&[
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,2\n"),
            ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1,3\n"),
            ("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "0,2\n"),
            ("sys/devices/system/cpu/cpu3/topology/thread_siblings_list", "1,3\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3900000\n"),
        ]);
        let finding = &look(&host.machine(), &host.goal_of(100))[0];
        assert_eq!(finding.found, "2 cores, 3.9 GHz");
        assert_eq!(finding.state, State::Improve);
        assert_eq!(look(&host.machine(), &host.goal_of(10))[0].state, State::Good);
    }

    #[test]
    fn a_clock_that_is_not_told_is_not_held_against_the_host() {
        let host = stored::host(&[
            ("sys/devices/system/cpu/online", "0-31\n"),
            ("proc/cpuinfo", "cpu MHz\t\t: odd\n"),
        ]);
        assert_eq!(look(&host.machine(), &host.goal_of(100))[0].state, State::Good);
        let host = host.file("proc/cpuinfo", "cpu MHz\t\t: 2100.000\ncpu MHz\t\t: 2000.000\n");
        let finding = &look(&host.machine(), &host.goal_of(100))[0];
        assert_eq!(finding.found, "32 cores, 2.1 GHz");
        assert_eq!(finding.state, State::Improve);
    }
}
