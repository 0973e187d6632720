//! Fleet to simulate: machines, their parts with their rates, and how often a machine fails.

use std::collections::BTreeMap;

/// Most machines of a side, and most runs of a machine, as many as a plan has shards.
pub const SIMULATED_MAX: u32 = 4096;

/// Part of a fleet that several runs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// File system that all nodes read.
    SharedSource,
    /// Disk of a node, which sends.
    NodeDisk,
    /// Network card of a node.
    NodeNic,
    /// Link between the nodes and the servers.
    Core,
    /// Network card of a server.
    ServerNic,
    /// Disk of a server.
    ServerDisk,
    /// File system that all servers write.
    SharedTarget,
}

impl Resource {
    /// All resources, in the order in which a byte meets them.
    pub const ALL: [Self; 7] = [
        Self::SharedSource,
        Self::NodeDisk,
        Self::NodeNic,
        Self::Core,
        Self::ServerNic,
        Self::ServerDisk,
        Self::SharedTarget,
    ];

    /// Word for the resource, as in `--json`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::SharedSource => "shared_source",
            Self::NodeDisk => "node_disk",
            Self::NodeNic => "node_nic",
            Self::Core => "core",
            Self::ServerNic => "server_nic",
            Self::ServerDisk => "server_disk",
            Self::SharedTarget => "shared_target",
        }
    }

    /// Whether each node has one.
    #[must_use]
    pub fn is_of_node(self) -> bool {
        matches!(self, Self::NodeDisk | Self::NodeNic)
    }

    /// Whether each server has one.
    #[must_use]
    pub fn is_of_server(self) -> bool {
        matches!(self, Self::ServerNic | Self::ServerDisk)
    }

    fn is_of_network(self) -> bool {
        matches!(self, Self::NodeNic | Self::Core | Self::ServerNic)
    }
}

/// Rates of a resource, in bytes a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceRates {
    /// Rate of each; `None`: no limit.
    pub each: Option<f64>,
    /// Rates of single ones, by their number from 1.
    pub single: BTreeMap<u32, f64>,
}

/// Failures of nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeFailures {
    /// Mean time that a node is up, in seconds; the times have an exponential distribution.
    pub mean_up_s: f64,
    /// Seconds until a shard whose run is lost may begin again.
    pub requeue_s: f64,
    /// Seconds until the node takes shards again.
    pub repair_s: f64,
}

/// A fleet, for the simulation of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedFleet {
    /// Machines that send, from 1 to [`SIMULATED_MAX`].
    pub nodes: u32,
    /// Runs at a time on each node, from 1 to [`SIMULATED_MAX`].
    pub runs: u32,
    /// Machines that receive, from 1 to [`SIMULATED_MAX`]; shard K goes to number (K - 1) mod
    /// their number.
    pub servers: u32,
    /// Rates of what the runs share. Those of the network include the headers of packets.
    pub rates: BTreeMap<Resource, ResourceRates>,
    /// Most bytes a second of one run.
    pub run_bytes_per_s: Option<f64>,
    /// Most files a second of one run.
    pub run_files_per_s: f64,
    /// Seconds of a run in which it moves nothing: its start by the scheduler, and its session.
    pub start_s: f64,
    /// Failures of nodes, if any.
    pub failures: Option<NodeFailures>,
    /// Largest packet (MTU), in bytes.
    pub mtu_bytes: u32,
    /// Seed of the failures.
    pub seed: u64,
}

/// Bytes of the headers within a packet of an MTU: IPv4, and TCP with its time stamps.
const HEADERS_WITHIN_BYTES: f64 = 52.0;
/// Bytes of Ethernet around it: header, checksum, preamble and gap (IEEE 802.3).
const ETHERNET_BYTES: f64 = 38.0;

impl SimulatedFleet {
    /// A fleet without limits, apart from a run's files: a small one takes 50 us (decision 0044).
    #[must_use]
    pub fn new(nodes: u32, servers: u32) -> Self {
        Self {
            nodes,
            runs: 1,
            servers,
            rates: BTreeMap::new(),
            run_bytes_per_s: None,
            run_files_per_s: 20_000.0,
            start_s: 1.0,
            failures: None,
            mtu_bytes: 1500,
            seed: 1,
        }
    }

    /// Number of a resource that the fleet has.
    #[must_use]
    pub fn count(&self, resource: Resource) -> u32 {
        if resource.is_of_node() {
            self.nodes
        } else if resource.is_of_server() {
            self.servers
        } else {
            1
        }
    }

    /// Rate of a resource with its number, from 1, as it was given; `None`: no limit.
    #[must_use]
    pub fn rate(&self, resource: Resource, number: u32) -> Option<f64> {
        let rates = self.rates.get(&resource)?;
        rates.single.get(&number).copied().or(rates.each)
    }

    /// Bytes of files that a resource moves in a second.
    pub(super) fn payload_rate(&self, resource: Resource, number: u32) -> Option<f64> {
        let rate = self.rate(resource, number)?;
        let mtu_bytes = f64::from(self.mtu_bytes);
        let share = (mtu_bytes - HEADERS_WITHIN_BYTES) / (mtu_bytes + ETHERNET_BYTES);
        Some(if resource.is_of_network() { rate * share } else { rate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_carries_less_than_its_rate_and_single_machines_have_their_own() {
        let mut fleet = SimulatedFleet::new(3, 2);
        let rates = ResourceRates { each: Some(1538.0), single: [(2, 769.0)].into() };
        fleet.rates.insert(Resource::NodeNic, rates.clone());
        fleet.rates.insert(Resource::NodeDisk, rates);
        let of = |number| fleet.payload_rate(Resource::NodeNic, number);
        assert_eq!([of(1), of(2), of(3)], [Some(1448.0), Some(724.0), Some(1448.0)]);
        assert_eq!(fleet.payload_rate(Resource::NodeDisk, 2), Some(769.0), "a disk has no headers");
        assert_eq!(fleet.payload_rate(Resource::Core, 1), None);
        assert_eq!(Resource::ALL.map(|it| fleet.count(it)), [1, 3, 3, 1, 2, 2, 1]);
    }
}
