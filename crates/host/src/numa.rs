//! NUMA nodes: which processors are near which memory, and near which network interface.

use std::path::Path;

use crate::{below, cpu, text};

/// A NUMA node that has processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub number: u32,
    pub cpus: Vec<u32>,
}

/// The nodes that have processors, in the order of their numbers; empty where the kernel shows
/// none.
///
/// See Documentation/ABI/stable/sysfs-devices-node.
pub(crate) fn nodes(root: &Path) -> Vec<Node> {
    let Ok(entries) = std::fs::read_dir(below(root, "/sys/devices/system/node")) else {
        return Vec::new();
    };
    let read = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let cpus = cpu::list(text(&entry.path().join("cpulist"))?.trim())?;
        Some(Node { number, cpus })
    };
    let mut nodes: Vec<Node> = entries.filter_map(|entry| read(entry.ok()?)).collect();
    nodes.sort_unstable_by_key(|node| node.number);
    nodes
}

/// The node that a network interface is attached to; `None` for one without hardware, and where
/// the firmware does not tell (then the file holds -1).
///
/// See numa_node in Documentation/ABI/testing/sysfs-bus-pci.
#[must_use]
pub fn interface_node(root: &Path, interface: &str) -> Option<u32> {
    if interface.contains('/') {
        return None;
    }
    let device = below(root, "/sys/class/net").join(interface).join("device/numa_node");
    text(&device)?.trim().parse().ok()
}
