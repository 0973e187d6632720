//! Probes: what a disk and a whole path could carry, measured before anything is moved.
//!
//! `haul probe disk` and `haul probe path`, with the tables of what they find. The probe of a
//! network is in haul-transfer, as a server has its half in it.

#![forbid(unsafe_code)]

pub mod disk;
pub mod host_figures;
pub mod path;
mod words;
