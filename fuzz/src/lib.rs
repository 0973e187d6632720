//! Bodies of haul's fuzz targets; `README.md` says how they are run.

pub mod bodies;
pub mod transfer_bodies;

use std::sync::atomic::Ordering;

/// Count of steps after which the steps are told again.
const TOLD_EVERY: u64 = 1_000_000;

/// Runs the body of a state machine, and says when another million steps were made.
pub fn counted(body: fn(&[u8]), data: &[u8]) {
    let millions = || bodies::STEPS.load(Ordering::Relaxed) / TOLD_EVERY;
    let before = millions();
    body(data);
    let now = millions();
    if now > before {
        eprintln!("{now} million steps");
    }
}
