//! Where the time went: each side's figures for the report, and the verdict on what limited it.
//!
//! A stage's share is the part of the streams' open time in which that stage was at work (disks,
//! digests, processors) or held the others back (the congestion window). The largest share names
//! the bottleneck. Windows and buffers are TCP_INFO's own accounts (tcp_busy_time, rwnd_limited,
//! sndbuf_limited; Linux 4.10).

use crate::{
    events::{Bottleneck, SideCosts},
    session::streams::StreamFigures,
};
use haul_protocol::wire::{SideReport, Stage, StageTime};

/// Below this round-trip time a congestion window that is always full says nothing: the path is
/// memory, and the processors limit it.
const SHORT_PATH_RTT_US: u64 = 200;

/// The sending side's figures.
#[must_use]
pub fn sender_report(streams: &[StreamFigures], because: String) -> SideReport {
    let sum = |pick: fn(&StreamFigures) -> u64| streams.iter().map(pick).sum::<u64>();
    let send = sum(|s| s.stages.send_ns);
    let busy = sum(|s| s.tcp.busy_time_us * 1000);
    let window = sum(|s| s.tcp.rwnd_limited_us * 1000).min(send);
    let buffer = sum(|s| s.tcp.sndbuf_limited_us * 1000).min(send - window);
    let cwnd = busy.saturating_sub(window + buffer).min(send - window - buffer);
    let application = send - window - buffer - cwnd;
    let stages = vec![
        stage(Stage::SourceDisk, sum(|s| s.stages.source_ns)),
        stage(Stage::Digest, sum(|s| s.stages.digest_ns)),
        stage(Stage::SendApplication, application),
        stage(Stage::SendCongestionWindow, cwnd),
        stage(Stage::SendReceiverWindow, window),
        stage(Stage::SendBuffer, buffer),
        stage(Stage::Idle, sum(|s| s.idle_ns)),
    ];
    SideReport {
        cpu_ns: sum(|s| s.cpu_ns),
        max_rss_bytes: max_rss_bytes(),
        copied_bytes: sum(|s| s.copied_bytes),
        retransmits: sum(|s| s.tcp.total_retransmits.into()),
        engine: engine_names(streams),
        because,
        stages,
        threads: u32::try_from(streams.len()).unwrap_or(u32::MAX),
        bad_spans: 0,
        read_back: String::new(),
    }
}

/// The receiving side's figures. `committer_ns` is wall time in syncs, and processor time.
#[must_use]
pub fn receiver_report(
    streams: &[StreamFigures],
    because: String,
    committer_ns: (u64, u64),
    bad_spans: u64,
) -> SideReport {
    let sum = |pick: fn(&StreamFigures) -> u64| streams.iter().map(pick).sum::<u64>();
    let stages = vec![
        stage(Stage::Receive, sum(|s| s.stages.receive_ns)),
        stage(Stage::Digest, sum(|s| s.stages.digest_ns)),
        stage(Stage::TargetDisk, sum(|s| s.stages.target_ns)),
        stage(Stage::Sync, committer_ns.0),
        stage(Stage::Idle, sum(|s| s.idle_ns)),
    ];
    SideReport {
        cpu_ns: sum(|s| s.cpu_ns) + committer_ns.1,
        max_rss_bytes: max_rss_bytes(),
        copied_bytes: sum(|s| s.copied_bytes),
        retransmits: sum(|s| s.tcp.total_retransmits.into()),
        engine: engine_names(streams),
        because,
        stages,
        threads: u32::try_from(streams.len()).unwrap_or(u32::MAX),
        bad_spans,
        read_back: String::new(),
    }
}

fn stage(stage: Stage, ns: u64) -> StageTime {
    StageTime { stage: stage as i32, ns }
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

/// What a side's part cost.
#[must_use]
pub fn costs(report: &SideReport, moved_bytes: u64) -> SideCosts {
    let gigabytes = moved_bytes as f64 / 1e9;
    let seconds = report.cpu_ns as f64 / 1e9;
    SideCosts {
        cpu_s_per_gb: if gigabytes > 0.0 { round(seconds / gigabytes, 4) } else { 0.0 },
        max_rss_bytes: report.max_rss_bytes,
    }
}

#[must_use]
pub fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// How long a session's streams were open, and over what path.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    pub seconds: f64,
    pub rtt_us: u64,
    pub rate_limited: bool,
}

/// Names the stage that held the transfer back, and gives all shares, largest first.
#[must_use]
pub fn judge(
    source: &SideReport,
    target: &SideReport,
    session: Session,
) -> (Bottleneck, Vec<(String, f64)>) {
    let share = |report: &SideReport, stages: &[Stage]| {
        let total = session.seconds * 1e9 * f64::from(report.threads.max(1));
        let ns = stages.iter().fold(0, |sum: u64, s| sum.saturating_add(ns_of(report, *s)));
        if total > 0.0 { (ns as f64 / total).min(1.0) } else { 0.0 }
    };
    // Processor time outside the digest: what the system calls themselves took.
    let processor = |report: &SideReport| {
        let total = session.seconds * 1e9 * f64::from(report.threads.max(1));
        let ns = report.cpu_ns.saturating_sub(ns_of(report, Stage::Digest));
        if total > 0.0 { (ns as f64 / total).min(1.0) } else { 0.0 }
    };
    let short = session.rtt_us < SHORT_PATH_RTT_US;
    let network = if short { 0.0 } else { share(source, &[Stage::SendCongestionWindow]) };
    let reading = share(source, &[Stage::SourceDisk, Stage::SendApplication]);
    let reading = if short { (reading - processor(source)).max(0.0) } else { reading };
    let syncing = session.seconds * 1e9;
    let syncing = if syncing > 0.0 { ns_of(target, Stage::Sync) as f64 / syncing } else { 0.0 };
    let mut shares = vec![
        ("source_disk", reading),
        ("source_digest", share(source, &[Stage::Digest])),
        ("send", processor(source)),
        ("network", network),
        ("send_buffer", if short { 0.0 } else { share(source, &[Stage::SendBuffer]) }),
        ("receive", processor(target)),
        ("target_digest", share(target, &[Stage::Digest])),
        ("target_disk", share(target, &[Stage::TargetDisk])),
        ("sync", syncing.min(1.0)),
    ];
    shares.sort_by(|one, other| other.1.total_cmp(&one.1));
    let (stage, largest) = if session.rate_limited { ("limit", 1.0) } else { shares[0] };
    let shares = shares.into_iter().map(|(name, share)| (name.to_owned(), round(share, 3)));
    let verdict = verdict(stage, largest);
    (Bottleneck { stage: stage.into(), share: round(largest, 3), verdict }, shares.collect())
}

fn ns_of(report: &SideReport, stage: Stage) -> u64 {
    let of_stage = report.stages.iter().filter(|time| time.stage == stage as i32);
    // The other side may say any number.
    of_stage.fold(0, |sum, time| sum.saturating_add(time.ns))
}

fn verdict(stage: &str, share: f64) -> String {
    let percent = (share * 100.0).round();
    let (what, remedy) = match stage {
        "source_disk" => ("reading the source", "a faster source disk, or a warm page cache"),
        "source_digest" => ("the digest at the source", "more streams, if cores are idle there"),
        "send" => ("the sender's processor", "more streams, if cores are idle there"),
        "network" => ("the network (congestion window)", "look at loss and rate of the path"),
        "send_buffer" => ("the sender's socket buffer", "raise net.ipv4.tcp_wmem's maximum"),
        "receive" => ("the receiver's processor", "more streams, if cores are idle there"),
        "target_digest" => ("the digest at the target", "more streams, if cores are idle there"),
        "target_disk" => ("writing the target", "a faster target disk, or more of them"),
        "sync" => ("syncing the target", "a faster target disk, or more of them"),
        _ => return "the rate was limited by --bwlimit".into(),
    };
    format!("{what} was at work {percent} % of the time; to go faster: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(cpu_ns: u64, stages: &[(Stage, u64)]) -> SideReport {
        let stages = stages.iter().map(|(s, ns)| stage(*s, *ns)).collect();
        SideReport { cpu_ns, stages, threads: 1, ..SideReport::default() }
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_stage_that_worked_all_the_time_is_named() {
        let session = Session { seconds: 1.0, rtt_us: 50, rate_limited: false };
        let idle = report(SECOND / 10, &[]);
        let disk = report(SECOND / 10, &[(Stage::TargetDisk, SECOND * 9 / 10)]);
        assert_eq!(judge(&idle, &disk, session).0.stage, "target_disk");
        let digest = report(SECOND * 95 / 100, &[(Stage::Digest, SECOND * 8 / 10)]);
        assert_eq!(judge(&digest, &idle, session).0.stage, "source_digest");
        let source = report(SECOND / 10, &[(Stage::SourceDisk, SECOND * 7 / 10)]);
        assert_eq!(judge(&source, &idle, session).0.stage, "source_disk");
        let limited = Session { rate_limited: true, ..session };
        assert_eq!(judge(&source, &idle, limited).0.stage, "limit");
    }

    #[test]
    fn a_full_congestion_window_counts_only_on_a_long_path() {
        let window = report(SECOND / 10, &[(Stage::SendCongestionWindow, SECOND)]);
        let idle = report(SECOND / 5, &[]);
        let long = Session { seconds: 1.0, rtt_us: 50_000, rate_limited: false };
        assert_eq!(judge(&window, &idle, long).0.stage, "network");
        let short = Session { rtt_us: 50, ..long };
        assert_eq!(judge(&window, &idle, short).0.stage, "receive");
    }
}
