//! Tools for haul's own tests; no shipped crate depends on them.

pub mod content;
pub mod disk_limit;
mod fabric_way;
pub mod faulty_proxy;
mod filled;
pub mod memory_limit;
pub mod mount;
pub mod page_cache;
pub mod seed;
pub mod skip;
pub mod strace;
pub mod tree;
mod unavailable;

pub use fabric_way::{FabricWay, fabric_ways};
pub use haul_emulator::wan;
pub use unavailable::Unavailable;

/// The beginning of the names of control groups that tests make.
const GROUP_PREFIX: &str = "haul-test";
