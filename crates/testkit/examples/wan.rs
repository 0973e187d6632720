//! Holds a long path open until its standard input ends: `wan RTT_MS MBIT_PER_S LOSS [SEED]`.
//!
//! Prints the names of the two network namespaces and the far host's address, and at the end what
//! became of the packets. Needs root.

use haul_testkit::{
    seed::Seed,
    wan::{Path, Wan},
};
use std::{io::Read, time::Duration};

fn main() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [round_trip_ms, mbit_per_s, loss, rest @ ..] = words.as_slice() else {
        return Err("usage: wan RTT_MS MBIT_PER_S LOSS [SEED]".into());
    };
    let number = |text: &str| text.parse::<f64>().map_err(|error| format!("{text}: {error}"));
    let round_trip = Duration::from_secs_f64(number(round_trip_ms)? / 1e3);
    let path = Path::new(round_trip, (number(mbit_per_s)? * 1e6) as u64, number(loss)?);
    let seed =
        rest.first().and_then(|text| text.parse().ok()).map_or_else(Seed::from_env_or_random, Seed);
    let wan = Wan::start(path, seed.0).map_err(|error| error.to_string())?;
    let (near, far) = wan.namespaces();
    println!("{near} {far} {}", wan.far_address());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let counts = wan.counts();
    println!("{} carried, {} lost, {} dropped", counts.carried, counts.lost, counts.dropped);
    Ok(())
}
