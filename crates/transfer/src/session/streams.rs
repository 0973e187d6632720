//! Data streams of a session: opening them, what each found out, and ending them.

use super::{headway::Carried, private::Private, rdma};
use crate::{
    digest::{SessionKeys, SpanDigest},
    locks::{Lock, lock, rank},
    transport::{tcp, waker::Waker},
};
use haul_datapath::{
    EngineError, FabricFigures, Host, StageTimes,
    choose::{self, CongestionChoice, PathLength},
};
use haul_host::cpu_quota::Throttling;
use haul_protocol::{ProtocolError, StreamId, limits, message};
use haul_sys::{SocketMemory, TcpInfo};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::sockopt,
    thread::{Pid, gettid},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{Shutdown, SocketAddr, TcpStream},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Figures of a stream's thread, updated at each span, with what the kernel counts for it.
#[derive(Clone, Debug, Default)]
pub struct StreamFigures {
    pub cpu_ns: u64,
    pub wall_ns: u64,
    /// Time of waiting for a span to send, or for a header to arrive.
    pub idle_ns: u64,
    pub copied_bytes: u64,
    pub stages: StageTimes,
    /// Engines in the order of their first use.
    pub engines: Vec<&'static str>,
    pub tcp: TcpInfo,
    /// Bytes that went by RDMA endpoints beside the socket. They are counted as the socket's own.
    pub beside: Option<Beside>,
    /// Endpoints of a stream that goes by RDMA.
    pub rdma: Option<RdmaEnd>,
    /// Payload bytes of the spans that were finished on this stream.
    pub payload_bytes: u64,
    /// Bytes of this stream that its thread has taken so far: frames and payload.
    pub consumed_bytes: u64,
    /// Payload bytes among the consumed ones, when receiving, of whole spans that are being written
    /// still.
    pub unsettled_bytes: u64,
    /// The thread is at a span: when receiving, between a header and the span's end; when sending,
    /// it has a span to send.
    pub in_span: bool,
    /// Time at which the thread last updated its figures.
    pub updated_at: Option<Instant>,
    /// The stream has not ended.
    pub is_open: bool,
    /// The thread's number for the kernel.
    pub thread: Option<Pid>,
    /// Time in which the thread was ready to run, and not running.
    pub run_queue_ns: u64,
    /// The socket had no room for more at the last look, when sending.
    pub wire_holds: bool,
    /// Time in which the socket had no room for more, when sending.
    pub held_ns: u64,
    /// Time in which a sending thread had nothing to send, and its socket still had.
    pub idle_held_ns: u64,
    /// Time in which the send buffer was full with less than both windows let through.
    pub buffer_held_ns: u64,
    /// Time in which packets stood in a queue of the path while the sending socket had no room.
    pub queue_held_ns: u64,
    /// The congestion control of a sending stream sends at the rate that it measured.
    pub is_paced: bool,
    /// Bytes that the thread has read from disks, where the kernel counts them.
    pub read_bytes: Option<u64>,
    /// Time when the session's thread last asked the kernel.
    pub looked_at: Option<Instant>,
    /// Bytes received by the kernel and not taken by the thread yet: it is busy elsewhere, with its
    /// disk.
    pub unread_bytes: u64,
    /// The receiving thread has all that it asked the wire for, and writes.
    pub writing: bool,
    /// The connection was reset; a thread that only waits does not see it.
    pub hung_up: bool,
    pub opened_at: Option<Instant>,
    /// Ends of the connection, this side's first; `None` before the first look.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// Time of the last look that found more bytes moved than the one before.
    pub moved_at: Option<Instant>,
}

/// RDMA endpoint of a stream on this side, and what it did.
#[derive(Clone, Debug)]
pub struct RdmaEnd {
    pub provider: &'static str,
    /// Port of the card, as libfabric names it.
    pub port: String,
    pub figures: FabricFigures,
}

/// Bytes that a pair of RDMA endpoints has moved by now.
#[derive(Clone, Debug)]
pub enum Beside {
    Sent(Arc<AtomicU64>),
    Received(Arc<AtomicU64>),
}

impl Beside {
    /// Bytes that were moved so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let (Self::Sent(bytes) | Self::Received(bytes)) = self;
        bytes.load(Ordering::Relaxed)
    }
}

impl StreamFigures {
    /// Notes the engine at work now.
    pub fn uses(&mut self, engine: &'static str) {
        if !self.engines.contains(&engine) {
            self.engines.push(engine);
        }
    }

    /// Takes what the RDMA endpoints of the stream's engine did.
    pub fn takes_rdma(&mut self, figures: Option<FabricFigures>) {
        if let (Some(rdma), Some(figures)) = (&mut self.rdma, figures) {
            rdma.figures = figures;
        }
    }

    /// Whether a receiving stream waits for this host's disk, not for the wire.
    #[must_use]
    pub fn on_storage(&self) -> bool {
        self.writing || self.unread_bytes > 0
    }

    /// Takes the state of the socket, and adds the time since the last look to what it tells.
    pub(crate) fn look(&mut self, socket: &TcpStream) -> PollFlags {
        let now = Instant::now();
        let since = self.looked_at.replace(now).map(|at| now - at);
        if since.is_none() {
            self.ends = socket.local_addr().ok().zip(socket.peer_addr().ok());
            let control = haul_sys::congestion::congestion(socket);
            self.is_paced = control.is_ok_and(|control| control.starts_with("bbr"));
        }
        let since_ns = since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        if let Ok(tcp) = TcpInfo::of(socket) {
            self.moved(tcp, now);
        }
        let mut fds = [PollFd::new(socket, PollFlags::IN | PollFlags::OUT)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is = poll(&mut fds, Some(&at_once)).map_or(PollFlags::empty(), |_| fds[0].revents());
        // Who waits in send(2) is woken when there is room, which is when poll(2) says so.
        self.wire_holds = !is.contains(PollFlags::OUT);
        self.held(since_ns, || SocketMemory::of(socket).is_ok_and(|memory| memory.is_full()));
        is
    }

    /// Takes what the kernel counts for the connection, and notes when more had moved.
    fn moved(&mut self, mut tcp: TcpInfo, now: Instant) {
        match &self.beside {
            Some(Beside::Sent(bytes)) => {
                let bytes = bytes.load(Ordering::Relaxed);
                tcp.bytes_sent += bytes;
                tcp.bytes_acked += bytes;
            }
            Some(Beside::Received(bytes)) => tcp.bytes_received += bytes.load(Ordering::Relaxed),
            None => {}
        }
        let moved_bytes = |tcp: &TcpInfo| tcp.bytes_acked + tcp.bytes_received;
        self.moved_at = self.moved_at.filter(|_| moved_bytes(&tcp) == moved_bytes(&self.tcp));
        self.moved_at.get_or_insert(now);
        self.tcp = tcp;
    }

    /// Adds the time since the last look to what holds the stream, as its socket is now. `is_full`:
    /// the send buffer is.
    fn held(&mut self, since_ns: u64, is_full: impl FnOnce() -> bool) {
        // A part of a segment may wait for more to fill it (MSG_MORE).
        let has_more = self.wire_holds || self.tcp.notsent_bytes > self.tcp.mss_bytes;
        if self.in_span && self.wire_holds {
            self.held_ns += since_ns;
            self.buffer_held_ns += if is_full() && fits_windows(&self.tcp) { since_ns } else { 0 };
            self.queue_held_ns +=
                if waits_in_queue(self.tcp.rtt_us, self.tcp.min_rtt_us) { since_ns } else { 0 };
        } else if !self.in_span && has_more {
            self.idle_held_ns += since_ns;
        }
    }

    /// Takes the kernel's counts for the thread, where there are any (CONFIG_SCHED_INFO).
    fn look_at_thread(&mut self) {
        if let Some((cpu_ns, run_queue_ns)) = self.thread.and_then(schedstat) {
            self.cpu_ns = self.cpu_ns.max(cpu_ns);
            self.run_queue_ns = run_queue_ns;
        }
        self.read_bytes = self.thread.and_then(read_bytes).or(self.read_bytes);
    }
}

/// Whether all that the socket holds could be in flight, as far as both ends' windows go.
fn fits_windows(tcp: &TcpInfo) -> bool {
    let bytes = |segments: u32| u64::from(segments) * u64::from(tcp.mss_bytes);
    let held_bytes = bytes(tcp.unacked_segments) + u64::from(tcp.notsent_bytes);
    held_bytes < bytes(tcp.cwnd_segments).min(tcp.peer_window_bytes.into())
}

/// Delay from which on packets stand in a queue of the path: hosts that gather packets and
/// acknowledgements stay below.
const QUEUE_FROM_US: u32 = 2000;

/// Whether at least half of what is in flight waits in a queue: the link is full, and a larger
/// window or buffer would only make that queue longer. `shortest_us`: the path's shortest round
/// trip; nothing waits where none is known.
pub(crate) fn waits_in_queue(rtt_us: u32, shortest_us: u32) -> bool {
    let is_known = !matches!(shortest_us, 0 | u32::MAX);
    is_known && rtt_us.saturating_sub(shortest_us) >= shortest_us.max(QUEUE_FROM_US)
}

/// Time on a processor and time waiting for one, of a thread of this process
/// (proc_pid_schedstat(5)).
pub(crate) fn schedstat(thread: Pid) -> Option<(u64, u64)> {
    let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
    let text = std::fs::read_to_string(path).ok()?;
    let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Bytes that a thread of this process has read from disks, read ahead included (proc_pid_io(5)).
fn read_bytes(thread: Pid) -> Option<u64> {
    let path = format!("/proc/self/task/{}/io", thread.as_raw_nonzero());
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
}

pub type SharedFigures = Arc<Lock<StreamFigures>>;

/// An open stream, as the session's thread sees it.
#[derive(Debug)]
struct StreamHandle {
    socket: TcpStream,
    figures: Arc<Lock<StreamFigures>>,
}

/// Figures of open streams, with what their sockets say now.
fn look_at(
    handles: &BTreeMap<StreamId, StreamHandle>,
) -> impl Iterator<Item = (StreamId, StreamFigures)> {
    handles.iter().map(|(stream, handle)| {
        let mut figures = lock(&handle.figures);
        let is = figures.look(&handle.socket);
        let mut figures = figures.clone();
        // Not POLLERR: it also says that notices of zero-copy sends are there to be taken. A
        // connection that was reset or timed out is closed, which is POLLHUP (tcp_poll).
        figures.hung_up = is.contains(PollFlags::HUP);
        // Fewer than the thread sleeps for (SO_RCVLOWAT) do not wait for it: it waits for more.
        let waiting = is.contains(PollFlags::IN);
        let unread = || rustix::io::ioctl_fionread(&handle.socket).unwrap_or(0);
        figures.unread_bytes = if waiting { unread() } else { 0 };
        (*stream, figures)
    })
}

/// The reason why a stream's connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The key of a private stream has protected enough; another stream takes its place.
    #[error("the stream's key has protected enough")]
    Renewal,
    /// The sender closed it between two frames, and did not say that it was the end.
    #[error("the sender closed the stream")]
    Closed,
    /// The peer's frame may not stand there, or its stream may not be opened.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// An event that a stream's thread tells the session's thread.
#[derive(Debug)]
pub enum StreamEvent {
    Fallback {
        from_to: String,
        why: String,
        stream: StreamId,
    },
    /// The peer sent a frame that may not stand there; the stream ends.
    Violated {
        why: ProtocolError,
    },
    /// The stream's thread has ended. `why` is `None` after an orderly end.
    Ended {
        stream: StreamId,
        why: Option<StreamError>,
        carried: Carried,
        /// The stream was at a span, as [`StreamFigures::in_span`] tells.
        in_span: bool,
    },
}

/// The streams of one session.
#[derive(Debug)]
pub struct Streams {
    handles: Lock<BTreeMap<StreamId, StreamHandle>, rank::Streams>,
    events: Lock<Vec<StreamEvent>>,
    threads: Lock<Vec<JoinHandle<()>>>,
    /// Figures of streams that have ended.
    ended: Lock<Vec<StreamFigures>>,
    /// Numbers of all connections that were ever attached: a preface that is replayed finds its own
    /// here.
    claimed: Lock<BTreeSet<StreamId>>,
    /// Count of the streams that are attached and not yet running, or running.
    alive: AtomicU64,
    next: AtomicU64,
    stopping: AtomicBool,
    waker: Waker,
    /// Time for which this process's CPU quota held it.
    throttling: Throttling,
}

/// Set-up that every stream of a session needs.
#[derive(Clone, Debug)]
pub struct StreamSetup {
    pub keys: Arc<SessionKeys>,
    pub session: [u8; 16],
    pub digest: message::Digest,
    /// BLAKE3 values of the spans are wanted too, whatever verifies them.
    pub content: bool,
    pub host: Arc<Host>,
    pub congestion: CongestionChoice,
    /// Pacing rate of each stream, in bytes a second.
    pub pacing_bytes_per_s: Option<u64>,
    /// Memory that a stream's engine may hold, in bytes.
    pub buffer_bytes_max: usize,
    /// RDMA endpoints that bytes go over; `None` for TCP.
    pub rdma: Option<rdma::Route>,
    /// TLS of the data streams; `None` where they are not private.
    pub private: Option<Private>,
}

impl StreamSetup {
    /// Makes the digest of a stream.
    #[must_use]
    pub fn span_digest(&self) -> SpanDigest {
        let digest = SpanDigest::new(self.digest, &self.keys);
        if self.content { digest.with_content() } else { digest }
    }

    /// Set-up of a session without a peer, for tests.
    #[cfg(test)]
    pub(crate) fn of_nobody() -> Self {
        Self {
            keys: Arc::new(SessionKeys::from_bytes(&[7; limits::DATA_KEYS_BYTES])),
            session: [7; 16],
            digest: message::Digest::AesGmac,
            content: false,
            host: Arc::default(),
            congestion: CongestionChoice::default(),
            pacing_bytes_per_s: None,
            buffer_bytes_max: 1 << 20,
            rdma: None,
            private: None,
        }
    }

    /// Whether this side looks at every byte that it moves.
    #[must_use]
    pub fn sees_bytes(&self) -> bool {
        self.content || self.digest != message::Digest::None
    }
}

impl Streams {
    #[must_use]
    pub fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self {
            handles: Lock::default(),
            events: Lock::default(),
            threads: Lock::default(),
            ended: Lock::default(),
            claimed: Lock::default(),
            alive: AtomicU64::new(0),
            next: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            waker,
            throttling: Throttling::begin(),
        })
    }

    /// Time for which this process's own CPU quota has held it since these streams were made.
    #[must_use]
    pub fn throttled_ns(&self) -> u64 {
        self.throttling.ns()
    }

    /// Takes a stream's number for a connection that was given to this side. False when it was used
    /// before, or more than `alive_max` streams would be open: the connection is to be closed.
    #[must_use]
    pub fn claim(&self, stream: StreamId, alive_max: u64) -> bool {
        let mut claimed = lock(&self.claimed);
        if self.alive.load(Ordering::SeqCst) >= alive_max
            || claimed.len() >= limits::STREAMS_EVER_MAX as usize
            || !claimed.insert(stream)
        {
            return false;
        }
        self.alive.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Counts a claimed stream as over.
    pub(crate) fn release(&self, stream: StreamId) {
        if lock(&self.claimed).contains(&stream) {
            self.alive.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Takes the number of the next stream that this side opens.
    pub fn next_id(&self) -> StreamId {
        StreamId(u32::try_from(self.next.fetch_add(1, Ordering::Relaxed)).unwrap_or(u32::MAX))
    }

    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Runs `work` on a thread of its own; it gets the socket and the place for its figures.
    ///
    /// `connect` makes the socket, on that thread. What `work` returns says why the stream ended.
    pub fn spawn(
        self: &Arc<Self>,
        stream: StreamId,
        connect: impl FnOnce() -> io::Result<TcpStream> + Send + 'static,
        work: impl FnOnce(OwnedFd, &SharedFigures) -> Result<(), StreamError> + Send + 'static,
    ) {
        let streams = self.clone();
        let thread =
            thread::Builder::new().name(format!("haul-stream-{}", stream.0)).spawn(move || {
                let (thread, is_open) = (Some(gettid()), true);
                let figures = StreamFigures { thread, is_open, ..StreamFigures::default() };
                let figures = Arc::new(Lock::new(figures));
                let result = connect()
                    .and_then(|socket| {
                        lock(&figures).opened_at = Some(Instant::now());
                        let handle =
                            StreamHandle { socket: socket.try_clone()?, figures: figures.clone() };
                        lock(&streams.handles).insert(stream, handle);
                        Ok(socket)
                    })
                    .map_err(StreamError::from)
                    .and_then(|socket| {
                        // `stop` may have passed before the handle was in.
                        if streams.stopping() { Ok(()) } else { work(socket.into(), &figures) }
                    });
                streams.end(stream, result.err());
            });
        match thread {
            Ok(thread) => {
                let mut threads = lock(&self.threads);
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
            }
            Err(error) => self.end(stream, Some(error.into())),
        }
    }

    fn end(&self, stream: StreamId, why: Option<StreamError>) {
        let (mut carried, mut in_span) = (Carried::default(), false);
        // Until its figures are among those of the ended ones: it is in every sum, once.
        let mut handles = lock(&self.handles);
        if let Some(handle) = handles.remove(&stream) {
            let _ = handle.socket.shutdown(Shutdown::Both);
            let mut figures = lock(&handle.figures).clone();
            figures.look(&handle.socket);
            figures.look_at_thread();
            figures.is_open = false;
            (carried, in_span) = (Carried::of(&figures), figures.in_span);
            lock(&self.ended).push(figures);
        }
        drop(handles);
        self.release(stream);
        self.tell(StreamEvent::Ended { stream, why, carried, in_span });
    }

    pub fn tell(&self, event: StreamEvent) {
        lock(&self.events).push(event);
        self.waker.wake();
    }

    pub fn wake(&self) {
        self.waker.wake();
    }

    #[must_use]
    pub fn take_events(&self) -> Vec<StreamEvent> {
        std::mem::take(&mut *lock(&self.events))
    }

    /// Gives the open streams another congestion control; whether any has it now. What they have
    /// measured is kept.
    pub fn set_congestion(&self, control: &str) -> bool {
        let mut has_any = false;
        for handle in lock(&self.handles).values() {
            let mut has_it =
                haul_sys::congestion::congestion(&handle.socket).is_ok_and(|now| now == control);
            if !has_it {
                // Not permitted after all: the path stays as it was.
                has_it = haul_sys::congestion::set_congestion(&handle.socket, control).is_ok();
                // It is asked what it is at the next look.
                lock(&handle.figures).looked_at = None;
            }
            has_any |= has_it;
        }
        has_any
    }

    /// Shuts a stream's socket down, so that its thread ends.
    pub fn shut(&self, stream: StreamId) {
        if let Some(handle) = lock(&self.handles).get(&stream) {
            let _ = handle.socket.shutdown(Shutdown::Both);
        }
    }

    /// Figures of the open streams, with what their sockets say now.
    #[must_use]
    pub fn open(&self) -> Vec<(StreamId, StreamFigures)> {
        look_at(&lock(&self.handles)).collect()
    }

    /// Lets a stream have other figures, for tests.
    #[cfg(test)]
    pub(crate) fn set_figures(&self, stream: StreamId, set: impl FnOnce(&mut StreamFigures)) {
        set(&mut lock(&lock(&self.handles)[&stream].figures));
    }

    /// Figures of all streams, open and ended, without what has to be read from /proc.
    #[must_use]
    pub fn socket_figures(&self) -> Vec<StreamFigures> {
        let handles = lock(&self.handles);
        let mut all = lock(&self.ended).clone();
        all.extend(look_at(&handles).map(|(_, figures)| figures));
        all
    }

    /// Bytes that the open streams have moved: received, or sent and acknowledged.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        let of = |tcp: &TcpInfo| tcp.bytes_received.saturating_add(tcp.bytes_acked);
        self.open().iter().map(|(_, figures)| of(&figures.tcp)).sum()
    }

    /// Figures of all streams, as [`Self::socket_figures`] gives them, with what the kernel counts
    /// for their threads.
    #[must_use]
    pub fn all_figures(&self) -> Vec<StreamFigures> {
        let mut all = self.socket_figures();
        all.iter_mut().filter(|figures| figures.is_open).for_each(StreamFigures::look_at_thread);
        all
    }

    #[must_use]
    pub fn open_count(&self) -> u32 {
        u32::try_from(lock(&self.handles).len()).unwrap_or(u32::MAX)
    }

    /// Has the threads without work leave from now on.
    pub fn request_stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Waits for all threads to leave.
    pub fn join(&self) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Waits for all threads to leave by themselves, but not for ever: a peer may take nothing any
    /// more.
    pub fn join_within(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while lock(&self.threads).iter().any(|thread| !thread.is_finished()) {
            if Instant::now() > deadline {
                return self.stop();
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.join();
    }

    /// Ends all streams, whatever they are doing, and waits for their threads.
    pub fn stop(&self) {
        self.shut_all();
        self.join();
    }

    /// Ends all streams, whatever they are doing, without waiting for their threads.
    pub fn shut_all(&self) {
        self.request_stop();
        for handle in lock(&self.handles).values() {
            let _ = handle.socket.shutdown(Shutdown::Both);
        }
    }
}

/// Sets up a socket that this side sends on: congestion control, buffer and pacing.
pub fn set_up_sender(socket: &TcpStream, setup: &StreamSetup) {
    let _ = socket.set_nodelay(true);
    // Accepted sockets have the listener's, which is for short paths.
    let control = setup.congestion.control.as_ref().unwrap_or(&setup.host.congestion_default);
    if !haul_sys::congestion::congestion(socket).is_ok_and(|now| now == *control) {
        // Not permitted is no error: the reason in the report tells what the choice was.
        let _ = haul_sys::congestion::set_congestion(socket, control);
    }
    if let Some(size_bytes) = choose::send_buffer_bytes(tcp::ends_on_this_host(socket)) {
        let _ = sockopt::set_socket_send_buffer_size(socket, size_bytes);
    }
    if let Some(rate) = setup.pacing_bytes_per_s {
        let _ = haul_sys::pacing::set_max_pacing_rate(socket, rate);
    }
}

/// Chooses the congestion control for a path, by its length.
#[must_use]
pub fn choose_congestion(host: &Host, length: PathLength) -> CongestionChoice {
    choose::congestion(host, length, host.may_administer_network)
}

#[cfg(test)]
mod tests;
