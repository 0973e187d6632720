//! Two hosts with a wire of memory between them: a pair of virtual interfaces (veth(4)).
//!
//! As fast as the processors are: what is sent by one is received by the other in the same call.

use crate::{EmulatorError, Hosts, namespace::Namespace};

const DEVICE: &str = "wire";
const NEAR: &str = "10.79.1.1";
const FAR: &str = "10.79.1.2";

/// Two hosts and the wire between them.
#[derive(Debug)]
pub struct Veth {
    near: Namespace,
    far: Namespace,
}

impl Veth {
    /// Makes both hosts and the wire between them.
    ///
    /// # Errors
    /// Without root, ip(8) or virtual interfaces.
    pub fn start() -> Result<Self, EmulatorError> {
        let veth =
            Self { near: Namespace::make("veth", "near")?, far: Namespace::make("veth", "far")? };
        let peer = ["peer", "name", DEVICE, "netns", veth.far.name()];
        veth.near.ip(&[&["link", "add", DEVICE, "type", "veth"], &peer[..]].concat())?;
        for (host, address, other) in [(&veth.near, NEAR, FAR), (&veth.far, FAR, NEAR)] {
            host.ip(&["address", "add", address, "peer", other, "dev", DEVICE])?;
            host.ip(&["link", "set", DEVICE, "up"])?;
        }
        Ok(veth)
    }

    #[must_use]
    pub fn hosts(&self) -> Hosts<'_> {
        Hosts { near: &self.near, far: &self.far, device: DEVICE, far_address: FAR }
    }
}
