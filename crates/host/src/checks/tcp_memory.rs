//! The memory that TCP may have in all.

use super::{Check, Group, sysctl_numbers};
use crate::tune::{Finding, Goal, Machine, Weight, machine::Unread};

/// The least share of the memory for TCP; the kernel itself gives an eighth (tcp_init_mem).
const SHARE_OF_MEMORY_MIN: f64 = 0.02;

pub const CHECK: Check = Check {
    name: "tcp-memory",
    group: Group::Tcp,
    summary: "the memory that TCP may have in all (tcp_mem)",
    why: "The kernel sets it by the size of the memory, and that is right: recipes that set it \
        take its pages for bytes. Too small, and TCP stops growing any buffer and drops what \
        arrives, whatever tcp_rmem allows.",
    source: "ESnet fasterdata.es.net (leave tcp_mem alone); tcp(7)",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    const NAME: &str = "net.ipv4.tcp_mem";
    let [_, _, pages] = match sysctl_numbers::<3>(machine, NAME) {
        Ok(numbers) => numbers,
        Err(unread) => return vec![Finding::unknown(NAME, &unread)],
    };
    let memory = crate::memory::read(machine.root()).total_bytes;
    let Some(bytes) = pages.checked_mul(4096) else {
        return vec![Finding::unknown(NAME, &Unread::nonsense(NAME, &pages.to_string()))];
    };
    let found = format!("{} MiB in all", bytes >> 20);
    if bytes as f64 >= memory as f64 * SHARE_OF_MEMORY_MIN {
        return vec![Finding::good(Weight::Medium, NAME, &found)];
    }
    let finding = Finding::improve(Weight::Medium, NAME, &found, "what the kernel sets at boot")
        .note("somebody set it: its unit is a page of 4096 bytes, not a byte")
        .needs(crate::tune::Needs::Reboot)
        .command("grep -rl tcp_mem /etc/sysctl.conf /etc/sysctl.d   # take the line out");
    vec![finding]
}
