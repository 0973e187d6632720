//! `haul bench engines`: pairs of engines, measured over loopback.
//!
//! The engines are those of the datapath's list. One that refuses keeps its row, with its reason.

mod offsets;
mod remote;
mod tables;

use crate::{
    BenchError, Caller, host_facts,
    pair::{Pair, Source, Target},
    requests::{BenchEngines, EnginesPart},
    series::{Calls, Effort, Series, measure},
    studies::massive_data::BLOCK_BYTES,
    workshop::{Residency, Workshop},
};
use anyhow::{Context, Result};
use haul_datapath::{
    EngineInfo, Host, Verdict, WireKind,
    choose::{self, ReceiveFacts},
};
use haul_report::{host_facts::BenchWire, results::Results};
use std::{fs::File, path::Path};

/// The names of the tables.
pub const PAIRS: &str = "pairs";
pub const COLD: &str = "cold";
pub const BLOCKS: &str = "blocks";
pub const OFFSETS: &str = "offsets";
pub const STREAMS: &str = "streams";
pub const FULL: &str = "full";

/// The engine that sends to a measured receiver, as it takes the least of its own.
const SENDFILE: &str = "sendfile";
/// The baseline of every study.
const READ_WRITE: &str = "read-write";
const DISCARD: &str = "discard";
/// Regions that are sent again and again, in bytes: from what each cache of a processor holds to
/// what none does.
const REGIONS_BYTES: [u64; 4] = [64 << 10, offsets::FIXED_BYTES, 16 << 20, 256 << 20];
/// Most blocks that a run with a given block size moves: 64 MiB by 4 KiB, which takes some engines
/// seconds.
const BLOCKS_MAX: u64 = 16 << 10;

/// Measures the engines, over loopback or to a server.
///
/// # Errors
/// If nothing could start, or it was interrupted.
pub fn run(plan: &BenchEngines, caller: &Caller) -> Result<Results, BenchError> {
    let workshop = Workshop::new(&plan.directory, caller)?;
    let results = match &plan.url {
        Some(server) => remote::results(plan, server, &workshop),
        None => loopback(plan, &workshop),
    };
    // The files go before anything is shown, so that a reader who stops there leaves nothing.
    drop(workshop);
    results.map_err(|error| BenchError::broke_off("engines", &error))
}

fn loopback(plan: &BenchEngines, workshop: &Workshop) -> Result<Results> {
    workshop.make_source(plan.len_bytes, plan.len_bytes)?;
    let mut all = series(plan, workshop)?;
    for series in &mut all {
        series.refused = refusal(&series.pair, &workshop.host);
    }
    let effort = Effort { rounds: plan.rounds, time_max: plan.time_max, calls: Calls::Count };
    measure(workshop, &mut all, effort)?;
    let facts = host_facts::of_workshop("engines", workshop, BenchWire::Loopback);
    Ok(tables::results(plan, facts, &all))
}

/// The reason for which an engine refuses before anything is tried.
fn refusal(pair: &Pair, host: &Host) -> Option<String> {
    [pair.send_engine, pair.receive_engine].into_iter().find_map(|name| {
        let engine = haul_datapath::engines::find(name)?;
        match (engine.probe)(host) {
            Verdict::Usable => None,
            Verdict::Refused { needs, found } => {
                Some(format!("{name}: needs {needs}, found {found}"))
            }
        }
    })
}

fn series(plan: &BenchEngines, workshop: &Workshop) -> Result<Vec<Series>> {
    let has = |part| plan.parts.contains(&part);
    let mut all = Vec::new();
    if has(EnginesPart::Pairs) {
        all.extend(pairs(plan));
    }
    if plan.full {
        all.extend(full(plan));
    } else {
        if has(EnginesPart::Cold) {
            all.extend(cold(plan));
        }
        if has(EnginesPart::Blocks) {
            all.extend(blocks(plan));
        }
    }
    if has(EnginesPart::Offsets) {
        all.extend(offsets(plan));
    }
    if has(EnginesPart::Streams) {
        all.extend(streams(plan, chosen_receiver(plan, workshop)?));
    }
    Ok(all)
}

/// A pair of engines at their own block sizes, on one stream, from a warm source.
fn pair(plan: &BenchEngines, send: &EngineInfo, receive: &EngineInfo) -> Pair {
    Pair {
        send_engine: send.name,
        receive_engine: receive.name,
        source: Source::File(Residency::Warm),
        target: target_of(receive),
        len_bytes: plan.len_bytes,
        streams: 1,
        send_block_bytes: None,
        receive_block_bytes: None,
    }
}

/// The target for an engine: `null:` for one that throws away, a file for all others.
fn target_of(receive: &EngineInfo) -> Target {
    if receive.name == DISCARD { Target::Null } else { Target::File }
}

fn pairs(plan: &BenchEngines) -> Vec<Series> {
    let each = |send: &'static EngineInfo| {
        plan.receivers.iter().map(move |receive| Series::new(PAIRS, pair(plan, send, receive)))
    };
    plan.senders.iter().copied().flat_map(each).collect()
}

/// Series of each engine that sends, from the disk into nothing: the source is all that is
/// measured.
fn cold(plan: &BenchEngines) -> Vec<Series> {
    let Some(discard) = haul_datapath::engines::find(DISCARD) else { return Vec::new() };
    let source = Source::File(Residency::Cold);
    let each = plan.senders.iter();
    each.map(|send| Series::new(COLD, Pair { source, ..pair(plan, send, discard) })).collect()
}

fn len_by(plan: &BenchEngines, block_bytes: Option<usize>) -> u64 {
    let most = block_bytes.map_or(u64::MAX, |bytes| (bytes as u64).saturating_mul(BLOCKS_MAX));
    plan.len_bytes.min(most)
}

/// Series of each engine at each block size, with the plainest fast engine on the other side.
fn blocks(plan: &BenchEngines) -> Vec<Series> {
    let find = haul_datapath::engines::find;
    let (Some(discard), Some(sendfile)) = (find(DISCARD), find(SENDFILE)) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for &block_bytes in &plan.block_sizes {
        let block = Some(block_bytes);
        let len_bytes = len_by(plan, block);
        all.extend(plan.senders.iter().map(|send| {
            let pair = Pair { send_block_bytes: block, len_bytes, ..pair(plan, send, discard) };
            Series::new(BLOCKS, pair)
        }));
        all.extend(plan.receivers.iter().map(|receive| {
            let pair =
                Pair { receive_block_bytes: block, len_bytes, ..pair(plan, sendfile, receive) };
            Series::new(BLOCKS, pair)
        }));
    }
    all
}

/// Series of regions of several sizes that are sent again and again, and of the whole file, to a
/// receiver that copies and to one that throws away.
fn offsets(plan: &BenchEngines) -> Vec<Series> {
    let find = haul_datapath::engines::find;
    let (Some(discard), Some(copying)) = (find(DISCARD), find(offsets::COPYING)) else {
        return Vec::new();
    };
    let fits = |bytes: &u64| *bytes <= offsets::FIXED_BYTES || *bytes < plan.len_bytes;
    let mut regions: Vec<u64> = REGIONS_BYTES.into_iter().filter(fits).collect();
    regions.iter_mut().for_each(|bytes| *bytes = (*bytes).min(plan.len_bytes));
    regions.dedup();
    let block = Some(BLOCK_BYTES);
    let region = |window_bytes| (Source::Fixed { window_bytes }, block);
    let mut rows: Vec<(Source, Option<usize>)> = regions.into_iter().map(region).collect();
    rows.push((Source::File(Residency::Warm), block));
    let window_bytes = offsets::FIXED_BYTES.min(plan.len_bytes);
    rows.push((Source::Fixed { window_bytes }, None));
    rows.push((Source::File(Residency::Warm), None));
    let studied = |engine: &&&EngineInfo| [SENDFILE, READ_WRITE].contains(&engine.name);
    let mut all = Vec::new();
    for receive in [copying, discard] {
        for &(source, send_block_bytes) in &rows {
            all.extend(plan.senders.iter().filter(studied).map(|send| {
                let target = Target::Null;
                let pair = Pair { source, target, send_block_bytes, ..pair(plan, send, receive) };
                Series::new(OFFSETS, pair)
            }));
        }
    }
    all
}

/// Series by number of streams: without a copy, with one on each side, and into a file by the
/// receiver that haul would choose.
fn streams(plan: &BenchEngines, chosen: &'static EngineInfo) -> Vec<Series> {
    let find = haul_datapath::engines::find;
    let (Some(discard), Some(sendfile), Some(read_write)) =
        (find(DISCARD), find(SENDFILE), find(READ_WRITE))
    else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for &streams in &plan.streams {
        let copying = Pair { target: Target::Null, ..pair(plan, read_write, read_write) };
        let recorded = pair(plan, sendfile, chosen);
        all.extend(
            [pair(plan, sendfile, discard), copying, recorded]
                .map(|pair| Series::new(STREAMS, Pair { streams, ..pair })),
        );
    }
    all
}

/// Series of every pair with every block size, number of streams and residency.
fn full(plan: &BenchEngines) -> Vec<Series> {
    let blocks: Vec<Option<usize>> =
        std::iter::once(None).chain(plan.block_sizes.iter().copied().map(Some)).collect();
    let mut all = Vec::new();
    for residency in [Residency::Warm, Residency::Cold] {
        for &streams in &plan.streams {
            for &block_bytes in &blocks {
                all.extend(pairs(plan).into_iter().map(|series| {
                    let pair = Pair {
                        source: Source::File(residency),
                        streams,
                        send_block_bytes: block_bytes,
                        receive_block_bytes: block_bytes,
                        len_bytes: len_by(plan, block_bytes),
                        ..series.pair
                    };
                    Series::new(FULL, pair)
                }));
            }
        }
    }
    all
}

fn chosen_receiver(plan: &BenchEngines, workshop: &Workshop) -> Result<&'static EngineInfo> {
    let chosen = receiver_for(workshop, plan.len_bytes)?;
    // One that was named is what the user wants to see.
    let named = plan.receivers.iter().copied().find(|engine| engine.name == chosen.name);
    let other = plan.receivers.iter().copied().find(|engine| engine.name != DISCARD);
    Ok(named.or(other).unwrap_or(chosen))
}

/// The engine that haul would choose to write to the bench's directory.
pub fn receiver_for(workshop: &Workshop, len_bytes: u64) -> Result<&'static EngineInfo> {
    let directory = File::open(workshop.path()).context("cannot open the fresh directory")?;
    let choice = choose::receive_engine(&ReceiveFacts {
        host: &workshop.host,
        wire: WireKind::Tcp,
        target: choose::Target::File(workshop.file_system()?.kind),
        size_bytes: len_bytes,
        durable: true,
        grows: false,
        digest: false,
        rotational: haul_host::rotational(Path::new("/"), &directory),
        forced: None,
    })?;
    choice.candidates.first().copied().context("the chooser named no engine")
}
