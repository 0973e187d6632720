//! `/metrics`: the figures that Prometheus reads (text exposition format 0.0.4).
//!
//! Another figure is one more line here.
//!
//! Names are those of its conventions: base units, `_total` for what only grows, `process_` as its
//! client libraries have it. No label holds what a stranger wrote, and none grows with the streams.

use std::{fmt::Write, time::UNIX_EPOCH};

use super::figures::Figures;
use crate::slack::{BOUNDS_MS, SlackHistogram};

pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of a moment.
pub(super) fn text(figures: &Figures) -> String {
    let mut text = Text(String::with_capacity(8 << 10));
    server(&mut text, figures);
    machine(&mut text, figures);
    text.0
}

fn server(text: &mut Text, figures: &Figures) {
    let snapshot = &figures.snapshot;
    let (totals, reads) = (&snapshot.totals, &snapshot.reads);
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    text.sample("haul_media_build_info", "gauge", "Always 1.", &version, 1.0);
    text.gauge("sessions", "Answers of files under way.", snapshot.sessions_count);
    text.gauge("connections", "Connections that are open.", totals.connections);
    text.counter("connections_accepted_total", "Connections so far.", totals.accepted);
    text.counter(
        "connections_turned_away_total",
        "Closed, as there was no room or their address had its share.",
        totals.turned_away,
    );
    text.counter("requests_total", "Requests whose answers have ended.", totals.requests);
    text.counter("sent_bytes_total", "Heads and bodies sent.", totals.sent_bytes);
    text.counter("streams_total", "Paced answers that began.", totals.streams);
    text.counter("periods_total", "Periods of paced streams that are over.", totals.periods);
    text.counter("misses_total", "Periods of which not all was there in time.", totals.misses);
    let here = totals.misses_here;
    text.counter("misses_here_total", "Missed as the server was late.", here);
    text.counter("held_back_total", "Periods in which players took no more.", totals.held_back);
    text.slack("period_slack_seconds", "Time in hand at the end of a period.", &snapshot.slack);
    let door = &snapshot.door;
    text.counter("admitted_total", "Streams that were admitted.", door.admitted);
    text.head("haul_media_refused_total", "counter", "Streams that were refused, by what lacked.");
    for (why, refused) in door.refused.by_name() {
        text.value("haul_media_refused_total", &format!("why=\"{why}\""), refused as f64);
    }
    text.gauge(
        "admission_is_shut",
        "1 while nobody comes in, as the server is late.",
        u64::from(door.is_shut),
    );
    let (taken, limit) = (door.taken, door.limit);
    text.gauge("disk_share_taken", "Of the disk's time, by admitted streams.", taken.disk);
    text.gauge("disk_share_limit", "Of the disk's time, for all streams.", limit.disk);
    text.gauge(
        "processor_share_taken",
        "Of the processors, by admitted streams.",
        taken.processors,
    );
    text.gauge("processor_share_limit", "Of the processors, for all streams.", limit.processors);
    text.gauge("network_share_taken", "Of the network, by admitted streams.", taken.network);
    text.gauge("network_share_limit", "Of the network, for all streams.", limit.network);
    text.gauge("reads_waiting", "Reads not yet given to the disk.", reads.waiting);
    text.gauge("reads_in_flight", "Reads that the disk works at.", reads.in_flight);
    text.gauge(
        "loops_without_ring",
        "Event loops that read in their turn, since io_uring failed.",
        totals.rings_lost,
    );
    text.counter("reads_total", "Reads ahead that ended.", reads.finished);
    text.counter("read_bytes_total", "Bytes read ahead.", reads.read_bytes);
    text.counter("reads_late_total", "Reads that ended after their period.", reads.late);
    let read_s = reads.time.as_secs_f64();
    text.counter("read_seconds_total", "Time of all reads, from wanted to there.", read_s);
    text.gauge("loops", "Event loops.", snapshot.loops as f64);
    text.gauge("loops_missing", "Event loops that did not answer.", snapshot.loops_missing as f64);
}

fn machine(text: &mut Text, figures: &Figures) {
    if let Some((name, disk)) = &figures.disk {
        let device = format!("device=\"{}\"", label(name));
        let help = "Read from the disk of ROOT, by all programs.";
        let name = "haul_media_disk_read_bytes_total";
        text.sample(name, "counter", help, &device, disk.read_bytes as f64);
        let help = "Time in which the disk of ROOT worked for anyone.";
        let name = "haul_media_disk_busy_seconds_total";
        text.sample(name, "counter", help, &device, disk.busy.as_secs_f64());
    }
    let process = &figures.process;
    let cpu_s = process.cpu.as_secs_f64();
    text.sample("process_cpu_seconds_total", "counter", "User and kernel mode.", "", cpu_s);
    let open = process.open_files as f64;
    text.sample("process_open_fds", "gauge", "Descriptors that are open.", "", open);
    let max = process.open_files_max.map_or(f64::INFINITY, |max| max as f64);
    text.sample("process_max_fds", "gauge", "Descriptors that may be open.", "", max);
    let bytes = process.resident_bytes as f64;
    text.sample("process_resident_memory_bytes", "gauge", "Memory in use.", "", bytes);
    let started = figures.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    text.sample("process_start_time_seconds", "gauge", "Since 1970.", "", started);
}

/// A count or a measure; counts above 2^53 lose their last digits, as in Prometheus itself.
trait Number {
    fn number(self) -> f64;
}

impl Number for u64 {
    fn number(self) -> f64 {
        self as f64
    }
}

impl Number for f64 {
    fn number(self) -> f64 {
        self
    }
}

struct Text(String);

impl Text {
    fn gauge(&mut self, name: &str, help: &str, value: impl Number) {
        self.sample(&format!("haul_media_{name}"), "gauge", help, "", value.number());
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Number) {
        self.sample(&format!("haul_media_{name}"), "counter", help, "", value.number());
    }

    fn sample(&mut self, name: &str, kind: &str, help: &str, labels: &str, value: f64) {
        self.head(name, kind, help);
        self.value(name, labels, value);
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn value(&mut self, name: &str, labels: &str, value: f64) {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let value = if value == f64::INFINITY { "+Inf".to_owned() } else { value.to_string() };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    /// Writes the histogram of slack; its sum may shrink, as slack may be less than nothing.
    fn slack(&mut self, name: &str, help: &str, slack: &SlackHistogram) {
        let name = format!("haul_media_{name}");
        self.head(&name, "histogram", help);
        let bounds = BOUNDS_MS.iter().map(|bound_ms| *bound_ms as f64 / 1e3);
        let mut sum = 0;
        for (bound_s, count) in bounds.chain([f64::INFINITY]).zip(slack.counts) {
            sum += count;
            let bound = if bound_s.is_finite() { bound_s.to_string() } else { "+Inf".to_owned() };
            self.value(&format!("{name}_bucket"), &format!("le=\"{bound}\""), sum as f64);
        }
        self.value(&format!("{name}_sum"), "", slack.sum_ms as f64 / 1e3);
        self.value(&format!("{name}_count"), "", sum as f64);
    }
}

/// Escapes a name that the kernel wrote: three signs must not stand in a label.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::example::example;
    use std::collections::{BTreeMap, BTreeSet};

    /// Reads the format back, strictly: name to kind, and name with labels to value.
    fn read(text: &str) -> (BTreeMap<String, String>, BTreeMap<String, f64>) {
        let (mut kinds, mut helped) = (BTreeMap::new(), BTreeSet::new());
        let mut values = BTreeMap::new();
        assert!(text.ends_with('\n'));
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, words) = help.split_once(' ').unwrap();
                assert!(helped.insert(name.to_owned()) && !words.is_empty(), "{line}");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(helped.contains(name), "{line}");
                assert_eq!(kinds.insert(name.to_owned(), kind.to_owned()), None, "{line}");
            } else {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let name = series.split('{').next().unwrap();
                let is_sign = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
                assert!(name.chars().all(is_sign), "{line}");
                let parts = ["_bucket", "_sum", "_count"];
                let base = parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
                let kind = kinds.get(name).or_else(|| kinds.get(base));
                let kind = kind.unwrap_or_else(|| panic!("no TYPE before {line}"));
                let only_grows = name.ends_with("_total");
                assert_eq!(kind == "counter", only_grows, "{line}");
                let value = if value == "+Inf" { f64::INFINITY } else { value.parse().unwrap() };
                assert_eq!(values.insert(series.to_owned(), value), None, "{line}");
            }
        }
        (kinds, values)
    }

    #[test]
    fn what_is_written_can_be_read_and_says_what_is_so() {
        let text = text(&example(0));
        let (kinds, values) = read(&text);
        for (series, expected) in [
            ("haul_media_sessions", 3.0),
            ("haul_media_sent_bytes_total", 1e6),
            ("haul_media_misses_total", 2.0),
            ("haul_media_read_seconds_total", 2.5),
            ("haul_media_disk_busy_seconds_total{device=\"nvme0n1\"}", 0.5),
            ("haul_media_loops_missing", 0.0),
            ("haul_media_refused_total{why=\"disk\"}", 2.0),
            ("haul_media_refused_total{why=\"late\"}", 1.0),
            ("haul_media_refused_total{why=\"network\"}", 0.0),
            ("process_cpu_seconds_total", 0.3),
            ("process_open_fds", 12.0),
            ("process_max_fds", 1024.0),
            ("process_start_time_seconds", 999_940.25),
        ] {
            assert_eq!(values.get(series), Some(&expected), "{series}: {text}");
        }
        for kind in ["counter", "gauge", "histogram"] {
            assert!(kinds.values().any(|known| known == kind), "{kind}");
        }
        assert!(!text.contains("film") && !text.contains("VLC"));
    }

    #[test]
    fn buckets_are_cumulative_and_end_with_all() {
        let (_, values) = read(&text(&example(0)));
        let name = "haul_media_period_slack_seconds";
        let bucket = |bound: &str| values[&format!("{name}_bucket{{le=\"{bound}\"}}")];
        let bounds = BOUNDS_MS.map(|bound_ms| (bound_ms as f64 / 1e3).to_string());
        let counts: Vec<f64> = bounds.iter().map(|bound| bucket(bound)).collect();
        assert!(counts.windows(2).all(|pair| pair[0] <= pair[1]), "{counts:?}");
        assert_eq!(
            (bucket("-10"), bucket("-3"), bucket("0.03"), bucket("3")),
            (0.0, 1.0, 3.0, 5.0)
        );
        assert_eq!((bucket("+Inf"), values[&format!("{name}_count")]), (6.0, 6.0));
        assert_eq!(values[&format!("{name}_sum")], 20.56);
    }

    #[test]
    fn without_a_disk_or_a_limit_it_is_still_a_text_that_can_be_read() {
        let mut figures = example(0);
        figures.disk = None;
        figures.process.open_files_max = None;
        let (_, values) = read(&text(&figures));
        assert_eq!(values["process_max_fds"], f64::INFINITY);
        assert_eq!(label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
