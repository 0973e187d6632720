//! tuned, a service that sets many of the values checked here, each time it starts.

use super::{Check, Group};
use crate::tune::{Finding, Goal, Machine, Weight};

const PROFILE: &str = "/etc/tuned/active_profile";

pub const CHECK: Check = Check {
    name: "tuned",
    group: Group::System,
    summary: "no profile of tuned sets back what a transfer node needs",
    why: "tuned applies its profile each time it starts, over what was set before. Its \
        network-throughput lets TCP's buffers grow to 16 MiB only, below what a 10 Gbit/s path \
        across a continent needs; others choose a governor that saves power. Make a profile of \
        your own that includes one of them and has these values, or turn it off. haul does not \
        stop it: on its way out it would set back values of its own.",
    source: "tuned-profiles(7); ESnet fasterdata.es.net, host tuning",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    const SUBJECT: &str = "tuned";
    let profile = match machine.text(PROFILE) {
        Ok(profile) if !profile.is_empty() => profile,
        _ => return vec![Finding::absent(SUBJECT, "not in use")],
    };
    if !machine.runs("tuned") {
        let found = format!("does not run; its profile would be {profile}");
        return vec![Finding::good(Weight::Low, SUBJECT, &found)];
    }
    let first = profile.split_whitespace().next().unwrap_or_default();
    let (weight, note) = match first {
        "network-throughput" => (Weight::Medium, "it caps TCP's buffers at 16 MiB, at each start"),
        "balanced" | "powersave" | "desktop" | "laptop-battery-powersave" | "balanced-battery" => {
            (Weight::Medium, "its governor saves power")
        }
        "throughput-performance" | "virtual-guest" | "virtual-host" | "network-latency"
        | "latency-performance" | "accelerator-performance" | "hpc-compute" => {
            (Weight::Low, "it sets vm.dirty_ratio and more again, at each start")
        }
        _ => {
            let finding = Finding::good(Weight::Low, SUBJECT, &format!("profile {profile}"))
                .note("see that it does not set what haul sets");
            return vec![finding];
        }
    };
    let wanted = "off, or a profile of your own";
    vec![
        Finding::improve(weight, SUBJECT, &format!("profile {profile}"), wanted)
            .note(note)
            .command("tuned-adm off && systemctl disable --now tuned.service"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    #[test]
    fn a_profile_counts_while_tuned_runs() {
        let found = |profile: &str, comm: &str| {
            let host = stored::host(&[(&PROFILE[1..], profile), ("proc/77/comm", comm)]);
            look(&host.machine(), &host.goal_of(10)).remove(0)
        };
        assert_eq!(found("network-throughput\n", "tuned\n").weight, Weight::Medium);
        assert_eq!(found("throughput-performance\n", "tuned\n").weight, Weight::Low);
        assert_eq!(found("our-dtn\n", "tuned\n").state, State::Good);
        assert_eq!(found("network-throughput\n", "sshd\n").state, State::Good);
        assert_eq!(found("\n", "tuned\n").state, State::Absent);
    }
}
