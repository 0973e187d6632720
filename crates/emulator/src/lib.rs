//! Networks on one machine, to measure and test what two hosts would do.
//!
//! Network namespaces, a pair of interfaces or a long path between two of them. What is changed in
//! a namespace changes nothing of the host. Needs root; gone when dropped, and what a killed
//! process left is removed by the next.

pub mod counters;
pub mod namespace;
pub mod nat;
pub mod random;
pub mod veth;
pub mod wan;

/// Reasons why a network on this machine could not be made or changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EmulatorError {
    /// This user or this host lacks what the network needs.
    #[error("{what} needs {needs}, found {found}")]
    Unable { what: String, needs: &'static str, found: String },
    /// A step failed although user and host have what it needs.
    #[error("{what}: {found}")]
    Failed { what: String, found: String },
}

/// The two hosts of a network.
#[derive(Clone, Copy, Debug)]
pub struct Hosts<'a> {
    pub near: &'a namespace::Namespace,
    pub far: &'a namespace::Namespace,
    /// Interface of each host that leads to the other.
    pub device: &'static str,
    /// Address of the far host, for the near one.
    pub far_address: &'static str,
}

impl Hosts<'_> {
    /// Sets the largest packet of both interfaces (MTU), in bytes.
    ///
    /// # Errors
    /// If ip(8) refuses.
    pub fn set_mtu(&self, mtu_bytes: usize) -> Result<(), EmulatorError> {
        for host in [self.near, self.far] {
            let mtu = mtu_bytes.to_string();
            host.ip(&["link", "set", self.device, "mtu", &mtu])?;
        }
        Ok(())
    }

    /// Sets the most packets that both interfaces take as one, to be cut by a network card: 1 ends
    /// segmentation offload for connections that are made from now on.
    ///
    /// # Errors
    /// If ip(8) refuses.
    pub fn set_segments_max(&self, segments: u32) -> Result<(), EmulatorError> {
        for host in [self.near, self.far] {
            let segments = segments.to_string();
            host.ip(&["link", "set", "dev", self.device, "gso_max_segs", &segments])?;
        }
        Ok(())
    }

    /// Changes a setting below /proc/sys/net on both hosts, such as `ipv4/tcp_rmem`.
    ///
    /// # Errors
    /// If the kernel refuses, or does not know it in a namespace.
    pub fn set(&self, setting: &str, value: &str) -> Result<(), EmulatorError> {
        self.near.set(setting, value)?;
        self.far.set(setting, value)
    }
}
