//! A session: one control connection, its data streams, and one direction of files.
//!
//! [`role::drive`] is the loop of a session's thread on either side. A role ([`sending::Sending`]
//! or [`receiving::Receiving`]) holds the protocol's state machine and does what it asks for; the
//! streams have a thread each ([`send_stream`], [`receive_stream`]).

pub mod committer;
pub mod contents;
mod engines;
pub mod growth;
mod hashing;
pub mod headway;
mod lag;
pub mod listening;
mod patience;
pub mod placing;
mod receive_pack;
pub mod receive_stream;
pub mod receiving;
pub mod reported;
pub mod role;
mod send_pack;
pub mod send_stream;
pub mod sending;
mod sent_spans;
pub mod stages;
pub mod streams;
pub mod supply;
mod taken_up;
pub mod tally;
pub mod target_check;
pub mod telling;
pub mod telling_figures;
