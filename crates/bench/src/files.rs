//! `haul bench files`: two studies repeated, times of files and rates over time.

mod figures;
mod tables;

use crate::{
    BenchError, Caller,
    engines::receiver_for,
    host_facts,
    pair::{Outcome, Pair, Run, Source, Target, Watch},
    requests::BenchFiles,
    series::{Calls, Effort, Series, measure},
    studies::efficient_transfer::{FILE_TIMES, FileTime, TRADITIONAL_BLOCK_BYTES},
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

pub const TRADITIONAL: &str = "traditional";
pub const ZERO_COPY: &str = "zero-copy";

/// Names of the rows of the large file. Of two rows that differ in the method alone, the receiver
/// is the same: it copies into memory, and from there into the file.
pub const RECORDED: [&str; 2] = ["zero-copy, recorded", "read-write, recorded"];
pub const IN_MEMORY: [&str; 2] = ["zero-copy, to memory only", "read-write, to memory only"];
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
    /// The study's files, each by read and write and by sendfile.
    pub times: Vec<(FileTime, Series, Series)>,
    pub large_bytes: u64,
    /// The reason why the large file is smaller than wanted, or not there.
    pub large_note: Option<String>,
    pub residency: Residency,
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
    let times = times(plan, workshop)?;
    let (large_bytes, large_note) = large_size(plan, workshop)?;
    let available_bytes = workshop.host.memory_available_bytes;
    let residency = if large_bytes as f64 <= available_bytes as f64 / WARM_MEMORY_PARTS {
        Residency::Warm
    } else {
        Residency::Cold
    };
    let recorded = match large_bytes {
        0 => Vec::new(),
        large_bytes => record(plan, workshop, large_bytes, residency)?,
    };
    Ok(Found { times, large_bytes, large_note, residency, recorded })
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
    std::fs::remove_file(workshop.source())?;
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
) -> Result<Vec<Recorded>> {
    workshop.make_source(len_bytes, len_bytes)?;
    let best = receiver_for(workshop, len_bytes)?.name;
    let mut all = ways(len_bytes, residency, best);
    let steps = workshop.steps(all.len() * plan.rounds as usize);
    let started = Instant::now();
    for round in 0..plan.rounds {
        for recorded in all.iter_mut().filter(|recorded| recorded.refused.is_none()) {
            if round > 0 && started.elapsed() > plan.time_max {
                return Ok(all);
            }
            steps.begin(recorded.name);
            match recorded.pair.run(workshop, Watch::Bytes(SAMPLE_EVERY))? {
                Outcome::Ran(run) => recorded.runs.push(*run),
                Outcome::Refused(why) => recorded.refused = Some(why),
            }
        }
    }
    Ok(all)
}

/// The ways to move the large file. The receiver of both methods is the same and copies, as the
/// study's: the method of sending is the only difference. `best` receives in a row of its own.
fn ways(len_bytes: u64, residency: Residency, best: &'static str) -> Vec<Recorded> {
    let way = |name, send_engine, receive_engine, target| Recorded {
        name,
        pair: Pair {
            send_engine,
            receive_engine,
            source: Source::File(residency),
            target,
            len_bytes,
            streams: 1,
            send_block_bytes: None,
            receive_block_bytes: None,
        },
        runs: Vec::new(),
        refused: None,
    };
    vec![
        way(RECORDED[0], "sendfile", "read-write", Target::File),
        way(RECORDED[1], "read-write", "read-write", Target::File),
        way(IN_MEMORY[0], "sendfile", "read-write", Target::Null),
        way(IN_MEMORY[1], "read-write", "read-write", Target::Null),
        way(BEST, "sendfile", best, Target::File),
    ]
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
        let all = ways(7, Residency::Warm, "io-uring");
        for names in [RECORDED, IN_MEMORY] {
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
    }
}
