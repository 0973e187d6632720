//! How far TCP lets the buffers of a socket grow by themselves.

use super::{Check, Group, sysctl_numbers};
use crate::tune::{Finding, Goal, Machine, Role, Setting, Weight, goal::Speed};

pub const CHECK: Check = Check {
    name: "tcp-buffers",
    group: Group::Tcp,
    summary: "how far TCP lets a socket's buffers grow by themselves (tcp_rmem, tcp_wmem)",
    why: "A program that asks for no buffer, as haul and most others, gets what the kernel's \
        autotuning gives, up to the last of these numbers. With the usual 6 MiB a stream makes no \
        more than 480 Mbit/s at 100 ms, whatever the network carries. The first two numbers, the \
        least and the first size, stay as they are found.",
    source: "ESnet fasterdata.es.net, host tuning; Documentation/networking/ip-sysctl.rst",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    let of_table = match (goal.role, goal.speed()) {
        (Role::Media, _) | (Role::Dtn, Speed::UpTo10G) => 32 << 20,
        (Role::Dtn, Speed::UpTo40G) => 64 << 20,
        (Role::TestHost, Speed::UpTo10G) => 128 << 20,
        (Role::TestHost, Speed::UpTo40G) => 256 << 20,
        (Role::Dtn | Role::TestHost, Speed::Above40G) => 1 << 30,
    };
    let wanted = goal.stream_buffer_bytes(of_table);
    ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"]
        .map(|name| buffer(machine, goal, name, wanted))
        .to_vec()
}

fn buffer(machine: &Machine, goal: &Goal, name: &str, wanted: u64) -> Finding {
    let [least, first, most] = match sysctl_numbers::<3>(machine, name) {
        Ok(numbers) => numbers,
        Err(unread) => return Finding::unknown(name, &unread),
    };
    let found = format!("{least} {first} {most}");
    if most >= wanted {
        return Finding::good(Weight::High, name, &found);
    }
    let shown = format!("{least} {first} {wanted}");
    let finding = Finding::improve(Weight::High, name, &found, &shown);
    let finding = match goal.rtt_ms {
        Some(rtt) if rtt > 0.0 => {
            // Half of a receive buffer is room for the kernel's own records (tcp_adv_win_scale).
            let megabits = most as f64 / 2.0 * 8.0 / rtt / 1e3;
            finding.note(format!("at {rtt} ms a stream makes about {megabits:.0} Mbit/s with it"))
        }
        _ => finding,
    };
    finding.change(Setting::sysctl(name), shown)
}
