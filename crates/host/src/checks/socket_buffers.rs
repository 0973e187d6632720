//! The largest buffer that a program may ask for on a socket.

use super::{Check, Group, sysctl_at_least};
use crate::tune::{Finding, Goal, Machine, Role, Weight, goal::Speed};

pub const CHECK: Check = Check {
    name: "socket-buffers",
    group: Group::Tcp,
    summary: "the largest buffer that a program may ask for (SO_RCVBUF, SO_SNDBUF)",
    why: "A stream can have no more bytes on the way than its buffers hold: rate = buffer / RTT. \
        What a program asks for is cut to these limits. The values for a data transfer node are \
        below what one stream needs on a long path, so that several streams share the path \
        fairly; a test host's are larger.",
    source: "ESnet fasterdata.es.net, host tuning; socket(7), tcp(7)",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    let of_table = match (goal.role, goal.speed()) {
        (Role::Media, _) | (Role::Dtn, Speed::UpTo10G) => 64 << 20,
        (Role::Dtn, Speed::UpTo40G) => 128 << 20,
        (Role::TestHost, Speed::UpTo10G) => 256 << 20,
        (Role::TestHost, Speed::UpTo40G) => 512 << 20,
        (Role::Dtn | Role::TestHost, Speed::Above40G) => 2_147_483_647,
    };
    let wanted = goal.stream_buffer_bytes(of_table);
    ["net.core.rmem_max", "net.core.wmem_max"]
        .map(|name| sysctl_at_least(machine, name, wanted, Weight::Medium))
        .to_vec()
}
