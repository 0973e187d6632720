//! Tools for haul's own tests; no shipped crate depends on them.

pub mod content;
pub mod seed;
pub mod skip;
