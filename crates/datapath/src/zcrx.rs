//! io_uring's zero-copy receive (zcrx): what it would need, and what this host has of it.
//!
//! With it a network card writes payloads straight into a program's memory, headers apart, by a
//! queue of its own that the program sets up (Documentation/networking/iou-zcrx.rst, Linux 6.15).
//! haul has no engine for it, as no card that can do it was at hand to try one with; this is what
//! is shown to those who ask, and `zerocopy-receive` is the engine that uses such cards' pages.

use crate::{Host, Verdict};

/// Drivers of which some cards have zero-copy receive; `ethtool -g` says of one card whether it
/// splits headers (TCP data split).
const DRIVERS: [&str; 4] = ["bnxt_en", "fbnic", "gve", "mlx5_core"];

/// The verdict on zero-copy receive: always a refusal, which names what is missing first.
#[must_use]
pub fn verdict(host: &Host) -> Verdict {
    let refused = |needs, found| Verdict::Refused { needs, found };
    if host.kernel < (6, 15) {
        return refused(
            "Linux 6.15 or later",
            format!("Linux {}.{}", host.kernel.0, host.kernel.1),
        );
    }
    if host.io_uring_disabled {
        let found = "it forbids io_uring to this process".to_owned();
        return refused("kernel.io_uring_disabled = 0", found);
    }
    if !host.may_administer_network {
        return refused("CAP_NET_ADMIN", "a process without it".to_owned());
    }
    let drivers = host.network_drivers.join(", ");
    if !host.network_drivers.iter().any(|driver| DRIVERS.contains(&driver.as_str())) {
        let found = if drivers.is_empty() { "no network card".to_owned() } else { drivers };
        return refused("a network card with header split and flow steering", found);
    }
    let found = format!("none in this version, and a card that may be able to ({drivers})");
    refused("an engine for it", found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_that_is_missing_is_named_in_its_turn() {
        let with_card = Host {
            kernel: (6, 15),
            may_administer_network: true,
            network_drivers: vec!["mlx5_core".into(), "virtio_net".into()],
            ..Host::default()
        };
        let said = |host: &Host| match verdict(host) {
            Verdict::Refused { needs, found } => format!("needs {needs}, found {found}"),
            Verdict::Usable => panic!("there is no engine for it"),
        };
        let last = "needs an engine for it, found none in this version, and a card that may be \
                    able to (mlx5_core, virtio_net)";
        assert_eq!(said(&with_card), last);
        let none = Host { network_drivers: Vec::new(), ..with_card.clone() };
        assert!(said(&none).ends_with("flow steering, found no network card"));
        let other = Host { network_drivers: vec!["virtio_net".into()], ..with_card.clone() };
        assert!(said(&other).ends_with("flow steering, found virtio_net"));
        let user = Host { may_administer_network: false, ..other };
        assert!(said(&user).starts_with("needs CAP_NET_ADMIN"));
        let off = Host { io_uring_disabled: true, ..user };
        assert!(said(&off).starts_with("needs kernel.io_uring_disabled = 0"));
        assert_eq!(
            said(&Host { kernel: (6, 14), ..off }),
            "needs Linux 6.15 or later, found Linux 6.14"
        );
    }
}
