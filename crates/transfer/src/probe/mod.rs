//! What a host and a path could carry, measured before anything is moved.

pub mod net;
