//! A session: one control connection, its data streams, and one direction of files.
//!
//! [`role::drive`] is the loop of a session's thread on either side. A role ([`sending::Sending`]
//! or [`receiving::Receiving`]) holds the protocol's state machine and does what it asks for; the
//! streams have a thread each ([`send_stream`], [`receive_stream`]).

pub mod contents;
pub mod disclosure;
mod engine_orders;
pub mod figures_for_client;
pub mod growth;
mod hashing;
pub mod headway;
mod lag;
pub mod listening;
pub mod moved_earlier;
pub mod numa;
mod patience;
pub mod private;
pub mod rdma;
pub mod receiving;
pub mod reported;
mod resumed;
pub mod right_lost;
pub mod role;
pub mod sending;
pub mod stages;
pub mod streams;
pub mod supply;
pub mod tally;
mod way;
mod wires;
