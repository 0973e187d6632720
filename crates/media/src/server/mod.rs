//! The server: one event loop a processor, each with its own listener on the same address
//! (SO_REUSEPORT, socket(7)), so that no connection is handed from one to another.

mod addresses;
mod answers;
mod connection;
mod event_loop;
mod idlest;
mod limits;
mod open_files;
mod pages;
mod rates;
mod snapshot;
mod timers;
mod transport;

pub use limits::Limits;
pub use snapshot::{Observer, Reads, Session, Snapshot, State};

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, TcpListener},
    os::fd::OwnedFd,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use rustix::{
    event::{EventfdFlags, eventfd},
    net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt},
};

use crate::{
    admission::{Admission, Terms},
    audience::Audiences,
    delivery::{Behind, Delivery, Method, Readahead, Shape},
    http::host_names::HostNames,
    pace::Pacing,
    policy::Policy,
    site::Site,
    tls::Certificate,
};
use addresses::Addresses;
use event_loop::EventLoop;
use pages::Pages;
use rates::Rates;
use snapshot::Mailbox;

/// What waits to be accepted, of one listener; the kernel bounds it by net.core.somaxconn.
const BACKLOG: i32 = 4096;
/// The longest read: some seconds of a film, and long enough that a disk's head mostly reads.
pub(crate) const READ_BYTES_MAX: u64 = 512 << 10;
const SLOTS_MIN: u64 = 4;
const SLOTS_MAX: u64 = 1 << 14;
/// Deadlines within one count as one: the disk reads them in its own order.
const QUANTA_A_PERIOD: u32 = 8;

/// What the access log is told of each answer, whole or broken off.
#[derive(Clone, Debug)]
pub struct Access<'a> {
    pub time: SystemTime,
    pub peer: IpAddr,
    /// The first line, as it came.
    pub request: &'a str,
    pub status: u16,
    /// Of the body.
    pub body_bytes: u64,
    /// The socket took all of it.
    pub is_whole: bool,
    pub took: Duration,
    pub referer: Option<&'a str>,
    pub user_agent: Option<&'a str>,
}

pub type AccessLog = Arc<dyn Fn(&Access<'_>) + Send + Sync>;

#[derive(Clone)]
pub struct Options {
    pub listen: SocketAddr,
    /// Threads; each has its own connections.
    pub loops: usize,
    pub method: Method,
    pub readahead: Readahead,
    pub behind: Behind,
    /// Memory for what is read past the page cache, all loops together; it is touched as it is
    /// needed.
    pub buffer_bytes: u64,
    /// Reads that the disk has at a time, all loops together.
    pub disk_depth: usize,
    /// A directory without a page of its own is shown as one.
    pub has_index: bool,
    /// Pages of other sites may read (CORS).
    pub is_open_to_pages: bool,
    /// The names by which it may be asked; `None`: any.
    pub host_names: Option<HostNames>,
    pub limits: Limits,
    pub pacing: Pacing,
    pub access_log: Option<AccessLog>,
    /// With one all connections speak TLS.
    pub certificate: Option<Arc<Certificate>>,
}

impl Shared {
    fn policy(&self) -> Arc<Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn totals(&self) -> Totals {
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

impl Options {
    /// The way of one loop into the sockets.
    fn delivery(&self) -> io::Result<Box<dyn Delivery>> {
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

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot serve {path}: {source}")]
    Root { path: String, source: io::Error },
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot start an event loop: {0}")]
    Loop(io::Error),
    /// It needs io_uring(7), or the memory for its buffers.
    #[error("cannot read by method {method}: {source}")]
    Method { method: &'static str, source: io::Error },
}

/// What happened since the start, and what is there now.
#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    accepted: AtomicU64,
    turned_away: AtomicU64,
    requests: AtomicU64,
    sent_bytes: AtomicU64,
    streams: AtomicU64,
    periods: AtomicU64,
    misses: AtomicU64,
    misses_here: AtomicU64,
    held_back: AtomicU64,
    rings_lost: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Open now.
    pub connections: u64,
    pub accepted: u64,
    /// Closed at once, as there was no room.
    pub turned_away: u64,
    pub requests: u64,
    pub sent_bytes: u64,
    /// Paced answers that have begun.
    pub streams: u64,
    /// Of all streams, over by now.
    pub periods: u64,
    /// Periods of which not all bytes were there at the end.
    pub misses: u64,
    /// Those of them that were not sent in time; the others were, and the network was slow.
    pub misses_here: u64,
    /// Periods in which the client took no more.
    pub held_back: u64,
    /// Streams for which there was no place.
    pub refused: u64,
    /// Loops whose io_uring failed: their reads wait in their turn.
    pub rings_lost: u64,
}

struct Shared {
    site: Site,
    options: Options,
    started: Instant,
    counters: Counters,
    policy: RwLock<Arc<Policy>>,
    rates: Rates,
    audiences: Audiences,
    addresses: Arc<Addresses>,
    pages: Pages,
    admission: Arc<Admission>,
    /// Of those who were sent elsewhere.
    sent_elsewhere: AtomicU64,
    drains: AtomicBool,
    stops: AtomicBool,
}

/// A running server; it stops when it is dropped.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    mailboxes: Vec<Mailbox>,
    /// Of the loops, once they run.
    thread_ids: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Listens, and starts the loops.
    ///
    /// # Errors
    /// If the root is no directory, the address is taken, or no thread can be had.
    pub fn start(
        root: &std::path::Path,
        options: Options,
        policy: Policy,
    ) -> Result<Self, ServerError> {
        let policy = fitting(policy, &options);
        let site = Site::open(root)
            .map_err(|source| ServerError::Root { path: root.display().to_string(), source })?;
        let mut address = options.listen;
        is_free(address).map_err(|source| ServerError::Listen { address, source })?;
        let mut listeners = Vec::new();
        for _ in 0..options.loops.max(1) {
            let failed = |source: io::Error| ServerError::Listen { address, source };
            let listener = listener(address).map_err(failed)?;
            // Port 0 is any for the first; the others take the same.
            address = listener.local_addr().map_err(failed)?;
            listeners.push(listener);
        }
        let addresses = Addresses::new(options.limits.connections_of_address_max);
        let shared = Arc::new(Shared {
            site,
            options,
            started: Instant::now(),
            counters: Counters::default(),
            admission: Arc::new(Admission::new(policy.terms.clone())),
            policy: RwLock::new(Arc::new(policy)),
            audiences: Audiences::default(),
            addresses,
            pages: Pages::default(),
            rates: Rates::start().map_err(ServerError::Loop)?,
            sent_elsewhere: AtomicU64::new(0),
            drains: AtomicBool::new(false),
            stops: AtomicBool::new(false),
        });
        let mut server = Self {
            address,
            shared,
            mailboxes: Vec::new(),
            thread_ids: Vec::new(),
            threads: Vec::new(),
        };
        for (number, listener) in listeners.into_iter().enumerate() {
            server.start_loop(number, listener)?;
        }
        Ok(server)
    }

    fn start_loop(&mut self, number: usize, listener: TcpListener) -> Result<(), ServerError> {
        let options = &self.shared.options;
        let method = options.method.name();
        let delivery =
            options.delivery().map_err(|source| ServerError::Method { method, source })?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| ServerError::Loop(errno.into()))?;
        let mailbox = Mailbox::new(Arc::new(wake));
        let shared = self.shared.clone();
        let event_loop = EventLoop::new(number, shared, listener, mailbox.clone(), delivery)
            .map_err(ServerError::Loop)?;
        let name = format!("haul-media-{number}");
        let id = Arc::new(AtomicU64::new(0));
        self.thread_ids.push(id.clone());
        let run = move || {
            let own = rustix::thread::gettid().as_raw_nonzero().get();
            id.store(own.unsigned_abs().into(), Ordering::Relaxed);
            // epoll(7) fails only where a descriptor is wrong, which none of ours is.
            event_loop.run().expect("epoll takes what it gave");
        };
        let thread = thread::Builder::new().name(name).spawn(run).map_err(ServerError::Loop)?;
        self.mailboxes.push(mailbox);
        self.threads.push(thread);
        Ok(())
    }

    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    #[must_use]
    pub fn totals(&self) -> Totals {
        self.shared.totals()
    }

    /// Processor time of the loops, in user and kernel mode (/proc/PID/task/TID/schedstat).
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        let of = |id: &AtomicU64| {
            let path = format!("/proc/self/task/{}/schedstat", id.load(Ordering::Relaxed));
            let text = std::fs::read_to_string(path).ok()?;
            text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
        };
        self.thread_ids.iter().filter_map(|id| of(id)).sum()
    }

    /// For threads that tell what the server does.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer { shared: self.shared.clone(), mailboxes: self.mailboxes.clone() }
    }

    /// For streams that begin from now on.
    pub fn set_policy(&self, policy: Policy) {
        let policy = fitting(policy, &self.shared.options);
        self.shared.admission.set_terms(policy.terms.clone());
        *self.shared.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    /// Takes no new connection, and ends each after its answer.
    pub fn drain(&self) {
        self.shared.drains.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// All loops have ended: the server has drained.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Cuts what is still under way; what all of it came to.
    #[must_use]
    pub fn stop(mut self) -> Totals {
        let cut = self.totals().connections;
        self.end();
        Totals { connections: cut, ..self.totals() }
    }

    fn end(&mut self) {
        self.shared.stops.store(true, Ordering::Relaxed);
        self.wake();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }

    fn wake(&self) {
        for mailbox in &self.mailboxes {
            mailbox.wake();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// What is admitted is counted in the periods that are kept.
fn fitting(policy: Policy, options: &Options) -> Policy {
    Policy { terms: Terms { pacing: options.pacing, ..policy.terms }, ..policy }
}

/// The loops share their address by SO_REUSEPORT, and so would another server of the same user,
/// which then had half of the connections: one that does not share finds it.
fn is_free(address: SocketAddr) -> io::Result<()> {
    Ok(bind(&unbound(address)?, &address)?)
}

fn unbound(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(socket)
}

fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = unbound(address)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}
