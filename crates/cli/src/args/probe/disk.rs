//! Arguments of `haul probe disk`, and their check.

use crate::args::{
    block_sizes::{BlockSizes, parse_block_sizes},
    results::LowResults,
    usage_problem,
    values::Period,
};
use clap::{Args, ValueEnum};
use haul_probe::disk::setting::{DiskRequest, Method};
use haul_transfer::{Problem, internals::parse_size};
use std::{path::PathBuf, time::Duration};

/// Alignment of blocks: O_DIRECT takes whole pages only.
const ALIGN_BYTES: usize = 4096;
/// Deepest queue: a deeper one waits in the kernel.
const DEPTH_MAX: u32 = 256;
/// Most bytes under way: blocks are memory, and io_uring has no limit of its own.
const UNDER_WAY_BYTES_MAX: u64 = 1 << 30;
/// Size of the file with --quick.
const QUICK_BYTES: u64 = 1 << 30;
const QUICK_TIME: Duration = Duration::from_secs(4);
const QUICK_BLOCK_SIZES: [usize; 2] = [256 << 10, 1 << 20];
const QUICK_DEPTHS: [u32; 2] = [2, 8];
/// Shortest profile: a shorter one shows nothing.
const TIME_MIN: Duration = Duration::from_millis(100);

/// Measures how fast a disk is written and read, for how long, and how best
///
/// First a large file is written and read past the page cache, then by way of it with a sync at the
/// end, each over time: rates and delays of each interval, and where a rate falls for good as a
/// cache is full. Then short runs for each block size and number of blocks under way, in rounds.
/// Bytes are random, so no disk can compress them.
///
/// The file is larger than memory, but takes at most half of what is free in DIR. It has no name:
/// whatever ends the probe, nothing is left. Other programs that use the disk are in the figures.
#[derive(Debug, Args)]
pub struct LowProbeDisk {
    /// A directory on the disk
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Bytes of the file; without it 1.25 times memory, or half of what is free
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// How long each of the four profiles takes at most; without it 30s, with --quick 4s
    #[arg(long, value_name = "TIME")]
    pub time: Option<Period>,
    /// Bytes that one call moves: a list like 64K,1M, or a range in steps of four, 4K..4M
    #[arg(long, value_name = "LIST", value_parser = parse_block_sizes)]
    pub block_sizes: Option<BlockSizes>,
    /// How many blocks are under way by io_uring, like 1,8,64
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)))]
    pub depths: Vec<u32>,
    /// Only these ways between memory and disk
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub methods: Vec<LowMethod>,
    /// How often each block size and depth is measured; 0 leaves that out; without it 3
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub rounds: Option<u32>,
    /// Less of everything, with at most 1 GiB: a look, no measurement
    #[arg(long)]
    pub quick: bool,
    #[command(flatten)]
    pub output: LowResults,
}

/// Methods, as `--methods` takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LowMethod {
    /// O_DIRECT with many blocks under way
    IoUring,
    /// O_DIRECT, one block after the other
    Direct,
    /// Page cache in between, synced at the end; read with an empty cache
    Buffered,
}

impl From<LowMethod> for Method {
    fn from(low: LowMethod) -> Self {
        match low {
            LowMethod::IoUring => Self::IoUring,
            LowMethod::Direct => Self::Direct,
            LowMethod::Buffered => Self::Buffered,
        }
    }
}

impl LowProbeDisk {
    /// Checks the words of `haul probe disk`.
    ///
    /// # Errors
    /// Says which argument cannot be taken and why.
    pub fn checked(&self) -> Result<DiskRequest, Problem> {
        let own = DiskRequest::new(&self.directory);
        let own = if self.quick {
            DiskRequest {
                len_bytes_max: QUICK_BYTES,
                time_max: QUICK_TIME,
                block_sizes: QUICK_BLOCK_SIZES.to_vec(),
                depths: QUICK_DEPTHS.to_vec(),
                rounds: 1,
                ..own
            }
        } else {
            own
        };
        let time_max = self.time.map_or(own.time_max, |time| time.0);
        if time_max < TIME_MIN {
            let (needs, found) = ("100ms or more", format!("{} ms", time_max.as_millis()));
            return Err(usage_problem("cannot take --time", needs, &found, "like --time 30s"));
        }
        let block_sizes = self.block_sizes.as_ref().map(|sizes| distinct(&sizes.0));
        let block_sizes = block_sizes.unwrap_or(own.block_sizes);
        if let Some(odd) = block_sizes.iter().find(|size| !size.is_multiple_of(ALIGN_BYTES)) {
            let found = format!("{odd} bytes");
            let needs = "multiples of 4096 bytes, as O_DIRECT does";
            return Err(usage_problem("cannot take --block-sizes", needs, &found, "like 64K,1M"));
        }
        let depths = if self.depths.is_empty() { own.depths } else { distinct(&self.depths) };
        let largest = block_sizes.iter().max().copied().unwrap_or(0) as u64;
        let deepest = depths.iter().max().copied().unwrap_or(0);
        if largest * u64::from(deepest) > UNDER_WAY_BYTES_MAX {
            let found = format!("{deepest} blocks of {} MiB", largest >> 20);
            let what = "cannot take --depths and --block-sizes together";
            let hint = "take fewer or smaller blocks";
            return Err(usage_problem(what, "at most 1 GiB under way", &found, hint));
        }
        let methods: Vec<Method> = distinct(&self.methods).into_iter().map(Method::from).collect();
        Ok(DiskRequest {
            len_bytes: self.size,
            len_bytes_max: own.len_bytes_max,
            time_max,
            block_sizes,
            depths,
            methods: if methods.is_empty() { own.methods } else { methods },
            rounds: self.rounds.unwrap_or(own.rounds),
            directory: own.directory,
        })
    }
}

/// Values without repetitions, in the order they were named in.
fn distinct<Value: Copy + PartialEq>(values: &[Value]) -> Vec<Value> {
    let mut once = Vec::new();
    for value in values {
        if !once.contains(value) {
            once.push(*value);
        }
    }
    once
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{LowArgs, LowCommand, probe::LowProbeCommand};
    use clap::Parser;

    fn request(words: &[&str]) -> Result<DiskRequest, String> {
        let words = [&["haul", "probe", "disk", "/d"], words].concat();
        match LowArgs::try_parse_from(words).map_err(|error| error.to_string())?.command {
            LowCommand::Probe(low) => match low.command {
                LowProbeCommand::Disk(low) => low.checked().map_err(|problem| problem.to_string()),
                other => panic!("no probe of a disk: {other:?}"),
            },
            other => panic!("no probe: {other:?}"),
        }
    }

    #[test]
    fn without_options_all_is_measured_and_quick_is_less_of_it() {
        let all = request(&[]).unwrap();
        assert_eq!((all.len_bytes, all.methods.as_slice()), (None, &Method::ALL[..]));
        let quick = request(&["--quick"]).unwrap();
        assert_eq!((quick.rounds, quick.len_bytes_max), (1, QUICK_BYTES));
        assert!(quick.time_max < all.time_max && quick.depths.len() < all.depths.len());
        let longer = request(&["--quick", "--time=1m", "--rounds=0"]).unwrap();
        assert_eq!((longer.time_max, longer.rounds), (Duration::from_secs(60), 0));
    }

    #[test]
    fn lists_are_taken_as_they_are_each_value_once() {
        let some =
            request(&["--depths=8,1,8", "--block-sizes=4K..64K", "--methods=direct,io-uring"]);
        let some = some.unwrap();
        assert_eq!((some.depths, some.block_sizes), (vec![8, 1], vec![4096, 16_384, 65_536]));
        assert_eq!(some.methods, [Method::Direct, Method::IoUring]);
    }

    #[test]
    fn what_cannot_be_measured_is_said_with_what_can() {
        for (word, says) in [
            ("--block-sizes=5000", "multiples of 4096 bytes"),
            ("--depths=0", "1..=256"),
            ("--depths=257", "1..=256"),
            ("--methods=mmap", "io-uring"),
            ("--time=10ms", "100ms or more"),
            ("--size=large", "10G"),
        ] {
            let wrong = request(&[word]).unwrap_err();
            assert!(wrong.contains(says), "{word}: {wrong}");
        }
        let wrong = request(&["--block-sizes=32M", "--depths=64"]).unwrap_err();
        assert!(wrong.contains("at most 1 GiB under way"), "{wrong}");
    }
}
