//! Tools for haul's own tests; no shipped crate depends on them.

pub mod content;
pub mod faulty_proxy;
pub mod mount;
pub mod seed;
pub mod skip;
pub mod tree;
pub mod wan;
