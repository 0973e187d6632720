//! Report of a probe of the network: what it found out, as plain numbers with their units.

use crate::probe::net::request::Receive;
use serde::Serialize;

/// Results of a whole probe.
#[derive(Clone, Debug, Serialize)]
pub struct NetReport {
    /// Address and port of the server.
    pub server: String,
    /// Name and version of the server.
    pub software: String,
    /// Whether both ends are one host: there was no wire.
    pub loopback: bool,
    /// Rounds in the order in which they were measured.
    pub rounds: Vec<Round>,
    /// Rounds that could not be measured, and why.
    pub refused: Vec<RefusedRound>,
    /// Packet sizes and times of the path.
    pub path: PathFacts,
    /// Bandwidth-delay product against buffers, each way; empty where no round by TCP was measured.
    pub buffers: Vec<Buffers>,
    /// RDMA endpoints that were measured; `None` where they were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdma: Option<RdmaFacts>,
    /// Limit of the best round.
    pub verdict: Verdict,
    /// Audit of how the server's host is tuned, where that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<super::audit::PeerAudit>,
}

/// RDMA endpoints of a probe.
#[derive(Clone, Debug, Serialize)]
pub struct RdmaFacts {
    /// Provider of libfabric.
    pub provider: String,
    /// Port of this host's card, as libfabric names it.
    pub device: String,
    /// Rate of that port, where sysfs tells it.
    pub link_gbit_per_s: Option<f64>,
    /// Round trips of a message over the endpoints; `None` where they could not be measured.
    pub ping: Option<Ping>,
}

/// Round trips of a message that the server echoes over RDMA endpoints, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ping {
    pub bytes: u32,
    pub count: usize,
    pub min_us: f64,
    pub median_us: f64,
    pub p99_us: f64,
}

impl Ping {
    /// Makes the figures of times in nanoseconds, which are in order; `None` where there are none.
    #[must_use]
    pub fn of(bytes: u32, times_ns: &[u64]) -> Option<Self> {
        let last = times_ns.len().checked_sub(1)?;
        let at = |share: f64| times_ns[(last as f64 * share).round() as usize] as f64 / 1e3;
        let (min_us, median_us, p99_us) = (at(0.0), at(0.5), at(0.99));
        Some(Self { bytes, count: times_ns.len(), min_us, median_us, p99_us })
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct RefusedRound {
    pub number: usize,
    pub what: String,
    pub why: String,
}

/// A measurement: the streams that ran at the same time.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// Number of the round, from 1.
    pub number: usize,
    /// Transport of the round: `tcp`, `udp`, or an RDMA provider of libfabric, such as
    /// `rdma-verbs`.
    pub transport: String,
    /// Number of streams each way.
    pub streams: u32,
    /// Congestion control that was asked for; `None`: chosen by the path.
    pub congestion: Option<String>,
    /// Use that the receiver made of the bytes: `copy` or `discard`.
    pub receive: &'static str,
    /// Block of one call, or payload of a datagram.
    pub block_bytes: u32,
    /// Figures of one way, or of both.
    pub ways: Vec<Way>,
}

impl Round {
    /// Names the round in a few words.
    #[must_use]
    pub fn what(&self) -> String {
        words(
            &self.transport,
            self.streams,
            self.congestion.as_deref(),
            (self.receive, self.ways.len() > 1),
        )
    }

    /// Whether the bytes went by RDMA endpoints.
    #[must_use]
    pub fn is_by_rdma(&self) -> bool {
        self.transport.starts_with("rdma-")
    }

    /// Rate of both ways together.
    #[must_use]
    pub fn gbit_per_s(&self) -> f64 {
        self.ways.iter().map(|way| way.gbit_per_s).sum()
    }
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Bytes go from this host to the server.
    ToServer,
    /// Bytes go from the server to this host.
    ToClient,
}

impl Direction {
    /// The direction in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::ToServer => "to the server",
            Self::ToClient => "from the server",
        }
    }
}

/// Figures of one way of a round. Shares are of the counted time of each stream, 0 to 1.
#[derive(Clone, Debug, Serialize)]
pub struct Way {
    /// Direction of the bytes.
    pub direction: Direction,
    /// Counted time by the receiver, as all that follows but what the sender's kernel says.
    pub seconds: f64,
    /// Bytes in the counted time.
    pub bytes: u64,
    /// Rate in the counted time.
    pub gbit_per_s: f64,
    /// Congestion control as the sender's kernel calls it; empty by UDP.
    pub congestion: String,
    /// Mean round-trip time in microseconds.
    pub rtt_us: u32,
    /// Smallest round-trip time in microseconds.
    pub min_rtt_us: u32,
    /// Segments sent again.
    pub retransmits: u64,
    /// Share of the bytes that TCP sent again.
    pub resent_share: f64,
    /// Congestion windows of all streams together, at the end.
    pub cwnd_bytes: u64,
    /// Limits that held the sender's sockets back. Over RDMA endpoints `receiver_window` is the
    /// wait for the receiver's buffers, and `congestion_window` all other time.
    pub limited: Limited,
    /// Times that the senders waited for the buffers of the receivers' RDMA endpoints.
    pub room_waits: u64,
    /// Processor time of the sender.
    pub sender: SideUse,
    /// Processor time of the receiver.
    pub receiver: SideUse,
    /// Figures of datagrams; `None` by TCP.
    pub datagrams: Option<DatagramFigures>,
    /// Figures of each stream.
    pub streams: Vec<StreamFigures>,
    /// Figures over time.
    pub intervals: Vec<Interval>,
    /// Limit of this way.
    pub verdict: Verdict,
}

/// Limits that held the sender's sockets back (TCP_INFO), the mean of the streams.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Limited {
    /// Share of the time in which the receiver's window was full.
    pub receiver_window: f64,
    /// Share of the time in which the sender's buffer was full.
    pub send_buffer: f64,
    /// Share in which data was there and neither was full: the congestion window held it back, or
    /// the pace that stands for it.
    pub congestion_window: f64,
    /// Share of the time in which the program had nothing in its socket.
    pub application: f64,
}

/// Processor time of a side's threads.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SideUse {
    /// Processor time of all threads by the time: 1 is one core.
    pub cores: f64,
    /// Share of a processor that the busiest thread took.
    pub busiest: f64,
    /// The largest share that a thread waited for a processor.
    pub waited: f64,
    /// Time that the control group's CPU quota took, by the time.
    pub throttled: f64,
    /// Processor seconds per 10^9 bytes.
    pub cpu_s_per_gb: f64,
    /// Processors of the host.
    pub cores_max: u32,
}

/// Figures of the datagrams of one way.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DatagramFigures {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that arrived, none twice.
    pub received: u64,
    /// Datagrams that did not arrive.
    pub lost: u64,
    /// Share of the sent datagrams, 0 to 1.
    pub lost_share: f64,
    /// Datagrams that arrived behind a later one.
    pub reordered: u64,
    /// Datagrams that arrived twice.
    pub duplicates: u64,
    /// Jitter of the worst stream at the end, as RFC 3550 reckons it.
    pub jitter_us: f64,
    /// Rate at which they were to be sent.
    pub rate_asked_gbit_per_s: f64,
    /// Payload of a datagram.
    pub datagram_bytes: u32,
}

#[derive(Clone, Debug, Serialize)]
pub struct StreamFigures {
    pub stream: u32,
    pub gbit_per_s: f64,
    pub retransmits: u64,
    pub rtt_us: u32,
    pub min_rtt_us: u32,
    pub cwnd_bytes: u64,
    pub delivery_rate_gbit_per_s: f64,
    pub sender_cpu: f64,
    pub receiver_cpu: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Interval {
    pub from_s: f64,
    pub to_s: f64,
    /// Whether the interval was before counting began.
    pub omitted: bool,
    pub gbit_per_s: f64,
    pub retransmits: u64,
    pub lost: u64,
    pub rtt_us: u32,
    pub streams: Vec<StreamInterval>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StreamInterval {
    pub stream: u32,
    pub gbit_per_s: f64,
    pub retransmits: u64,
    pub rtt_us: u32,
    pub min_rtt_us: u32,
    pub cwnd_bytes: u64,
    pub delivery_rate_gbit_per_s: f64,
    pub limited: Limited,
}

/// The limit in one word, in a sentence, and what to do about it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verdict {
    /// Word for the limit: `pacing`, `sender_processor`, `receiver_processor`, `processors`,
    /// `receiver_window`, `send_buffer`, `loss`, `congestion_window`, `application`, `path`,
    /// `none`, or `black_hole`.
    pub limit: String,
    pub sentence: String,
    pub advice: String,
}

/// Sizes of packets that the path takes whole.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PathFacts {
    pub min_rtt_us: u32,
    /// MTU of this host's interface; 0: not known.
    pub interface_mtu_bytes: u32,
    /// MTU that this host's kernel believes the path has.
    pub believed_mtu_bytes: u32,
    pub tcp_mss_bytes: u32,
    /// The largest packet that arrived, each way; 0: not measured.
    pub passes_to_server_bytes: u32,
    pub passes_to_client_bytes: u32,
    /// Black hole of the path: a size that the kernel believes in vanishes, and nobody says so.
    pub black_hole: Option<BlackHole>,
    /// The reason why the sizes were not measured.
    pub unmeasured: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct BlackHole {
    pub direction: Direction,
    /// The smallest packet that vanished.
    pub vanishes_bytes: u32,
    /// The largest packet that passes.
    pub passes_bytes: u32,
    /// Whether the client's own queueing discipline drops the packets.
    pub own_queue: bool,
}

/// The bandwidth-delay product of one way, and what the hosts' buffers allow.
#[derive(Clone, Debug, Serialize)]
pub struct Buffers {
    pub direction: Direction,
    pub streams: u32,
    pub gbit_per_s: f64,
    pub rtt_us: u32,
    pub bdp_bytes: u64,
    /// Buffer that each stream needs: twice its part of the product, as half of a buffer is the
    /// kernel's own.
    pub needed_bytes: u64,
    /// The last number of tcp_wmem at the sender and of tcp_rmem at the receiver; 0: not known.
    pub send_max_bytes: u64,
    pub receive_max_bytes: u64,
    /// Rate that these buffers allow one stream on this path.
    pub one_stream_gbit_per_s: f64,
    pub enough: bool,
    pub advice: String,
}

/// Name of a round in a few words.
pub(super) fn words(
    transport: &str,
    streams: u32,
    congestion: Option<&str>,
    (receive, both): (&str, bool),
) -> String {
    let plural = if streams == 1 { "stream" } else { "streams" };
    let mut words = format!("{streams} {plural} by {transport}");
    if let Some(congestion) = congestion {
        words += &format!(", {congestion}");
    }
    if receive == Receive::Discard.name() {
        words += ", discarded without a copy";
    }
    if both {
        words += ", both ways";
    }
    words
}
