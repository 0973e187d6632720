//! Networks on one machine, to measure and test what two hosts would do.
//!
//! Network namespaces, a pair of interfaces or a long path between two of them. What is changed in
//! a namespace changes nothing of the host. Needs root; gone when dropped, and what a killed
//! process left is removed by the next.

pub mod namespace;
pub mod nat;
pub mod random;
pub mod veth;
pub mod wan;

/// Why there is no such network.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EmulatorError {
    /// This user or this host cannot have one.
    #[error("{what} needs {needs}, found {found}")]
    Unable { what: String, needs: &'static str, found: String },
    /// It could be, and this went wrong.
    #[error("{what}: {found}")]
    Failed { what: String, found: String },
}

/// The two hosts of a network.
#[derive(Clone, Copy, Debug)]
pub struct Hosts<'a> {
    pub near: &'a namespace::Namespace,
    pub far: &'a namespace::Namespace,
    /// The interface of both that leads to the other.
    pub device: &'static str,
    /// Address of the far host, for the near one.
    pub far_address: &'static str,
}

impl Hosts<'_> {
    /// The largest packet of the interfaces, in bytes.
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

    /// A setting below /proc/sys/net of both: `ipv4/tcp_rmem`.
    ///
    /// # Errors
    /// If the kernel refuses, or does not know it in a namespace.
    pub fn set(&self, setting: &str, value: &str) -> Result<(), EmulatorError> {
        self.near.set(setting, value)?;
        self.far.set(setting, value)
    }
}
