//! Verdict on a transfer: the stage that held it back, what that allows at most, what to do.
//!
//! A stage's share is the part of its side's stream time in which it was at work, or in which the
//! others waited for it. Streams run side by side, so a stage whose time grows with the bytes, and
//! that takes a share S of the time at a rate R, allows R / S at most. What the stages allow that
//! held nothing back is not known: a network that waits for a disk sends what was in its queues.
//! `docs/stages.md` tells what each stage is.

use crate::{
    connecting::ConnectOptions,
    events::{Bottleneck, Limiting, SshReport},
    session::stages::{round, round_rate},
    transport::tcp,
};
use haul_protocol::message::{Figures, SideReport, Stage};
use haul_report::units::percent;
use std::net::TcpStream;

/// Share below which no whole per cent is shown.
const SHARE_TOLD_MIN: f64 = 0.005;
/// Share of bytes that went out again from which on loss is what limits a congestion window.
const LOSS_SHARE_MIN: f64 = 0.001;
/// Buffer of a socket for each byte of its window: half of it is the kernel's own
/// (tcp_adv_win_scale, ip-sysctl.rst).
const BUFFER_PER_WINDOW: f64 = 2.0;
/// Multiple of the present rate that an advised buffer allows at most.
const GROWTH_ADVISED_MAX: f64 = 10.0;
/// Share of `--bwlimit` from which on waiting in the sender's sockets is the limit's doing.
const PACED_SHARE: f64 = 0.7;
/// Share of `--bwlimit` from which on nothing else could have made the transfer much faster. It
/// leaves room for the bytes that an interval has not been told of yet.
const REACHED_SHARE: f64 = 0.85;
/// Decimal places of a share.
const SHARE_DIGITS: i32 = 3;
/// Share of a side's time from which on waiting for a processor is its own quota's doing.
const THROTTLED_SHARE_MIN: f64 = 0.1;
/// Bytes of a MiB.
const MIB: f64 = (1 << 20) as f64;

/// Shares by stage, the largest first.
type Shares = Vec<(&'static str, f64)>;

/// Facts that a verdict needs beside the shares.
#[derive(Clone, Copy, Debug)]
struct Facts {
    /// Round-trip time of the source's streams in microseconds, smoothed.
    rtt_us: u32,
    /// Share of the bytes on the data streams that was sent again.
    resent_share: f64,
    streams: u32,
    gbit_per_s: f64,
    /// Share of the source's time that its own CPU quota took.
    source_throttled: f64,
    target_throttled: f64,
}

impl Facts {
    fn new(source: &SideReport, target: &SideReport, moved_bytes: u64) -> Self {
        let seconds = stream_seconds(source);
        let rate = moved_bytes as f64 * 8.0 / 1e9 / seconds;
        Self {
            rtt_us: source.rtt_us,
            resent_share: source.resent_bytes as f64 / source.sent_bytes.max(1) as f64,
            streams: source.threads.max(1),
            gbit_per_s: if seconds > 0.0 { rate } else { 0.0 },
            source_throttled: throttled(source),
            target_throttled: throttled(target),
        }
    }

    /// Whether the stage waited for a processor that its own control group was not given.
    fn is_throttled(&self, stage: &str) -> bool {
        match stage {
            "source_run_queue" => quota_holds(self.source_throttled),
            "target_run_queue" => quota_holds(self.target_throttled),
            _ => false,
        }
    }
}

/// Whether a side's own quota is what its threads wait for, by the share of its time that the quota
/// took. Transfers and probes have this one rule.
#[must_use]
pub fn quota_holds(throttled_share: f64) -> bool {
    throttled_share >= THROTTLED_SHARE_MIN
}

/// Remedy for a quota.
pub const QUOTA_REMEDY: &str = "raise the CPU quota of haul's control group there (cpu.max or \
     cpu.cfs_quota_us, CPUQuota= of systemd, --cpus of docker)";

fn throttled(side: &SideReport) -> f64 {
    side.throttled_ns as f64 / 1e9 / stream_seconds(side).max(f64::MIN_POSITIVE)
}

/// Seconds for which a side's streams were open, as if they all had been so from first to last.
fn stream_seconds(report: &SideReport) -> f64 {
    report.streams_ns as f64 / 1e9 / f64::from(report.threads.max(1))
}

/// The path between both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    /// Both ends are on one host: there is no wire that could be full.
    Loopback,
    #[default]
    Network,
    /// ssh carries the bytes: what the sockets wait for is ssh, and not a network.
    Ssh,
}

impl Path {
    #[must_use]
    pub fn of(socket: &TcpStream, connect: &ConnectOptions) -> Self {
        match &connect.connector {
            Some(connector) if connector.is_through_ssh() => Self::Ssh,
            _ if tcp::ends_on_this_host(socket) => Self::Loopback,
            _ => Self::Network,
        }
    }
}

/// The bottleneck of a run, and its stages' shares, largest first.
pub type Judged = (Bottleneck, Vec<(String, f64)>);

/// Bytes that were moved in a time, and the rate that the user allowed.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub bytes: u64,
    pub seconds: f64,
    /// Rate that the user allowed, in bytes a second.
    pub limit: Option<u64>,
}

/// Share of `--bwlimit` that was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Limit {
    /// The limit was never reached, so it limited nothing.
    Far,
    Near,
    Reached,
}

impl Rate {
    fn limit(&self) -> Limit {
        let rate = self.bytes as f64 / self.seconds.max(f64::MIN_POSITIVE);
        match self.limit.map(|limit| rate / limit.max(1) as f64) {
            Some(used) if used > REACHED_SHARE => Limit::Reached,
            Some(used) if used > PACED_SHARE => Limit::Near,
            _ => Limit::Far,
        }
    }
}

/// The stage that held a transfer back.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    stage: &'static str,
    share: f64,
    /// Stage with a larger share that held nothing back.
    beside: Option<(&'static str, f64)>,
}

/// Chooses the bottleneck: the largest share, or `--bwlimit` where the rate reached it, whatever
/// else took time. `None` where nothing was at work.
fn held(shares: &Shares, limit: Limit) -> Option<Held> {
    let largest = shares.first().copied().filter(|(_, share)| *share > 0.0);
    let of_limit = shares.iter().find(|(stage, _)| *stage == "limit");
    match of_limit {
        Some((stage, share)) if limit == Limit::Reached => {
            let beside = largest.filter(|(largest, _)| largest != stage);
            Some(Held { stage, share: *share, beside })
        }
        _ => largest.map(|(stage, share)| Held { stage, share, beside: None }),
    }
}

impl Held {
    /// Reason why it is not the stage with the largest share; empty where it is.
    fn because(&self) -> String {
        self.beside.map_or_else(String::new, |(stage, share)| {
            let stage = stage.replace('_', " ");
            format!("the rate reached --bwlimit, so {stage}, {}, cost little", percent(share))
        })
    }
}

/// Verdict on a transfer, and the stages' shares, largest first. Where nothing was moved there is
/// neither: streams that only waited were held back by nothing.
#[must_use]
pub fn of_reports(source: &SideReport, target: &SideReport, path: Path, rate: &Rate) -> Judged {
    if rate.bytes == 0 {
        return (Bottleneck::default(), Vec::new());
    }
    let figures_of = |side: &SideReport| {
        // An older haul does not say it.
        let whole_ns = (rate.seconds * 1e9 * f64::from(side.threads)) as u64;
        let streams_ns = if side.streams_ns > 0 { side.streams_ns } else { whole_ns };
        Figures { streams_ns, stages: side.stages.clone() }
    };
    let (of_source, of_target) = (figures_of(source), figures_of(target));
    let (seconds, limit) = (stream_seconds(source), rate.limit());
    let shares = judged(&of_source, &of_target, seconds, path, limit);
    let facts = Facts::new(source, target, rate.bytes);
    let verdict = held(&shares, limit).map(|held| verdict(&held, &shares, &facts));
    (verdict.unwrap_or_default(), told(&shares))
}

/// Speed of a run whose data ssh carried, with what its ends would have done without; `None` where
/// ssh carried none.
///
/// The work of an end on the bytes, which is that of its disk, digest and processor, would be the
/// same. Waits for windows, buffers and processors are left out: they are ssh's, or may be.
#[must_use]
pub fn of_ssh(
    source: &SideReport,
    target: &SideReport,
    path: Path,
    rate: &Rate,
) -> Option<SshReport> {
    let (_, stages) = of_reports(source, target, path, rate);
    let facts = Facts::new(source, target, rate.bytes);
    if path != Path::Ssh || facts.gbit_per_s <= 0.0 {
        return None;
    }
    let sum = |counts: &dyn Fn(&str) -> bool| {
        stages.iter().filter(|(stage, _)| counts(stage)).map(|(_, share)| share).sum::<f64>()
    };
    let work_of = |side| sum(&|stage| stage.starts_with(side) && grows_with_bytes(stage));
    let behind = sum(&|stage| ["read_back", "sync"].contains(&stage));
    let left = work_of("source").max(work_of("target")) + behind;
    let without = facts.gbit_per_s / left.clamp(SHARE_TOLD_MIN, 1.0);
    let limit = rate.limit.map_or(f64::INFINITY, |limit| limit as f64 * 8.0 / 1e9);
    Some(SshReport {
        gbit_per_s: round_rate(facts.gbit_per_s),
        without_gbit_per_s: round_rate(without.min(limit).max(facts.gbit_per_s)),
    })
}

/// Shares of the stages; with a rate limit that was used, that is what held the sender's sockets
/// back, on any path, and without one it is ssh where ssh carries the bytes.
fn judged(source: &Figures, target: &Figures, seconds: f64, path: Path, limit: Limit) -> Shares {
    match limit {
        Limit::Far if path == Path::Ssh => held_by("ssh", shares(source, target, seconds, path)),
        Limit::Far => shares(source, target, seconds, path),
        Limit::Near | Limit::Reached => {
            held_by("limit", shares(source, target, seconds, Path::Network))
        }
    }
}

/// Judges what held an interval back; with the stages' shares, largest first.
#[must_use]
pub fn of_interval(
    source: &Figures,
    target: &Figures,
    path: Path,
    rate: &Rate,
) -> (Option<Limiting>, Vec<(String, f64)>) {
    if source.streams_ns == 0 && target.streams_ns == 0 {
        return (None, Vec::new());
    }
    let limit = rate.limit();
    let shares = judged(source, target, rate.seconds, path, limit);
    let limiting = held(&shares, limit).map(|held| Limiting {
        stage: held.stage.into(),
        share: held.share,
        because: held.because(),
    });
    (limiting, told(&shares))
}

fn share_of(figures: &Figures, stage: Stage) -> f64 {
    let streams_ns = figures.streams_ns as f64;
    if streams_ns > 0.0 { (ns_of(figures, stage) / streams_ns).min(1.0) } else { 0.0 }
}

/// Shares of the stages in `seconds`, from what both sides say of them, the largest first. They are
/// rounded here and nowhere else, so that all that is said of a stage is one number.
///
/// Waiting in the socket is the network's only while both ends wait: a sender whose receiver is
/// busy waits for that receiver's disk or processor, and a receiver whose sender is busy for that.
#[must_use]
pub fn shares(source: &Figures, target: &Figures, seconds: f64, path: Path) -> Shares {
    let of_source = |stage| share_of(source, stage);
    let of_target = |stage| share_of(target, stage);
    let held = [Stage::SendCongestionWindow, Stage::SendReceiverWindow, Stage::SendBuffer];
    let reads_too = of_source(Stage::SendApplication);
    let sender_waits = held.map(of_source).iter().sum::<f64>() + reads_too;
    let receiver_waits = if target.streams_ns == 0 {
        1.0
    } else {
        of_target(Stage::Receive) + of_target(Stage::Idle)
    };
    let both = sender_waits.min(receiver_waits) / sender_waits.max(f64::MIN_POSITIVE);
    let idle = if source.streams_ns == 0 { 1.0 } else { of_source(Stage::Idle) };
    // Streams never wait for these two: they hold back when streams have nothing left to do.
    let beside = |stage, idle: f64| {
        if seconds > 0.0 { (ns_of(target, stage) / 1e9 / seconds).min(idle) } else { 0.0 }
    };
    let read_back = beside(Stage::ReadBack, idle);
    let sync = beside(Stage::Sync, idle - read_back);
    let window = if path == Path::Loopback { 0.0 } else { of_source(held[0]) * both };
    let mut shares = vec![
        ("source_disk", of_source(Stage::SourceDisk) + reads_too * both),
        ("source_digest", of_source(Stage::Digest)),
        ("source_processor", of_source(Stage::Processor)),
        ("source_run_queue", of_source(Stage::RunQueue)),
        ("network", window),
        ("receiver_window", of_source(held[1]) * both),
        ("send_buffer", of_source(held[2]) * both),
        ("target_digest", of_target(Stage::Digest)),
        ("target_processor", of_target(Stage::Processor)),
        ("target_run_queue", of_target(Stage::RunQueue)),
        ("target_disk", of_target(Stage::TargetDisk)),
        ("read_back", read_back),
        ("sync", sync),
        ("waiting", if source.streams_ns == 0 { 0.0 } else { idle - read_back - sync }),
    ];
    shares.iter_mut().for_each(|(_, share)| *share = round(share.clamp(0.0, 1.0), SHARE_DIGITS));
    sorted(shares)
}

fn sorted(mut shares: Shares) -> Shares {
    shares.sort_by(|one, other| other.1.total_cmp(&one.1));
    shares
}

fn ns_of(figures: &Figures, stage: Stage) -> f64 {
    let of_stage = figures.stages.iter().filter(|time| time.stage == stage);
    // The other side may say any number.
    of_stage.map(|time| time.ns as f64).sum()
}

/// Shares where something else than the network held the sender's sockets back: a rate limit that
/// was reached, or ssh.
fn held_by(holder: &'static str, shares: Shares) -> Shares {
    let is_held = |stage: &str| ["network", "receiver_window", "send_buffer"].contains(&stage);
    let held = shares.iter().filter(|(stage, _)| is_held(stage)).map(|(_, share)| share).sum();
    let rest = shares.into_iter().filter(|(stage, _)| !is_held(stage));
    sorted(std::iter::once((holder, round(held, SHARE_DIGITS).min(1.0))).chain(rest).collect())
}

/// Shares as they are shown.
fn told(shares: &Shares) -> Vec<(String, f64)> {
    let shown = shares.iter().map(|(stage, share)| ((*stage).to_owned(), *share));
    shown.filter(|(_, share)| *share > 0.0).collect()
}

/// Whether the time of a stage grows with the bytes that it has moved, so that its share says what
/// it allows at most. Windows and queues wait for others.
fn grows_with_bytes(stage: &str) -> bool {
    matches!(
        stage,
        "source_disk"
            | "source_digest"
            | "source_processor"
            | "target_digest"
            | "target_processor"
            | "target_disk"
    )
}

/// Names the stage that held the transfer back, what it allows at most, what came next, and what
/// to do.
fn verdict(held: &Held, shares: &Shares, facts: &Facts) -> Bottleneck {
    let Held { stage, share, .. } = *held;
    let because = held.because();
    let others = shares.iter().filter(|(other, _)| *other != "waiting" && *other != stage);
    let next = others.max_by(|one, other| one.1.total_cmp(&other.1)).copied();
    let (next_stage, next_share) = next.unwrap_or(("", 0.0));
    let is_bounded = grows_with_bytes(stage) && facts.gbit_per_s > 0.0;
    let at_most = is_bounded.then(|| facts.gbit_per_s / share);
    let remedy = remedy(stage, facts, facts.gbit_per_s / next_share.max(SHARE_TOLD_MIN));
    let what = match stage {
        "source_run_queue" if facts.is_throttled(stage) => "the sender's own CPU quota held it",
        "target_run_queue" if facts.is_throttled(stage) => "the receiver's own CPU quota held it",
        _ => what(stage),
    };
    let mut held = format!("{what} {} of the time", percent(share));
    if facts.gbit_per_s > 0.0 {
        held += &format!(", at {}", gbit(facts.gbit_per_s));
    }
    if let Some(at_most) = at_most {
        held += &format!(", and so allows at most {}", gbit(at_most));
    }
    if next_share >= SHARE_TOLD_MIN {
        held += &format!("; next is {}, {}", noun(next_stage), percent(next_share));
    }
    Bottleneck {
        stage: stage.into(),
        share,
        because,
        gbit_per_s: round_rate(facts.gbit_per_s),
        at_most_gbit_per_s: at_most.map(round_rate),
        next_stage: next_stage.into(),
        next_share,
        verdict: format!("{held}; to go faster: {remedy}"),
        remedy,
    }
}

/// Name of a stage as a part of a sentence.
fn noun(stage: &str) -> &'static str {
    match stage {
        "source_disk" => "the source disk",
        "source_digest" => "the sender's digest",
        "source_processor" => "the sender's processor",
        "source_run_queue" => "the sender's run queue",
        "network" => "the network",
        "receiver_window" => "the receiver's window",
        "send_buffer" => "the send buffer",
        "ssh" => "ssh",
        "target_digest" => "the receiver's digest",
        "target_processor" => "the receiver's processor",
        "target_run_queue" => "the receiver's run queue",
        "target_disk" => "the target disk",
        "read_back" => "reading the target back",
        _ => "the sync",
    }
}

fn gbit(rate: f64) -> String {
    match rate {
        rate if rate >= 10.0 => format!("{rate:.0} Gbit/s"),
        rate if rate >= 1.0 => format!("{rate:.1} Gbit/s"),
        rate if rate >= 1e-3 => format!("{:.1} Mbit/s", rate * 1e3),
        rate => format!("{:.1} kbit/s", rate * 1e6),
    }
}

fn what(stage: &str) -> &'static str {
    match stage {
        "source_disk" => "the sender waited for its disk",
        "source_digest" => "the sender computed digests",
        "source_processor" => "the sender's processor was at work outside digests",
        "source_run_queue" => "the sender waited for a processor that others had",
        "network" => "the congestion window was full",
        "receiver_window" => "the receiver's TCP window was full, with its streams waiting,",
        "send_buffer" => "the sender's socket buffer was all in flight",
        "limit" => "the rate limit (--bwlimit) held the sender back",
        "ssh" => "ssh, which carried the data, held the sender back",
        "target_digest" => "the receiver computed digests",
        "target_processor" => "the receiver's processor was at work outside digests",
        "target_run_queue" => "the receiver waited for a processor that others had",
        "target_disk" => "the receiver waited for its disk",
        "read_back" => "all was sent and the receiver read files back from its disk",
        "sync" => "all was sent and the receiver synced",
        _ => "nothing could be sent",
    }
}

/// Remedy for a stage; `without` is what the others may allow, a guess, in Gbit/s.
fn remedy(stage: &str, facts: &Facts, without: f64) -> String {
    let more = format!("more streams than {} (--streams), if cores are idle", facts.streams);
    let bdp = buffer_advised(facts, without);
    let cheaper = "or a digest that costs less (--protection clear, no --manifest)";
    let cores = "stop what else runs there, or give haul cores of its own (taskset, cpuset)";
    match stage {
        "source_disk" => "a faster source disk, or sources that are in the page cache".into(),
        "source_digest" => format!("{more} at the sender, {cheaper}"),
        "source_processor" => format!("{more} at the sender"),
        "source_run_queue" | "target_run_queue" if facts.is_throttled(stage) => QUOTA_REMEDY.into(),
        "source_run_queue" | "target_run_queue" => cores.into(),
        "network" if facts.resent_share >= LOSS_SHARE_MIN => format!(
            "find where packets are lost (ip -s link, ethtool -S on every hop), as {:.1} % of the \
             bytes went out again; bbr bears more of it, if another is used \
             (net.ipv4.tcp_congestion_control at the sender)",
            facts.resent_share * 100.0
        ),
        "network" => format!(
            "a faster link; if it is not full, more streams than {} (--streams)",
            facts.streams
        ),
        "receiver_window" => {
            format!("raise the maximum of net.ipv4.tcp_rmem at the receiver to {bdp}")
        }
        "send_buffer" => format!("raise the maximum of net.ipv4.tcp_wmem at the sender to {bdp}"),
        "limit" => "raise --bwlimit, or leave it out".into(),
        "ssh" => {
            "open a port between both machines (--port-range, at either of them), so that data \
                  has connections of its own"
                .into()
        }
        "target_digest" => format!("{more} at the receiver, {cheaper}"),
        "target_processor" => format!("{more} at the receiver"),
        "target_disk" => "a faster target disk, or several (RAID 0, one server a disk)".into(),
        "read_back" => {
            "a target disk that reads faster, or leave out --verify-target where that is given"
                .into()
        }
        "sync" => "a target disk that takes synced writes faster, as flash with power-loss \
                   protection does"
            .into(),
        _ => "sources that are listed or written faster, or a shorter round trip".into(),
    }
}

/// Buffer that a stream's part of the rate needs over this round trip, and how it is computed.
fn buffer_advised(facts: &Facts, without: f64) -> String {
    let rate = without.min(facts.gbit_per_s * GROWTH_ADVISED_MAX);
    let window = rate * 1e9 / 8.0 * f64::from(facts.rtt_us) / 1e6 / f64::from(facts.streams);
    let mib = (window * BUFFER_PER_WINDOW / MIB).ceil().max(1.0);
    let (ms, streams) = (f64::from(facts.rtt_us) / 1000.0, facts.streams);
    let (rate, plural) = (gbit(rate), if streams == 1 { "" } else { "s" });
    format!(
        "{mib} MiB (twice the round trip, {ms:.1} ms, times {rate}, if the path carries that, for \
         {streams} stream{plural})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_protocol::message::StageTime;

    const FACTS: Facts = Facts {
        rtt_us: 0,
        resent_share: 0.0,
        streams: 2,
        gbit_per_s: 0.0,
        source_throttled: 0.0,
        target_throttled: 0.0,
    };

    /// Sockets through ssh wait for ssh, whatever they call that, unless a rate limit holds them.
    #[test]
    fn ssh_is_what_its_sockets_wait_for() {
        let source = side(&[(Stage::SendBuffer, 700), (Stage::SourceDisk, 100)]);
        let target = side(&[(Stage::Receive, 900)]);
        let judge = |path, limit| {
            let rate = Rate { bytes: 1000, seconds: 1e-6, limit };
            of_reports(&source, &target, path, &rate).0
        };
        let ssh = judge(Path::Ssh, None);
        assert_eq!((ssh.stage.as_str(), ssh.next_stage.as_str()), ("ssh", "source_disk"));
        assert!(ssh.verdict.contains("ssh, which carried the data, held the sender back"));
        assert!(ssh.remedy.contains("--port-range"), "{}", ssh.remedy);
        assert_eq!(judge(Path::Loopback, None).stage, "send_buffer");
        assert_eq!(judge(Path::Ssh, Some(1_000_000_000)).stage, "limit");
    }

    /// Figures of a server with a quota of 5 % of a processor, of which was said: `waited for a
    /// processor that others had`.
    #[test]
    fn a_quota_of_its_own_is_not_blamed_on_others() {
        let source = side(&[(Stage::SendReceiverWindow, 950)]);
        let mut target = side(&[(Stage::RunQueue, 950), (Stage::Receive, 50)]);
        let rate = Rate { bytes: 1000, seconds: 1e-6, limit: None };
        let (others, _) = of_reports(&source, &target, Path::Network, &rate);
        assert!(others.verdict.contains("that others had 95 %"), "{others:?}");
        target.throttled_ns = 900;
        let (own, _) = of_reports(&source, &target, Path::Network, &rate);
        assert_eq!(own.stage, "target_run_queue");
        assert!(own.verdict.contains("own CPU quota held it 95 % of the time"), "{own:?}");
        assert!(own.remedy.contains("cpu.max"), "{own:?}");
    }

    fn figures(stages: &[(Stage, u64)]) -> Figures {
        let stages = stages.iter().map(|(stage, ns)| StageTime { stage: *stage, ns: *ns });
        Figures { streams_ns: 1000, stages: stages.collect() }
    }

    fn first(source: &[(Stage, u64)], target: &[(Stage, u64)]) -> (&'static str, f64) {
        let (stage, share) = shares(&figures(source), &figures(target), 1e-6, Path::Network)[0];
        (stage, round(share, 3))
    }

    #[test]
    fn a_full_window_is_the_receivers_disk_while_the_receiver_is_busy() {
        let window = [(Stage::SendReceiverWindow, 900), (Stage::SendBuffer, 50)];
        let busy = [(Stage::TargetDisk, 850), (Stage::Receive, 100)];
        assert_eq!(first(&window, &busy), ("target_disk", 0.85));
        let waiting = [(Stage::TargetDisk, 10), (Stage::Receive, 950)];
        assert_eq!(first(&window, &waiting), ("receiver_window", 0.9));
        let congestion = [(Stage::SendCongestionWindow, 900)];
        assert_eq!(first(&congestion, &waiting), ("network", 0.9));
        let shares = shares(&figures(&congestion), &figures(&waiting), 1e-6, Path::Loopback);
        assert!(shares.contains(&("network", 0.0)), "{shares:?}");
    }

    #[test]
    fn a_sync_holds_back_only_when_nothing_else_is_to_be_done() {
        let beside = [(Stage::SourceDisk, 600), (Stage::Idle, 100)];
        let syncing = [(Stage::Sync, 900), (Stage::Receive, 900)];
        assert_eq!(first(&beside, &syncing), ("source_disk", 0.6));
        assert_eq!(first(&[(Stage::Idle, 950)], &syncing), ("sync", 0.9));
        assert_eq!(first(&[(Stage::Idle, 950)], &[(Stage::Idle, 950)]).0, "waiting");
        let reading_back = [(Stage::Sync, 100), (Stage::ReadBack, 800), (Stage::Receive, 900)];
        assert_eq!(first(&[(Stage::Idle, 950)], &reading_back), ("read_back", 0.8));
    }

    #[test]
    fn a_peer_that_says_nonsense_or_nothing_yields_shares_within_bounds() {
        let mad = Figures {
            streams_ns: 1,
            stages: [Stage::Sync, Stage::Sync, Stage::TargetDisk]
                .map(|stage| StageTime { stage, ns: u64::MAX })
                .into(),
        };
        for (one, other) in [(&mad, &mad), (&Figures::default(), &mad), (&mad, &Figures::default())]
        {
            for (stage, share) in shares(one, other, 0.5, Path::Network) {
                assert!((0.0..=1.0).contains(&share), "{stage} {share}");
            }
        }
    }

    #[test]
    fn the_verdict_says_the_stage_the_next_one_and_what_to_do() {
        let facts = Facts { rtt_us: 50_000, gbit_per_s: 0.9, ..FACTS };
        let shares: Shares = vec![("receiver_window", 0.9), ("waiting", 0.5), ("target_disk", 0.1)];
        let judge = |shares: &Shares, facts: &Facts, limit| {
            held(shares, limit).map(|held| verdict(&held, shares, facts)).unwrap()
        };
        let told = judge(&shares, &facts, Limit::Far);
        assert_eq!((told.gbit_per_s, told.at_most_gbit_per_s), (0.9, None));
        assert_eq!((told.next_stage.as_str(), told.next_share), ("target_disk", 0.1));
        // 9 Gbit/s over 50 ms are 56 MB, half of it for each stream, twice for the buffer.
        assert!(told.remedy.contains("tcp_rmem") && told.remedy.contains("54 MiB"), "{told:?}");
        assert!(
            told.verdict.contains("at 900.0 Mbit/s; next is the target disk, 10 %"),
            "{told:?}"
        );
        let lossy = Facts { resent_share: 0.02, ..facts };
        let network: Shares = vec![("network", 0.8), ("source_disk", 0.001)];
        let told = judge(&network, &lossy, Limit::Far);
        assert!(told.remedy.contains("2.0 % of the bytes"), "{told:?}");
        assert!(!told.verdict.contains("next"), "{told:?}");
        let waits = vec![("network", 0.7), ("send_buffer", 0.2), ("source_disk", 0.1)];
        let limited = held_by("limit", waits);
        assert_eq!(limited.len(), 2);
        let told = judge(&limited, &lossy, Limit::Near);
        assert_eq!((told.stage.as_str(), told.gbit_per_s), ("limit", 0.9));
        assert!(told.remedy.contains("--bwlimit") && told.next_share == 0.1, "{told:?}");
    }

    /// Figures of a link of 382 Mbit/s before a disk of 252, of which was said: `without it the
    /// network would allow about 3.0 Gbit/s`.
    #[test]
    fn nothing_is_said_to_allow_more_than_was_seen_but_as_a_bound() {
        let facts = Facts { rtt_us: 30, gbit_per_s: 0.252, ..FACTS };
        let shares: Shares = vec![("target_disk", 0.86), ("network", 0.084)];
        let told = held(&shares, Limit::Far).map(|held| verdict(&held, &shares, &facts)).unwrap();
        assert_eq!((told.gbit_per_s, told.at_most_gbit_per_s), (0.252, Some(0.293)));
        let words = "86 % of the time, at 252.0 Mbit/s, and so allows at most 293.0 Mbit/s; next \
                     is the network, 8 %; to go faster";
        assert!(told.verdict.contains(words), "{told:?}");
        for stage in ["network", "receiver_window", "send_buffer", "sync", "waiting", "limit"] {
            let shares: Shares = vec![(stage, 0.5), ("target_disk", 0.1)];
            let told = held(&shares, Limit::Far).map(|held| verdict(&held, &shares, &facts));
            assert_eq!(told.unwrap().at_most_gbit_per_s, None, "{stage}");
        }
    }

    fn side(stages: &[(Stage, u64)]) -> SideReport {
        let figures = figures(stages);
        let (stages, streams_ns) = (figures.stages, figures.streams_ns);
        SideReport { stages, streams_ns, threads: 1, ..SideReport::default() }
    }

    #[test]
    fn what_ssh_cost_is_guessed_from_the_work_of_both_ends() {
        let source = side(&[
            (Stage::SourceDisk, 50),
            (Stage::Digest, 100),
            (Stage::SendBuffer, 700),
            (Stage::RunQueue, 150),
        ]);
        let target = side(&[(Stage::TargetDisk, 200), (Stage::Receive, 800)]);
        let rate = Rate { bytes: 1000, seconds: 1e-6, limit: None };
        let of = |path, rate: &Rate| of_ssh(&source, &target, path, rate);
        // 1000 bytes in 1000 ns are 8 Gbit/s, and the target's disk alone would do it in 200 ns.
        let told = of(Path::Ssh, &rate).unwrap();
        assert_eq!((told.gbit_per_s, told.without_gbit_per_s), (8.0, 40.0));
        let limited = Rate { limit: Some(2_000_000_000), ..rate };
        assert_eq!(of(Path::Ssh, &limited).unwrap().without_gbit_per_s, 16.0);
        assert_eq!((of(Path::Network, &rate), of(Path::Loopback, &rate)), (None, None));
        assert_eq!(of(Path::Ssh, &Rate { bytes: 0, ..rate }), None);
        let (idle, waits) = (side(&[(Stage::SendBuffer, 1000)]), side(&[(Stage::Receive, 1000)]));
        let told = of_ssh(&idle, &waits, Path::Ssh, &rate).unwrap();
        assert_eq!(told.without_gbit_per_s, 1600.0, "no end of it, but a number");
    }

    /// Figures of a push of which every file failed: all streams waited, and that was called a
    /// bottleneck of 100 %.
    #[test]
    fn where_nothing_moved_there_is_no_verdict() {
        let (source, target) = (side(&[(Stage::Idle, 1000)]), side(&[(Stage::Idle, 1000)]));
        let nothing = Rate { bytes: 0, seconds: 1.0, limit: None };
        let told = of_reports(&source, &target, Path::Network, &nothing);
        assert_eq!(told, (Bottleneck::default(), Vec::new()));
        let limited = Rate { limit: Some(1), ..nothing };
        assert_eq!(of_reports(&source, &target, Path::Network, &limited), told);
    }

    /// Figures of a machine with 2 cores, where `limit, 27 %` stood above `target run queue 40 %`.
    #[test]
    fn the_bottleneck_is_the_largest_stage_or_says_why_not() {
        let source = side(&[(Stage::SendCongestionWindow, 270), (Stage::Idle, 100)]);
        let target = side(&[(Stage::RunQueue, 400), (Stage::Receive, 600)]);
        let at = |limit| {
            let rate = Rate { bytes: 1000, seconds: 1.0, limit: Some(limit) };
            of_reports(&source, &target, Path::Network, &rate)
        };
        let (near, stages) = at(1300);
        assert_eq!((near.stage.as_str(), near.share), ("target_run_queue", 0.4), "{near:?}");
        assert_eq!(stages[0].0, near.stage);
        assert_eq!(near.because, "");
        let (reached, stages) = at(1001);
        assert_eq!((reached.stage.as_str(), reached.share), ("limit", 0.27), "{reached:?}");
        assert_eq!(stages[0], ("target_run_queue".to_owned(), 0.4));
        assert!(reached.because.contains("target run queue, 40 %"), "{reached:?}");
        assert!(reached.verdict.contains("27 % of the time"), "{reached:?}");
    }

    /// Rule for any shares: the report, the verdict, the list of stages and the interval say one
    /// number.
    #[test]
    fn all_that_is_said_of_a_stage_is_one_number() {
        for ns in 1..1000 {
            let (source, target) = (side(&[(Stage::SourceDisk, ns)]), side(&[]));
            let source =
                SideReport { streams_ns: 1999, threads: 1, stages: source.stages, ..source };
            let rate = Rate { bytes: 1, seconds: 1.0, limit: None };
            let (told, stages) = of_reports(&source, &target, Path::Network, &rate);
            let figures = |side: &SideReport| Figures {
                streams_ns: side.streams_ns,
                stages: side.stages.clone(),
            };
            let both = (figures(&source), figures(&target));
            let (limiting, _) = of_interval(&both.0, &both.1, Path::Network, &rate);
            let limiting = limiting.unwrap();
            let shown = percent(told.share);
            assert!(told.verdict.contains(&format!(" {shown} of the time")), "{told:?}");
            let listed = stages.iter().find(|(stage, _)| *stage == told.stage).unwrap();
            assert_eq!(percent(listed.1), shown);
            if limiting.stage == told.stage {
                assert_eq!(percent(limiting.share), shown);
            }
        }
    }
}
