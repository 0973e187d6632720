//! What haul's fuzz targets run; `README.md` says how.

pub mod bodies;
pub mod transfer_bodies;
