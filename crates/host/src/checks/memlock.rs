//! The memory that a program may lock in its place.

use super::{Check, Group, soft_limit};
use crate::tune::{Finding, Goal, Machine, Weight, goal::Speed};

/// Locked memory for an io_uring with its slots, or for a short path's unacknowledged bytes.
const LEAST_BYTES: u64 = 64 << 20;
/// Locked memory for registered buffers of RDMA, or for a long path's unacknowledged bytes.
const FAST_BYTES: u64 = 1 << 30;

pub const CHECK: Check = Check {
    name: "memlock",
    group: Group::System,
    summary: "programs may keep memory in place (RLIMIT_MEMLOCK)",
    why: "What a card reads by itself must not move: MSG_ZEROCOPY counts all bytes that the peer \
        has not acknowledged, io_uring and RDMA the buffers that they register. With the usual \
        8 MiB haul takes a way that copies. Root is not held to it.",
    source: "getrlimit(2); Documentation/networking/msg_zerocopy.rst; io_uring_register(2)",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    const SUBJECT: &str = "locked memory";
    let (wanted, weight) = match goal.speed() {
        Speed::Above40G => (FAST_BYTES, Weight::Medium),
        Speed::UpTo10G | Speed::UpTo40G => (LEAST_BYTES, Weight::Low),
    };
    let wanted = wanted.max(goal.bdp_bytes().unwrap_or_default());
    vec![match soft_limit(machine, "Max locked memory") {
        Ok(u64::MAX) => Finding::good(weight, SUBJECT, "unlimited"),
        Ok(bytes) if bytes >= wanted => {
            Finding::good(weight, SUBJECT, &format!("{} MiB", bytes >> 20))
        }
        Ok(bytes) => {
            let file = "/etc/security/limits.d/90-haul-memlock.conf";
            let found = format!("{} KiB", bytes >> 10);
            let wanted = format!("{} MiB or unlimited", wanted.div_ceil(1 << 20));
            Finding::improve(weight, SUBJECT, &found, &wanted)
                .note("counts from the next login; a service needs LimitMEMLOCK=infinity")
                .command(format!("echo '* - memlock unlimited' > {file}"))
        }
        Err(unread) => Finding::unknown(SUBJECT, &unread),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    #[test]
    fn a_long_fast_path_wants_more_locked_memory() {
        let found = |limit: &str, gigabits, rtt_ms| {
            let text = format!("Max open files 9 9 files\nMax locked memory  {limit} 9 bytes\n");
            let host = stored::host(&[("proc/self/limits", &text)]);
            let goal = Goal { rtt_ms, ..host.goal_of(gigabits) };
            look(&host.machine(), &goal).remove(0)
        };
        assert_eq!(found("8388608", 10, None).wanted, "64 MiB or unlimited");
        assert_eq!(found("134217728", 10, None).state, State::Good);
        assert_eq!(found("134217728", 100, None).weight, Weight::Medium);
        assert_eq!(found("134217728", 10, Some(200.0)).wanted, "239 MiB or unlimited");
        assert_eq!(found("unlimited", 400, Some(100.0)).state, State::Good);
        assert_eq!(found("odd", 10, None).state, State::Unknown);
    }
}
