//! `haul bench files`: two studies repeated, times of files and rates over time.

mod figures;
mod intervals;
mod tables;

use crate::{
    BenchError, Caller,
    engines::receiver_for,
    host_facts,
    pair::{Outcome, Pair, Run, Source, Target, Watch},
    requests::{BenchFiles, FilesPart},
    series::{Calls, Effort, Series, measure},
    studies::{
        efficient_transfer::{FILE_TIMES, FileTime, TRADITIONAL_BLOCK_BYTES},
        massive_data::BLOCK_BYTES,
    },
    workshop::{ROOM_BYTES, Residency, Workshop},
};
use anyhow::Result;
use haul_report::{host_facts::BenchWire, results::Results};
use std::time::{Duration, Instant};

/// The large file of the study's figures 12 and 13, in bytes.
const LARGE_BYTES: u64 = 10_000_000_000;
/// Smallest large file that shows a curve: the study's own samples are seconds apart.
const LARGE_BYTES_MIN: u64 = 64 << 20;
/// Interval between samples of a run: ten a second.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// The part of free memory that a warm source takes at most, as one in this many: the page cache
/// holds the target beside it, and a quarter of it stays free.
const WARM_MEMORY_PARTS: f64 = 8.0 / 3.0;

/// The part of free memory that a file takes at most which the page cache is to absorb, as one in
/// this many: it holds source and target, and the kernel lets a fifth of free memory wait to be
/// written (vm.dirty_ratio, Documentation/admin-guide/sysctl/vm.rst).
const CACHED_MEMORY_PARTS: u64 = 8;
/// The part of free memory from which on a file is too large for that, as one in this many.
const BEYOND_MEMORY_PARTS: u64 = 4;

pub const TRADITIONAL: &str = "traditional";
pub const ZERO_COPY: &str = "zero-copy";

/// Names of the rows of the large file. Of two rows that differ in the method alone, the receiver
/// is the same: it copies into memory, and from there into the file.
pub const RECORDED: [&str; 2] = ["zero-copy, recorded", "read-write, recorded"];
pub const IN_MEMORY: [&str; 2] = ["zero-copy, to memory only", "read-write, to memory only"];
/// The smaller file, warm, inside one machine and recorded while the page cache absorbs it.
pub const INSIDE: [&str; 2] = ["zero-copy, inside one machine", "read-write, inside one machine"];
pub const ABSORBED: &str = "read-write, absorbed by the cache";
pub const BEST: &str = "haul's best pair, recorded";

/// Rounds of one way to move the large file.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The way in words: whether it is zero-copy, and where it goes.
    pub name: &'static str,
    pub pair: Pair,
    /// The rounds, in their order.
    pub runs: Vec<Run>,
    /// The reason why there is no other round.
    pub refused: Option<String>,
}

/// Results of repeating the studies of files.
#[derive(Debug)]
pub struct Found {
    pub parts: Vec<FilesPart>,
    /// The study's files, each by read and write and by sendfile.
    pub times: Vec<(FileTime, Series, Series)>,
    pub large_bytes: u64,
    /// The reason why the large file is smaller than wanted, or not there.
    pub large_note: Option<String>,
    pub residency: Residency,
    /// The file that the page cache is to absorb.
    pub cached_bytes: u64,
    /// The smallest file that the page cache does not absorb.
    pub beyond_bytes: u64,
    pub recorded: Vec<Recorded>,
}

/// Repeats the studies of files.
///
/// # Errors
/// If nothing could start, or it was interrupted.
pub fn run(plan: &BenchFiles, caller: &Caller) -> Result<Results, BenchError> {
    let workshop = Workshop::new(&plan.directory, caller)?;
    let found = find(plan, &workshop).map_err(|error| BenchError::broke_off("files", &error))?;
    let facts = host_facts::of_workshop("files", &workshop, BenchWire::Loopback);
    Ok(tables::results(&found, facts))
}

fn find(plan: &BenchFiles, workshop: &Workshop) -> Result<Found> {
    let has = |part| plan.parts.contains(&part);
    let times = if has(FilesPart::Times) { times(plan, workshop)? } else { Vec::new() };
    let (large_bytes, large_note) =
        if has(FilesPart::Recordings) { large_size(plan, workshop)? } else { (0, None) };
    let available_bytes = workshop.host.memory_available_bytes;
    let residency = if large_bytes as f64 <= available_bytes as f64 / WARM_MEMORY_PARTS {
        Residency::Warm
    } else {
        Residency::Cold
    };
    let cached_bytes = cached_size(plan.cached_bytes, available_bytes, large_bytes);
    let recorded = match large_bytes {
        0 => Vec::new(),
        large_bytes => record(plan, workshop, large_bytes, residency, cached_bytes)?,
    };
    Ok(Found {
        parts: plan.parts.clone(),
        times,
        large_bytes,
        large_note,
        residency,
        cached_bytes,
        beyond_bytes: available_bytes / BEYOND_MEMORY_PARTS,
        recorded,
    })
}

fn times(plan: &BenchFiles, workshop: &Workshop) -> Result<Vec<(FileTime, Series, Series)>> {
    let first = FILE_TIMES[0];
    let wanted =
        |time: &&FileTime| time.len_bytes <= plan.table_bytes_max || time.name == first.name;
    let files: Vec<FileTime> = FILE_TIMES.iter().filter(wanted).copied().collect();
    let largest_bytes = files.iter().map(|file| file.len_bytes).max().unwrap_or(0);
    workshop.make_source(largest_bytes, 0)?;
    let block = Some(TRADITIONAL_BLOCK_BYTES);
    let pair = |file: &FileTime, send_engine, receive_engine, blocks| Pair {
        send_engine,
        receive_engine,
        source: Source::File(Residency::Warm),
        target: Target::Null,
        len_bytes: file.len_bytes,
        streams: 1,
        send_block_bytes: blocks,
        receive_block_bytes: blocks,
    };
    let mut all: Vec<Series> = files
        .iter()
        .flat_map(|file| {
            // Their server reads 4 KiB and throws it away in both cases; ours too, by a copy.
            let traditional = pair(file, "read-write", "read-write", block);
            let zero_copy =
                Pair { receive_block_bytes: block, ..pair(file, "sendfile", "read-write", None) };
            [Series::new(TRADITIONAL, traditional), Series::new(ZERO_COPY, zero_copy)]
        })
        .collect();
    let effort = Effort { rounds: plan.rounds, time_max: plan.time_max, calls: Calls::Count };
    measure(workshop, &mut all, effort)?;
    let mut measured = all.into_iter();
    let mut times = Vec::new();
    for file in files {
        if let (Some(traditional), Some(zero_copy)) = (measured.next(), measured.next()) {
            times.push((file, traditional, zero_copy));
        }
    }
    Ok(times)
}

/// The size of the large file, 0 for none, and the reason where it is not the wanted one.
fn large_size(plan: &BenchFiles, workshop: &Workshop) -> Result<(u64, Option<String>)> {
    workshop.remove_source()?;
    // The source and the target.
    let fits_bytes = workshop.free_bytes()?.saturating_sub(ROOM_BYTES) / 2;
    Ok(fitting(plan.len_bytes, fits_bytes))
}

fn fitting(asked_bytes: Option<u64>, fits_bytes: u64) -> (u64, Option<String>) {
    let wanted_bytes = asked_bytes.unwrap_or(LARGE_BYTES);
    if wanted_bytes <= fits_bytes {
        return (wanted_bytes, None);
    }
    let gb = |bytes: u64| bytes as f64 / 1e9;
    let why = format!(
        "{:.1} GB do not fit twice on this disk, {:.1} GB do",
        gb(wanted_bytes),
        gb(fits_bytes)
    );
    if fits_bytes < LARGE_BYTES_MIN {
        return (0, Some(format!("{why}: nothing was recorded; take another --dir")));
    }
    (fits_bytes, Some(why))
}

/// Runs the large file by zero-copy and by read-write, into a file and into memory only, in
/// interleaved rounds.
fn record(
    plan: &BenchFiles,
    workshop: &Workshop,
    len_bytes: u64,
    residency: Residency,
    cached_bytes: u64,
) -> Result<Vec<Recorded>> {
    workshop.make_source(len_bytes, len_bytes)?;
    let best = receiver_for(workshop, len_bytes)?.name;
    let mut all = ways(len_bytes, residency, best, cached_bytes);
    let steps = workshop.steps(all.len() * plan.rounds as usize);
    let started = Instant::now();
    for round in 0..plan.rounds {
        // Each second round the other way round, so that no way always comes after the same one.
        let order = (0..all.len()).map(|at| if round % 2 == 0 { at } else { all.len() - 1 - at });
        for at in order.collect::<Vec<_>>() {
            let recorded = &mut all[at];
            if recorded.refused.is_some() {
                continue;
            }
            if round > 0 && started.elapsed() > plan.time_max {
                return Ok(all);
            }
            steps.begin(recorded.name);
            if recorded.pair.target == Target::File {
                workshop.touch_memory(recorded.pair.len_bytes)?;
            }
            match recorded.pair.run(workshop, Watch::Bytes(SAMPLE_EVERY))? {
                Outcome::Ran(run) => recorded.runs.push(*run),
                Outcome::Refused(why) => recorded.refused = Some(why),
            }
        }
    }
    Ok(all)
}

/// The size of the file that the page cache is to absorb: what was asked for, or the study's if
/// memory allows it, and never more than the large file, whose first bytes it is.
fn cached_size(asked_bytes: Option<u64>, available_bytes: u64, large_bytes: u64) -> u64 {
    let fits_bytes = available_bytes / CACHED_MEMORY_PARTS;
    asked_bytes.unwrap_or(LARGE_BYTES.min(fits_bytes)).min(large_bytes)
}

/// The ways to move the large file and the smaller one. The receiver of both methods is the same
/// and copies, as the study's, and their blocks are: the method of sending is the only difference.
/// `best` receives in a row of its own, from sendfile by its own block.
fn ways(
    len_bytes: u64,
    residency: Residency,
    best: &'static str,
    cached_bytes: u64,
) -> Vec<Recorded> {
    let way = |name, send_engine, receive_engine, target| Recorded {
        name,
        pair: Pair {
            send_engine,
            receive_engine,
            source: Source::File(residency),
            target,
            len_bytes,
            streams: 1,
            send_block_bytes: Some(BLOCK_BYTES),
            receive_block_bytes: None,
        },
        runs: Vec::new(),
        refused: None,
    };
    let mut of_large = [
        way(RECORDED[0], "sendfile", "read-write", Target::File),
        way(RECORDED[1], "read-write", "read-write", Target::File),
        way(IN_MEMORY[0], "sendfile", "read-write", Target::Null),
        way(IN_MEMORY[1], "read-write", "read-write", Target::Null),
        way(BEST, "sendfile", best, Target::File),
    ];
    if let Some(best) = of_large.last_mut() {
        best.pair.send_block_bytes = None;
    }
    let mut of_small = [
        way(INSIDE[0], "sendfile", "read-write", Target::Null),
        way(INSIDE[1], "read-write", "read-write", Target::Null),
        way(ABSORBED, "read-write", "read-write", Target::File),
    ];
    for small in &mut of_small {
        small.pair.len_bytes = cached_bytes;
        small.pair.source = Source::File(Residency::Warm);
    }
    of_small.into_iter().chain(of_large).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_large_file_is_what_was_asked_for_or_what_fits() {
        assert_eq!(fitting(None, u64::MAX), (LARGE_BYTES, None));
        assert_eq!(fitting(Some(5), 10), (5, None));
        let (bytes, note) = fitting(None, 3_000_000_000);
        assert_eq!(bytes, 3_000_000_000);
        assert!(note.unwrap().contains("10.0 GB do not fit twice"));
        let (bytes, note) = fitting(Some(1 << 40), 1 << 20);
        assert_eq!(bytes, 0);
        assert!(note.unwrap().contains("--dir"));
    }

    /// The study's methods went to different receivers, so that sending was not the only
    /// difference.
    #[test]
    fn two_rows_of_one_target_differ_in_the_method_of_sending_alone() {
        let all = ways(7, Residency::Cold, "io-uring", 3);
        for names in [RECORDED, IN_MEMORY, INSIDE] {
            let [zero_copy, copying] = names.map(|name| {
                let way = all.iter().find(|way| way.name == name).expect("a row of this name");
                way.pair.clone()
            });
            assert_eq!((zero_copy.send_engine, copying.send_engine), ("sendfile", "read-write"));
            assert_eq!(Pair { send_engine: "sendfile", ..copying }, zero_copy);
            assert_eq!(zero_copy.receive_engine, "read-write", "a recorder copies");
        }
        let best = all.last().map(|way| (way.name, way.pair.receive_engine));
        assert_eq!(best, Some((BEST, "io-uring")));
        let [absorbed, large] = [ABSORBED, RECORDED[1]].map(|name| {
            all.iter().find(|way| way.name == name).expect("a row of this name").pair.clone()
        });
        assert_eq!((absorbed.len_bytes, large.len_bytes), (3, 7));
        assert_eq!(absorbed.source, Source::File(Residency::Warm), "the disk reads nothing");
        assert_eq!(Pair { len_bytes: 7, source: large.source, ..absorbed }, large);
    }

    #[test]
    fn the_smaller_file_is_an_eighth_of_memory_and_never_more_than_the_large_one() {
        let gb = 1_000_000_000;
        assert_eq!(cached_size(None, 16 * gb, 100 * gb), 2 * gb);
        assert_eq!(cached_size(None, 800 * gb, 100 * gb), LARGE_BYTES, "the study's");
        assert_eq!(cached_size(None, 16 * gb, gb), gb);
        assert_eq!(cached_size(Some(5 * gb), 16 * gb, 100 * gb), 5 * gb);
    }
}
