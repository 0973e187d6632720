//! Facts about TCP and the network cards. They are the congestion controls that this process may
//! choose for a socket, sizes up to which a socket's buffers may grow, and drivers of the cards.

use std::{fs, path::Path};

use crate::{below, text};

/// The congestion control that is built into every kernel and always permitted
/// (net/ipv4/tcp_cong.c, TCP_CONG_NON_RESTRICTED).
const ALWAYS_THERE: &str = "reno";

pub(crate) struct Congestion {
    pub(crate) allowed: Vec<String>,
    pub(crate) available: Vec<String>,
    pub(crate) default: String,
}

/// Reads the congestion controls: net.ipv4.tcp_*congestion_control in
/// Documentation/networking/ip-sysctl.rst.
pub(crate) fn read(root: &Path) -> Congestion {
    Congestion {
        allowed: names(root, "tcp_allowed_congestion_control"),
        available: names(root, "tcp_available_congestion_control"),
        default: setting(root, "tcp_congestion_control").unwrap_or_default().trim().to_owned(),
    }
}

/// The size up to which TCP lets a socket's buffer grow by itself, in bytes: the last number of
/// tcp_rmem or tcp_wmem (tcp(7)). 0 where it is not known.
pub(crate) fn buffer_bytes_max(root: &Path, name: &str) -> u64 {
    let numbers = setting(root, name).unwrap_or_default();
    numbers.split_whitespace().last().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The drivers of the network cards, each once, in order; interfaces without a device have none.
pub(crate) fn drivers(root: &Path) -> Vec<String> {
    let interfaces = fs::read_dir(below(root, "/sys/class/net")).into_iter().flatten().flatten();
    let driver = |interface: fs::DirEntry| {
        let driver = fs::read_link(interface.path().join("device/driver")).ok()?;
        Some(driver.file_name()?.to_string_lossy().into_owned())
    };
    let mut drivers = interfaces.filter_map(driver).collect::<Vec<_>>();
    drivers.sort_unstable();
    drivers.dedup();
    drivers
}

fn setting(root: &Path, name: &str) -> Option<String> {
    text(&below(root, "/proc/sys/net/ipv4").join(name))
}

fn names(root: &Path, name: &str) -> Vec<String> {
    let text = setting(root, name).unwrap_or_else(|| ALWAYS_THERE.to_owned());
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_driver_is_named_once_and_interfaces_without_a_card_are_not() {
        let root = tempfile::tempdir().unwrap();
        assert!(drivers(root.path()).is_empty());
        let net = root.path().join("sys/class/net");
        for (name, driver) in [("eth1", "mlx5_core"), ("eth0", "bnxt_en"), ("eth2", "bnxt_en")] {
            fs::create_dir_all(net.join(name).join("device")).unwrap();
            let target = format!("../../../../bus/pci/drivers/{driver}");
            std::os::unix::fs::symlink(target, net.join(name).join("device/driver")).unwrap();
        }
        fs::create_dir_all(net.join("lo")).unwrap();
        assert_eq!(drivers(root.path()), ["bnxt_en", "mlx5_core"]);
    }
}
