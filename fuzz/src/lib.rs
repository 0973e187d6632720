//! What haul's fuzz targets run; `README.md` says how.

pub mod bodies;
