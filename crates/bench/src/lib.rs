//! The benches of haul: they measure this host's engines and haul's choices, and repeat studies.
//!
//! A bench takes a plain request and a [`Caller`], who may stop it and sees its steps, and gives
//! results as data. It prints nothing and handles no signal. Sides of a measurement, servers and
//! pushes are other processes of the program that runs it: that needs the commands `serve`, `media`
//! and `push`, and a command `bench-side` that does what [`side::run`] does.

#![forbid(unsafe_code)]

pub mod all_studies;
mod caller;
pub mod chooser;
pub mod engines;
mod error;
pub mod fabric;
pub mod fabric_side;
pub mod files;
pub mod floor;
mod host_facts;
mod java;
pub mod media;
mod mounts;
mod pair;
pub mod protection;
pub mod requests;
mod series;
pub mod side;
pub mod small_files;
pub mod studies;
mod transfers;
pub mod tuning;
mod workshop;

pub use caller::Caller;
pub use error::BenchError;

/// Beginning of the names of the control groups that benches make.
const GROUP_PREFIX: &str = "haul-bench";
