//! The address of this host at which a provider is opened, with the interface of a link-local one.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use rustix::net::AddressFamily;

/// Address of this host, and the number of its interface where the address holds on one link only
/// (`fe80::/10`, RFC 4007).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    ip: IpAddr,
    /// Number of the interface; 0 without one.
    zone: u32,
}

impl LocalAddress {
    #[must_use]
    pub fn ip(self) -> IpAddr {
        self.ip
    }

    /// Number of the interface that a link-local address is of, else 0.
    #[must_use]
    pub fn zone(self) -> u32 {
        self.zone
    }

    /// Writes this host's number of the interface into a link-local socket address (ipv6(7)) of a
    /// peer, who has another number for the same link. Leaves all other addresses as they are.
    #[cfg_attr(
        not(any(feature = "libfabric", test)),
        expect(dead_code, reason = "no peer is there")
    )]
    pub(crate) fn write_zone(self, peer: &mut [u8]) {
        const FAMILY: usize = 0;
        const IP: usize = 8;
        const ZONE: usize = 24;
        const LEN: usize = 28;
        let family = AddressFamily::INET6.as_raw().to_ne_bytes();
        let is_link_local = |ip: &[u8]| ip[0] == 0xfe && ip[1] & 0xc0 == 0x80;
        if self.zone != 0
            && peer.len() == LEN
            && peer[FAMILY..FAMILY + 2] == family
            && is_link_local(&peer[IP..])
        {
            peer[ZONE..].copy_from_slice(&self.zone.to_ne_bytes());
        }
    }
}

impl From<IpAddr> for LocalAddress {
    fn from(ip: IpAddr) -> Self {
        Self { ip, zone: 0 }
    }
}

impl From<SocketAddr> for LocalAddress {
    /// Takes the address of a socket, without its port.
    fn from(socket: SocketAddr) -> Self {
        let zone = match socket {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(v6) => v6.scope_id(),
        };
        Self { ip: socket.ip().to_canonical(), zone }
    }
}

impl fmt::Display for LocalAddress {
    /// Writes what getaddrinfo(3) reads.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.zone {
            0 => write!(formatter, "{}", self.ip),
            zone => write!(formatter, "{}%{zone}", self.ip),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> LocalAddress {
        text.parse::<SocketAddr>().expect("an address").into()
    }

    #[test]
    fn an_address_keeps_its_interface_and_nothing_else_of_its_socket() {
        assert_eq!(of("[fe80::1%7]:80").to_string(), "fe80::1%7");
        assert_eq!(of("[2001:db8::1]:80").to_string(), "2001:db8::1");
        assert_eq!(of("[::ffff:10.0.0.1]:80"), IpAddr::from([10, 0, 0, 1]).into());
        assert_eq!(of("10.0.0.1:80").to_string(), "10.0.0.1");
    }

    /// A socket address of IPv6 in interface 3, as the kernel has it.
    fn written(ip: &str) -> Vec<u8> {
        let family = AddressFamily::INET6.as_raw().to_ne_bytes();
        let ip: std::net::Ipv6Addr = ip.parse().expect("an address");
        [&family[..], &[0; 6], &ip.octets(), &3_u32.to_ne_bytes()].concat()
    }

    #[test]
    fn a_peer_is_reached_by_the_interface_of_this_host() {
        let zone_of = |local: &str, peer: &[u8]| {
            let mut peer = peer.to_vec();
            of(local).write_zone(&mut peer);
            u32::from_ne_bytes(*peer.last_chunk().expect("four bytes"))
        };
        assert_eq!(zone_of("[fe80::1%7]:80", &written("fe80::2")), 7);
        assert_eq!(zone_of("[fe80::1%7]:80", &written("febf::2")), 7);
        assert_eq!(zone_of("[fe80::1%7]:80", &written("fec0::2")), 3, "of a site");
        assert_eq!(zone_of("[fe80::1%7]:80", &written("2001:db8::2")), 3);
        assert_eq!(zone_of("[2001:db8::1]:80", &written("fe80::2")), 3, "without an interface");
        let longer = [&written("fe80::2")[..], &3_u32.to_ne_bytes()].concat();
        assert_eq!(zone_of("[fe80::1%7]:80", &longer), 3, "no socket address");
        let other = [&[9, 9][..], &written("fe80::2")[2..]].concat();
        assert_eq!(zone_of("[fe80::1%7]:80", &other), 3, "of another family");
    }
}
