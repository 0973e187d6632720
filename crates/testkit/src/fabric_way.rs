//! Ways by which two RDMA endpoints of a test come together: a provider, and both addresses.

use std::env;
use std::fmt;
use std::net::IpAddr;

/// The variable that names other ways than those that every machine has.
pub const WAYS_VARIABLE: &str = "HAUL_FABRIC_WAYS";

/// One way: which provider of libfabric, and the addresses of its two ends on this machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FabricWay {
    pub provider: &'static str,
    /// Address of the end that connects.
    pub near: IpAddr,
    /// Address of the end that is connected to.
    pub far: IpAddr,
}

/// Gives the ways that tests go: tcp and shm, or those that `HAUL_FABRIC_WAYS` names, as in
/// `verbs@10.7.0.1,verbs@10.7.0.1+10.7.0.2`: at one address, and from one to another.
///
/// # Panics
/// When a way cannot be read: tests that went none would count as passed.
#[must_use]
pub fn fabric_ways() -> Vec<FabricWay> {
    let asked = env::var(WAYS_VARIABLE);
    let text = asked.as_deref().unwrap_or("tcp@127.0.0.1,shm@127.0.0.1");
    text.split(',').map(|way| read(way).unwrap_or_else(|| panic!("no way: {way:?}"))).collect()
}

fn read(text: &str) -> Option<FabricWay> {
    let (provider, addresses) = text.split_once('@')?;
    let (near, far) = addresses.split_once('+').unwrap_or((addresses, addresses));
    // Few of them, and tests name them to their end.
    let provider = provider.to_owned().leak();
    Some(FabricWay { provider, near: near.parse().ok()?, far: far.parse().ok()? })
}

impl fmt::Debug for FabricWay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}+{}", self.provider, self.near, self.far)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_way_has_one_address_or_two() {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let there = IpAddr::V4(Ipv4Addr::new(10, 7, 0, 2));
        let way = FabricWay { provider: "tcp", near: here, far: here };
        assert_eq!(read("tcp@127.0.0.1"), Some(way));
        assert_eq!(read("tcp@127.0.0.1+10.7.0.2"), Some(FabricWay { far: there, ..way }));
        assert_eq!(["tcp", "tcp@", "tcp@here"].map(read), [None; 3]);
    }
}
