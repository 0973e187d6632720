//! Messages of a probe, which measures the path, and of an audit, which asks how a host is tuned.

use super::{
    edge::{Edge, Secret, enumeration, message},
    fault::Fault,
};
use crate::{ProtocolError, StreamId, wire};
use alloc::{string::String, vec::Vec};

enumeration! {
    /// A kind of measurement.
    pub enum ProbeKind, else Unknown {
        Unknown,
        /// Data streams that carry what is thrown away.
        Streams,
        /// Datagrams that are thrown away, sent by UDP at a rate.
        Datagrams,
        /// Datagrams of several sizes, which must not be cut, are echoed.
        PathMtu,
        /// Data streams over RDMA endpoints that carry what is thrown away.
        Endpoints,
        /// Messages that the server echoes, over a pair of RDMA endpoints each way.
        EndpointPings,
    }
}

message! {
    /// The next measurement that a client asks for, in a session of direction
    /// [`Probe`](super::Direction::Probe).
    pub struct Probe {
        /// Number of the measurement, from 1 on.
        pub round: u32,
        pub kind: ProbeKind,
        pub to_server: bool,
        pub to_client: bool,
        /// Count of the streams each way.
        pub streams: u32,
        /// Number of the first stream to the server. Those to the client follow the last of them.
        pub first_stream: StreamId,
        /// Bytes of one call, or of one datagram.
        pub block_bytes: u32,
        /// Time that counts, behind what is omitted.
        pub time_ms: u32,
        pub omit_ms: u32,
        pub interval_ms: u32,
        /// Congestion control of both senders; empty: each chooses by the path.
        pub congestion: String,
        /// Rate of all streams of a way; 0: no limit.
        pub rate_bytes_per_s: u64,
        /// The server throws away what arrives without copying it.
        pub discard: bool,
    }
}

message! {
    /// Data that a client needs to begin a round: what it is to open now. A round that cannot be
    /// has [`ProbeResult`] with a fault instead.
    pub struct ProbeReady {
        pub round: u32,
        /// Port for the rounds that send datagrams; else 0.
        pub udp_port: u16 => "a port beyond 65535",
        /// Front of each datagram of this round.
        pub datagram_key: Option<Secret> => "a datagram key that is not 16 bytes",
    }
}

message! {
    /// A step of a round. Server to client: all streams are there, the time begins. Client to
    /// server, with `over`: a round of [`ProbeKind::PathMtu`] has what it needs.
    #[derive(Copy)]
    pub struct ProbeStep {
        pub round: u32,
        pub over: bool,
    }
}

message! {
    /// Figures of a stream of a round on one side, since the round began. What is not known, or
    /// means nothing for the side or the kind, is 0.
    pub struct ProbeStream {
        pub stream: StreamId,
        pub sends: bool,
        /// Bytes handed to the kernel, or taken from it.
        pub bytes: u64,
        /// Processor time of the stream's thread.
        pub cpu_ns: u64,
        /// Time in which the thread was ready to run, and another had the processor.
        pub run_queue_ns: u64,
        pub rtt_us: u32,
        pub min_rtt_us: u32,
        pub cwnd_bytes: u64,
        pub delivery_rate_bytes_per_s: u64,
        pub retransmits: u32,
        /// Bytes sent by TCP, what was sent again included.
        pub sent_bytes: u64,
        pub resent_bytes: u64,
        pub busy_us: u64,
        pub receiver_window_us: u64,
        pub send_buffer_us: u64,
        /// Datagrams sent, or received and none of them twice.
        pub datagrams: u64,
        /// One more than the highest sequence number seen.
        pub sequence_next: u64,
        pub reordered: u64,
        pub duplicates: u64,
        /// Interarrival jitter (RFC 3550, 6.4.1).
        pub jitter_ns: u64,
        pub congestion: String,
        /// Times that a sender waited for the buffers of the receiver's RDMA endpoint.
        pub room_waits: u64,
    }
}

message! {
    /// Figures that a server tells the client when a round begins, after each interval, and when
    /// the omitted time is over.
    pub struct ProbeFigures {
        pub round: u32,
        /// Time since the round began.
        pub at_us: u64,
        pub streams: Vec<ProbeStream>,
        /// Time since the round began in which the CPU quota of the server's control group held it.
        pub throttled_ns: u64,
    }
}

message! {
    /// The server's last message of a round: its streams when nothing more came, or why it could
    /// not be.
    pub struct ProbeResult {
        pub round: u32,
        pub fault: Option<Fault>,
        pub streams: Vec<ProbeStream>,
    }
}

message! {
    /// The client's question how the server's host is tuned, between the rounds of a session that
    /// probes.
    pub struct Audit {
        /// Role of the host: `dtn`, `test-host` or `media`.
        pub role: String,
        /// Rate aimed at; 0: that of the server's own fastest card.
        pub rate_bits_per_s: u64,
        /// Round trip time of the path; 0: not known.
        pub rtt_us: u64,
    }
}

message! {
    /// Findings of the server's tuning checks, in one or several parts.
    pub struct Audited {
        /// Aim of the tuning, in words.
        pub goal: String,
        /// Score of the tuning, in points of 0 to 100.
        pub score: u32,
        pub findings: Vec<AuditFinding>,
        pub more_follows: bool,
    }
}

message! {
    /// Result of one tuning check.
    pub struct AuditFinding {
        pub group: String,
        pub check: String,
        pub subject: String,
        /// State of the setting: `good`, `improve`, `unknown` or `absent`.
        pub state: String,
        /// Weight of the check: `low`, `medium` or `high`.
        pub weight: String,
        pub found: String,
        pub wanted: String,
        pub note: String,
        pub command: String,
        /// People who can change it, in words.
        pub needs: String,
    }
}
