//! Copies over ssh: `[user@]host:path` in the place of a URL.
//!
//! ssh(1) of the system is run once a copy and carries the start alone: what is asked for, a token
//! and the addresses of a server that haul at the other end has begun. The data has connections of
//! its own. [docs/decisions/0058](../../../docs/decisions/0058-a-copy-over-ssh.md) says why.

mod bridge;
pub mod by_proxy;
mod channels;
pub mod direct_host;
pub mod far_end;
mod frame;
pub mod install;
mod led;
pub mod login;
mod messages;
pub mod near_end;
mod paths;
mod ports;
pub mod program;
pub mod relay;
mod reverse;
pub mod send_order;
mod send_way;
pub mod sending;
mod troubles;
pub mod ways;

use haul_transfer::Problem;

pub use messages::{NeededRights, Purpose};
pub use ports::{ANY_FREE_PORT, Ports};

/// A problem of the copy as a whole.
fn problem(what: &str, needs: &str, found: &str, hint: &str) -> Problem {
    Problem::in_general(what, needs, found, hint)
}
