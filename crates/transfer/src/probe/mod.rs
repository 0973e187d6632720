//! What a network could carry, measured before anything is moved; the server has its half in it.

pub mod net;
