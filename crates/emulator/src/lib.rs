//! Networks on one machine, to measure and test what two hosts would do.
//!
//! Network namespaces, and a long path between two of them. Needs root; gone when dropped.

pub mod nat;
pub mod random;
pub mod wan;
