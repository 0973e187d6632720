//! Probe of the network between two hauls, memory to memory: by data streams and by datagrams.
//!
//! [`run`] opens a session of its own at a `haul serve`, with the same control connection, token,
//! preface and port as a transfer, and measures round after round. The bytes mean nothing and are
//! thrown away; what is told is what the kernels and threads of both sides counted. In the same
//! session the server can be asked how its host is tuned.

pub mod audit;
mod client;
pub mod datagram;
mod datagrams;
mod endpoints;
pub mod endpoints_verdict;
mod marks;
mod narrow;
mod opening;
mod paced;
mod path_mtu;
pub mod report;
mod request;
pub(crate) mod serving;
mod streams;
mod summary;
pub(crate) mod talk;
pub mod verdict;

use crate::{Interrupt, TransferError};
pub use audit::{AuditGoal, PeerAudit, PeerFinding};
pub use report::{NetReport, Round};
pub use request::{
    BLOCK_BYTES_DEFAULT, DATAGRAM_RATE_DEFAULT, Event, INTERVAL_DEFAULT, NetProbe, OMIT_DEFAULT,
    Receive, STREAMS_DEFAULT, TIME_DEFAULT, Transport, Ways,
};

/// Measures the path to a server.
///
/// # Errors
/// When nothing could start (a wrong token, no server, one that is too old, no round that could
/// be), or the session broke.
pub fn run(
    probe: &NetProbe,
    interrupt: &Interrupt,
    on_event: &mut dyn FnMut(Event),
) -> Result<NetReport, TransferError> {
    client::run(probe, interrupt, on_event)
}
