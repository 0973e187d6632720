//! State that the event loops of a server share: its options, its counters, its site.

use crate::{
    admission::Admission,
    audience::Audiences,
    delivery::{Behind, Delivery, Method, Readahead, Shape},
    http::host_names::HostNames,
    pace::Pacing,
    policy::Policy,
    server::{
        addresses::Addresses,
        limits::{Limits, QUANTA_A_PERIOD, READ_BYTES_MAX, SLOTS_MAX, SLOTS_MIN},
        pages::Pages,
        rates::Rates,
    },
    site::Site,
    tls::Certificate,
};
use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

/// A line of the access log, for each answer, whole or broken off.
#[derive(Clone, Debug)]
pub struct Access<'a> {
    pub time: SystemTime,
    pub peer: IpAddr,
    /// First line of the request, as it came.
    pub request: &'a str,
    pub status: u16,
    /// Bytes sent of the body.
    pub body_bytes: u64,
    /// The socket took all of the answer.
    pub is_whole: bool,
    pub took: Duration,
    pub referer: Option<&'a str>,
    pub user_agent: Option<&'a str>,
}

pub type AccessLog = Arc<dyn Fn(&Access<'_>) + Send + Sync>;

#[derive(Clone)]
pub struct Options {
    pub listen: SocketAddr,
    /// Number of event loops, a thread each, with connections of its own.
    pub loops: usize,
    pub method: Method,
    pub readahead: Readahead,
    pub behind: Behind,
    /// Memory for what is read past the page cache, all loops together; it is touched as it is
    /// needed.
    pub buffer_bytes: u64,
    /// Most reads that the disk has at a time, all loops together.
    pub disk_depth: usize,
    /// A directory without a page of its own is shown as one.
    pub has_index: bool,
    /// Pages of other sites may read (CORS).
    pub is_open_to_pages: bool,
    /// Names by which the server may be asked; `None`: any.
    pub host_names: Option<HostNames>,
    pub limits: Limits,
    pub pacing: Pacing,
    pub access_log: Option<AccessLog>,
    /// Certificate of the server; with one all connections speak TLS.
    pub certificate: Option<Arc<Certificate>>,
}

impl Options {
    /// Delivery of one loop: how bytes of files get into the sockets.
    pub(super) fn delivery(&self) -> io::Result<Box<dyn Delivery>> {
        let loops = self.loops.max(1);
        let memory_bytes = self.buffer_bytes / loops as u64;
        let slots = (memory_bytes / READ_BYTES_MAX).clamp(SLOTS_MIN, SLOTS_MAX) as usize;
        self.method.open(
            self.readahead,
            self.behind,
            Shape {
                slots,
                slot_bytes: READ_BYTES_MAX,
                depth: (self.disk_depth / loops).max(1),
                quantum: self.pacing.period / QUANTA_A_PERIOD,
            },
        )
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("listen", &self.listen)
            .field("method", &self.method)
            .finish()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            loops: thread::available_parallelism().map_or(1, usize::from),
            method: Method::OneCopy,
            readahead: Readahead::Kernel,
            behind: Behind::Auto,
            buffer_bytes: 256 << 20,
            disk_depth: 16,
            has_index: true,
            is_open_to_pages: true,
            host_names: None,
            limits: Limits::default(),
            pacing: Pacing::default(),
            access_log: None,
            certificate: None,
        }
    }
}

/// Counters of what happened since the start, and of what is there now.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(super) connections: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) turned_away: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) streams: AtomicU64,
    pub(super) periods: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) misses_here: AtomicU64,
    pub(super) held_back: AtomicU64,
    pub(super) rings_lost: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections that are open now.
    pub connections: u64,
    pub accepted: u64,
    /// Connections that were closed at once, as there was no room.
    pub turned_away: u64,
    pub requests: u64,
    pub sent_bytes: u64,
    /// Paced answers that have begun.
    pub streams: u64,
    /// Periods of all streams that are over by now.
    pub periods: u64,
    /// Periods of which not all bytes were there at the end.
    pub misses: u64,
    /// Missed periods whose bytes were not sent in time; those of the others were, and the network
    /// was slow.
    pub misses_here: u64,
    /// Periods in which the client took no more.
    pub held_back: u64,
    /// Streams for which there was no place.
    pub refused: u64,
    /// Loops whose io_uring failed: their reads wait in their turn.
    pub rings_lost: u64,
}

pub(crate) struct Shared {
    pub(super) site: Site,
    pub(super) options: Options,
    pub(super) started: Instant,
    pub(super) counters: Counters,
    pub(super) policy: RwLock<Arc<Policy>>,
    pub(super) rates: Rates,
    pub(super) audiences: Audiences,
    pub(super) addresses: Arc<Addresses>,
    pub(super) pages: Pages,
    pub(super) admission: Arc<Admission>,
    /// Number of viewers who were sent elsewhere.
    pub(super) sent_elsewhere: AtomicU64,
    pub(super) drains: AtomicBool,
    pub(super) stops: AtomicBool,
}

impl Shared {
    pub(super) fn policy(&self) -> Arc<Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn totals(&self) -> Totals {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        Totals {
            connections: of(&counters.connections),
            accepted: of(&counters.accepted),
            turned_away: of(&counters.turned_away),
            requests: of(&counters.requests),
            sent_bytes: of(&counters.sent_bytes),
            streams: of(&counters.streams),
            periods: of(&counters.periods),
            misses: of(&counters.misses),
            misses_here: of(&counters.misses_here),
            held_back: of(&counters.held_back),
            refused: self.admission.refusals().total(),
            rings_lost: of(&counters.rings_lost),
        }
    }
}
