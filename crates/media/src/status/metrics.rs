//! `/metrics`: the figures that Prometheus reads (text exposition format 0.0.4).
//!
//! Another figure is one more line here; the library `prometheus-client` writes it.
//!
//! Names are those of its conventions: base units, `_total` for what only grows, which the library
//! adds, `process_` as its client libraries have it. No label holds what a stranger wrote, and none
//! grows with the streams.

use std::{fmt, sync::Arc, time::UNIX_EPOCH};

use prometheus_client::{
    collector::Collector,
    encoding::{
        DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric, NoLabelSet,
        prometheus_text,
    },
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use super::figures::Figures;
use crate::slack::{BOUNDS_MS, SlackHistogram};

pub(super) use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;

/// All metrics of a moment.
pub(super) fn text(figures: &Arc<Figures>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Process(figures.clone())));
    let media = registry.sub_registry_with_prefix("haul_media");
    media.register_collector(Box::new(Server(figures.clone())));
    let mut text = String::with_capacity(8 << 10);
    prometheus_text::encode(&mut text, &registry).expect("a String takes every text");
    text
}

/// Figures of the server and of its disk, whose names get the registry's prefix.
#[derive(Debug)]
struct Server(Arc<Figures>);

/// Figures of the process, named as in every program.
#[derive(Debug)]
struct Process(Arc<Figures>);

impl Collector for Server {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut metrics = Metrics(encoder);
        build(&mut metrics)?;
        work(&mut metrics, &self.0)?;
        admission(&mut metrics, &self.0)?;
        reads(&mut metrics, &self.0)?;
        disk(&mut metrics, &self.0)
    }
}

fn build(metrics: &mut Metrics) -> fmt::Result {
    let mut info = metrics.0.encode_descriptor("build", "Always 1.", None, MetricType::Info)?;
    info.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
}

fn work(metrics: &mut Metrics, figures: &Figures) -> fmt::Result {
    let snapshot = &figures.snapshot;
    let totals = &snapshot.totals;
    metrics.gauge("sessions", "Answers of files under way.", snapshot.sessions_count)?;
    metrics.gauge("connections", "Connections that are open.", totals.connections)?;
    metrics.counter("connections_accepted", "Connections so far.", totals.accepted)?;
    metrics.counter(
        "connections_turned_away",
        "Closed, as there was no room or their address had its share.",
        totals.turned_away,
    )?;
    metrics.counter("requests", "Requests whose answers have ended.", totals.requests)?;
    metrics.counter("sent_bytes", "Heads and bodies sent.", totals.sent_bytes)?;
    metrics.counter("streams", "Paced answers that began.", totals.streams)?;
    metrics.counter("periods", "Periods of paced streams that are over.", totals.periods)?;
    metrics.counter("misses", "Periods of which not all was there in time.", totals.misses)?;
    metrics.counter("misses_here", "Missed as the server was late.", totals.misses_here)?;
    metrics.counter("held_back", "Periods in which players took no more.", totals.held_back)?;
    metrics.slack(
        "period_slack_seconds",
        "Time in hand at the end of a period.",
        &snapshot.slack,
    )?;
    metrics.gauge("loops", "Event loops.", snapshot.loops)?;
    metrics.gauge("loops_missing", "Event loops that did not answer.", snapshot.loops_missing)
}

fn admission(metrics: &mut Metrics, figures: &Figures) -> fmt::Result {
    let door = &figures.snapshot.door;
    metrics.counter("admitted", "Streams that were admitted.", door.admitted)?;
    let help = "Streams that were refused, by what lacked.";
    let mut refused = metrics.0.encode_descriptor("refused", help, None, MetricType::Counter)?;
    for (why, count) in door.refused.by_name() {
        ConstCounter::new(count).encode(refused.encode_family(&[("why", why)])?)?;
    }
    metrics.gauge(
        "admission_is_shut",
        "1 while nobody comes in, as the server is late.",
        u64::from(door.is_shut),
    )?;
    let (taken, limit) = (door.taken, door.limit);
    metrics.gauge("disk_share_taken", "Of the disk's time, by admitted streams.", taken.disk)?;
    metrics.gauge("disk_share_limit", "Of the disk's time, for all streams.", limit.disk)?;
    metrics.gauge(
        "processor_share_taken",
        "Of the processors, by admitted streams.",
        taken.processors,
    )?;
    let help = "Of the processors, for all streams.";
    metrics.gauge("processor_share_limit", help, limit.processors)?;
    metrics.gauge("network_share_taken", "Of the network, by admitted streams.", taken.network)?;
    metrics.gauge("network_share_limit", "Of the network, for all streams.", limit.network)
}

fn reads(metrics: &mut Metrics, figures: &Figures) -> fmt::Result {
    let reads = &figures.snapshot.reads;
    metrics.gauge("reads_waiting", "Reads not yet given to the disk.", reads.waiting)?;
    metrics.gauge("reads_in_flight", "Reads that the disk works at.", reads.in_flight)?;
    metrics.gauge(
        "loops_without_ring",
        "Event loops that read in their turn, since io_uring failed.",
        figures.snapshot.totals.rings_lost,
    )?;
    metrics.counter("reads", "Reads ahead that ended.", reads.finished)?;
    metrics.counter("read_bytes", "Bytes read ahead.", reads.read_bytes)?;
    metrics.counter("reads_late", "Reads that ended after their period.", reads.late)?;
    let read_s = reads.time.as_secs_f64();
    metrics.counter("read_seconds", "Time of all reads, from wanted to there.", read_s)
}

fn disk(metrics: &mut Metrics, figures: &Figures) -> fmt::Result {
    let Some((name, disk)) = &figures.disk else { return Ok(()) };
    let device = [("device", name.as_str())];
    let help = "Read from the disk of ROOT, by all programs.";
    let mut read =
        metrics.0.encode_descriptor("disk_read_bytes", help, None, MetricType::Counter)?;
    ConstCounter::new(disk.read_bytes).encode(read.encode_family(&device)?)?;
    let help = "Time in which the disk of ROOT worked for anyone.";
    let mut busy =
        metrics.0.encode_descriptor("disk_busy_seconds", help, None, MetricType::Counter)?;
    ConstCounter::new(disk.busy.as_secs_f64()).encode(busy.encode_family(&device)?)
}

impl Collector for Process {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut metrics = Metrics(encoder);
        let process = &self.0.process;
        let cpu_s = process.cpu.as_secs_f64();
        metrics.counter("process_cpu_seconds", "User and kernel mode.", cpu_s)?;
        metrics.gauge("process_open_fds", "Descriptors that are open.", process.open_files)?;
        let max = process.open_files_max.map_or(f64::INFINITY, |max| max as f64);
        metrics.gauge("process_max_fds", "Descriptors that may be open.", max)?;
        metrics.gauge("process_resident_memory_bytes", "Memory in use.", process.resident_bytes)?;
        let started_s = self.0.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        metrics.gauge("process_start_time_seconds", "Since 1970.", started_s)
    }
}

struct Metrics<'a>(DescriptorEncoder<'a>);

impl Metrics<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) -> fmt::Result {
        let gauge = ConstGauge::new(value);
        gauge.encode(self.0.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }

    /// Writes a counter; its name is given without `_total`.
    fn counter(&mut self, name: &str, help: &str, value: impl EncodeCounterValue) -> fmt::Result {
        let counter = ConstCounter::new(value);
        counter.encode(self.0.encode_descriptor(name, help, None, MetricType::Counter)?)
    }

    /// Writes the histogram of slack; its sum may shrink, as slack may be less than nothing.
    fn slack(&mut self, name: &str, help: &str, slack: &SlackHistogram) -> fmt::Result {
        let bounds = BOUNDS_MS.iter().map(|bound_ms| *bound_ms as f64 / 1e3);
        let buckets: Vec<(f64, u64)> = bounds.chain([f64::INFINITY]).zip(slack.counts).collect();
        let sum_s = slack.sum_ms as f64 / 1e3;
        self.0
            .encode_descriptor(name, help, None, MetricType::Histogram)?
            .encode_histogram::<NoLabelSet>(sum_s, slack.periods(), &buckets, None)
    }
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
        let text = text(&Arc::new(example(0)));
        let (kinds, values) = read(&text);
        for (series, expected) in [
            (concat!("haul_media_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1.0),
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
        let (_, values) = read(&text(&Arc::new(example(0))));
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
        let (_, values) = read(&text(&Arc::new(figures)));
        assert_eq!(values["process_max_fds"], f64::INFINITY);
        assert!(!values.keys().any(|series| series.starts_with("haul_media_disk_read")));
    }

    #[test]
    fn signs_that_end_a_label_are_escaped_in_a_disk_name() {
        let mut figures = example(0);
        figures.disk.as_mut().unwrap().0 = "a\"b\\c\nd".to_owned();
        let (_, values) = read(&text(&Arc::new(figures)));
        let series = "haul_media_disk_busy_seconds_total{device=\"a\\\"b\\\\c\\nd\"}";
        assert_eq!(values.get(series), Some(&0.5), "{values:?}");
    }

    #[test]
    fn slack_below_nothing_makes_a_sum_below_nothing() {
        let mut figures = example(0);
        figures.snapshot.slack = SlackHistogram::default();
        figures.snapshot.slack.tell(-1_500);
        let (_, values) = read(&text(&Arc::new(figures)));
        let name = "haul_media_period_slack_seconds";
        assert_eq!((values[&format!("{name}_sum")], values[&format!("{name}_count")]), (-1.5, 1.0));
    }
}
