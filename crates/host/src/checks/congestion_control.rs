//! Which congestion control connections begin with.

use super::{Check, Group};
use crate::tune::{Finding, Goal, Machine, Needs, Setting, Weight, machine::Unread};

/// A path shorter than this is within a site.
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
    const NAME: &str = "net.ipv4.tcp_congestion_control";
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
        "bbr" => Finding::improve(Weight::Medium, NAME, &found, "cubic")
            .note("on short paths bbr can cost two thirds of the throughput")
            .change(Setting::sysctl(NAME), "cubic"),
        _ => Finding::improve(Weight::Medium, NAME, &found, "cubic")
            .change(Setting::sysctl(NAME), "cubic"),
    };
    vec![finding]
}

/// Settings of the first network namespace are shown in others, and have no mode for writing.
fn is_namespace(machine: &Machine) -> bool {
    machine.is_read_only("/proc/sys/net/core/rmem_max")
}

fn is_allowed(machine: &Machine, name: &str) -> bool {
    let allowed = machine.sysctl("net.ipv4.tcp_allowed_congestion_control").unwrap_or_default();
    allowed.split(' ').any(|word| word == name)
}
