//! The study's figure 10: files to the network in small requests, by each engine that sends.
//!
//! Each way of reading goes with each way of sending. These are the engines of the datapath's list,
//! from the page cache and from the disk: an engine that one source is refused for has the other.

use crate::{
    media::request::BenchMedia,
    pair::{Pair, Source, Target},
    series::{Calls, Effort, Series, measure as measure_series},
    studies::REQUEST_BYTES,
    workshop::{Residency, Workshop},
};
use anyhow::Result;
use haul_datapath::engines::ENGINES;
use std::time::Duration;

pub(super) const TABLE: &str = "combinations";
const DISCARD: &str = "discard";
/// Time after which no further round begins.
const TIME_MAX: Duration = Duration::from_secs(5 * 60);

pub(super) fn measure(plan: &BenchMedia, workshop: &Workshop) -> Result<Vec<Series>> {
    workshop.make_source(plan.file_bytes, 0)?;
    let able = ENGINES.iter().filter(|engine| engine.takes_tcp() && engine.open_send.is_some());
    let both =
        able.flat_map(|engine| [Residency::Warm, Residency::Cold].map(|from| (engine, from)));
    let series = both.map(|(engine, from)| {
        let pair = Pair {
            send_engine: engine.name,
            receive_engine: DISCARD,
            source: Source::File(from),
            target: Target::Null,
            len_bytes: plan.file_bytes,
            streams: 1,
            send_block_bytes: Some(REQUEST_BYTES),
            receive_block_bytes: None,
        };
        Series::new(TABLE, pair)
    });
    let mut all: Vec<Series> = series.collect();
    let rounds = plan.small_rounds;
    let effort = Effort { rounds, time_max: TIME_MAX, calls: Calls::LeaveOut };
    measure_series(workshop, &mut all, effort)?;
    Ok(all)
}

/// The series of an engine from a source.
pub(super) fn of<'all>(
    all: &'all [Series],
    engine: &str,
    source: Residency,
) -> Option<&'all Series> {
    let is_this = |series: &&Series| {
        series.pair.send_engine == engine && series.pair.source == Source::File(source)
    };
    all.iter().find(is_this)
}
