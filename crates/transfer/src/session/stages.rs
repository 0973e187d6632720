//! Account of where the time went: the open time of each side's streams, split into stages.
//!
//! An engine's times are wall times of its calls, so each holds work, waiting for a processor and
//! waiting for a disk or the wire. They are told apart by what the kernel counts for the thread
//! (processor time and run-queue delay, proc_pid_schedstat(5)) and for the socket (TCP_INFO:
//! tcpi_rwnd_limited, tcpi_sndbuf_limited, Linux 4.10; whether it has room, poll(2); and what its
//! buffer holds, SO_MEMINFO).
//! Nothing is asked for a span; the kernel's counts are read when somebody wants the figures.

use crate::{
    clocks::elapsed_ns,
    events::SideCosts,
    session::{
        receiving::committer::Costs,
        streams::{RdmaEnd, StreamFigures, Streams},
    },
};
use haul_datapath::engines;
use haul_protocol::message::{Figures, RdmaFigures, SideReport, Stage, StageTime};

/// Parts of a stream's open time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Split {
    open_ns: u64,
    disk_ns: u64,
    digest_ns: u64,
    wire_ns: u64,
    idle_ns: u64,
    processor_ns: u64,
    run_queue_ns: u64,
}

/// Wall times of what a stream's thread did, with what it is at now.
struct Walls {
    disk_ns: u64,
    wire_ns: u64,
    idle_ns: u64,
}

/// Splits a stream's open time: takes out of the calls' wall times what was no waiting.
///
/// The digest only computes: what it takes beyond the thread's processor time is waiting for a
/// processor, and beyond that for pages that come from the disk. The rest of the processor time
/// and of the run-queue delay goes off the other calls in proportion to their wall times.
fn split(figures: &StreamFigures, open_ns: u64, walls: &Walls) -> Split {
    let digest_ns = figures.stages.digest_ns.min(figures.cpu_ns);
    let in_digest_ns = figures.stages.digest_ns - digest_ns;
    let queued_there_ns = in_digest_ns.min(figures.run_queue_ns);
    let processor_ns = figures.cpu_ns - digest_ns;
    let waits_ns = walls.disk_ns + walls.wire_ns;
    let left_ns =
        waits_ns.saturating_sub(processor_ns + figures.run_queue_ns - queued_there_ns) as f64;
    let waited = |ns: u64| (ns as f64 * (left_ns / waits_ns.max(1) as f64)) as u64;
    Split {
        open_ns,
        disk_ns: waited(walls.disk_ns) + in_digest_ns - queued_there_ns,
        digest_ns,
        wire_ns: waited(walls.wire_ns),
        idle_ns: walls.idle_ns,
        processor_ns,
        run_queue_ns: figures.run_queue_ns,
    }
}

/// Time since a stream's thread last said what it did.
fn open_call_ns(figures: &StreamFigures) -> u64 {
    figures.updated_at.filter(|_| figures.is_open).map_or(0, elapsed_ns)
}

/// Open time of a stream, and the stages of that.
type Spent = (u64, Vec<(Stage, u64)>);

fn sender_stages(figures: &StreamFigures) -> Spent {
    let times = &figures.stages;
    let since_ns = open_call_ns(figures);
    let open_ns = figures.wall_ns + since_ns;
    let told_ns = times.source_ns + times.digest_ns + times.send_ns + figures.idle_ns;
    let mut walls = Walls {
        // Between the engine's calls files are opened and packs filled.
        disk_ns: times.source_ns + figures.wall_ns.saturating_sub(told_ns),
        wire_ns: times.send_ns,
        idle_ns: figures.idle_ns,
    };
    let now = if !figures.in_span {
        &mut walls.idle_ns
    } else if figures.wire_holds {
        &mut walls.wire_ns
    } else {
        &mut walls.disk_ns
    };
    *now += since_ns;
    // The thread was idle, and what it had sent before was still in its socket.
    let drained_ns = figures.idle_held_ns.min(walls.idle_ns);
    walls.idle_ns -= drained_ns;
    let mut split = split(figures, open_ns, &walls);
    split.wire_ns += drained_ns;
    let mut engines = figures.engines.iter().filter_map(|name| engines::find(name));
    let reads_too =
        engines.any(|engine| engine.reads_while_sending) && figures.read_bytes != Some(0);
    let held_ns = if reads_too { figures.held_ns + drained_ns } else { u64::MAX };
    let held_ns = split.wire_ns.min(held_ns);
    let (window_ns, buffer_ns) = limited_ns(figures, held_ns);
    let stages = vec![
        (Stage::SourceDisk, split.disk_ns),
        (Stage::Digest, split.digest_ns),
        (Stage::SendApplication, split.wire_ns - held_ns),
        (Stage::SendCongestionWindow, held_ns - window_ns - buffer_ns),
        (Stage::SendReceiverWindow, window_ns),
        (Stage::SendBuffer, buffer_ns),
        (Stage::Idle, split.idle_ns),
        (Stage::Processor, split.processor_ns),
        (Stage::RunQueue, split.run_queue_ns),
    ];
    (split.open_ns, stages)
}

/// Share of the time, as a divisor, that a window or buffer is full for a pace to follow it: a
/// congestion control that paces keeps to the rate that it measured, so what was full then is what
/// it measured.
const PACE_FOLLOWS_FROM: u64 = 3;

/// Splits the time that the wire held a sender: what is the receiver's window's, and what its own
/// buffer's. This is the one rule, of transfers and of probes.
pub(crate) fn limited_ns(figures: &StreamFigures, held_ns: u64) -> (u64, u64) {
    // A window or buffer that fills a queue of the path is no limit: the link is.
    if figures.queue_held_ns > figures.held_ns / 2 {
        return (0, 0);
    }
    let window_ns = held_ns.min(figures.tcp.rwnd_limited_us * 1000);
    // The kernel counts a full buffer from a send that empties the queue while somebody waits, and
    // not at all where each write is sent whole before its writer waits.
    let buffer_ns = figures.buffer_held_ns.max(figures.tcp.sndbuf_limited_us * 1000);
    let buffer_ns = buffer_ns.min(held_ns - window_ns);
    let limited_ns = window_ns + buffer_ns;
    if !figures.is_paced || limited_ns < held_ns / PACE_FOLLOWS_FROM {
        return (window_ns, buffer_ns);
    }
    let rest_ns = held_ns - limited_ns;
    if window_ns >= buffer_ns {
        (window_ns + rest_ns, buffer_ns)
    } else {
        (window_ns, buffer_ns + rest_ns)
    }
}

fn receiver_stages(figures: &StreamFigures) -> Spent {
    let times = &figures.stages;
    let since_ns = open_call_ns(figures);
    let open_ns = figures.wall_ns + since_ns;
    let told_ns = times.receive_ns + times.digest_ns + times.target_ns;
    let mut walls = Walls {
        // Between the engine's calls small files are made and packs written.
        disk_ns: times.target_ns + figures.wall_ns.saturating_sub(told_ns),
        wire_ns: times.receive_ns,
        // A part of the receiving: waiting for a header.
        idle_ns: figures.idle_ns,
    };
    if figures.in_span && figures.on_storage() {
        walls.disk_ns += since_ns;
    } else {
        walls.wire_ns += since_ns;
        walls.idle_ns += if figures.in_span { 0 } else { since_ns };
    }
    let split = split(figures, open_ns, &walls);
    let idle_ns = split.idle_ns.min(split.wire_ns);
    let stages = vec![
        (Stage::Receive, split.wire_ns - idle_ns),
        (Stage::Idle, idle_ns),
        (Stage::Digest, split.digest_ns),
        (Stage::TargetDisk, split.disk_ns),
        (Stage::Processor, split.processor_ns),
        (Stage::RunQueue, split.run_queue_ns),
    ];
    (split.open_ns, stages)
}

/// Adds up the times of all streams of a side.
fn added(streams: &[StreamFigures], of: fn(&StreamFigures) -> Spent) -> Figures {
    let mut all = Figures::default();
    for (open_ns, stages) in streams.iter().map(of) {
        all.streams_ns += open_ns;
        for (stage, ns) in stages {
            add(&mut all.stages, stage, ns);
        }
    }
    all
}

/// Adds up for a report the time of all streams at work, and that in which all waited for work at
/// once: a stream that finds no more spans, while another brings the last, holds nothing up.
///
/// How they waited beside each other is not known. All did so at most for the least share of those
/// that were open for long.
fn at_work(streams: &[StreamFigures], of: fn(&StreamFigures) -> Spent) -> Figures {
    let spent: Vec<Spent> = streams.iter().map(of).collect();
    let idle_of = |stages: &[(Stage, u64)]| {
        stages.iter().find(|(stage, _)| *stage == Stage::Idle).map_or(0, |(_, ns)| *ns)
    };
    let longest_ns = spent.iter().map(|(open_ns, _)| *open_ns).max().unwrap_or(0);
    let long = spent.iter().filter(|(open_ns, _)| *open_ns > longest_ns / 2);
    let shares = long.map(|(open_ns, stages)| idle_of(stages) as f64 / (*open_ns).max(1) as f64);
    let share = shares.fold(1.0, f64::min);
    let mut all = Figures::default();
    for (open_ns, stages) in spent {
        let idle_ns = idle_of(&stages).min(open_ns);
        let beside_work_ns = (open_ns - idle_ns) as f64 * share / (1.0 - share);
        // Without any work there is no other share to keep to.
        let kept_ns = if share < 1.0 { idle_ns.min(beside_work_ns as u64) } else { idle_ns };
        all.streams_ns += open_ns - (idle_ns - kept_ns);
        for (stage, ns) in stages {
            add(&mut all.stages, stage, if stage == Stage::Idle { kept_ns } else { ns });
        }
    }
    all
}

fn add(stages: &mut Vec<StageTime>, stage: Stage, ns: u64) {
    match stages.iter_mut().find(|time| time.stage == stage) {
        Some(time) => time.ns += ns,
        None => stages.push(StageTime { stage, ns }),
    }
}

/// Rate of bytes in Gbit/s, rounded.
#[must_use]
pub fn rate_of(bytes: u64, seconds: f64) -> f64 {
    round_rate(bytes as f64 * 8.0 / 1e9 / seconds.max(1e-9))
}

/// The part of a side's report that its streams and its committer make.
pub struct Part {
    figures: Figures,
    at_work: Figures,
    cpu_ns: u64,
    streams: Vec<StreamFigures>,
}

impl Part {
    #[must_use]
    pub fn of_sender(streams: &Streams) -> Self {
        let streams = streams.all_figures();
        let at_work = at_work(&streams, sender_stages);
        Self { figures: added(&streams, sender_stages), at_work, cpu_ns: 0, streams }
    }

    #[must_use]
    pub fn of_receiver(streams: &Streams, committer: Costs) -> Self {
        let streams = streams.all_figures();
        let mut figures = added(&streams, receiver_stages);
        let mut at_work = at_work(&streams, receiver_stages);
        for of in [&mut figures, &mut at_work] {
            add(&mut of.stages, Stage::Sync, committer.sync_ns);
            add(&mut of.stages, Stage::ReadBack, committer.read_back_ns);
        }
        Self { figures, at_work, cpu_ns: committer.cpu_ns, streams }
    }

    /// Time of the side's streams by stage, so far.
    #[must_use]
    pub fn figures(self) -> Figures {
        self.figures
    }

    #[must_use]
    pub fn report(self, because: String) -> SideReport {
        let Self { at_work, cpu_ns, streams, .. } = self;
        let sum = |pick: fn(&StreamFigures) -> u64| streams.iter().map(pick).sum::<u64>();
        let rtt_us = sum(|s| s.tcp.rtt_us.into()).checked_div(streams.len() as u64).unwrap_or(0);
        SideReport {
            cpu_ns: sum(|s| s.cpu_ns) + cpu_ns,
            max_rss_bytes: max_rss_bytes(),
            copied_bytes: sum(|s| s.copied_bytes),
            retransmits: sum(|s| s.tcp.total_retransmits.into()),
            engine: engine_names(&streams),
            rdma: rdma_figures(&streams),
            because,
            stages: at_work.stages,
            threads: u32::try_from(streams.len()).unwrap_or(u32::MAX),
            streams_ns: at_work.streams_ns,
            sent_bytes: sum(|s| s.tcp.bytes_sent),
            resent_bytes: sum(|s| s.tcp.bytes_retransmitted),
            rtt_us: u32::try_from(rtt_us).unwrap_or(u32::MAX),
            ..SideReport::default()
        }
    }
}

/// Sum of what RDMA endpoints did; `None` where no stream had any.
fn rdma_figures(streams: &[StreamFigures]) -> Option<RdmaFigures> {
    let mut sum: Option<RdmaFigures> = None;
    for RdmaEnd { provider, port, figures } in streams.iter().filter_map(|s| s.rdma.as_ref()) {
        let (end, all) = (&figures.end, sum.get_or_insert_default());
        (all.provider, all.port) = ((*provider).to_owned(), port.clone());
        all.streams += 1;
        all.registrations += end.registrations;
        all.registering_ns += u64::try_from(end.registering.as_nanos()).unwrap_or(u64::MAX);
        all.windows += end.windows;
        all.window_bytes += end.window_bytes;
        all.buffered_bytes += end.buffered_bytes;
        all.waits_for_room += end.waits_for_room;
        all.direct_bytes += figures.direct_bytes;
        all.cached_bytes += figures.cached_bytes;
        if let (true, Some(refused)) = (all.refused.is_empty(), &end.refused) {
            all.refused.clone_from(refused);
        }
    }
    sum
}

fn engine_names(streams: &[StreamFigures]) -> String {
    let mut names: Vec<&str> = streams.iter().flat_map(|s| s.engines.iter().copied()).collect();
    names.sort_unstable();
    names.dedup();
    names.join("+")
}

/// The largest resident set of this process so far (VmHWM of proc_pid_status(5)).
#[must_use]
pub fn max_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Costs of a side, as its report tells them.
#[must_use]
pub fn costs(report: &SideReport, moved_bytes: u64) -> SideCosts {
    let gigabytes = moved_bytes as f64 / 1e9;
    let seconds = report.cpu_ns as f64 / 1e9;
    SideCosts {
        cpu_s_per_gb: if gigabytes > 0.0 { round(seconds / gigabytes, 4) } else { 0.0 },
        max_rss_bytes: report.max_rss_bytes,
    }
}

/// Rounds a value to this many decimal digits.
#[must_use]
pub fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// Rounds a rate in Gbit/s to four digits that count, and three behind the point at least: a slow
/// line has a rate too.
#[must_use]
pub fn round_rate(gbit_per_s: f64) -> f64 {
    const DIGITS: i32 = 3;
    if gbit_per_s <= 0.0 || !gbit_per_s.is_finite() {
        return 0.0;
    }
    round(gbit_per_s, DIGITS.max(DIGITS - gbit_per_s.log10().floor() as i32))
}

/// Figures that were added since earlier ones of the same streams. A call that goes on is guessed
/// at until it returns, so a stage may also lose time.
#[must_use]
pub fn since(now: &Figures, before: &Figures) -> Figures {
    let earlier = |stage: Stage| before.stages.iter().find(|time| time.stage == stage);
    let stages = now.stages.iter().map(|time| StageTime {
        stage: time.stage,
        ns: time.ns.saturating_sub(earlier(time.stage).map_or(0, |time| time.ns)),
    });
    Figures {
        streams_ns: now.streams_ns.saturating_sub(before.streams_ns),
        stages: stages.collect(),
    }
}

/// Adds the figures of other streams.
pub fn added_up(all: &mut Figures, other: &Figures) {
    // The other side may say any number.
    all.streams_ns = all.streams_ns.saturating_add(other.streams_ns);
    for time in &other.stages {
        match all.stages.iter_mut().find(|of| of.stage == time.stage) {
            Some(of) => of.ns = of.ns.saturating_add(time.ns),
            None => all.stages.push(*time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_datapath::{FabricFigures, StageTimes};
    use haul_sys::tcp_info::TcpInfo;
    use std::time::Duration;

    /// Milliseconds, in nanoseconds.
    const MS: u64 = 1_000_000;

    fn of(stages: &[(Stage, u64)], stage: Stage) -> u64 {
        stages.iter().find(|(of, _)| *of == stage).map_or(0, |(_, ns)| ns / MS)
    }

    fn stream(cpu_ms: u64, run_queue_ms: u64, stages: StageTimes) -> StreamFigures {
        StreamFigures {
            wall_ns: 1000 * MS,
            cpu_ns: cpu_ms * MS,
            run_queue_ns: run_queue_ms * MS,
            stages,
            engines: vec!["sendfile"],
            ..StreamFigures::default()
        }
    }

    #[test]
    fn the_stages_of_a_sender_add_up_to_its_open_time() {
        let times = StageTimes { digest_ns: 300 * MS, send_ns: 600 * MS, ..StageTimes::default() };
        let mut figures = stream(350, 100, times);
        figures.held_ns = 250 * MS;
        figures.tcp =
            TcpInfo { rwnd_limited_us: 150_000, sndbuf_limited_us: 20_000, ..TcpInfo::default() };
        let (open_ns, stages) = sender_stages(&figures);
        let sum: u64 = stages.iter().map(|(_, ns)| ns).sum();
        assert!(open_ns.abs_diff(sum) < MS, "{open_ns} {sum}");
        assert_eq!(of(&stages, Stage::SendReceiverWindow), 150);
        assert_eq!(of(&stages, Stage::SendBuffer), 20);
        assert_eq!(of(&stages, Stage::SendCongestionWindow), 80);
        assert!(of(&stages, Stage::SendApplication) > 150, "the wire held nothing back then");
        // The same engine times of one that reads before it sends: all of it is the wire's.
        figures.engines = vec!["read-write"];
        let (_, stages) = sender_stages(&figures);
        assert_eq!(of(&stages, Stage::SendApplication), 0);
        // So it is where nothing came from a disk.
        let warm =
            StreamFigures { engines: vec!["sendfile"], read_bytes: Some(0), ..figures.clone() };
        assert_eq!(of(&sender_stages(&warm).1, Stage::SendApplication), 0);
        let paced = StreamFigures { is_paced: true, held_ns: 250 * MS, ..warm };
        assert!(of(&sender_stages(&paced).1, Stage::SendReceiverWindow) > 100);
    }

    #[test]
    fn a_socket_that_is_not_empty_yet_is_no_idleness() {
        let times = StageTimes { send_ns: 100 * MS, ..StageTimes::default() };
        let mut figures = stream(0, 0, times);
        (figures.idle_ns, figures.idle_held_ns) = (900 * MS, 700 * MS);
        let (_, stages) = sender_stages(&figures);
        assert_eq!(of(&stages, Stage::Idle), 200);
        assert_eq!(
            of(&stages, Stage::SendCongestionWindow),
            700,
            "sendfile may have read in its 100"
        );
    }

    #[test]
    fn a_stream_without_work_beside_one_that_brings_the_rest_holds_nothing_up() {
        let idle = |idle_ms: u64| {
            let times = StageTimes { send_ns: (1000 - idle_ms) * MS, ..StageTimes::default() };
            let mut figures = stream(0, 0, times);
            figures.idle_ns = idle_ms * MS;
            figures.held_ns = figures.stages.send_ns;
            figures
        };
        let waits = |streams: &[StreamFigures]| {
            let all = at_work(streams, sender_stages);
            let of = all.stages.iter().find(|time| time.stage == Stage::Idle).unwrap();
            (of.ns / MS, all.streams_ns / MS)
        };
        assert_eq!(waits(&[idle(0), idle(1000)]), (0, 1000));
        assert_eq!(waits(&[idle(500), idle(500)]), (1000, 2000), "all of them waited");
        assert_eq!(waits(&[idle(500), idle(750)]), (750, 1500));
        assert_eq!(waits(&[idle(1000), idle(1000)]), (2000, 2000), "nobody did anything");
        // One that was open for a moment says nothing of the others.
        let mut moment = idle(0);
        (moment.wall_ns, moment.stages.send_ns, moment.held_ns) = (MS, MS, MS);
        assert_eq!(waits(&[moment, idle(500)]), (500, 1001));
    }

    #[test]
    fn a_pace_follows_the_window_that_was_full_when_it_was_measured() {
        let mut figures = stream(0, 0, StageTimes::default());
        figures.tcp =
            TcpInfo { rwnd_limited_us: 500_000, sndbuf_limited_us: 50_000, ..TcpInfo::default() };
        assert_eq!(limited_ns(&figures, 1000 * MS), (500 * MS, 50 * MS));
        figures.is_paced = true;
        assert_eq!(limited_ns(&figures, 1000 * MS), (950 * MS, 50 * MS));
        assert_eq!(limited_ns(&figures, 9000 * MS), (500 * MS, 50 * MS), "mostly not full");
    }

    #[test]
    fn a_slow_line_has_a_rate_and_a_fast_one_no_more_digits() {
        assert_eq!([5.451_9e-4, 1e-9].map(round_rate), [5.452e-4, 1e-9]);
        assert_eq!([0.904_96, 12.345_67, 99.999_9].map(round_rate), [0.905, 12.346, 100.0]);
        assert_eq!([0.0, -1.0, f64::NAN, f64::INFINITY].map(round_rate), [0.0; 4]);
    }

    #[test]
    fn a_window_that_fills_a_queue_of_the_path_is_not_what_limits() {
        let mut figures = stream(0, 0, StageTimes::default());
        figures.tcp = TcpInfo { rwnd_limited_us: 900_000, ..TcpInfo::default() };
        (figures.held_ns, figures.queue_held_ns) = (1000 * MS, 400 * MS);
        assert_eq!(limited_ns(&figures, 1000 * MS), (900 * MS, 0), "it was full at times");
        figures.queue_held_ns = 600 * MS;
        assert_eq!(limited_ns(&figures, 1000 * MS), (0, 0));
        figures.is_paced = true;
        assert_eq!(limited_ns(&figures, 1000 * MS), (0, 0));
    }

    #[test]
    fn a_full_buffer_that_the_kernel_did_not_count_is_the_buffers() {
        let mut figures = stream(0, 0, StageTimes::default());
        figures.buffer_held_ns = 700 * MS;
        assert_eq!(limited_ns(&figures, 1000 * MS), (0, 700 * MS));
        figures.tcp = TcpInfo { sndbuf_limited_us: 600_000, ..TcpInfo::default() };
        assert_eq!(limited_ns(&figures, 1000 * MS), (0, 700 * MS), "one time, seen twice");
        assert_eq!(limited_ns(&figures, 500 * MS), (0, 500 * MS));
        figures.tcp.rwnd_limited_us = 900_000;
        assert_eq!(limited_ns(&figures, 1000 * MS), (900 * MS, 100 * MS));
    }

    #[test]
    fn a_digest_that_waits_for_pages_waits_for_the_disk() {
        let times = StageTimes { digest_ns: 900 * MS, send_ns: 100 * MS, ..StageTimes::default() };
        let (_, stages) = sender_stages(&stream(150, 50, times));
        assert_eq!(of(&stages, Stage::SourceDisk), 700);
        assert_eq!(of(&stages, Stage::RunQueue), 50);
        let (_, stages) = receiver_stages(&stream(150, 850, times));
        assert_eq!(of(&stages, Stage::TargetDisk), 0, "it waited for a processor");
        assert_eq!(of(&stages, Stage::RunQueue), 850);
    }

    #[test]
    fn a_call_that_goes_on_counts_where_it_seems_to_be() {
        let long_ago = std::time::Instant::now() - std::time::Duration::from_secs(5);
        let now = StreamFigures {
            updated_at: Some(long_ago),
            is_open: true,
            in_span: true,
            ..stream(0, 0, StageTimes::default())
        };
        let (open_ns, stages) = sender_stages(&now);
        assert!(open_ns >= 6000 * MS && of(&stages, Stage::SourceDisk) >= 5000);
        let unused = StreamFigures { in_span: false, unread_bytes: 9, ..now.clone() };
        assert!(of(&sender_stages(&unused).1, Stage::Idle) >= 5000);
        assert!(of(&receiver_stages(&unused).1, Stage::Idle) >= 5000);
        let ended = StreamFigures { is_open: false, ..now.clone() };
        assert_eq!(sender_stages(&ended).0, 1000 * MS, "what has ended takes no more time");
        for figures in [&now, &unused, &StreamFigures { unread_bytes: 9, ..now.clone() }] {
            for (open_ns, stages) in [sender_stages(figures), receiver_stages(figures)] {
                let sum: u64 = stages.iter().map(|(_, ns)| ns).sum();
                assert!(open_ns < 600_000 * MS && open_ns.abs_diff(sum) < MS, "{stages:?}");
            }
        }
        let (_, stages) = sender_stages(&StreamFigures { wire_holds: true, ..now.clone() });
        let wire = [Stage::SendCongestionWindow, Stage::SendApplication];
        assert!(wire.iter().map(|stage| of(&stages, *stage)).sum::<u64>() >= 5000);
        let (_, stages) = receiver_stages(&StreamFigures { unread_bytes: 9, ..now.clone() });
        assert!(of(&stages, Stage::TargetDisk) >= 5000);
        let (_, stages) = receiver_stages(&now);
        assert!(of(&stages, Stage::Receive) >= 5000);
    }

    #[test]
    fn an_interval_is_what_was_added() {
        let figures = |streams_ns, ns| {
            let mut figures = Figures { streams_ns, stages: Vec::new() };
            add(&mut figures.stages, Stage::Sync, ns);
            figures
        };
        assert_eq!(since(&figures(10, 7), &figures(4, 5)), figures(6, 2));
        assert_eq!(since(&figures(10, 3), &figures(4, 5)), figures(6, 0));
        assert_eq!(since(&figures(10, 3), &Figures::default()), figures(10, 3));
    }

    fn in_ms(stages: &[(Stage, u64)]) -> Vec<(Stage, u64)> {
        // The shares are floating-point numbers.
        stages.iter().map(|(stage, ns)| (*stage, (ns + MS / 2) / MS)).collect()
    }

    /// A sender that computes 350 ms, 250 of them digests, waits 50 ms for a processor, and has
    /// files opened for 100 ms between the engine's calls.
    #[test]
    fn processor_time_and_run_queue_go_off_disk_and_wire_by_their_shares() {
        let times = StageTimes {
            source_ns: 200 * MS,
            digest_ns: 250 * MS,
            send_ns: 300 * MS,
            ..StageTimes::default()
        };
        let mut figures = stream(350, 50, times);
        (figures.idle_ns, figures.held_ns) = (150 * MS, 125 * MS);
        figures.tcp =
            TcpInfo { rwnd_limited_us: 60_000, sndbuf_limited_us: 20_000, ..TcpInfo::default() };
        let (open_ns, stages) = sender_stages(&figures);
        assert_eq!(open_ns, 1000 * MS);
        assert_eq!(
            in_ms(&stages),
            [
                (Stage::SourceDisk, 225),
                (Stage::Digest, 250),
                (Stage::SendApplication, 100),
                (Stage::SendCongestionWindow, 45),
                (Stage::SendReceiverWindow, 60),
                (Stage::SendBuffer, 20),
                (Stage::Idle, 150),
                (Stage::Processor, 100),
                (Stage::RunQueue, 50),
            ]
        );
    }

    /// A receiver that waits 150 ms for headers, which is a part of its receiving, and makes small
    /// files for 150 ms between the engine's calls.
    #[test]
    fn the_stages_of_a_receiver_add_up_to_its_open_time() {
        let times = StageTimes {
            receive_ns: 400 * MS,
            digest_ns: 250 * MS,
            target_ns: 200 * MS,
            ..StageTimes::default()
        };
        let figures = StreamFigures { idle_ns: 150 * MS, ..stream(350, 50, times) };
        let (open_ns, stages) = receiver_stages(&figures);
        assert_eq!(open_ns, 1000 * MS);
        assert_eq!(
            in_ms(&stages),
            [
                (Stage::Receive, 170),
                (Stage::Idle, 150),
                (Stage::Digest, 250),
                (Stage::TargetDisk, 280),
                (Stage::Processor, 100),
                (Stage::RunQueue, 50),
            ]
        );
    }

    /// The digest's wall time is 300 ms longer than its thread computed: first the run queue's
    /// delay explains it, then the disk.
    #[test]
    fn a_digest_that_waits_for_a_processor_leaves_only_the_rest_of_the_delay_to_other_calls() {
        for (run_queue_ms, disk_ms, wire_ms) in [(150, 400, 200), (350, 222, 178)] {
            let times = StageTimes {
                source_ns: 250 * MS,
                digest_ns: 500 * MS,
                send_ns: 200 * MS,
                ..StageTimes::default()
            };
            let figures = StreamFigures { idle_ns: 50 * MS, ..stream(200, run_queue_ms, times) };
            let (_, stages) = sender_stages(&figures);
            let stages = in_ms(&stages);
            let of = |stage| stages.iter().find(|(of, _)| *of == stage).map(|(_, ms)| *ms);
            assert_eq!(of(Stage::SourceDisk), Some(disk_ms));
            assert_eq!(of(Stage::SendApplication), Some(wire_ms));
            assert_eq!(of(Stage::Digest), Some(200));
        }
    }

    #[test]
    fn a_limit_begins_at_its_share_of_the_time() {
        let mut figures = stream(0, 0, StageTimes::default());
        figures.tcp =
            TcpInfo { rwnd_limited_us: 50_000, sndbuf_limited_us: 500_000, ..TcpInfo::default() };
        figures.is_paced = true;
        assert_eq!(limited_ns(&figures, 1650 * MS), (50 * MS, 1600 * MS), "a third: it follows");
        assert_eq!(limited_ns(&figures, 1653 * MS), (50 * MS, 500 * MS), "less than a third");
        (figures.held_ns, figures.queue_held_ns) = (1000 * MS, 500 * MS);
        assert_eq!(limited_ns(&figures, 1000 * MS), (50 * MS, 950 * MS), "half of it in a queue");
        figures.queue_held_ns += 1;
        assert_eq!(limited_ns(&figures, 1000 * MS), (0, 0), "more than half");
    }

    /// A stream that was open for half of the longest's time says nothing of the others' waits.
    #[test]
    fn a_report_has_the_waits_at_work_and_figures_have_all() {
        let waited = |wall_ms: u64, idle_ms: u64| {
            let send_ns = (wall_ms - idle_ms) * MS;
            let times = StageTimes { send_ns, ..StageTimes::default() };
            let (wall_ns, idle_ns) = (wall_ms * MS, idle_ms * MS);
            StreamFigures { wall_ns, idle_ns, held_ns: send_ns, ..stream(0, 0, times) }
        };
        let idle_and_open = |figures: &Figures| {
            let idle = figures.stages.iter().find(|time| time.stage == Stage::Idle);
            (idle.map(|time| time.ns / MS), figures.streams_ns / MS)
        };
        let streams = [waited(500, 0), waited(1000, 500)];
        assert_eq!(idle_and_open(&at_work(&streams, sender_stages)), (Some(500), 1500));
        let streams = [waited(501, 0), waited(1000, 500)];
        assert_eq!(idle_and_open(&at_work(&streams, sender_stages)), (Some(0), 1001));
        assert_eq!(idle_and_open(&added(&streams, sender_stages)), (Some(500), 1501));
    }

    #[test]
    fn a_sides_report_is_the_sum_of_its_streams_and_the_mean_of_their_round_trips() {
        let of = |by: u32, engine| StreamFigures {
            cpu_ns: u64::from(by) * 100,
            copied_bytes: u64::from(by) * 10,
            engines: vec![engine, "read-write"],
            tcp: TcpInfo {
                rtt_us: by,
                total_retransmits: by,
                bytes_sent: u64::from(by) * 1000,
                bytes_retransmitted: u64::from(by) * 7,
                ..TcpInfo::default()
            },
            ..StreamFigures::default()
        };
        let figures = |ns| Figures { streams_ns: ns, stages: vec![] };
        let stages = vec![StageTime { stage: Stage::Sync, ns: 9 }];
        let at_work = Figures { streams_ns: 6, stages: stages.clone() };
        let mut streams = vec![of(2, "splice"), of(4, "sendfile")];
        let (provider, port) = ("verbs", "mlx5_0".to_owned());
        streams[1].rdma = Some(RdmaEnd { provider, port, figures: FabricFigures::default() });
        let part = || Part {
            figures: figures(8),
            at_work: at_work.clone(),
            cpu_ns: 30,
            streams: streams.clone(),
        };
        assert_eq!(part().figures(), figures(8));
        let report = part().report("asked for".into());
        assert!((1 << 20..1 << 40).contains(&report.max_rss_bytes), "{}", report.max_rss_bytes);
        let expected = SideReport {
            cpu_ns: 630,
            max_rss_bytes: report.max_rss_bytes,
            copied_bytes: 60,
            retransmits: 6,
            engine: "read-write+sendfile+splice".into(),
            rdma: Some(RdmaFigures {
                provider: "verbs".into(),
                port: "mlx5_0".into(),
                streams: 1,
                ..RdmaFigures::default()
            }),
            because: "asked for".into(),
            stages,
            threads: 2,
            streams_ns: 6,
            sent_bytes: 6000,
            resent_bytes: 42,
            rtt_us: 3,
            ..SideReport::default()
        };
        assert_eq!(report, expected);
    }

    #[test]
    fn figures_of_rdma_endpoints_are_the_sum_of_the_streams_that_have_them() {
        let of = |by: u64, refused: Option<&str>| StreamFigures {
            rdma: Some(RdmaEnd {
                provider: "verbs",
                port: "mlx5_0".into(),
                figures: FabricFigures {
                    end: haul_fabric::Figures {
                        buffered_bytes: by,
                        window_bytes: by * 2,
                        windows: by * 3,
                        registrations: by * 4,
                        registering: Duration::from_nanos(by * 5),
                        waits_for_room: by * 6,
                        refused: refused.map(Into::into),
                        ..haul_fabric::Figures::default()
                    },
                    direct_bytes: by * 7,
                    cached_bytes: by * 8,
                },
            }),
            ..StreamFigures::default()
        };
        let by_tcp = StreamFigures::default();
        assert_eq!(rdma_figures(std::slice::from_ref(&by_tcp)), None);
        let streams = [of(1, None), by_tcp, of(10, Some("first")), of(100, Some("second"))];
        let expected = RdmaFigures {
            provider: "verbs".into(),
            port: "mlx5_0".into(),
            streams: 3,
            buffered_bytes: 111,
            window_bytes: 222,
            windows: 333,
            registrations: 444,
            registering_ns: 555,
            waits_for_room: 666,
            direct_bytes: 777,
            cached_bytes: 888,
            refused: "first".into(),
        };
        assert_eq!(rdma_figures(&streams), Some(expected));
    }

    #[test]
    fn costs_are_those_of_a_gigabyte_and_none_where_nothing_moved() {
        let report = SideReport { cpu_ns: 3_000_000_000, max_rss_bytes: 7, ..Default::default() };
        let costs = |moved_bytes| {
            let costs = costs(&report, moved_bytes);
            (costs.cpu_s_per_gb, costs.max_rss_bytes)
        };
        assert_eq!([costs(2_500_000_000), costs(0)], [(1.2, 7), (0.0, 7)]);
    }

    #[test]
    fn figures_of_another_side_are_added_by_stage_whatever_it_says() {
        let time = |stage, ns| StageTime { stage, ns };
        let mut all = Figures { streams_ns: 5, stages: vec![time(Stage::Sync, 3)] };
        let stages = vec![time(Stage::Digest, 4), time(Stage::Sync, 10)];
        added_up(&mut all, &Figures { streams_ns: 20, stages });
        let stages = vec![time(Stage::Sync, 13), time(Stage::Digest, 4)];
        assert_eq!(all, Figures { streams_ns: 25, stages });
        let stages = vec![time(Stage::Sync, u64::MAX)];
        added_up(&mut all, &Figures { streams_ns: u64::MAX, stages });
        assert_eq!((all.streams_ns, all.stages[0].ns), (u64::MAX, u64::MAX));
    }
}
