//! `haul bench`: the benches of haul-bench, or a sentence that says how to get them.

#[cfg(not(feature = "bench"))]
mod disabled;
#[cfg(feature = "bench")]
mod enabled;

#[cfg(not(feature = "bench"))]
pub use disabled::*;
#[cfg(feature = "bench")]
pub use enabled::*;
