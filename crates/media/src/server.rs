//! The server of media: one event loop a processor.
//!
//! Each has its own listener on the same address (SO_REUSEPORT, socket(7)), so that no connection
//! is handed from one to another.

mod addresses;
mod answers;
mod connection;
mod event_loop;
mod idlest;
mod limits;
mod open_files;
mod pages;
mod rates;
mod shared;
mod snapshot;
mod timers;
mod transport;

pub use crate::delivery::Reads;
pub use limits::Limits;
pub(crate) use limits::READ_BYTES_MAX;
pub use shared::{Access, AccessLog, Options, Totals};
pub use snapshot::{Observer, Session, Snapshot, State};

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    event::{EventfdFlags, eventfd},
    net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt},
};

use crate::{
    admission::{Admission, Terms},
    audience::Audiences,
    policy::Policy,
    server::shared::{Counters, Shared},
    site::Site,
};
use addresses::Addresses;
use event_loop::EventLoop;
use pages::Pages;
use rates::Rates;
use snapshot::Mailbox;

/// Most connections that wait to be accepted, of one listener; the kernel bounds it by
/// net.core.somaxconn.
const BACKLOG: i32 = 4096;

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot serve {path}: {source}")]
    Root { path: String, source: io::Error },
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot start an event loop: {0}")]
    Loop(io::Error),
    /// The method lacks io_uring(7), or the memory for its buffers.
    #[error("cannot read by method {method}: {source}")]
    Method { method: &'static str, source: io::Error },
}

/// A running server; it stops when it is dropped.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    mailboxes: Vec<Mailbox>,
    /// Thread numbers of the loops, once they run.
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

    /// An observer for threads that tell what the server does.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer { shared: self.shared.clone(), mailboxes: self.mailboxes.clone() }
    }

    /// Sets the policy of streams that begin from now on.
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

    /// Whether all loops have ended, as the server has drained.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Stops the server, cuts what is still under way, and tells what all of it came to.
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

/// Policy whose terms count in the periods that the server keeps.
fn fitting(policy: Policy, options: &Options) -> Policy {
    Policy { terms: Terms { pacing: options.pacing, ..policy.terms }, ..policy }
}

/// Checks that nobody listens at the address. The loops share theirs by SO_REUSEPORT, and so would
/// another server of the same user, which then had half of the connections: a socket that does not
/// share finds it.
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
