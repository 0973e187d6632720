//! Buffers that every socket gets without asking.

use super::{Check, Group, sysctl_numbers};
use crate::tune::{Finding, Goal, Machine, Setting, Weight};

/// The default of kernels since 2.6 on a machine of 64 bits (net/core/sock.c, SK_RMEM_MAX).
const USUAL: &str = "212992";
/// The largest default that is reasonable for every socket, even an idle one.
const DEFAULT_BYTES_MAX: u64 = 16 << 20;

pub const CHECK: Check = Check {
    name: "buffer-defaults",
    group: Group::Tcp,
    summary: "the buffer that each socket gets without asking (rmem_default, wmem_default)",
    why: "Recipes on the web raise the default to hundreds of megabytes, or to 2 GiB. Every socket \
        of the host, even one of UDP or of the machine's own services, may then fill that much \
        memory, and a few slow readers exhaust it. TCP does not use it: its first size is the \
        middle number of tcp_rmem.",
    source: "Documentation/admin-guide/sysctl/net.rst; socket(7)",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    let default = |name: &str| match sysctl_numbers::<1>(machine, name) {
        Ok([bytes]) if bytes <= DEFAULT_BYTES_MAX => {
            Finding::good(Weight::Medium, name, &bytes.to_string())
        }
        Ok([bytes]) => Finding::improve(Weight::Medium, name, &bytes.to_string(), USUAL)
            .note("a few slow readers can fill the machine's memory")
            .change(Setting::sysctl(name), USUAL),
        Err(unread) => Finding::unknown(name, &unread),
    };
    ["net.core.rmem_default", "net.core.wmem_default"].map(default).to_vec()
}
