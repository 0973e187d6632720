//! Sample of a moment's figures as JSON, with rates since another.
//!
//! `/api/events` sends one each second, and `haul media --json` prints it. Another figure is one
//! more line here.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use serde_json::{Value, json};

use super::figures::{Figures, Watch};
use crate::{
    admission::{Door, capacity::Share},
    delivery::Reads,
    slack::{BOUNDS_MS, SlackHistogram},
};

/// Samples one after the other, each with the rates since the one before.
pub struct Samples {
    watch: Arc<Watch>,
    before: Option<Arc<Figures>>,
}

impl Samples {
    #[must_use]
    pub fn new(watch: Arc<Watch>) -> Self {
        Self { watch, before: None }
    }

    /// Takes a sample, as an object; the rates of the first are null.
    pub fn take(&mut self) -> Value {
        let now = self.watch.figures(0);
        let sample = sample(&now, self.before.as_deref());
        self.before = Some(now);
        sample
    }
}

fn sample(now: &Figures, before: Option<&Figures>) -> Value {
    let Figures { snapshot, process, .. } = now;
    let totals = &snapshot.totals;
    let interval = before.map(|before| now.taken.saturating_duration_since(before.taken));
    let per_s = |of: fn(&Figures) -> f64| {
        let grown = of(now) - of(before?);
        let seconds = interval?.as_secs_f64();
        (seconds > 0.0).then(|| thousandths(grown.max(0.0) / seconds))
    };
    let disk = now.disk.as_ref().map(|(name, disk)| {
        json!({
            "name": name,
            "read_bytes": disk.read_bytes,
            "busy_s": seconds(disk.busy),
            "read_bytes_per_s": per_s(|one| one.disk_used().read_bytes as f64),
            "busy_share": per_s(|one| one.disk_used().busy.as_secs_f64()),
        })
    });
    json!({
        "event": "sample",
        "time_s": seconds(snapshot.time.duration_since(UNIX_EPOCH).unwrap_or_default()),
        "up_s": seconds(snapshot.up_time),
        "interval_s": interval.map(seconds),
        "sessions_count": snapshot.sessions_count,
        "connections_open": totals.connections,
        "connections": totals.accepted,
        "turned_away": totals.turned_away,
        "requests": totals.requests,
        "requests_per_s": per_s(|one| one.snapshot.totals.requests as f64),
        "sent_bytes": totals.sent_bytes,
        "sent_bits_per_s": per_s(|one| 8.0 * one.snapshot.totals.sent_bytes as f64),
        "streams": totals.streams,
        "periods": totals.periods,
        "misses": totals.misses,
        "misses_per_s": per_s(|one| one.snapshot.totals.misses as f64),
        "misses_here": totals.misses_here,
        "held_back": totals.held_back,
        "slack": slack(&snapshot.slack),
        "reads": reads(&snapshot.reads),
        "admission": admission(&snapshot.door),
        "process": {
            "cpu_s": seconds(process.cpu),
            "cpu_cores": per_s(|one| one.process.cpu.as_secs_f64()),
            "open_files": process.open_files,
            "resident_bytes": process.resident_bytes,
        },
        "disk": disk,
        "loops": snapshot.loops,
        "loops_missing": snapshot.loops_missing,
    })
}

impl Figures {
    fn disk_used(&self) -> haul_host::DiskUse {
        self.disk.as_ref().map(|(_, used)| *used).unwrap_or_default()
    }
}

fn slack(slack: &SlackHistogram) -> Value {
    json!({ "bounds_ms": BOUNDS_MS, "counts": slack.counts, "sum_ms": slack.sum_ms })
}

/// Figures of admission; of the shares, 1 is all that there is.
fn admission(door: &Door) -> Value {
    let share = |share: Share| {
        json!({
            "disk": share.disk, "processors": share.processors, "network": share.network,
        })
    };
    json!({
        "is_limited": door.is_limited,
        "admitted": door.admitted,
        "refused": door.refused.total(),
        "refused_why": door.refused.by_name().collect::<BTreeMap<_, _>>(),
        "streams": door.streams,
        "streams_max": door.streams_max,
        "taken": share(door.taken),
        "limit": share(door.limit),
        "is_shut": door.is_shut,
    })
}

fn reads(reads: &Reads) -> Value {
    json!({
        "waiting": reads.waiting,
        "in_flight": reads.in_flight,
        "finished": reads.finished,
        "read_bytes": reads.read_bytes,
        "late": reads.late,
        "time_s": seconds(reads.time),
    })
}

pub(super) fn seconds(time: Duration) -> f64 {
    thousandths(time.as_secs_f64())
}

/// Rounds to thousandths: more digits than are known help nobody.
pub(super) fn thousandths(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::example::example;

    #[test]
    fn rates_are_what_was_added_by_the_time_it_took() {
        let (before, mut now) = (example(0), example(3));
        now.taken = before.taken + Duration::from_secs(2);
        let found = sample(&now, Some(&before));
        for (pointer, expected) in [
            ("/interval_s", 2.0),
            ("/sent_bits_per_s", 12e6),
            ("/misses_per_s", 3.0),
            ("/requests_per_s", 1.5),
            ("/process/cpu_cores", 0.45),
            ("/disk/read_bytes_per_s", 7.5e6),
            ("/disk/busy_share", 0.75),
            ("/reads/time_s", 2.5),
            ("/time_s", 1_000_006.0),
            ("/admission/refused", 3.0),
            ("/admission/refused_why/disk", 2.0),
        ] {
            assert_eq!(found.pointer(pointer).unwrap().as_f64(), Some(expected), "{pointer}");
        }
        let slack = &found["slack"];
        let classes = |name: &str| slack[name].as_array().unwrap().len();
        assert_eq!((classes("counts"), classes("bounds_ms")), (14, 13));
    }

    #[test]
    fn the_first_has_no_rates_and_a_host_without_a_disk_none_of_it() {
        let mut first = example(0);
        first.disk = None;
        let found = sample(&first, None);
        for name in ["interval_s", "sent_bits_per_s", "misses_per_s", "disk"] {
            assert!(found[name].is_null(), "{name}");
        }
        assert_eq!((&found["misses"], &found["sessions_count"]), (&2.into(), &3.into()));
    }
}
