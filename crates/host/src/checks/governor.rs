//! Governor of the processors' clocks, which should run at full speed as soon as there is work.

use super::{Check, Group, weight_at};
use crate::tune::{Finding, Goal, Machine, Needs, Platform, Setting, machine::Unread};

const WANTED: &str = "performance";

pub const CHECK: Check = Check {
    name: "governor",
    group: Group::Processor,
    summary: "the processors run at full speed as soon as there is work (governor performance)",
    why: "Other governors raise the clock after they have seen load for some milliseconds, and \
        lower it between bursts. A stream's processor is idle after each window, so it never \
        gets there: with performance a 100 Gbit/s link was full with 4 streams in place of 8.",
    source: "Park, Noh et al., KIPS 2018; Documentation/admin-guide/pm/cpufreq.rst",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    const SUBJECT: &str = "scaling_governor";
    let mut governors = Vec::new();
    let mut unread: Option<Unread> = None;
    for path in paths(machine) {
        match machine.text(&path) {
            Ok(governor) if governor.is_empty() => unread = Some(Unread::nonsense(path, "")),
            Ok(governor) => governors.push((path, governor)),
            Err(why) => unread = Some(why),
        }
    }
    if governors.is_empty() {
        return vec![match unread {
            Some(unread) => Finding::unknown(SUBJECT, &unread),
            None => Finding::absent(SUBJECT, without(machine)),
        }];
    }
    let weight = weight_at(goal.rate_bits_per_s);
    let other: Vec<_> = governors.iter().filter(|(_, governor)| governor != WANTED).collect();
    let Some((path, governor)) = other.first() else {
        return vec![Finding::good(weight, SUBJECT, WANTED)];
    };
    let found = format!("{governor} on {} of {} processors", other.len(), governors.len());
    let finding = Finding::improve(weight, SUBJECT, &found, WANTED);
    let choice = machine.text(&path.replace("scaling_governor", "scaling_available_governors"));
    if let Ok(choice) = choice
        && !choice.split_whitespace().any(|word| word == WANTED)
    {
        return vec![
            finding.note(format!("this kernel offers: {choice}")).needs(Needs::Reboot),
        ];
    }
    let set = |finding: Finding, (path, _): &&(String, String)| {
        finding.change(Setting::file(path.as_str()), WANTED)
    };
    let finding = other.iter().fold(finding, set);
    let all = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
    vec![finding.command(format!("echo {WANTED} | tee {all}"))]
}

/// Governor files of the processors that are on.
fn paths(machine: &Machine) -> Vec<String> {
    let mut numbers = machine.processors();
    if numbers.is_empty() {
        let names = machine.names("/sys/devices/system/cpu");
        numbers = names.iter().filter_map(|name| name.strip_prefix("cpu")?.parse().ok()).collect();
    }
    let path =
        |number: u32| format!("/sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor");
    numbers.into_iter().map(path).filter(|path| machine.exists(path)).collect()
}

fn without(machine: &Machine) -> &'static str {
    match machine.platform() {
        Platform::Virtual => "the hypervisor decides on the clock: ask its administrator",
        Platform::Container => "the container's host decides on the clock",
        Platform::Hardware => "no cpufreq driver: the firmware decides on the clock (BIOS profile)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn path(number: u32) -> String {
        format!("sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor")
    }

    #[test]
    fn each_processor_that_is_on_is_set() {
        let host = stored::host(&[
            ("sys/devices/system/cpu/online", "0-2\n"),
            (&path(0), "powersave\n"),
            (&path(1), "performance\n"),
            (&path(2), "powersave\n"),
            (&path(3), "powersave\n"),
        ]);
        let finding = &look(&host.machine(), &host.goal_of(100))[0];
        assert_eq!(finding.found, "powersave on 2 of 3 processors");
        let set: Vec<_> = finding.changes.iter().map(|one| one.setting.path().unwrap()).collect();
        assert_eq!(set, [format!("/{}", path(0)), format!("/{}", path(2))]);
    }

    #[test]
    fn one_that_the_kernel_does_not_offer_is_not_set() {
        let host = stored::host(&[(&path(0), "ondemand\n")]);
        let host = host.file(&path(0).replace("governor", "available_governors"), "ondemand\n");
        let finding = &look(&host.machine(), &host.goal_of(10))[0];
        assert!(finding.changes.is_empty());
        let host = stored::host(&[(&path(0), "\n")]);
        assert_eq!(look(&host.machine(), &host.goal_of(10))[0].state, State::Unknown);
    }
}
