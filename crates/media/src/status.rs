//! Status of a running server, for people and programs, on an address of its own.
//!
//! `/` is a dashboard, `/metrics` is for Prometheus, `/api/sessions` and `/api/events` are JSON.
//!
//! Threads that block, one a connection and few of them: nothing here is near a stream.

mod events;
#[cfg(test)]
mod example;
mod figures;
mod metrics;
mod pages;
mod process;
mod sample;
mod sessions;
mod talk;

pub use figures::{SESSIONS_MAX, Watch};
pub use sample::Samples;

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::{
    http::{
        host_names::HostNames,
        response::{Piece, Response, of_status},
    },
    server::ServerError,
};
use events::Feed;
use pages::{Answer, answer, ends, send_events};
use talk::Heard;

/// Most connections at once. With more, the one that waits longest with its request is closed;
/// where all have asked, the new one is sent away.
const CONNECTIONS_MAX: usize = 32;
/// Most connections that look at events: these stay, so several places are never theirs.
const EVENTS_MAX: usize = 24;
/// Stack of a connection's thread, for pages and formatting: nothing deep.
const STACK_BYTES: usize = 256 << 10;
/// Pause before the listener accepts again, where no descriptor is left.
const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Time that answers may take to end when the listener does.
const END_MAX: Duration = Duration::from_millis(200);

/// Address to listen at, and names by which it may be asked.
#[derive(Clone, Debug)]
pub struct Options {
    pub listen: SocketAddr,
    pub names: HostNames,
}

/// A running status listener; it stops when it is dropped.
pub struct Status {
    address: SocketAddr,
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

struct Inner {
    watch: Arc<Watch>,
    feed: Feed,
    names: HostNames,
    wake: OwnedFd,
    stops: AtomicBool,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    next_id: u64,
    open: HashMap<u64, Connection>,
}

struct Connection {
    socket: Arc<TcpStream>,
    since: Instant,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The head of the request is not whole.
    Asking,
    Answered,
    Events,
    /// The connection makes room for another, or waits until its client has read all.
    Closing,
}

impl Status {
    /// Listens, and takes a sample each second.
    ///
    /// # Errors
    /// If the address is taken, or no thread can be had.
    pub fn start(watch: Arc<Watch>, options: &Options) -> Result<Self, ServerError> {
        let address = options.listen;
        let failed = |source: io::Error| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let inner = Arc::new(Inner {
            watch,
            feed: Feed::default(),
            names: options.names.clone(),
            wake: wake.map_err(|errno| ServerError::Loop(errno.into()))?,
            stops: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let mut status = Self { address, inner: inner.clone(), threads: Vec::new() };
        let samples = Samples::new(inner.watch.clone());
        let sampling = inner.clone();
        status.spawn("haul-media-samples", move || sampling.feed.run(samples))?;
        status.spawn("haul-media-status", move || inner.accept_all(&listener))?;
        Ok(status)
    }

    fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), ServerError> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.map_err(ServerError::Loop)?);
        Ok(())
    }

    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Status {
    /// Ends the listener: connections that look at events are told; whoever takes nothing is not
    /// waited for.
    fn drop(&mut self) {
        self.inner.stops.store(true, Ordering::Relaxed);
        self.inner.feed.end();
        let _ = rustix::io::write(&self.inner.wake, &1_u64.to_ne_bytes());
        for connection in self.inner.lock().open.values() {
            let _ = connection.socket.shutdown(Shutdown::Read);
        }
        let began = Instant::now();
        let is_at_work = || {
            !self.inner.lock().open.is_empty()
                || self.threads.iter().any(|thread| !thread.is_finished())
        };
        while is_at_work() && began.elapsed() < END_MAX {
            thread::sleep(Duration::from_millis(2));
        }
        for connection in self.inner.lock().open.values() {
            let _ = connection.socket.shutdown(Shutdown::Both);
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept_all(self: Arc<Self>, listener: &TcpListener) {
        while !self.stops.load(Ordering::Relaxed) {
            let mut waited =
                [PollFd::new(&self.wake, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
            let _ = poll(&mut waited, None);
            match listener.accept() {
                Ok((socket, _)) => self.take(socket),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted => {}
                    // No descriptor is left: the listener would tell it without end.
                    _ => {
                        let _ = poll(&mut waited[..1], Some(&ACCEPT_PAUSE));
                    }
                },
            }
        }
    }

    /// Gives a connection its thread, if there is room.
    fn take(self: &Arc<Self>, socket: TcpStream) {
        // Blocking, with times: accept(2) does not hand its listener's mode down on Linux.
        let _ = socket.set_nodelay(true);
        let socket = Arc::new(socket);
        let Some(id) = self.lock().admit(&socket) else {
            return turn_away(&socket);
        };
        let inner = self.clone();
        let run = move || {
            if inner.serve(id, &socket).is_ok() {
                inner.lock().enter(id, Phase::Closing);
                talk::close(&socket);
            }
            inner.lock().open.remove(&id);
        };
        let builder = thread::Builder::new().name("haul-media-asked".to_owned());
        if builder.stack_size(STACK_BYTES).spawn(run).is_err() {
            self.lock().open.remove(&id);
        }
    }

    /// Hears one request and answers it.
    ///
    /// # Errors
    /// If the client is gone: nothing more is to be said to it.
    fn serve(&self, id: u64, socket: &TcpStream) -> io::Result<()> {
        let refuse = |status: u16| say(socket, &of_status(status, None, &ends(), &[]));
        let request = match talk::hear(socket) {
            Heard::Nothing => return Err(io::ErrorKind::UnexpectedEof.into()),
            Heard::Request(request) => request,
            Heard::TooSlow => return refuse(408),
            Heard::Refused(refused) => return refuse(refused.status()),
        };
        self.lock().enter(id, Phase::Answered);
        match answer(self, &request) {
            Answer::Whole(response) => say(socket, &response),
            Answer::Events(head) if self.lock().enter_events(id) => {
                send_events(self, socket, &head)
            }
            Answer::Events(_) => refuse(503),
        }
    }
}

impl Connections {
    /// Admits a connection and gives its number, if it may stay.
    fn admit(&mut self, socket: &Arc<TcpStream>) -> Option<u64> {
        // Those that are closing go at once, so they take the places of few others.
        if self.open.len() >= 2 * CONNECTIONS_MAX {
            return None;
        }
        if self.count(|phase| phase != Phase::Closing) >= CONNECTIONS_MAX {
            let asking = self.open.values_mut().filter(|one| one.phase == Phase::Asking);
            let longest = asking.min_by_key(|one| one.since)?;
            longest.phase = Phase::Closing;
            let _ = longest.socket.shutdown(Shutdown::Both);
        }
        self.next_id += 1;
        let connection =
            Connection { socket: socket.clone(), since: Instant::now(), phase: Phase::Asking };
        self.open.insert(self.next_id, connection);
        Some(self.next_id)
    }

    fn count(&self, of: impl Fn(Phase) -> bool) -> usize {
        self.open.values().filter(|one| of(one.phase)).count()
    }

    fn enter(&mut self, id: u64, phase: Phase) {
        if let Some(connection) = self.open.get_mut(&id) {
            connection.phase = phase;
        }
    }

    fn enter_events(&mut self, id: u64) -> bool {
        let has_room = self.count(|phase| phase == Phase::Events) < EVENTS_MAX;
        if has_room {
            self.enter(id, Phase::Events);
        }
        has_room
    }
}

/// Turns a connection away, and waits for nobody: what the client has sent so far is taken, so that
/// the answer is not lost to it (RFC 9112, 9.6), and what it sends later is not.
fn turn_away(mut socket: &TcpStream) {
    let _ = socket.set_nonblocking(true);
    let _ = socket.read(&mut [0; 4 << 10]);
    let response = of_status(503, None, &ends(), &[("Retry-After", "2".to_owned())]);
    for text in texts(&response) {
        let _ = socket.write(text);
    }
    let _ = socket.shutdown(Shutdown::Write);
}

fn say(socket: &TcpStream, response: &Response) -> io::Result<()> {
    texts(response).try_for_each(|text| talk::say(socket, text))
}

/// Texts of an answer: none here has a file.
fn texts(response: &Response) -> impl Iterator<Item = &[u8]> {
    response.pieces.iter().map(Piece::text)
}
