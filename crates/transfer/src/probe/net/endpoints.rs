//! Data streams of a probe over RDMA endpoints, and messages that go there and back.
//!
//! A sender fills registered buffers from the same warm bytes, one copy a byte; a receiver gives
//! each buffer back as it is. A ping is a message on one pair and its echo on another one, as each
//! pair carries bytes one way.

use super::streams::{Shared, WARM_BYTES, Work, noise};
use crate::session::rdma::{self, Route};
use haul_fabric::{ReceiveEnd, SendEnd};
use rustix::net::Shutdown;
use std::{
    io::{self, Read},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Registered memory of all streams of a round.
pub(super) const BUFFERS_BYTES_MAX: usize = crate::constants::BUFFER_BYTES_MAX;
/// Bytes of a ping.
pub(super) const PING_BYTES: u32 = 64;
/// Time in which pings are sent.
pub(super) const PINGS_TIME: Duration = Duration::from_millis(500);
/// Interval at which a sender that is done looks whether its round is over.
const PATIENCE: Duration = Duration::from_millis(100);
/// Most pings of a round.
const PINGS_MAX: usize = 200_000;
/// Pings at the begin that do not count.
const PINGS_WARM: usize = 100;

/// Setup of the threads of a round over RDMA endpoints, beside their sockets.
pub(super) struct Endpoints {
    pub route: Route,
    /// Registered memory of one stream.
    pub buffer_bytes: usize,
    pub rate_bytes_per_s: Option<u64>,
}

impl Endpoints {
    /// Runs a stream until its round is over.
    pub(super) fn run(
        &self,
        socket: &TcpStream,
        work: Work,
        block_bytes: usize,
        shared: &Shared,
    ) -> io::Result<()> {
        let pair = rdma::only_pair(&self.route, socket.try_clone()?)?;
        match work {
            Work::Send => {
                let mut end = pair.into_sender(self.buffer_bytes)?;
                if let Some(rate) = self.rate_bytes_per_s {
                    end.set_rate(rate);
                }
                send_all(&mut end, block_bytes, shared)?;
                socket.shutdown(std::net::Shutdown::Write)?;
                // The endpoint goes last: some providers would cancel what the peer still takes.
                await_close(socket, shared)
            }
            Work::Receive | Work::Discard => {
                let mut end = pair.into_receiver(self.buffer_bytes)?;
                let received = receive_all(&mut end, shared);
                let _ = socket.shutdown(std::net::Shutdown::Both);
                received
            }
        }
    }
}

/// Waits until the peer has closed its side, or the round has.
fn await_close(mut socket: &TcpStream, shared: &Shared) -> io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    while !shared.stopped.load(Ordering::Relaxed) {
        match socket.read(&mut [0; 64]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => break,
        }
    }
    Ok(())
}

fn send_all(end: &mut SendEnd, block_bytes: usize, shared: &Shared) -> io::Result<()> {
    let warm = noise(block_bytes.min(WARM_BYTES));
    while !shared.over.load(Ordering::Relaxed) && !shared.stopped.load(Ordering::Relaxed) {
        let mut left = block_bytes;
        while left > 0 {
            let len = left.min(warm.len());
            end.send(&warm[..len])?;
            left -= len;
        }
        end.flush()?;
        shared.bytes.fetch_add(block_bytes as u64, Ordering::Relaxed);
        let figures = end.figures();
        let waited_us = u64::try_from(figures.waiting_for_room.as_micros()).unwrap_or(u64::MAX);
        shared.room_waits.store(figures.waits_for_room, Ordering::Relaxed);
        shared.room_waited_us.store(waited_us, Ordering::Relaxed);
    }
    end.settle()?;
    Ok(())
}

fn receive_all(end: &mut ReceiveEnd, shared: &Shared) -> io::Result<()> {
    while !shared.stopped.load(Ordering::Relaxed) {
        let len = match end.peek() {
            Ok(bytes) => bytes.len(),
            // The other side's clock is a little ahead.
            Err(haul_fabric::Error::PeerGone) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        end.skip(len)?;
        shared.bytes.fetch_add(len as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Pings of a round, on a thread of their own; they end when it is dropped.
pub(super) struct Pings {
    sockets: [TcpStream; 2],
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Vec<u64>>>>,
}

impl Pings {
    /// Begins: the first socket's stream goes to the server, the second's comes from it. The client
    /// of a route measures, its server echoes.
    pub(super) fn start(route: &Route, sockets: [TcpStream; 2], bytes: u32) -> io::Result<Self> {
        let [to_server, to_client] = [sockets[0].try_clone()?, sockets[1].try_clone()?];
        let stopped = Arc::new(AtomicBool::new(false));
        let (route, is_over) = (route.clone(), stopped.clone());
        let thread = thread::Builder::new().name("haul-pings".into()).spawn(move || {
            let (ping, buffer_bytes) = (vec![1; bytes as usize], 1 << 20);
            let to_server = rdma::only_pair(&route, to_server)?;
            let to_client = rdma::only_pair(&route, to_client)?;
            // A sender waits for the peer's receiver: both sides take the first pair first.
            match route.part {
                rdma::Part::Connects => {
                    let mut there = to_server.into_sender(buffer_bytes)?;
                    let mut back = to_client.into_receiver(buffer_bytes)?;
                    let times = measure((&mut there, &mut back), ping, &is_over)?;
                    rustix::net::shutdown(there.lifeline(), Shutdown::Write)?;
                    // The endpoints go last, once the server has left.
                    let _ = back.peek().map(<[u8]>::len);
                    Ok(times)
                }
                rdma::Part::Listens => {
                    let mut there = to_server.into_receiver(buffer_bytes)?;
                    let mut back = to_client.into_sender(buffer_bytes)?;
                    echo((&mut there, &mut back), ping, &is_over).map(|()| Vec::new())
                }
            }
        })?;
        Ok(Self { sockets, stopped, thread: Some(thread) })
    }

    pub(super) fn are_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Times of the round trips in nanoseconds, in order of their length.
    ///
    /// # Errors
    /// What the provider or the peer did.
    pub(super) fn finish(mut self) -> io::Result<Vec<u64>> {
        let thread = self.thread.take().expect("only dropping takes it before");
        let mut times =
            thread.join().map_err(|_| io::Error::other("the thread of pings panicked"))??;
        times.sort_unstable();
        Ok(times)
    }
}

impl Drop for Pings {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        for socket in &self.sockets {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn measure(
    (there, back): (&mut SendEnd, &mut ReceiveEnd),
    mut ping: Vec<u8>,
    is_over: &AtomicBool,
) -> io::Result<Vec<u64>> {
    let (begun, mut times) = (Instant::now(), Vec::new());
    let mut sent = 0;
    while begun.elapsed() < PINGS_TIME
        && times.len() < PINGS_MAX
        && !is_over.load(Ordering::Relaxed)
    {
        let at = Instant::now();
        there.send(&ping)?;
        there.flush()?;
        back.receive(&mut ping).map_err(|(_, error)| error)?;
        sent += 1;
        if sent > PINGS_WARM {
            times.push(u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
    there.settle()?;
    Ok(times)
}

fn echo(
    (there, back): (&mut ReceiveEnd, &mut SendEnd),
    mut ping: Vec<u8>,
    is_over: &AtomicBool,
) -> io::Result<()> {
    while !is_over.load(Ordering::Relaxed) {
        match there.receive(&mut ping) {
            Ok(()) => {}
            Err((0, haul_fabric::Error::PeerGone)) => return Ok(()),
            Err((_, error)) => return Err(error.into()),
        }
        back.send(&ping)?;
        back.flush()?;
    }
    Ok(())
}
