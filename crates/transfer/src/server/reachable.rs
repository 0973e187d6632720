//! Hosts by which others reach this server: its name and addresses, the best one first.
//!
//! The name of this host comes first where it leads to one of its addresses: otherwise others may
//! not know it. Addresses are the kernel's; which of them the default route uses tells a socket
//! that is connected and says nothing.

use haul_sys::interfaces::{InterfaceAddress, addresses};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket},
    sync::mpsc,
    thread,
    time::Duration,
};

/// Time for which the name of this host may be looked up: where no name server answers, addresses
/// do.
const LOOK_UP_MAX: Duration = Duration::from_secs(1);
/// Addresses of blocks that nobody has (RFC 5737, RFC 3849): the default route leads there.
const ELSEWHERE: [(IpAddr, IpAddr); 2] = [
    (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1))),
    (
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1)),
    ),
];

/// The hosts of the URLs that a server prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// Names and addresses, the best first, never empty.
    pub names: Vec<String>,
    /// Whether others reach it: false where this machine has no address but its own loopback.
    pub for_others: bool,
}

impl Hosts {
    /// The one host that the user has chosen.
    #[must_use]
    pub fn chosen(name: String) -> Self {
        Self { names: vec![name], for_others: true }
    }

    /// Finds the hosts of a server that listens on `listen`.
    #[must_use]
    pub(crate) fn of(listen: IpAddr) -> Self {
        if !listen.is_unspecified() {
            return Self { names: vec![listen.to_string()], for_others: !listen.is_loopback() };
        }
        let all = addresses().unwrap_or_default();
        let defaults: Vec<IpAddr> = ELSEWHERE.iter().filter_map(source_address).collect();
        let ranked = ranked(&all, &defaults, listen);
        let name = haul_host::host_name().filter(|name| leads_to_one_of(name, &ranked));
        Self::named(name, &ranked, listen)
    }

    fn named(name: Option<String>, addresses: &[IpAddr], listen: IpAddr) -> Self {
        let names: Vec<String> =
            name.into_iter().chain(addresses.iter().map(IpAddr::to_string)).collect();
        if !names.is_empty() {
            return Self { names, for_others: true };
        }
        // Where it listens on all of IPv6, it does so on IPv4.
        let loopback = match listen {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.to_string(),
            IpAddr::V6(_) => "localhost".to_owned(),
        };
        Self { names: vec![loopback], for_others: false }
    }
}

/// Addresses of this host by which others may reach it, the best first.
#[must_use]
pub fn own_addresses() -> Vec<IpAddr> {
    let all = addresses().unwrap_or_default();
    let defaults: Vec<IpAddr> = ELSEWHERE.iter().filter_map(source_address).collect();
    ranked(&all, &defaults, Ipv6Addr::UNSPECIFIED.into())
}

/// All addresses to which the kernel delivers here, those of interfaces without a carrier as well.
#[must_use]
pub fn local_addresses() -> Vec<IpAddr> {
    addresses().unwrap_or_default().into_iter().map(|one| one.address.to_canonical()).collect()
}

/// Addresses that others may reach: those of the default route first, then others of its links.
fn ranked(all: &[InterfaceAddress], defaults: &[IpAddr], listen: IpAddr) -> Vec<IpAddr> {
    let of_default =
        |name: &str| all.iter().any(|one| one.interface == name && defaults.contains(&one.address));
    let fits = |address: IpAddr| address.is_ipv4() || listen.is_ipv6();
    let mut found: Vec<&InterfaceAddress> = all
        .iter()
        .filter(|one| one.is_running && is_for_others(one.address) && fits(one.address))
        .collect();
    found.sort_by_key(|one| {
        let is_default = defaults.contains(&one.address);
        (!is_default, !of_default(&one.interface), one.address.is_ipv6())
    });
    let mut addresses: Vec<IpAddr> = Vec::new();
    for one in found {
        if !addresses.contains(&one.address) {
            addresses.push(one.address);
        }
    }
    addresses
}

/// Whether an address is neither loopback nor one that means something on one link only.
fn is_for_others(address: IpAddr) -> bool {
    let is_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(is_local || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}

/// The address that this host has towards another.
fn source_address((any, elsewhere): &(IpAddr, IpAddr)) -> Option<IpAddr> {
    let socket = UdpSocket::bind(SocketAddr::new(*any, 0)).ok()?;
    socket.connect(SocketAddr::new(*elsewhere, 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

fn leads_to_one_of(name: &str, addresses: &[IpAddr]) -> bool {
    let (sender, receiver) = mpsc::channel();
    let asked = (name.to_owned(), 0);
    let lookup = thread::Builder::new().name("haul-lookup".into()).spawn(move || {
        let found = asked.to_socket_addrs().map(|found| found.map(|one| one.ip()).collect());
        let _ = sender.send(found.unwrap_or_default());
    });
    let Ok(_) = lookup else { return false };
    let found: Vec<IpAddr> = receiver.recv_timeout(LOOK_UP_MAX).unwrap_or_default();
    found.iter().any(|address| addresses.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

    fn has(interface: &str, address: &str) -> InterfaceAddress {
        let (interface, address) = (interface.to_owned(), address.parse().unwrap());
        InterfaceAddress { interface, address, prefix_bits: 24, is_running: true }
    }

    fn addresses_of(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_address_of_the_default_route_is_first_and_what_others_cannot_reach_is_left_out() {
        let mut all = vec![
            has("lo", "127.0.0.1"),
            has("lo", "::1"),
            has("ib0", "10.9.0.1"),
            has("eth0", "192.168.1.5"),
            has("eth0", "192.168.1.6"),
            has("eth0", "fe80::1"),
            has("eth0", "2001:db8::5"),
            has("usb0", "169.254.3.3"),
            has("eth0", "192.168.1.5"),
        ];
        all.push(InterfaceAddress { is_running: false, ..has("docker0", "172.17.0.1") });
        let defaults = addresses_of(&["192.168.1.6", "2001:db8::5"]);
        let expected = ["192.168.1.6", "2001:db8::5", "192.168.1.5", "10.9.0.1"];
        assert_eq!(ranked(&all, &defaults, ANY), addresses_of(&expected));
        let v4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let expected = ["192.168.1.6", "192.168.1.5", "10.9.0.1"];
        assert_eq!(ranked(&all, &defaults, v4), addresses_of(&expected));
        assert!(ranked(&all[..2], &[], ANY).is_empty());
    }

    #[test]
    fn a_name_is_kept_where_it_leads_here_and_loopback_alone_is_told() {
        let addresses = addresses_of(&["192.168.1.5"]);
        let hosts = Hosts::named(Some("dtn1".into()), &addresses, ANY);
        assert_eq!(
            (hosts.names, hosts.for_others),
            (vec!["dtn1".into(), "192.168.1.5".into()], true)
        );
        let hosts = Hosts::named(None, &[], ANY);
        assert_eq!((hosts.names, hosts.for_others), (vec!["localhost".into()], false));
        assert!(!leads_to_one_of("localhost", &addresses));
        assert!(!leads_to_one_of("no-such-host.invalid", &addresses));
        let chosen = Hosts::of("127.0.0.1".parse().unwrap());
        assert_eq!((chosen.names, chosen.for_others), (vec!["127.0.0.1".into()], false));
        let chosen = Hosts::of("192.168.1.5".parse().unwrap());
        assert_eq!(chosen, Hosts::chosen("192.168.1.5".into()));
        // Whatever this machine has.
        assert!(!Hosts::of(ANY).names.is_empty());
    }
}
