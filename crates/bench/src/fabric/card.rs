//! Addresses of this host's RDMA cards, by which libfabric finds them.

use std::{
    fs,
    net::{IpAddr, Ipv6Addr},
    path::Path,
};

/// IP addresses of the cards of this host: RoCE has them as its GIDs
/// (Documentation/infiniband/core_locking.rst; `ports/*/gids` in sysfs-class-infiniband).
pub fn addresses() -> Vec<IpAddr> {
    below(Path::new("/sys/class/infiniband"))
}

fn below(devices: &Path) -> Vec<IpAddr> {
    let entries = |path: &Path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let gids = entries(devices)
        .into_iter()
        .flat_map(|device| entries(&device.join("ports")))
        .flat_map(|port| entries(&port.join("gids")));
    let mut found = Vec::new();
    for gid in gids {
        let address = fs::read_to_string(gid).ok().and_then(|text| address(text.trim()));
        found.extend(address.filter(|address| !found.contains(address)));
    }
    found
}

/// The address in a GID; `None` of one that libfabric takes no card by: zeros, and addresses that
/// are of one link only.
fn address(gid: &str) -> Option<IpAddr> {
    let address: Ipv6Addr = gid.parse().ok()?;
    let address = IpAddr::from(address).to_canonical();
    match address {
        IpAddr::V6(address) if address.is_unspecified() || address.is_unicast_link_local() => None,
        _ => Some(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_gids() {
        let devices = tempfile::tempdir().unwrap();
        let gids = devices.path().join("rxe0/ports/1/gids");
        fs::create_dir_all(&gids).unwrap();
        let lines = [
            "fe80:0000:0000:0000:5054:00ff:fe12:3456\n",
            "0000:0000:0000:0000:0000:ffff:0a07:0002\n",
            "0000:0000:0000:0000:0000:ffff:0a07:0002\n",
            "0000:0000:0000:0000:0000:0000:0000:0000\n",
        ];
        for (at, line) in lines.iter().enumerate() {
            fs::write(gids.join(at.to_string()), line).unwrap();
        }
        assert_eq!(below(devices.path()), [IpAddr::from([10, 7, 0, 2])]);
        assert!(below(&devices.path().join("none")).is_empty());
    }
}
