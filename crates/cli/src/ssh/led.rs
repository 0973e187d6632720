//! Rule for the addresses by which one machine of a copy is led to another.
//!
//! A machine tells its addresses itself, and may be of an enemy: it would lead others to services
//! in their networks, and see by the copy which of them are there. So what it tells counts as far
//! as it leads nowhere that is private to another. What the user's ssh connects to counts by
//! itself.

use super::{direct_host::KnownHost, ports::Ports};
use haul_transfer::internals::{local_addresses, own_addresses};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Most addresses of a machine that are tried.
const ADDRESSES_MAX: usize = 32;
/// Ports below this one are for services of the system, to which no machine is led by another.
const PORT_MIN: u16 = 1024;
/// Bits that addresses of one network have in common, where nobody tells how many they are.
const NETWORK_BITS: (u32, u32) = (24, 64);

/// A machine of a copy, by its own words and by what is known here.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Addresses that it has told, first the one that ssh came to; none before it has told some.
    pub told: Vec<IpAddr>,
    pub known: KnownHost,
}

impl Place {
    /// A machine that has told these addresses; what is none is left out.
    #[must_use]
    pub fn new(told: &[String], known: KnownHost) -> Self {
        let told = told.iter().filter_map(|text| text.parse::<IpAddr>().ok());
        Self { told: told.map(|address| address.to_canonical()).collect(), known }
    }

    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        let home = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let known = KnownHost { found: vec![(home, 0).into()], ..KnownHost::default() };
        Self { told: std::iter::once(home).chain(own_addresses()).collect(), known }
    }

    /// Whether ssh comes to this machine itself: by its loopback at both ends, and it has no
    /// address that this machine has not.
    fn is_here(&self, own: &[IpAddr]) -> bool {
        let known = self.known.addresses();
        let is_own = |told: &IpAddr| told.is_loopback() || own.contains(told);
        !known.is_empty()
            && known.iter().all(IpAddr::is_loopback)
            && self.told.first().is_none_or(IpAddr::is_loopback)
            && self.told.iter().all(is_own)
    }

    /// Whether ssh comes to it from another machine, as far as can be known, so that the address
    /// that it sees is not that of this one: by a jump host, or out of the end of a tunnel.
    #[must_use]
    pub fn sees_another(&self) -> bool {
        let is_loopback = self.known.addresses().iter().any(IpAddr::is_loopback);
        self.known.is_behind_another || (is_loopback && !self.is_here(&local_addresses()))
    }

    /// Whether ssh comes to it by way of another, so that its address is known there alone.
    fn is_behind_another(&self) -> bool {
        self.known.name.is_none() || self.known.addresses().iter().any(IpAddr::is_loopback)
    }
}

/// Addresses by which `led` may come to a port of the machine that has told them, the best first. A
/// port of the system counts where the user's ssh leads to its host, or the user has asked for it.
#[must_use]
pub fn addresses(
    teller: &Place,
    led: &Place,
    (port, asked_for): (u16, Option<Ports>),
) -> Vec<IpAddr> {
    among(teller, led, may_have_port(port, asked_for), &local_addresses())
}

/// Hosts by which `led` may come to that port, the best first: addresses, and behind the one that
/// ssh came to the name that ssh uses.
#[must_use]
pub fn hosts(teller: &Place, led: &Place, port: (u16, Option<Ports>)) -> Vec<String> {
    let (found, known) = (addresses(teller, led, port), teller.known.addresses());
    let is_led_by_name = known.iter().any(|address| found.contains(address));
    // A name that means nothing here may mean something there.
    let name = teller.known.name.clone().filter(|_| known.is_empty() || is_led_by_name);
    let at = usize::from(!found.is_empty() && found.first() == teller.told.first());
    let found = found.iter().map(IpAddr::to_string);
    let mut hosts: Vec<String> = Vec::new();
    for host in found.clone().take(at).chain(name).chain(found.skip(at)) {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    // What leads a machine to itself is tried last: it may find another server there.
    hosts.sort_by_key(|host| host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback()));
    hosts
}

/// Finds [`addresses`] on a machine with addresses `own`: where not `by_told`, those of the name
/// alone.
fn among(teller: &Place, led: &Place, by_told: bool, own: &[IpAddr]) -> Vec<IpAddr> {
    let all_are_here = teller.is_here(own) && led.is_here(own);
    let known = teller.known.addresses();
    let of_led = [&led.told[..], &led.known.addresses()].concat();
    let is_hidden = teller.is_behind_another() || known.iter().any(|one| of_led.contains(one));
    let led_is_here = led.is_here(own);
    let may_be = |address: &&IpAddr| {
        let address = *address;
        let (is_known, is_first) = (known.contains(address), teller.told.first() == Some(address));
        match Reach::of(*address) {
            Reach::Nothing => false,
            Reach::Host => all_are_here && by_told,
            // It has the interface of this machine.
            Reach::Link => is_known && led_is_here,
            _ if is_known => true,
            _ if !by_told => false,
            _ if all_are_here => true,
            Reach::All if !of_led.iter().any(|one| is_beside(*one, *address)) => true,
            Reach::All | Reach::Network => is_first && is_hidden && !of_led.contains(address),
        }
    };
    let (first, others) = teller.told.split_at(teller.told.len().min(1));
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in first.iter().chain(&known).chain(others).filter(may_be) {
        if !addresses.contains(address) && addresses.len() < ADDRESSES_MAX {
            addresses.push(*address);
        }
    }
    addresses
}

/// Bounds of the connections that a machine makes for the holder of a key for one directory. They
/// lead outside, or to where that one is already.
#[derive(Clone, Debug, Default)]
pub struct Confined {
    /// Addresses of the machine.
    pub own: Vec<IpAddr>,
    /// The address that its ssh has come from.
    pub from: Option<IpAddr>,
}

impl Confined {
    /// Whether it may connect to an address that the holder of the key has named.
    #[must_use]
    pub fn may_connect(&self, to: &SocketAddr) -> bool {
        let address = to.ip().to_canonical();
        let is_of_own = |address| self.own.iter().any(|own| is_beside(*own, address));
        let is_inside = self.from.is_some_and(|from| match Reach::of(from.to_canonical()) {
            Reach::Network => true,
            Reach::All => is_of_own(from.to_canonical()),
            Reach::Nothing | Reach::Host | Reach::Link => false,
        });
        let is_meant = match Reach::of(address) {
            Reach::Nothing | Reach::Host | Reach::Link => false,
            Reach::Network => is_inside,
            Reach::All => is_inside || !is_of_own(address),
        };
        is_meant && !self.own.contains(&address) && to.port() >= PORT_MIN
    }

    /// Whether it may connect to where its ssh has come from: another machine, as far as its
    /// address says. All services of this one stand behind its own addresses.
    #[must_use]
    pub fn may_come_back(&self) -> bool {
        let is_another = |from: IpAddr| match Reach::of(from) {
            Reach::Nothing | Reach::Host | Reach::Link => false,
            Reach::Network | Reach::All => !self.own.contains(&from),
        };
        self.from.is_some_and(is_another)
    }
}

/// Whether a machine may be led to a port: one that is no service of a system, or was asked for.
#[must_use]
pub fn may_have_port(port: u16, asked_for: Option<Ports>) -> bool {
    port >= PORT_MIN || asked_for.is_some_and(|ports| (ports.first..=ports.last).contains(&port))
}

/// Part of the world in which an address means one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// None: it is of several, or of nobody.
    Nothing,
    Host,
    Link,
    /// A network of somebody's own, or one within whose addresses are others.
    Network,
    All,
}

/// Networks that each may have (RFC 1918, 6598, 2544, 6890), and those of addresses with another
/// one within (RFC 3056, 4380). Beside them IPv6 has given away 2000::/3 alone.
const NOT_OF_ALL: [(IpAddr, u32); 8] = [
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(172, 16, 0, 0)), 12),
    (IpAddr::V4(Ipv4Addr::new(192, 168, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(100, 64, 0, 0)), 10),
    (IpAddr::V4(Ipv4Addr::new(198, 18, 0, 0)), 15),
    (IpAddr::V4(Ipv4Addr::new(192, 0, 0, 0)), 24),
    (IpAddr::V6(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0)), 16),
    (IpAddr::V6(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0)), 32),
];
const GIVEN_AWAY: (IpAddr, u32) = (IpAddr::V6(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0)), 3);

impl Reach {
    fn of(address: IpAddr) -> Self {
        let (is_of_nobody, is_of_link) = match address {
            IpAddr::V4(v4) => (matches!(v4.octets()[0], 0 | 224..), v4.is_link_local()),
            IpAddr::V6(v6) => {
                (v6.is_unspecified() || v6.is_multicast(), v6.is_unicast_link_local())
            }
        };
        let is_in = |network: &(IpAddr, u32)| is_in_network(address, network.0, network.1);
        match address {
            _ if is_of_nobody => Self::Nothing,
            _ if address.is_loopback() => Self::Host,
            _ if is_of_link => Self::Link,
            _ if NOT_OF_ALL.iter().any(is_in) => Self::Network,
            IpAddr::V6(_) if !is_in(&GIVEN_AWAY) => Self::Network,
            _ => Self::All,
        }
    }
}

/// Whether two addresses are most likely of one network.
fn is_beside(one: IpAddr, other: IpAddr) -> bool {
    let bits = if one.is_ipv4() { NETWORK_BITS.0 } else { NETWORK_BITS.1 };
    is_in_network(one, other, bits)
}

/// Whether both addresses have this many bits in common.
fn is_in_network(one: IpAddr, other: IpAddr, bits: u32) -> bool {
    let (differs, width): (u128, u32) = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => ((one.to_bits() ^ other.to_bits()).into(), 32),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits(), 128),
        _ => return false,
    };
    differs >> (width - bits) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// A machine by what it tells and the addresses that its name has here.
    fn place(told: &[&str], known: &[&str]) -> Place {
        let told: Vec<String> = told.iter().map(ToString::to_string).collect();
        let found = ips(known).into_iter().map(|address| (address, 0).into()).collect();
        let name = (!known.is_empty()).then(|| "dtn1".to_owned());
        Place::new(&told, KnownHost { name, found, ..KnownHost::default() })
    }

    fn led(teller: &Place, led: &Place) -> Vec<IpAddr> {
        among(teller, led, true, &ips(&["10.7.7.7", "2001:db8:7::7"]))
    }

    #[test]
    fn no_machine_is_led_to_itself_or_into_a_network_of_its_own() {
        let told = [
            "10.0.0.5",
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "x",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "fe80::1",
            "ff02::1",
            "::",
            "172.20.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "fc00::1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
            "2001::1",
            "203.0.113.9",
            "203.0.114.9",
            "2001:db8:2::9",
            "2001:db8:3::9",
        ];
        let target = place(&["203.0.113.8", "10.0.0.9", "2001:db8:2::8"], &["203.0.113.8"]);
        let found = led(&place(&told, &["192.0.2.7"]), &target);
        assert_eq!(found, ips(&["192.0.2.7", "203.0.114.9", "2001:db8:3::9"]));
        // What ssh here connects to is the user's word, but for what leads the other home.
        let names = ["10.0.0.6", "203.0.113.9", "127.0.0.1", "169.254.1.1"];
        assert_eq!(led(&place(&[], &names), &target), ips(&names[..2]));
    }

    /// Nobody here can know the address of a machine behind another host, or behind a tunnel.
    #[test]
    fn a_machine_behind_another_leads_by_the_address_that_its_ssh_came_to_and_by_no_other() {
        let target = place(&["10.0.0.9"], &[]);
        for known in [&[][..], &["127.0.0.1"]] {
            let teller = |first| place(&[first, "10.0.0.6", "192.168.1.1"], known);
            assert_eq!(led(&teller("10.0.0.5"), &target), ips(&["10.0.0.5"]));
            for first in ["10.0.0.9", "127.0.0.1", "169.254.169.254", "::"] {
                assert!(led(&teller(first), &target).is_empty(), "{first}");
            }
        }
        // Two ports of one address that is translated.
        let teller = place(&["192.168.1.5", "192.168.1.1"], &["192.0.2.7"]);
        let other = place(&["192.168.1.6"], &["192.0.2.7"]);
        assert_eq!(led(&teller, &other), ips(&["192.168.1.5", "192.0.2.7"]));
    }

    #[test]
    fn loopback_counts_where_ssh_comes_to_this_machine_at_both_ends_for_both() {
        let here = place(&["127.0.0.1", "10.7.7.7"], &["127.0.0.1", "::1"]);
        let expected = ips(&["127.0.0.1", "::1", "10.7.7.7"]);
        assert_eq!(led(&here, &here), expected);
        assert_eq!(led(&here, &place(&[], &["::1"])), expected, "one that has told nothing yet");
        // A tunnel from here to another machine: sshd there has another address, or ends it.
        for told in [&["10.0.0.5"][..], &["127.0.0.1", "10.0.0.5"], &["10.7.7.7"]] {
            let tunnel = place(told, &["127.0.0.1"]);
            assert!(!led(&here, &tunnel).contains(&expected[0]), "{told:?}");
            assert!(!led(&tunnel, &here).contains(&expected[0]), "{told:?}");
        }
        let elsewhere = place(&["127.0.0.1"], &["192.0.2.7"]);
        assert_eq!(led(&elsewhere, &here), ips(&["192.0.2.7"]));
        assert!(led(&here, &elsewhere).iter().all(|address| !address.is_loopback()));
        // What sees this machine may come back to the address that it sees.
        let sees_another = |known: KnownHost| {
            let told = local_addresses().iter().map(ToString::to_string).collect::<Vec<_>>();
            let told = [vec!["127.0.0.1".to_owned()], told].concat();
            Place::new(&told, known).sees_another()
        };
        assert!(!sees_another(here.known.clone()));
        assert!(sees_another(KnownHost { is_behind_another: true, ..KnownHost::default() }));
        assert!(place(&["10.255.0.5"], &["127.0.0.1"]).sees_another(), "a tunnel");
        assert!(!place(&["10.255.0.5"], &["192.0.2.7"]).sees_another());
        // An address of a link that ssh here uses has an interface of this machine.
        let link = place(&["192.0.2.7"], &["fe80::1"]);
        assert_eq!(led(&link, &here), ips(&["192.0.2.7", "fe80::1"]));
        let this = Place { told: [ips(&["127.0.0.1"]), own_addresses()].concat(), ..here };
        assert!(addresses(&this, &Place::here(), (5000, None)).contains(&expected[0]));
        // A tunnel to a machine that lies can look so, and nobody has asked for a service here.
        let to = |port| addresses(&this, &Place::here(), (port, None));
        assert!(to(25).is_empty());
        let asked_for = Some(Ports { first: 20, last: 30 });
        assert!(addresses(&this, &Place::here(), (25, asked_for)).contains(&expected[0]));
    }

    /// The kernel delivers to the address of an interface without a carrier all the same: whoever
    /// tells it is this machine, and one that tells another address is a tunnel's end.
    #[test]
    fn an_address_of_an_interface_without_a_carrier_is_one_of_this_machine() {
        let namespace = match haul_emulator::namespace::Namespace::make("led", "here") {
            Ok(namespace) => namespace,
            Err(why) => return haul_testkit::skip::skip("root and ip(8)", why.to_string()),
        };
        for words in [
            &["link", "add", "near", "type", "veth", "peer", "name", "far"][..],
            &["address", "add", "10.99.1.1/24", "dev", "near"],
            &["link", "set", "near", "up"],
        ] {
            namespace.ip(words).unwrap();
        }
        let found = namespace.within(|| {
            let near = "10.99.1.1".parse().unwrap();
            assert!(local_addresses().contains(&near) && !own_addresses().contains(&near));
            ["10.99.1.1", "10.99.1.2"].map(|other| {
                let teller = place(&["127.0.0.1", other], &["127.0.0.1"]);
                addresses(&teller, &Place::here(), (5000, None))
            })
        });
        assert_eq!(found.unwrap(), [ips(&["127.0.0.1", "10.99.1.1"]), vec![]]);
    }

    /// The holder of such a key may not look around in the network of the machine.
    #[test]
    fn a_key_for_one_directory_leads_outside_or_to_where_its_holder_is() {
        let may = |from: &str, to: &str| {
            let own = ips(&["192.0.2.2", "10.0.0.2", "2001:db8:7::7"]);
            let from = from.parse().ok();
            Confined { own, from }.may_connect(&to.parse().unwrap())
        };
        for to in ["203.0.113.5:5000", "[2001:db8:8::1]:1024"] {
            assert!(may("198.51.100.1", to) && may("10.0.0.7", to) && may("", to), "{to}");
        }
        for to in ["10.0.0.9:5000", "192.168.3.4:5000", "192.0.2.9:5000", "[fd00::1]:5000"] {
            assert!(may("10.0.0.7", to) && may("192.0.2.7", to), "{to}");
            for from in ["198.51.100.1", "127.0.0.1", "::1", "fe80::1", ""] {
                assert!(!may(from, to), "{from} {to}");
            }
        }
        for to in [
            "127.0.0.1:5000",
            "[::ffff:127.0.0.1]:5000",
            "0.0.0.0:5000",
            "169.254.169.254:5000",
            "10.0.0.2:5000",
            "192.0.2.2:5000",
            "203.0.113.5:25",
            "203.0.113.5:1023",
        ] {
            assert!(!may("198.51.100.1", to) && !may("10.0.0.7", to), "{to}");
        }
    }

    #[test]
    fn the_name_that_ssh_uses_stands_behind_the_address_that_it_came_to() {
        let told = ["10.0.0.5", "203.0.113.5", "127.0.0.1", "::1"];
        let told = |name: Option<&str>, known: &[&str]| {
            let mut place = place(&told, known);
            place.known.name = name.map(str::to_owned);
            hosts(&place, &Place::default(), (5000, None))
        };
        let expected = ["dtn2", "192.0.2.7", "203.0.113.5"];
        assert_eq!(told(Some("dtn2"), &["192.0.2.7"]), expected);
        let expected = ["203.0.113.5", "dtn2"];
        let place = place(&expected[..1], &["203.0.113.5"]);
        let named = KnownHost { name: Some("dtn2".into()), ..place.known };
        let place = Place { known: named, ..place };
        assert_eq!(hosts(&place, &Place::default(), (5000, None)), expected);
        // A name that means nothing here, a host behind another, and a tunnel.
        assert_eq!(told(Some("dtn2"), &[]), ["dtn2", "203.0.113.5"]);
        assert_eq!(told(None, &[]), ["10.0.0.5", "203.0.113.5"]);
        assert_eq!(told(Some("localhost"), &["127.0.0.1"]), ["10.0.0.5", "203.0.113.5"]);
        let home = Place::new(&["127.0.0.1".into()], KnownHost::default());
        let home = Place { known: Place::here().known, ..home };
        assert_eq!(hosts(&home, &home, (5000, None)), ["127.0.0.1"]);
    }

    #[test]
    fn a_port_of_the_system_counts_where_it_was_asked_for() {
        let ports = Some(Ports { first: 20, last: 30 });
        assert!(may_have_port(1024, None) && may_have_port(25, ports));
        assert!(!may_have_port(25, None) && !may_have_port(31, ports));
        let (teller, led) = (place(&["203.0.113.5"], &["192.0.2.7"]), Place::default());
        assert_eq!(addresses(&teller, &led, (25, ports)), ips(&["203.0.113.5", "192.0.2.7"]));
        assert_eq!(addresses(&teller, &led, (25, None)), ips(&["192.0.2.7"]));
    }
}
