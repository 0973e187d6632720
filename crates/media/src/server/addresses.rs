//! Count of connections by client address, all loops together: nobody alone takes the room of all.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Network part of an IPv6 address: a client that has one address has all of its /64 (RFC 4291,
/// 2.5.1).
const IPV6_NETWORK: u128 = !0 << 64;

#[derive(Debug)]
pub(super) struct Addresses {
    /// Most connections of one client; `None`: nobody counts.
    connections_max: Option<u32>,
    connections: Mutex<HashMap<IpAddr, u32>>,
}

/// A connection's place among those of its address, until it is dropped.
#[derive(Debug)]
pub(super) struct Counted {
    addresses: Arc<Addresses>,
    client: IpAddr,
}

impl Addresses {
    pub fn new(connections_max: Option<u32>) -> Arc<Self> {
        Arc::new(Self { connections_max, connections: Mutex::default() })
    }

    /// Counts one more connection of an address; `None` where nobody counts.
    ///
    /// # Errors
    /// `Full` where it has as many as it may.
    pub fn count(self: &Arc<Self>, peer: IpAddr) -> Result<Option<Counted>, Full> {
        let Some(connections_max) = self.connections_max else { return Ok(None) };
        let client = client(peer);
        let mut connections = self.lock();
        let count = connections.entry(client).or_default();
        if *count >= connections_max {
            return Err(Full);
        }
        *count += 1;
        Ok(Some(Counted { addresses: self.clone(), client }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address has all the connections that it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Drop for Counted {
    fn drop(&mut self) {
        let mut connections = self.addresses.lock();
        if let Some(count) = connections.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.client);
            }
        }
    }
}

fn client(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & IPV6_NETWORK).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_so_many_and_gets_a_place_back_when_one_goes() {
        let addresses = Addresses::new(Some(2));
        let [first, _second] =
            ["192.0.2.1", "::ffff:192.0.2.1"].map(|one| addresses.count(address(one)).unwrap());
        assert_eq!(addresses.count(address("192.0.2.1")).unwrap_err(), Full);
        let other = addresses.count(address("192.0.2.2")).unwrap();
        drop((first, other));
        assert!(addresses.count(address("192.0.2.1")).is_ok());
        assert_eq!(addresses.lock().len(), 1);
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_as_one() {
        let addresses = Addresses::new(Some(1));
        let _first = addresses.count(address("2001:db8:0:1::1")).unwrap();
        assert!(addresses.count(address("2001:db8:0:1:ffff::2")).is_err());
        assert!(addresses.count(address("2001:db8:0:2::1")).is_ok());
    }

    #[test]
    fn without_a_limit_nobody_is_counted() {
        let addresses = Addresses::new(None);
        let places: Vec<_> = (0..100).map(|_| addresses.count(address("::1"))).collect();
        assert!(places.iter().all(|place| matches!(place, Ok(None))));
    }
}
