//! `getifaddrs(3)`: network interfaces and their addresses.

use std::{
    ffi::CStr,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    pub interface: String,
    pub address: IpAddr,
    /// Leading bits of the address that all of its subnet have: all bits where none is told, and
    /// where the interface leads to one peer, as a tunnel does (IFF_POINTOPOINT).
    pub prefix_bits: u32,
    /// Whether the interface has a carrier, as the driver sees it (IFF_RUNNING).
    pub is_running: bool,
}

impl InterfaceAddress {
    /// Whether a peer is in the subnet of this address, so that no router is on the way to it.
    #[must_use]
    pub fn has_in_subnet(&self, peer: IpAddr) -> bool {
        let network = |address: u128, bits: u32| {
            address.checked_shr(bits.saturating_sub(self.prefix_bits)).unwrap_or(0)
        };
        match (self.address.to_canonical(), peer.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(peer)) => {
                network(own.to_bits().into(), 32) == network(peer.to_bits().into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(peer)) => {
                network(own.to_bits(), 128) == network(peer.to_bits(), 128)
            }
            _ => false,
        }
    }
}

/// Whether a peer is in the subnet of this host's address `local`.
///
/// # Errors
/// What getifaddrs(3) says.
pub fn are_in_one_subnet(local: IpAddr, peer: IpAddr) -> io::Result<bool> {
    let local = local.to_canonical();
    Ok(addresses()?.iter().any(|one| one.address == local && one.has_in_subnet(peer)))
}

/// The interface that has this address; `None` if none has.
///
/// # Errors
/// What getifaddrs(3) says.
pub fn name_of(address: IpAddr) -> io::Result<Option<String>> {
    let mut all = addresses()?.into_iter();
    Ok(all.find(|one| one.address == address).map(|one| one.interface))
}

/// All internet addresses of this host, in the kernel's order.
///
/// # Errors
/// What getifaddrs(3) says.
pub fn addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut first = core::ptr::null_mut();
    // SAFETY: `first` is written with the head of a list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut next = first;
    let mut found = Vec::new();
    while !next.is_null() {
        // SAFETY: an element of the list, which lives until it is freed below.
        let entry = unsafe { &*next };
        if let Some(address) = address_of(entry.ifa_addr) {
            // SAFETY: a name of an element is a string that ends with a zero.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            let interface = name.to_string_lossy().into_owned();
            let is_running = entry.ifa_flags & libc::IFF_RUNNING.cast_unsigned() != 0;
            let is_tunnel = entry.ifa_flags & libc::IFF_POINTOPOINT.cast_unsigned() != 0;
            let prefix_bits = match address_of(entry.ifa_netmask).filter(|_| !is_tunnel) {
                Some(IpAddr::V4(mask)) => mask.to_bits().leading_ones(),
                Some(IpAddr::V6(mask)) => mask.to_bits().leading_ones(),
                None => u128::BITS,
            };
            found.push(InterfaceAddress { interface, address, prefix_bits, is_running });
        }
        next = entry.ifa_next;
    }
    // SAFETY: the head that getifaddrs(3) gave, freed once; nothing points into the list any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// The internet address in a socket address; `None` for any other, such as that of a link.
fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: it points to a socket address, which is as long as its family says.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: of this family, so it is a sockaddr_in; perhaps not aligned as one.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: of this family, so it is a sockaddr_in6; perhaps not aligned as one.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_has_the_peers_that_share_the_bits_of_its_prefix() {
        let of = |address: &str, prefix_bits| InterfaceAddress {
            interface: "eth0".into(),
            address: address.parse().unwrap(),
            prefix_bits,
            is_running: true,
        };
        let has = |address, prefix_bits, peer: &str| {
            of(address, prefix_bits).has_in_subnet(peer.parse().unwrap())
        };
        assert!(has("10.78.0.1", 24, "10.78.0.6"));
        assert!(has("10.78.0.1", 24, "::ffff:10.78.0.6"), "of a socket that takes both families");
        assert!(!has("10.78.0.1", 24, "10.78.1.6"));
        assert!(has("10.78.0.1", 23, "10.78.1.6"));
        assert!(!has("10.78.0.1", 32, "10.78.0.2") && has("10.78.0.1", 0, "192.0.2.1"));
        assert!(!has("10.78.0.1", u128::BITS, "10.78.0.2"), "without a mask");
        assert!(has("2001:db8::1", 64, "2001:db8::ffff:1"));
        assert!(!has("2001:db8::1", 64, "2001:db8:0:1::1"));
        assert!(has("2001:db8::1", 0, "::1") && !has("2001:db8::1", 128, "2001:db8::2"));
        assert!(!has("10.78.0.1", 0, "2001:db8::1"));
    }

    #[test]
    fn loopback_is_a_subnet_of_the_kernels_own_prefix() {
        let shares = |peer: &str| {
            are_in_one_subnet(Ipv4Addr::LOCALHOST.into(), peer.parse().unwrap()).unwrap()
        };
        assert!(shares("127.200.0.1") && !shares("128.0.0.1"));
        let nobodys = "192.0.2.1".parse().unwrap();
        assert!(!are_in_one_subnet(nobodys, nobodys).unwrap());
    }

    #[test]
    fn loopback_has_its_address_and_nobody_that_of_the_documentation() {
        assert_eq!(name_of(Ipv4Addr::LOCALHOST.into()).unwrap().as_deref(), Some("lo"));
        assert_eq!(name_of("192.0.2.1".parse().unwrap()).unwrap(), None);
        let all = addresses().unwrap();
        assert!(
            all.iter().any(|one| one.address.is_loopback() && one.interface == "lo"),
            "{all:?}"
        );
        let v6 = name_of(Ipv6Addr::LOCALHOST.into()).unwrap();
        assert!(v6.is_none_or(|name| name == "lo"));
    }
}
