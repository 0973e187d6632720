//! What `haul bench` and `haul probe` show while they measure.

pub mod steps;
