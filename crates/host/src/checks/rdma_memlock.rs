//! The memory that haul locks for RDMA.

use super::{Check, Group, soft_limit};
use crate::{
    rdma,
    tune::{Finding, Goal, Machine, Weight, goal::Speed},
};

/// Bytes that a stream locks: three windows of 4 MiB on the file (sent, next, released) and three
/// buffers of 1 MiB at the sender, eight at the receiver (`crates/fabric`).
const STREAM_BYTES: u64 = 16 << 20;

pub const CHECK: Check = Check {
    name: "rdma-memlock",
    group: Group::Rdma,
    summary: "haul may lock its windows and buffers for the RDMA card (RLIMIT_MEMLOCK)",
    why: "A card reads and writes memory by itself, so each window on a file and each buffer is \
        locked, 16 MiB a stream. With less a push over RDMA copies through small buffers, or \
        opens no endpoint at all. The limit is that of the shell or the service that starts \
        haul.",
    source: "getrlimit(2); ibv_reg_mr(3); systemd.exec(5), LimitMEMLOCK=",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    const SUBJECT: &str = "locked memory for RDMA";
    const FILE: &str = "/etc/security/limits.d/90-haul-memlock.conf";
    if rdma::devices(machine).is_empty() {
        return Vec::new();
    }
    let streams = match goal.speed() {
        Speed::UpTo10G | Speed::UpTo40G => 4,
        Speed::Above40G => 16,
    };
    let wanted = streams * STREAM_BYTES;
    vec![match soft_limit(machine, "Max locked memory") {
        Ok(u64::MAX) => Finding::good(Weight::High, SUBJECT, "unlimited"),
        Ok(bytes) if bytes >= wanted => {
            Finding::good(Weight::High, SUBJECT, &format!("{} MiB", bytes >> 20))
        }
        Ok(bytes) => {
            let weight = if bytes < STREAM_BYTES { Weight::High } else { Weight::Medium };
            let found = format!("{} KiB", bytes >> 10);
            let wanted = format!("{} MiB ({streams} streams) or unlimited", wanted >> 20);
            Finding::improve(weight, SUBJECT, &found, &wanted)
                .note("counts from the next login; a service needs LimitMEMLOCK=infinity")
                .command(format!("echo '* - memlock unlimited' > {FILE}"))
        }
        Err(unread) => Finding::unknown(SUBJECT, &unread),
    }]
}
