//! Intervals of a recording, as iperf reports them: what was sent and what was recorded in each.

use crate::{pair::Run, side::Sample};
use serde::Serialize;

/// Most intervals of a recording.
const INTERVALS_MAX: usize = 16;
/// Lengths of an interval in seconds, of which the shortest that fits is taken.
const LENGTHS_S: [f64; 10] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 300.0];

/// An interval of a recording, from the sender's first call on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub from_s: f64,
    pub to_s: f64,
    /// Bytes that left the sender's socket, in units of 10^9.
    pub sent_gb: f64,
    pub sent_gbit_per_s: f64,
    /// Rate into the receiver's file, which is its page cache.
    pub recorded_gbit_per_s: f64,
    /// Rate at which the disk below wrote; `None` where it does not count.
    pub disk_gbit_per_s: Option<f64>,
}

/// The intervals of a run, from its first call to the end of its recording.
pub fn of(run: &Run) -> Vec<Interval> {
    let longest = LENGTHS_S[LENGTHS_S.len() - 1];
    let fits = |length: &&f64| run.seconds / **length <= INTERVALS_MAX as f64;
    let length_s = LENGTHS_S.iter().find(fits).copied().unwrap_or(longest);
    let start_ns = run.send.start_ns;
    let count = ((run.seconds / length_s).ceil() as usize).min(INTERVALS_MAX);
    let interval = |at: usize| {
        let from_s = at as f64 * length_s;
        let to_s = (from_s + length_s).min(run.seconds);
        let ends = [from_s, to_s].map(|seconds| start_ns as f64 + seconds * 1e9);
        let bytes = |samples: &[Sample], value: fn(&Sample) -> Option<u64>| {
            let [before, after] = ends.map(|at_ns| bytes_at(samples, at_ns, value));
            Some(after? - before?)
        };
        let gbit_per_s = |bytes: f64| bytes * 8.0 / 1e9 / (to_s - from_s);
        let whole = |sample: &Sample| Some(sample.bytes);
        let sent = bytes(&run.send.samples, whole).unwrap_or(0.0);
        let recorded = bytes(&run.receive.samples, whole).unwrap_or(0.0);
        let disk = bytes(&run.receive.samples, |sample| sample.disk_bytes);
        Interval {
            from_s,
            to_s,
            sent_gb: sent / 1e9,
            sent_gbit_per_s: gbit_per_s(sent),
            recorded_gbit_per_s: gbit_per_s(recorded),
            disk_gbit_per_s: disk.map(gbit_per_s),
        }
    };
    (0..count).map(interval).collect()
}

/// The count at a time: between two samples it is taken to grow evenly, before the first and after
/// the last not at all.
fn bytes_at(samples: &[Sample], at_ns: f64, value: fn(&Sample) -> Option<u64>) -> Option<f64> {
    let points: Vec<(f64, f64)> = samples
        .iter()
        .filter_map(|sample| Some((sample.at_ns as f64, value(sample)? as f64)))
        .collect();
    let after = points.iter().position(|point| point.0 >= at_ns);
    match after {
        None => points.last().map(|point| point.1),
        Some(0) => points.first().map(|point| point.1),
        Some(after) => {
            let ((from_ns, from), (to_ns, to)) = (points[after - 1], points[after]);
            Some(from + (to - from) * (at_ns - from_ns) / (to_ns - from_ns))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side::SideDone;

    fn sample(at_s: f64, bytes: u64, disk_bytes: Option<u64>) -> Sample {
        Sample { at_ns: 1_000_000_000 + (at_s * 1e9) as u64, bytes, disk_bytes }
    }

    fn run(disk: bool) -> Run {
        let on_disk = |bytes: u64| disk.then_some(7_000_000_000 + bytes);
        let sent = [sample(0.0, 0, None), sample(0.5, 500_000_000, None)];
        let recorded = [
            sample(0.0, 0, on_disk(0)),
            sample(1.0, 500_000_000, on_disk(0)),
            sample(2.0, 500_000_000, on_disk(500_000_000)),
        ];
        let send =
            SideDone { start_ns: 1_000_000_000, samples: sent.into(), ..SideDone::default() };
        let receive = SideDone { samples: recorded.into(), ..SideDone::default() };
        Run { seconds: 2.0, gb_per_s: 0.25, send, receive }
    }

    #[test]
    fn an_interval_has_what_was_sent_and_what_was_recorded_in_it_and_all_is_in_one() {
        let found = of(&run(true));
        assert_eq!(found.len(), 10, "2 s by 0.2 s: {found:?}");
        let first = found[0];
        let near = |one: f64, other: f64| (one - other).abs() < 1e-6;
        assert!(near(first.sent_gbit_per_s, 8.0) && near(first.sent_gb, 0.2), "{first:?}");
        assert!(near(first.recorded_gbit_per_s, 4.0), "{first:?}");
        assert_eq!(first.disk_gbit_per_s, Some(0.0));
        let last = found[9];
        assert!(near(last.sent_gbit_per_s, 0.0) && near(last.recorded_gbit_per_s, 0.0), "{last:?}");
        assert!(near(last.disk_gbit_per_s.unwrap(), 4.0) && near(last.to_s, 2.0), "{last:?}");
        let sum = |value: fn(&Interval) -> f64| found.iter().map(value).sum::<f64>();
        assert!(near(sum(|one| one.sent_gb), 0.5));
        let gbit = |rate: f64, one: &Interval| rate * (one.to_s - one.from_s);
        assert!(near(found.iter().map(|one| gbit(one.recorded_gbit_per_s, one)).sum(), 4.0));
        let disk = found.iter().map(|one| gbit(one.disk_gbit_per_s.unwrap(), one)).sum();
        assert!(near(disk, 4.0));
    }

    #[test]
    fn a_disk_that_does_not_count_has_no_rate_and_long_runs_have_long_intervals() {
        assert!(of(&run(false)).iter().all(|one| one.disk_gbit_per_s.is_none()));
        let long = Run { seconds: 84.0, ..run(true) };
        let found = of(&long);
        assert_eq!((found.len(), found[0].to_s, found[8].to_s), (9, 10.0, 84.0));
        let short = Run { seconds: 0.05, ..run(true) };
        assert_eq!(of(&short).len(), 1);
    }
}
