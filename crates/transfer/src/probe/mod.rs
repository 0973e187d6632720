//! What disks, the network and a whole path could carry, measured before anything is moved.

pub mod disk;
pub mod net;
pub mod path;
