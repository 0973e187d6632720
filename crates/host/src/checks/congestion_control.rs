//! The congestion control that connections begin with.

use super::{Check, Group};
use crate::tune::{Finding, Goal, Machine, Needs, Setting, Weight, machine::Unread};

const NAME: &str = "net.ipv4.tcp_congestion_control";
/// The setting that lists what a process without rights may choose.
const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";
/// The RTT below which a path is within a site.
const SHORT_RTT_MS: f64 = 1.0;

pub const CHECK: Check = Check {
    name: "congestion-control",
    group: Group::Tcp,
    summary: "the congestion control that connections begin with",
    why: "cubic is the safe choice. bbr (version 1 in Linux) is better on long paths that lose \
        packets, and can cost two thirds of the throughput on short ones; reno takes minutes to \
        recover on a long path. haul itself chooses for each connection by RTT and loss, among \
        those that are allowed; this is for the other programs of the host.",
    source: "ESnet fasterdata.es.net; RFC 9438; docs/decisions of haul",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    const AVAILABLE: &str = "net.ipv4.tcp_available_congestion_control";
    let found = match machine.sysctl(NAME) {
        Ok(found) if found.is_empty() => {
            return vec![Finding::unknown(NAME, &Unread::nonsense(NAME, ""))];
        }
        Ok(found) => found,
        Err(unread) => return vec![Finding::unknown(NAME, &unread)],
    };
    let available = machine.sysctl(AVAILABLE).unwrap_or_default();
    let has = |name: &str| available.split(' ').any(|word| word == name);
    let is_long = goal.rtt_ms.is_some_and(|rtt| rtt >= SHORT_RTT_MS);
    let finding = match &found[..] {
        "cubic" => Finding::good(Weight::Medium, NAME, &found),
        "bbr" if is_long => Finding::good(Weight::Medium, NAME, &found),
        // H-TCP was the choice for long paths before cubic.
        "htcp" => Finding::good(Weight::Medium, NAME, &found),
        _ if !has("cubic") => Finding::improve(Weight::Medium, NAME, &found, "cubic")
            .note(format!("this kernel has only: {available}"))
            .command("modprobe tcp_cubic"),
        _ if is_namespace(machine) && !is_allowed(machine, "cubic") => {
            Finding::improve(Weight::Medium, NAME, &found, "cubic")
                .note("in a network namespace only what the host allows can be set")
                .needs(Needs::ContainerHost)
                .command("sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic bbr'")
        }
        "bbr" => become_cubic(machine, &found, &available)
            .note("on short paths bbr can cost two thirds of the throughput"),
        _ => become_cubic(machine, &found, &available),
    };
    vec![finding]
}

/// Makes cubic the default, and sets what else that changes. The default is allowed to everybody
/// from then on, and stays so (tcp_set_default_congestion_control in net/ipv4/tcp_cong.c): a change
/// of its own, so that it is set back.
fn become_cubic(machine: &Machine, found: &str, available: &str) -> Finding {
    let finding = Finding::improve(Weight::Medium, NAME, found, "cubic");
    let shall_be = |name: &&str| *name == "cubic" || is_allowed(machine, name);
    let finding = if machine.sysctl(ALLOWED).is_err() || is_allowed(machine, "cubic") {
        finding
    } else {
        let names: Vec<&str> = available.split(' ').filter(shall_be).collect();
        finding.change(Setting::sysctl(ALLOWED), names.join(" "))
    };
    finding.change(Setting::sysctl(NAME), "cubic")
}

/// Whether this is not the first network namespace: the first one's settings are shown in others,
/// and have no mode for writing there.
fn is_namespace(machine: &Machine) -> bool {
    machine.is_read_only("/proc/sys/net/core/rmem_max")
}

fn is_allowed(machine: &Machine, name: &str) -> bool {
    let allowed = machine.sysctl(ALLOWED).unwrap_or_default();
    allowed.split(' ').any(|word| word == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(allowed: &str, default: &str) -> Finding {
        let host = stored::host(&[
            ("proc/sys/net/ipv4/tcp_congestion_control", default),
            ("proc/sys/net/ipv4/tcp_allowed_congestion_control", allowed),
            ("proc/sys/net/ipv4/tcp_available_congestion_control", "reno bbr cubic\n"),
        ]);
        let machine = host.machine();
        let goal = Goal::of(&machine, &crate::tune::Wanted::default());
        look(&machine, &goal).remove(0)
    }

    #[test]
    fn what_the_kernel_allows_with_a_new_default_is_a_change_too() {
        let changes = |finding: Finding| {
            let words = |change: &crate::tune::Change| {
                change.setting.shell(&change.value).replace("sysctl -w net.ipv4.tcp_", "")
            };
            finding.changes.iter().map(words).collect::<Vec<_>>()
        };
        let both = ["allowed_congestion_control='reno bbr cubic'", "congestion_control=cubic"];
        assert_eq!(changes(found("reno bbr\n", "bbr\n")), both);
        assert_eq!(changes(found("reno cubic\n", "reno\n")), ["congestion_control=cubic"]);
        assert_eq!(found("reno cubic\n", "cubic\n").state, State::Good);
    }
}
