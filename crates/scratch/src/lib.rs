//! Temporary things of the demo and the benches, of which nothing is left.
//!
//! A child process ends with this one, and a directory goes when its owner does; of an owner that
//! was killed, when the next comes.

#![forbid(unsafe_code)]

pub mod child;
pub mod data_file;
pub mod leftovers;
