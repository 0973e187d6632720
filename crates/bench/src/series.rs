//! Measurements that are repeated: interleaved rounds, a limit of time, medians and ranges.

use crate::{
    pair::{Outcome, Pair, Run, Watch},
    side::SideDone,
    workshop::Workshop,
};
use anyhow::Result;
use haul_report::spread::Spread;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Whether system calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Count system calls in a short run before the rounds, so that none of these is slowed by it;
    /// where there is one round only, in that.
    Count,
    LeaveOut,
}

/// Most bytes that the run moves that counts system calls.
const COUNTING_BYTES_MAX: u64 = 64 << 20;

/// The number of rounds, and the time they may take.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub rounds: u32,
    /// Time after which no round begins, and from the second round on no measurement.
    pub time_max: Duration,
    pub calls: Calls,
}

/// The rounds of one pair.
#[derive(Clone, Debug)]
pub struct Series {
    /// The table that the series belongs to.
    pub table: &'static str,
    pub pair: Pair,
    pub runs: Vec<Run>,
    /// The run that counted system calls, and the bytes it moved.
    pub counted: Option<(Box<Run>, u64)>,
    /// The reason why the pair cannot be measured here.
    pub refused: Option<String>,
}

/// Costs of a side for 10^9 bytes, the median of the rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SideCost {
    pub cpu_s_per_gb: f64,
    /// Voluntary and involuntary context switches for 10^9 bytes.
    pub context_switches_per_gb: f64,
    /// System calls for 10^9 bytes; `None` where they cannot be counted.
    pub system_calls_per_gb: Option<f64>,
    /// Bytes that passed through user space, or that the kernel copied in spite of zero-copy, for
    /// each byte.
    pub copies_per_byte: f64,
}

/// A series as a line of JSON.
#[derive(Clone, Debug, Serialize)]
pub struct SeriesLine<'series> {
    event: &'static str,
    table: &'static str,
    #[serde(flatten)]
    pair: &'series Pair,
    rounds: usize,
    gb_per_s: Option<Spread>,
    /// Rates of the rounds, in their order.
    rounds_gb_per_s: Vec<f64>,
    seconds: Option<Spread>,
    send: Option<SideCost>,
    receive: Option<SideCost>,
    refused: Option<&'series str>,
}

impl Series {
    #[must_use]
    pub fn new(table: &'static str, pair: Pair) -> Self {
        Self { table, pair, runs: Vec::new(), counted: None, refused: None }
    }

    #[must_use]
    pub fn rate(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.gb_per_s))
    }

    #[must_use]
    pub fn seconds(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.seconds))
    }

    #[must_use]
    pub fn send_cost(&self) -> Option<SideCost> {
        self.cost(|run| &run.send)
    }

    #[must_use]
    pub fn receive_cost(&self) -> Option<SideCost> {
        self.cost(|run| &run.receive)
    }

    fn cost(&self, side: fn(&Run) -> &SideDone) -> Option<SideCost> {
        let gigabytes = self.pair.len_bytes as f64 / 1e9;
        let median = |value: &dyn Fn(&SideDone) -> f64| {
            Spread::of(self.runs.iter().map(|run| value(side(run)) / gigabytes))
                .map(|spread| spread.median)
        };
        let calls = self.counted.as_ref().and_then(|(run, len_bytes)| {
            Some(side(run).system_calls? as f64 * 1e9 / *len_bytes as f64)
        });
        Some(SideCost {
            cpu_s_per_gb: median(&|side| side.cpu_ns as f64 / 1e9)?,
            context_switches_per_gb: median(&|side| {
                (side.voluntary_switches + side.involuntary_switches) as f64
            })?,
            system_calls_per_gb: calls,
            copies_per_byte: median(&|side| side.copied_bytes as f64 / 1e9)?,
        })
    }

    /// The series as one JSON object.
    #[must_use]
    pub fn line(&self) -> SeriesLine<'_> {
        SeriesLine {
            event: "cell",
            table: self.table,
            pair: &self.pair,
            rounds: self.runs.len(),
            gb_per_s: self.rate(),
            rounds_gb_per_s: self.runs.iter().map(|run| run.gb_per_s).collect(),
            seconds: self.seconds(),
            send: self.send_cost(),
            receive: self.receive_cost(),
            refused: self.refused.as_deref(),
        }
    }
}

/// Measures all series, round after round, so that what changes on the machine meets all alike.
///
/// # Errors
/// If the user wants to stop, or no process can be started.
pub fn measure(workshop: &Workshop, all: &mut [Series], effort: Effort) -> Result<()> {
    let started = Instant::now();
    let once = effort.rounds == 1;
    let counts = effort.calls == Calls::Count;
    let passes = effort.rounds as usize + usize::from(counts && !once);
    let steps = workshop.steps(all.len() * passes);
    if counts && !once {
        for series in all.iter_mut().filter(|series| series.refused.is_none()) {
            steps.begin(&format!("{}: counting system calls", series.table));
            let len_bytes = series.pair.len_bytes.min(COUNTING_BYTES_MAX);
            let pair = Pair { len_bytes, ..series.pair.clone() };
            match pair.run(workshop, Watch::SystemCalls)? {
                Outcome::Ran(run) => series.counted = Some((run, len_bytes)),
                Outcome::Refused(why) => series.refused = Some(why),
            }
        }
    }
    for round in 0..effort.rounds {
        for series in all.iter_mut().filter(|series| series.refused.is_none()) {
            if round > 0 && started.elapsed() > effort.time_max {
                return Ok(());
            }
            let Pair { send_engine, receive_engine, len_bytes, .. } = series.pair;
            steps.begin(&format!("{}: {send_engine} to {receive_engine}", series.table));
            let watch = if counts && once { Watch::SystemCalls } else { Watch::Nothing };
            match series.pair.run(workshop, watch)? {
                Outcome::Ran(run) => {
                    if counts && once {
                        series.counted = Some((run.clone(), len_bytes));
                    }
                    series.runs.push(*run);
                }
                Outcome::Refused(why) => series.refused = Some(why),
            }
        }
    }
    Ok(())
}
