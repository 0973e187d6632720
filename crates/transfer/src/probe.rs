//! Probe of a network: what it could carry, measured before anything is moved.
//!
//! The server has its half here too.

pub mod net;
