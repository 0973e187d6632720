//! Arguments of `haul bench`, in a program that has it and in one that does not.
//!
//! It comes with the feature `bench`, which is on by default: the emulator and the studies' tables
//! are of no use on a machine that only moves files.

#[cfg(not(feature = "bench"))]
mod disabled;
#[cfg(feature = "bench")]
mod enabled;
#[cfg(feature = "bench")]
pub mod fabric;
#[cfg(feature = "bench")]
mod file_size;
#[cfg(feature = "bench")]
pub mod media;
#[cfg(feature = "bench")]
pub mod protection;
#[cfg(feature = "bench")]
pub mod small_files;
#[cfg(feature = "bench")]
pub mod studies;
#[cfg(feature = "bench")]
pub mod tuning;

#[cfg(not(feature = "bench"))]
pub use disabled::*;
#[cfg(feature = "bench")]
pub use enabled::*;
