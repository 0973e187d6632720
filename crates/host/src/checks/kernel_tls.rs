//! TLS of the kernel, for private data streams and for HTTPS.

use super::{Check, Group};
use crate::tune::{Finding, Goal, Machine, Needs, Platform, Weight};

pub const CHECK: Check = Check {
    name: "kernel-tls",
    group: Group::System,
    summary: "the kernel encrypts TLS by itself (module tls)",
    why: "With --protection private, and for haul media's HTTPS, the kernel can encrypt what \
        sendfile(2) and splice(2) put into a socket, so that no byte passes haul's own memory. The \
        module is loaded by itself only for who may load modules (CAP_NET_ADMIN); without it haul \
        encrypts in its own process, which copies each byte twice.",
    source: "Linux, Documentation/networking/tls.rst; net/ipv4/tcp_ulp.c (tcp_ulp_find_autoload)",
    look,
};

/// The protocols that may be above TCP, of which `tls` is one.
const AVAILABLE: &str = "net.ipv4.tcp_available_ulp";

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    const SUBJECT: &str = "TLS in the kernel";
    let available = match machine.sysctl(AVAILABLE) {
        Ok(available) => available,
        Err(unread) => return vec![Finding::unknown(SUBJECT, &unread)],
    };
    if available.split_whitespace().any(|name| name == "tls") {
        return vec![match machine.try_kernel_tls() {
            None => Finding::good(Weight::Low, SUBJECT, "there"),
            Some(Ok(())) => Finding::good(Weight::Low, SUBJECT, "there, and it encrypts"),
            Some(Err(why)) => {
                let why = why.to_string();
                Finding::improve(Weight::Low, SUBJECT, &why, "a kernel that encrypts")
                    .needs(Needs::ContainerHost)
                    .note("tried on this host; haul encrypts in its own process instead")
            }
        }];
    }
    let finding = Finding::improve(Weight::Low, SUBJECT, "none", "module tls")
        .note("for --protection private and HTTPS; a kernel built without it encrypts nothing");
    let finding = match machine.platform() {
        Platform::Container => finding.needs(Needs::ContainerHost),
        Platform::Hardware | Platform::Virtual => finding,
    };
    vec![finding.command("modprobe tls && echo tls > /etc/modules-load.d/haul-tls.conf")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(available: &[(&str, &str)]) -> Finding {
        let host = stored::host(available);
        let machine = host.machine();
        let goal = Goal::of(&machine, &crate::tune::Wanted::default());
        look(&machine, &goal).remove(0)
    }

    #[test]
    fn the_module_is_found_among_those_above_tcp() {
        let ulp = "proc/sys/net/ipv4/tcp_available_ulp";
        assert_eq!(found(&[(ulp, "espintcp mptcp tls\n")]).state, State::Good);
        let missing = found(&[(ulp, "espintcp mptcp\n")]);
        assert_ne!(missing.state, State::Good);
        assert!(missing.command.contains("modprobe tls"));
        assert_ne!(found(&[]).state, State::Good, "it cannot be read");
    }

    #[test]
    fn a_kernel_that_was_tried_is_told_by_what_it_did() {
        let tried = |answer: &str| {
            let host = stored::host(&[("proc/sys/net/ipv4/tcp_available_ulp", "tls\n")]);
            let host = host.answer("kernel-tls", answer);
            let machine = host.machine();
            let goal = Goal::of(&machine, &crate::tune::Wanted::default());
            look(&machine, &goal).remove(0)
        };
        let encrypts = tried("it encrypts");
        assert_eq!((encrypts.state, &*encrypts.found), (State::Good, "there, and it encrypts"));
        let why = "the kernel takes the keys of TLS and does not encrypt";
        let does_not = tried(&format!("! {why}"));
        assert_ne!(does_not.state, State::Good);
        assert!(does_not.found.contains(why) && does_not.command.is_empty(), "{does_not:?}");
    }
}
