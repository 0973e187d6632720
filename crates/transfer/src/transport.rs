//! Transport of a session: the control connection and the sockets of the data streams.

pub mod by_proxy;
pub mod control;
pub mod fireflies;
pub mod race;
pub mod resolve;
pub mod segments;
pub mod tcp;
pub mod tls;
pub mod waker;
