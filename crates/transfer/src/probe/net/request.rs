//! Request for a probe of a network, with its defaults, and the events while it runs.

use crate::{
    connecting::ConnectOptions,
    options::Rdma,
    probe::net::{audit::AuditGoal, report::Round},
    url::HaulUrl,
};
use std::time::Duration;

/// Default block of one call, in bytes, as iperf3 has it.
pub const BLOCK_BYTES_DEFAULT: u32 = 128 << 10;

/// Default numbers of streams of a sweep.
pub const STREAMS_DEFAULT: [u32; 4] = [1, 2, 4, 8];

/// Default counted time of a round.
pub const TIME_DEFAULT: Duration = Duration::from_secs(5);

/// Default time left out at a round's begin, while windows open.
pub const OMIT_DEFAULT: Duration = Duration::from_secs(1);

/// Default time between two figures of a round.
pub const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);

/// Default rate of datagrams, in bytes a second: 1 Gbit/s.
pub const DATAGRAM_RATE_DEFAULT: u64 = 125_000_000;

/// The ways that the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// Bytes go from this host to the server.
    ToServer,
    /// Bytes go from the server to this host.
    ToClient,
    /// Bytes go both ways at the same time.
    Both,
}

/// The use that a receiver makes of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// The bytes are received into memory, as when a file is written.
    Copy,
    /// The kernel throws them away without a copy, as for `null:`.
    Discard,
}

impl Receive {
    /// Name of the way of receiving, as options and reports have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Discard => "discard",
        }
    }
}

/// The transport of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The data streams of transfers.
    Tcp,
    /// Datagrams at the rate that is given.
    Udp {
        /// Payload of a datagram; `None`: what the path takes whole.
        datagram_bytes: Option<u32>,
    },
}

/// The measurements to make. Each of the lists is gone through with each of the others.
#[derive(Clone, Debug)]
pub struct NetProbe {
    /// The server, with a token that opens it.
    pub url: HaulUrl,
    /// Choices for the connections.
    pub connect: ConnectOptions,
    /// TCP or UDP.
    pub transport: Transport,
    /// Ways that the bytes go.
    pub ways: Ways,
    /// Numbers of streams, each way.
    pub streams: Vec<u32>,
    /// Congestion controls; `None`: as a transfer chooses.
    pub congestion: Vec<Option<String>>,
    /// Uses that the receiver makes of the bytes.
    pub receive: Vec<Receive>,
    /// Times that all of it is measured.
    pub rounds: u32,
    /// Counted time of each round.
    pub time: Duration,
    /// Time at a round's begin that is left out.
    pub omit: Duration,
    /// Time between two figures of a round.
    pub interval: Duration,
    /// Block of one call, in bytes.
    pub block_bytes: u32,
    /// Rate of all streams of a way, in bytes a second.
    pub rate_bytes_per_s: Option<u64>,
    /// Whether datagrams of several sizes find out what the path takes whole.
    pub path_mtu: bool,
    /// RDMA providers over whose endpoints each round is measured, too, beside TCP; `None`: none.
    pub rdma: Option<Rdma>,
    /// Goal for which the server's host is asked how it is tuned; `None`: it is not asked.
    pub audit: Option<AuditGoal>,
}

impl NetProbe {
    /// A probe of a server with the defaults.
    #[must_use]
    pub fn new(url: HaulUrl) -> Self {
        Self {
            url,
            connect: ConnectOptions::default(),
            transport: Transport::Tcp,
            ways: Ways::ToServer,
            streams: STREAMS_DEFAULT.into(),
            congestion: vec![None],
            receive: vec![Receive::Copy],
            rounds: 1,
            time: TIME_DEFAULT,
            omit: OMIT_DEFAULT,
            interval: INTERVAL_DEFAULT,
            block_bytes: BLOCK_BYTES_DEFAULT,
            rate_bytes_per_s: None,
            path_mtu: true,
            rdma: None,
            audit: None,
        }
    }
}

/// An event while a probe runs.
#[derive(Clone, Debug)]
pub enum Event {
    /// The session is open.
    Connected {
        /// Address and port of the server.
        server: String,
        /// Name and version of the server.
        software: String,
        /// Rounds to come.
        rounds: usize,
    },
    /// Datagrams of several sizes go out now.
    PathMtuBegins,
    /// A round begins.
    RoundBegins {
        /// Number of the round, from 1.
        number: usize,
        /// The round in a few words.
        what: String,
    },
    /// A round has ended, with its figures.
    RoundEnded(Box<Round>),
    /// A round could not be measured; the others go on.
    RoundRefused {
        /// Number of the round, from 1.
        number: usize,
        /// The round in a few words.
        what: String,
        /// The reason why the round could not be measured.
        why: String,
    },
}
