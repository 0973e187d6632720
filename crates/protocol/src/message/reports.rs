//! Messages for the other side's user: progress, findings, what a transfer costs.

use super::{
    edge::{Edge, enumeration, message},
    fault::Fault,
};
use crate::{ProtocolError, StreamId, wire};
use alloc::{string::String, vec::Vec};

message! {
    /// Progress of one stream.
    #[derive(Copy)]
    pub struct StreamProgress {
        pub stream: StreamId,
        pub received_bytes: u64,
        /// The stream waits for its disk now, not for the wire.
        pub on_storage: bool,
    }
}

message! {
    /// Progress of a receiver, which tells the sender about twice a second.
    pub struct Progress {
        pub received_bytes: u64,
        pub durable_bytes: u64,
        pub streams: Vec<StreamProgress>,
    }
}

message! {
    /// Findings of one side about its part, for the report.
    pub struct SideReport {
        pub cpu_ns: u64,
        pub max_rss_bytes: u64,
        pub copied_bytes: u64,
        pub retransmits: u64,
        pub engine: String,
        pub because: String,
        pub stages: Vec<StageTime>,
        pub threads: u32,
        pub bad_spans: u64,
        /// Way in which the target was read back, in words.
        pub read_back: String,
        /// Time that the streams were open, added up: what `stages` are parts of.
        pub streams_ns: u64,
        /// Bytes sent by TCP on the data streams, what was sent again included.
        pub sent_bytes: u64,
        /// Part of `sent_bytes` that was sent again.
        pub resent_bytes: u64,
        /// Smoothed round trip time, the mean of the data streams.
        pub rtt_us: u32,
        /// Bytes that an earlier session left and that were read back.
        pub rechecked_bytes: u64,
        /// Part of `rechecked_bytes` that was not as it was journaled, and came again.
        pub recheck_lost_bytes: u64,
        /// Wall time of reading back.
        pub recheck_ns: u64,
        /// Files that a sender with `--move` removed; in a dry run, those that it would.
        pub sources_removed: u64,
        /// Time in which the CPU quota of this side's control group held it.
        pub throttled_ns: u64,
        /// Files and directories there already that got the source's mode, owner, time or xattrs.
        pub updated_attributes: u64,
        /// Figures of the streams that went over RDMA endpoints.
        pub rdma: Option<RdmaFigures>,
    }
}

message! {
    /// Figures of one side's streams over RDMA endpoints.
    pub struct RdmaFigures {
        /// Provider of libfabric.
        pub provider: String,
        /// Port of this side's card, as libfabric names it.
        pub port: String,
        pub streams: u32,
        /// Regions of memory that were registered: windows on files, and buffers.
        pub registrations: u64,
        pub registering_ns: u64,
        /// Windows on files, of a sender.
        pub windows: u64,
        /// Bytes that a sender sent out of windows.
        pub window_bytes: u64,
        /// Bytes that a sender sent out of buffers, or that came into a receiver's.
        pub buffered_bytes: u64,
        /// Times that a sender waited for the receiver's buffers.
        pub waits_for_room: u64,
        /// Reason why pages of files could not be registered.
        pub refused: String,
        /// Bytes that a receiver wrote past the page cache.
        pub direct_bytes: u64,
        /// Bytes that a receiver wrote by way of the page cache.
        pub cached_bytes: u64,
    }
}

message! {
    /// The goodbye of a side: the sender's when every file is settled, then the receiver's.
    pub struct Finish {
        pub report: Option<SideReport>,
    }
}

message! {
    /// Times of the server's streams by stage since the session began, told to a client that asked,
    /// about twice a second.
    pub struct Figures {
        pub streams_ns: u64,
        pub stages: Vec<StageTime>,
    }
}

enumeration! {
    /// A part of a stream's time.
    pub enum Stage, else Unknown {
        Unknown,
        SourceDisk,
        Digest,
        SendApplication,
        SendCongestionWindow,
        SendReceiverWindow,
        SendBuffer,
        Receive,
        TargetDisk,
        Sync,
        Idle,
        /// The thread was on a processor, but for the digest.
        Processor,
        /// The thread was ready to run, and another thread had the processor.
        RunQueue,
        /// The target's files are read back from their disk.
        ReadBack,
    }
}

message! {
    /// Time that streams spent in a stage.
    #[derive(Copy)]
    pub struct StageTime {
        pub stage: Stage,
        pub ns: u64,
    }
}

message! {
    /// Facts of the server's host, told first of all to a client that asked. What is not known is
    /// 0.
    pub struct HostFacts {
        /// Time when this was said, since 1970.
        pub clock_ms: u64,
        pub kernel: String,
        pub cores: u32,
        pub memory_bytes: u64,
        pub open_files_max: u64,
        pub locked_bytes_max: u64,
        /// Largest buffer of a socket.
        pub receive_buffer_bytes_max: u64,
        pub send_buffer_bytes_max: u64,
        /// Congestion control that the system is set to.
        pub congestion: String,
        /// Place where the server receives.
        pub target: Option<TargetFacts>,
    }
}

message! {
    /// The file system that is written to, as this user may.
    pub struct TargetFacts {
        pub file_system: String,
        /// Space that is left; 2^64 - 1: not known.
        pub free_bytes: u64,
        /// Inodes that are left; 2^64 - 1: no fixed number.
        pub free_inodes: u64,
        pub read_only: bool,
        pub may_write: bool,
    }
}

message! {
    /// An engine that suits a transfer, and what it does; or why it cannot be used.
    pub struct Candidate {
        pub engine: String,
        pub usable: bool,
        pub what: String,
    }
}

message! {
    /// The server's choice of its engine, told once to a client that asked. The first usable
    /// candidate is the choice.
    pub struct Explained {
        pub facts: Vec<String>,
        pub candidates: Vec<Candidate>,
        pub because: String,
    }
}

message! {
    /// An event for the user of the other side, told once: an engine that fell back, or a source
    /// that could not even be offered (then `fault` alone is set).
    pub struct Notice {
        pub what: String,
        pub why: String,
        pub stream: StreamId,
        pub fault: Option<Fault>,
    }
}

message! {
    /// A sign of life, which the peer gives back.
    #[derive(Copy)]
    pub struct Ping {
        pub number: u64,
    }
}
