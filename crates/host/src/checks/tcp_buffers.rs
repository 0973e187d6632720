//! The size up to which TCP lets the buffers of a socket grow by themselves.

use super::{Check, Group, sysctl_numbers};
use crate::tune::{Finding, Goal, Machine, Role, Setting, Weight,
    goal::{Speed, rate_words},
};

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
    let (weight, note) = match goal.rtt_ms {
        Some(rtt) => {
            // Half of a receive buffer is room for the kernel's own records (tcp_adv_win_scale).
            let bits_per_s = most as f64 / 2.0 * 8000.0 / rtt;
            if bits_per_s >= goal.rate_bits_per_s as f64 {
                let note = format!("enough for a path of {rtt} ms, not for a longer one");
                (Weight::Medium, note)
            } else {
                let rate = rate_words(bits_per_s as u64 / 1_000_000 * 1_000_000);
                (Weight::High, format!("at {rtt} ms a stream makes about {rate} with it"))
            }
        }
        None => (Weight::High, String::new()),
    };
    Finding::improve(weight, name, &found, &shown)
        .note(note)
        .change(Setting::sysctl(name), shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_path_needs_less_and_is_told_so() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("proc/sys/net/ipv4");
        std::fs::create_dir_all(&directory).unwrap();
        for name in ["tcp_rmem", "tcp_wmem"] {
            std::fs::write(directory.join(name), "4096\t16384\t4194304\n").unwrap();
        }
        let machine = Machine::below(root.path());
        let goal = |rtt_ms| Goal {
            role: Role::Dtn,
            rate_bits_per_s: 10_000_000_000,
            rate_from: String::new(),
            rtt_ms,
            cards: vec![],
        };
        let far = &look(&machine, &goal(Some(100.0)))[0];
        assert_eq!((far.weight, &far.wanted[..]), (Weight::High, "4096 16384 67108864"));
        assert_eq!(far.note, "at 100 ms a stream makes about 167 Mbit/s with it");
        let near = &look(&machine, &goal(Some(0.2)))[0];
        assert_eq!((near.weight, &near.wanted[..]), (Weight::Medium, "4096 16384 33554432"));
    }
}
