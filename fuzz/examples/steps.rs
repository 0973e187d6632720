//! Runs a state machine through millions of operations made from its corpus.
//!
//! They are cut, joined and changed at random, faster than a fuzzer that watches where they lead,
//! and with stable Rust.
//!
//!     cargo run --release --example steps -- sender 60000000 [SEED]
//!
//! It prints the seed first and the figures at the end; what goes wrong panics, and the input is
//! written to `crash-NUMBER`, to be put into the corpus with the fix.

use haul_fuzz::bodies::{self, STEPS};
use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::atomic::Ordering,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// The most bytes of one input: the bodies take no more operations than such holds.
const INPUT_BYTES_MAX: usize = 768;
/// The most inputs kept beside the corpus, as they made the most steps.
const KEPT_MAX: usize = 4096;

/// Random choices, the same from the same seed.
struct Random(fastrand::Rng);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound.max(1))
    }

    /// Draws a byte, mostly one of the small numbers that stand for what exists: the far ones cost
    /// most.
    fn byte(&mut self) -> u8 {
        let is_far = self.below(64) == 0;
        if is_far { self.0.u8(..) } else { self.0.u8(..250) }
    }

    fn pick<'all>(&mut self, all: &'all [Vec<u8>]) -> &'all [u8] {
        &all[self.below(all.len())]
    }
}

fn changed(random: &mut Random, all: &[Vec<u8>]) -> Vec<u8> {
    let mut input = random.pick(all).to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        match random.below(5) {
            0 => input.truncate(at),
            1 => input.splice(at..at, (0..8).map(|_| random.byte())).for_each(drop),
            2 => {
                let other = random.pick(all);
                let from = random.below(other.len());
                input.splice(at.., other[from..].iter().copied()).for_each(drop);
            }
            3 => input.extend((0..random.below(64)).map(|_| random.byte())),
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = random.byte();
                }
            }
        }
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn main() {
    let mut words = std::env::args().skip(1);
    let target = words.next().unwrap_or_default();
    let body: fn(&[u8]) = match target.as_str() {
        "sender" => bodies::sender,
        "receiver" => bodies::receiver,
        "range_sender" => bodies::range_sender,
        "range_receiver" => bodies::range_receiver,
        _ => panic!("steps [range_]sender|[range_]receiver STEPS [SEED]"),
    };
    let steps_max: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(1_000_000);
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
    let seed = words.next().and_then(|word| word.parse().ok()).unwrap_or(clock).max(1);
    println!("{target}: seed {seed}");
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(&target);
    let read = fs::read_dir(&corpus).expect("a corpus");
    let mut paths: Vec<_> = read.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let mut all: Vec<Vec<u8>> =
        paths.iter().map(|path| fs::read(path).expect("an input")).collect();
    let (mut random, begun, from_corpus) =
        (Random(fastrand::Rng::with_seed(seed)), Instant::now(), all.len());
    let (mut inputs, mut crashes, mut longest) = (0_u64, 0, 0);
    while STEPS.load(Ordering::Relaxed) < steps_max {
        let input = changed(&mut random, &all);
        let before = STEPS.load(Ordering::Relaxed);
        if catch_unwind(AssertUnwindSafe(|| body(&input))).is_err() {
            crashes += 1;
            fs::write(format!("crash-{crashes}"), &input).expect("a place for the input");
            if crashes == 10 {
                break;
            }
        }
        inputs += 1;
        let steps = STEPS.load(Ordering::Relaxed) - before;
        longest = steps.max(longest);
        // What goes far is where others begin.
        if steps > 24 {
            if all.len() < from_corpus + KEPT_MAX {
                all.push(input);
            } else {
                let place = from_corpus + random.below(KEPT_MAX);
                all[place] = input;
            }
        }
    }
    let (steps, seconds) = (STEPS.load(Ordering::Relaxed), begun.elapsed().as_secs_f64());
    println!("{target}: {steps} steps in {inputs} inputs, the longest of {longest} steps");
    println!("{seconds:.0} s, {crashes} crashes");
    assert_eq!(crashes, 0, "see crash-*");
}
