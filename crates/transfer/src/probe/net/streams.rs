//! Data streams of a round: threads that send and receive bytes which are thrown away.
//!
//! Figures are what the kernel says of them.
//!
//! A sender hands the same warm bytes to sendmsg(2) again and again. MSG_ZEROCOPY would only add
//! notices on loopback, where the kernel copies such sends after all.

use super::endpoints::{self, Endpoints};
use crate::{
    locks::{Lock, lock},
    session::{
        numa, stages,
        streams::{self, StreamSetup, schedstat, set_up_sender},
    },
    transport::segments,
};
use haul_datapath::Host;
use haul_protocol::{
    StreamId,
    message::{self, ProbeKind},
};
use haul_sys::tcp_info::TcpInfo;
use rustix::{
    io::Errno,
    net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg},
    thread::{Pid, gettid},
};
use std::{
    io::{self, IoSlice},
    net::{Shutdown, TcpStream},
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Interval at which a waiting thread looks whether its round is over.
const PATIENCE: Duration = Duration::from_millis(100);
const STACK_BYTES: usize = 256 << 10;
/// Most bytes that one call takes off a socket. Meanwhile what arrives is not acknowledged
/// (tcp_recvmsg holds the socket, sk_backlog), so with calls of a MiB the sender stands still: on
/// loopback half the rate.
const RECEIVE_CALL_BYTES_MAX: usize = 128 << 10;
/// Most bytes that a sender has: few enough to stay in a processor's own cache, however large a
/// block is.
pub(super) const WARM_BYTES: usize = 128 << 10;
/// The most pieces of one call (UIO_MAXIOV, sendmsg(2)).
const PIECES_MAX: usize = 1024;

/// The work of a stream's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Send,
    /// Receives into a buffer that is used again.
    Receive,
    /// Receives what the kernel throws away (tcp(7), MSG_TRUNC).
    Discard,
}

/// State that a stream's thread and the round share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub bytes: AtomicU64,
    /// Waits of a sender over RDMA endpoints for the receiver's buffers: how often, how long.
    pub room_waits: AtomicU64,
    pub room_waited_us: AtomicU64,
    thread: OnceLock<Pid>,
    /// Time of the thread on a processor and in the run queue, once it has ended: then nobody else
    /// knows.
    times_ns: OnceLock<(u64, u64)>,
    /// Whether the round is over: a sender says goodbye; a receiver takes what is left.
    pub over: AtomicBool,
    /// Whether the thread is to end, whatever it is at.
    pub stopped: AtomicBool,
    broken: Lock<Option<String>>,
}

struct Running {
    id: StreamId,
    work: Work,
    /// Whether the bytes go by RDMA endpoints, beside the socket.
    by_rdma: bool,
    begun: Instant,
    socket: TcpStream,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Figures of a sender's socket, from each time that it was looked at.
    looks: Lock<streams::StreamFigures>,
}

/// Streams of one round; they end when it is dropped.
pub struct RunningStreams {
    streams: Vec<Running>,
}

impl RunningStreams {
    /// Starts a thread for each stream, which begins at once.
    ///
    /// # Errors
    /// If no thread or descriptor can be had, or a named congestion control is refused.
    pub fn start(
        streams: Vec<(StreamId, TcpStream, Work)>,
        probe: &message::Probe,
        setup: &StreamSetup,
    ) -> io::Result<Self> {
        let mut running = Self { streams: Vec::new() };
        let route = setup.rdma.as_ref().filter(|_| probe.kind == ProbeKind::Endpoints);
        let buffer_bytes = endpoints::BUFFERS_BYTES_MAX / streams.len().max(1);
        for (id, socket, work) in streams {
            if work == Work::Send && route.is_none() {
                set_up_sender(&socket, setup);
                check_congestion(&socket, &probe.congestion)?;
            }
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.set_write_timeout(Some(PATIENCE))?;
            let shared = Arc::new(Shared::default());
            let of_thread = (socket.try_clone()?, shared.clone(), setup.host.clone());
            let block_bytes = probe.block_bytes as usize;
            let by_rdma = route.is_some();
            let by_endpoints = route.map(|route| Endpoints {
                route: route.clone(),
                buffer_bytes,
                rate_bytes_per_s: setup.pacing_bytes_per_s,
            });
            let thread = thread::Builder::new()
                .name(format!("haul-stream-{}", id.0))
                .stack_size(STACK_BYTES)
                .spawn(move || {
                    let (socket, shared, host) = of_thread;
                    run(&socket, work, (block_bytes, by_endpoints.as_ref()), &shared, &host);
                })?;
            // It has always more to send.
            let looks = streams::StreamFigures { in_span: true, ..Default::default() };
            let (looks, thread) = (Lock::new(looks), Some(thread));
            let begun = Instant::now();
            let stream = Running { id, work, by_rdma, begun, socket, shared, thread, looks };
            running.streams.push(stream);
        }
        Ok(running)
    }

    /// Looks at the senders' sockets; to be called often.
    pub fn look(&self) {
        let by_tcp = |stream: &&Running| stream.work == Work::Send && !stream.by_rdma;
        for stream in self.streams.iter().filter(by_tcp) {
            lock(&stream.looks).look(&stream.socket);
        }
    }

    /// Whether the bytes go by RDMA endpoints: then the sockets say nothing of them.
    #[must_use]
    pub fn are_by_rdma(&self) -> bool {
        self.streams.iter().any(|stream| stream.by_rdma)
    }

    /// Figures of the streams so far.
    #[must_use]
    pub fn figures(&self) -> Vec<message::ProbeStream> {
        self.streams.iter().map(Running::figures).collect()
    }

    /// TCP_INFO of a way's streams if nothing at all got through on any of them, though it was
    /// sent. `they_try`: the other side has sent in vain what this one has not received.
    #[must_use]
    pub fn vanished(&self, they_try: bool) -> Vec<TcpInfo> {
        let of_way = |sends: bool| {
            let all = || self.streams.iter().filter(|s| (s.work == Work::Send) == sends);
            let vanishes = |stream: &Running| {
                let tcp = TcpInfo::of(&stream.socket).ok()?;
                let nothing_came = || they_try && tcp.bytes_received == 0;
                let is_gone =
                    if sends { segments::first_segments_vanish(&tcp) } else { nothing_came() };
                is_gone.then_some(tcp)
            };
            all().map(vanishes).collect::<Option<Vec<_>>>().unwrap_or_default()
        };
        [of_way(true), of_way(false)].concat()
    }

    /// TCP_INFO of each connection.
    #[must_use]
    pub fn sockets(&self) -> Vec<TcpInfo> {
        self.streams.iter().filter_map(|stream| TcpInfo::of(&stream.socket).ok()).collect()
    }

    /// Ends the round: senders stop and say goodbye; receivers go on until they have heard it.
    pub fn end(&self) {
        for stream in &self.streams {
            stream.shared.over.store(true, Ordering::Relaxed);
        }
    }

    /// Whether all threads have ended.
    #[must_use]
    pub fn are_over(&self) -> bool {
        self.streams.iter().all(|s| s.thread.as_ref().is_none_or(JoinHandle::is_finished))
    }

    /// The reason why the first stream broke that did.
    #[must_use]
    pub fn broken(&self) -> Option<String> {
        self.streams.iter().find_map(|stream| {
            let why = lock(&stream.shared.broken).clone()?;
            Some(format!("data stream {}: {why}", stream.id.0))
        })
    }
}

impl Drop for RunningStreams {
    fn drop(&mut self) {
        for stream in &self.streams {
            stream.shared.stopped.store(true, Ordering::Relaxed);
            let _ = stream.socket.shutdown(Shutdown::Both);
        }
        for stream in &mut self.streams {
            if let Some(thread) = stream.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

impl Running {
    fn looked(&self) -> streams::StreamFigures {
        let mut looks = lock(&self.looks);
        looks.look(&self.socket);
        looks.clone()
    }

    fn figures(&self) -> message::ProbeStream {
        let bytes = self.shared.bytes.load(Ordering::Relaxed);
        let ended = || self.shared.times_ns.get().copied();
        let running = || self.shared.thread.get().copied().and_then(schedstat);
        // It may end between the two questions.
        let (cpu_ns, run_queue_ns) = ended().or_else(running).or_else(ended).unwrap_or_default();
        let sends = self.work == Work::Send;
        let stream = message::ProbeStream {
            stream: self.id,
            sends,
            bytes,
            cpu_ns,
            run_queue_ns,
            ..Default::default()
        };
        if self.by_rdma {
            let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
            let elapsed_us = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            return message::ProbeStream {
                room_waits: count(&self.shared.room_waits),
                receiver_window_us: count(&self.shared.room_waited_us),
                // It has always more to send.
                busy_us: if sends { elapsed_us } else { 0 },
                ..stream
            };
        }
        match TcpInfo::of(&self.socket) {
            Ok(tcp) if sends => message::ProbeStream {
                congestion: haul_sys::congestion::congestion(&self.socket).unwrap_or_default(),
                ..of_sender(stream, &tcp, &self.looked())
            },
            _ => stream,
        }
    }
}

fn of_sender(
    stream: message::ProbeStream,
    tcp: &TcpInfo,
    looks: &streams::StreamFigures,
) -> message::ProbeStream {
    let (window_ns, buffer_ns) = stages::limited_ns(looks, tcp.busy_time_us * 1000);
    message::ProbeStream {
        rtt_us: tcp.rtt_us,
        // All ones: nothing was measured yet.
        min_rtt_us: if tcp.min_rtt_us == u32::MAX { 0 } else { tcp.min_rtt_us },
        cwnd_bytes: u64::from(tcp.cwnd_segments) * u64::from(tcp.mss_bytes),
        delivery_rate_bytes_per_s: tcp.delivery_rate_bytes_per_s,
        retransmits: tcp.total_retransmits,
        sent_bytes: tcp.bytes_sent,
        resent_bytes: tcp.bytes_retransmitted,
        busy_us: tcp.busy_time_us,
        receiver_window_us: window_ns / 1000,
        send_buffer_us: buffer_ns / 1000,
        ..stream
    }
}

/// Sets the congestion control that was asked for. A probe compares these, so another one in its
/// place is an error.
fn check_congestion(socket: &TcpStream, wanted: &str) -> io::Result<()> {
    if wanted.is_empty() || haul_sys::congestion::congestion(socket)? == wanted {
        return Ok(());
    }
    haul_sys::congestion::set_congestion(socket, wanted)
}

fn run(
    socket: &TcpStream,
    work: Work,
    (block_bytes, by_endpoints): (usize, Option<&Endpoints>),
    shared: &Shared,
    host: &Host,
) {
    numa::run_near_interface(Path::new("/"), socket, host);
    let _ = shared.thread.set(gettid());
    let ended = match (by_endpoints, work) {
        (Some(endpoints), _) => endpoints.run(socket, work, block_bytes, shared),
        (None, Work::Send) => send_all(socket, block_bytes, shared),
        (None, Work::Receive) => receive_all(socket, block_bytes, RecvFlags::empty(), shared),
        (None, Work::Discard) => receive_all(socket, block_bytes, RecvFlags::TRUNC, shared),
    };
    let _ = shared.times_ns.set(schedstat(gettid()).unwrap_or_default());
    if let Err(error) = ended
        && !shared.over.load(Ordering::Relaxed)
        && !shared.stopped.load(Ordering::Relaxed)
    {
        *lock(&shared.broken) = Some(error.to_string());
    }
}

fn send_all(socket: &TcpStream, block_bytes: usize, shared: &Shared) -> io::Result<()> {
    let warm = noise(block_bytes.min(WARM_BYTES));
    let pieces = pieces(&warm, block_bytes);
    while !shared.over.load(Ordering::Relaxed) && !shared.stopped.load(Ordering::Relaxed) {
        let mut nothing = SendAncillaryBuffer::default();
        match sendmsg(socket, &pieces, &mut nothing, SendFlags::NOSIGNAL) {
            Ok(sent) => {
                shared.bytes.fetch_add(sent as u64, Ordering::Relaxed);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    socket.shutdown(Shutdown::Write)
}

/// A block made of the same bytes again and again.
fn pieces(warm: &[u8], block_bytes: usize) -> Vec<IoSlice<'_>> {
    let whole = std::iter::repeat_n(warm, block_bytes / warm.len());
    let rest = &warm[..block_bytes % warm.len()];
    let all = whole.chain([rest]).filter(|piece| !piece.is_empty());
    all.take(PIECES_MAX).map(IoSlice::new).collect()
}

fn receive_all(
    socket: &TcpStream,
    block_bytes: usize,
    flags: RecvFlags,
    shared: &Shared,
) -> io::Result<()> {
    let mut block = vec![0; block_bytes];
    let mut at = 0;
    while !shared.stopped.load(Ordering::Relaxed) {
        let end = block_bytes.min(at + RECEIVE_CALL_BYTES_MAX);
        match recv(socket, &mut block[at..end], flags) {
            // The other side's clock is a little ahead.
            Ok((_, 0)) => return Ok(()),
            Ok((_, received)) => {
                at = (at + received) % block_bytes;
                shared.bytes.fetch_add(received as u64, Ordering::Relaxed);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Random bytes that no link can make smaller.
#[must_use]
pub fn noise(len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that had ended was told as one that had needed no processor.
    #[test]
    fn a_stream_that_has_ended_still_tells_what_it_cost() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let shared = Arc::new(Shared::default());
        let of_thread = (far.try_clone().unwrap(), shared.clone());
        let receiver = thread::spawn(move || {
            let (socket, shared) = of_thread;
            run(&socket, Work::Receive, (4096, None), &shared, &Host::default());
        });
        let block = noise(1 << 20);
        for _ in 0..20 {
            io::Write::write_all(&mut &near, &block).unwrap();
        }
        near.shutdown(Shutdown::Write).unwrap();
        receiver.join().unwrap();
        let running = Running {
            id: StreamId(0),
            work: Work::Receive,
            by_rdma: false,
            begun: Instant::now(),
            socket: far,
            shared,
            thread: None,
            looks: Lock::default(),
        };
        let figures = running.figures();
        assert_eq!(figures.bytes, 20 << 20);
        assert!(figures.cpu_ns > 0, "{figures:?}");
    }

    #[test]
    fn a_block_of_any_size_is_made_of_the_same_warm_bytes() {
        for block_bytes in [1, 4096, WARM_BYTES, WARM_BYTES + 1, 1 << 20, 64 << 20] {
            let warm = noise(block_bytes.min(WARM_BYTES));
            let sum_bytes: usize = pieces(&warm, block_bytes).iter().map(|piece| piece.len()).sum();
            assert_eq!(sum_bytes, block_bytes);
        }
    }
}
