//! A TCP proxy that does what bad networks do: resets, stalls, flipped bits, silence.
//!
//! It tells haul's control connections from data streams by their first byte, and asks the test
//! what is to happen to each as it comes in.

use rustix::net::sockopt::set_socket_linger;
use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

const CHUNK_BYTES: usize = 64 << 10;
/// First bytes of a connection that are kept, at most: the preface of a data stream.
const HEAD_BYTES: usize = 64;
const POLL: Duration = Duration::from_millis(5);
/// The first byte of a TLS record that carries a handshake (RFC 8446, 5.1).
const TLS_HANDSHAKE: u8 = 22;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Control,
    Data,
}

/// A connection that came in.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub kind: Kind,
    /// The number among the connections of its kind, from 0.
    pub number: u32,
}

/// The direction in which the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// A fault that happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// A reset at both ends once this many bytes went through, both directions together.
    ResetAfter(u64),
    /// Silence once this many bytes went through: nothing moves any more and nobody is told.
    StallAfter(u64),
    /// A flipped bit in the byte at this offset, and in each `every` bytes behind it.
    Flip {
        direction: Direction,
        at: u64,
        every: Option<u64>,
    },
}

/// A proxy that listens beside a server and forwards to it until dropped.
pub struct FaultyProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

type Plan = Box<dyn FnMut(Arrival) -> Fault + Send>;

struct Shared {
    server: SocketAddr,
    plan: Mutex<Plan>,
    stopping: AtomicBool,
    silent: AtomicBool,
    controls: AtomicU32,
    streams: AtomicU32,
    flipped: AtomicU64,
    heads: Mutex<Vec<Vec<u8>>>,
    marker: Mutex<Vec<u8>>,
    markers_seen: AtomicU64,
    sockets: Mutex<Vec<Weak<TcpStream>>>,
}

impl FaultyProxy {
    /// Forwards to `server`; `plan` says what happens to each connection.
    ///
    /// # Errors
    /// If no port can be had.
    pub fn start(
        server: SocketAddr,
        plan: impl FnMut(Arrival) -> Fault + Send + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server,
            plan: Mutex::new(Box::new(plan)),
            stopping: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            controls: AtomicU32::new(0),
            streams: AtomicU32::new(0),
            flipped: AtomicU64::new(0),
            heads: Mutex::default(),
            marker: Mutex::default(),
            markers_seen: AtomicU64::new(0),
            sockets: Mutex::default(),
        });
        let of_thread = shared.clone();
        let acceptor = thread::spawn(move || of_thread.accept_all(&listener));
        Ok(Self { address, shared, acceptor: Some(acceptor) })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Silences the wire while true: no byte goes through and no connection is taken; nobody is
    /// told.
    pub fn silence(&self, silent: bool) {
        self.shared.silent.store(silent, Ordering::SeqCst);
    }

    /// The number of connections so far: control, data.
    #[must_use]
    pub fn connections(&self) -> (u32, u32) {
        let count = |counter: &AtomicU32| counter.load(Ordering::SeqCst);
        (count(&self.shared.controls), count(&self.shared.streams))
    }

    /// First bytes of each client, at most 64: somebody on the path could send them again.
    #[must_use]
    pub fn heads(&self) -> Vec<Vec<u8>> {
        lock(&self.shared.heads).clone()
    }

    /// Looks for these bytes in all that goes through from now on, as one who listens would.
    pub fn look_for(&self, marker: &[u8]) {
        *lock(&self.shared.marker) = marker.to_vec();
    }

    /// How often the bytes that are looked for went through.
    #[must_use]
    pub fn markers_seen(&self) -> u64 {
        self.shared.markers_seen.load(Ordering::SeqCst)
    }

    /// The number of bits flipped so far.
    #[must_use]
    pub fn flipped_bits(&self) -> u64 {
        self.shared.flipped.load(Ordering::SeqCst)
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for socket in lock(&self.shared.sockets).iter().filter_map(Weak::upgrade) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn accept_all(self: &Arc<Self>, listener: &TcpListener) {
        while !self.stopping.load(Ordering::SeqCst) {
            if self.silent.load(Ordering::SeqCst) {
                thread::sleep(POLL);
                continue;
            }
            match listener.accept() {
                Ok((socket, _)) => {
                    let shared = self.clone();
                    thread::spawn(move || shared.connection(socket));
                }
                Err(_) => thread::sleep(POLL),
            }
        }
    }

    fn connection(self: Arc<Self>, client: TcpStream) {
        let _ = client.set_nonblocking(false);
        let client = Arc::new(client);
        lock(&self.sockets).push(Arc::downgrade(&client));
        let mut first = [0];
        if !matches!(client.peek(&mut first), Ok(1..)) {
            return;
        }
        let (kind, counter) = if first[0] == TLS_HANDSHAKE {
            (Kind::Control, &self.controls)
        } else {
            (Kind::Data, &self.streams)
        };
        let number = counter.fetch_add(1, Ordering::SeqCst);
        let fault = (lock(&self.plan))(Arrival { kind, number });
        let Ok(server) = TcpStream::connect(self.server) else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let server = Arc::new(server);
        lock(&self.sockets).push(Arc::downgrade(&server));
        let to_server = Pump {
            shared: self.clone(),
            fault,
            link: Arc::default(),
            direction: Direction::ToServer,
            from: client,
            to: server,
        };
        let to_client = to_server.turned();
        thread::spawn(move || to_client.run());
        to_server.run();
    }
}

/// State that both directions of a connection share.
#[derive(Default)]
struct Link {
    passed: AtomicU64,
    reset: AtomicBool,
}

/// One direction of a connection.
struct Pump {
    shared: Arc<Shared>,
    fault: Fault,
    link: Arc<Link>,
    direction: Direction,
    from: Arc<TcpStream>,
    to: Arc<TcpStream>,
}

impl Pump {
    fn turned(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            fault: self.fault,
            link: self.link.clone(),
            direction: Direction::ToClient,
            from: self.to.clone(),
            to: self.from.clone(),
        }
    }

    fn run(&self) {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut at = 0;
        let mut heard = Vec::new();
        while let Ok(len) = (&*self.from).read(&mut chunk) {
            self.wait_while(|| self.shared.silent.load(Ordering::SeqCst));
            if len == 0 && self.is_stalled() {
                return self.cut_off();
            }
            if len == 0 || self.shared.stopping.load(Ordering::SeqCst) {
                break;
            }
            if at == 0 && self.direction == Direction::ToServer {
                lock(&self.shared.heads).push(chunk[..len.min(HEAD_BYTES)].to_vec());
            }
            self.listen(&mut heard, &chunk[..len]);
            self.flip(&mut chunk[..len], at);
            let allowed = self.allowed(len as u64);
            if (&*self.to).write_all(&chunk[..allowed]).is_err() {
                break;
            }
            at += len as u64;
            if allowed < len {
                return self.cut_off();
            }
        }
        if self.link.reset.load(Ordering::SeqCst) {
            return;
        }
        let _ = self.to.shutdown(Shutdown::Write);
        if self.shared.stopping.load(Ordering::SeqCst) {
            let _ = self.from.shutdown(Shutdown::Both);
        }
    }

    /// Looks for the marker in these bytes and in the end of those before, which `heard` keeps.
    fn listen(&self, heard: &mut Vec<u8>, bytes: &[u8]) {
        let marker = lock(&self.shared.marker).clone();
        if marker.is_empty() {
            return;
        }
        heard.extend_from_slice(bytes);
        let seen = heard.windows(marker.len()).filter(|window| **window == *marker).count();
        self.shared.markers_seen.fetch_add(seen as u64, Ordering::SeqCst);
        heard.drain(..heard.len() - heard.len().min(marker.len() - 1));
    }

    fn wait_while(&self, holds: impl Fn() -> bool) {
        while holds() && !self.shared.stopping.load(Ordering::SeqCst) {
            thread::sleep(POLL);
        }
    }

    /// The number of the next bytes that go through.
    fn allowed(&self, len: u64) -> usize {
        let limit = match self.fault {
            Fault::ResetAfter(limit) | Fault::StallAfter(limit) => limit,
            Fault::None | Fault::Flip { .. } => u64::MAX,
        };
        let before = self.link.passed.fetch_add(len, Ordering::SeqCst);
        usize::try_from(limit.saturating_sub(before).min(len)).unwrap_or(CHUNK_BYTES)
    }

    /// Whether the connection is in a stall, through which not even its close gets.
    fn is_stalled(&self) -> bool {
        let passed = self.link.passed.load(Ordering::SeqCst);
        matches!(self.fault, Fault::StallAfter(limit) if passed > limit)
    }

    fn cut_off(&self) {
        if matches!(self.fault, Fault::StallAfter(_)) {
            return self.wait_while(|| true);
        }
        // The other direction must not say an orderly goodbye.
        self.link.reset.store(true, Ordering::SeqCst);
        for socket in [&self.from, &self.to] {
            // With no time to linger, the close sends a reset (socket(7)). Shutting down the
            // reading side sends nothing, but ends the other direction's thread, so that it closes.
            let _ = set_socket_linger(&**socket, Some(Duration::ZERO));
            let _ = socket.shutdown(Shutdown::Read);
        }
    }

    fn flip(&self, bytes: &mut [u8], begin: u64) {
        let Fault::Flip { direction, at, every } = self.fault else { return };
        if direction != self.direction {
            return;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            let Some(beyond) = (begin + index as u64).checked_sub(at) else { continue };
            if beyond == 0 || every.is_some_and(|every| beyond.is_multiple_of(every)) {
                *byte ^= 1 << (beyond % 8);
                self.shared.flipped.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || io::copy(&mut &socket, &mut &socket));
            }
        });
        address
    }

    fn send(fault: Fault, bytes: &[u8]) -> (FaultyProxy, TcpStream) {
        let proxy = FaultyProxy::start(echo(), move |_| fault).unwrap();
        let mut socket = TcpStream::connect(proxy.address()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        socket.write_all(bytes).unwrap();
        (proxy, socket)
    }

    #[test]
    fn a_bit_is_flipped_on_one_way_only() {
        let fault = Fault::Flip { direction: Direction::ToServer, at: 2, every: Some(3) };
        let (proxy, mut socket) = send(fault, &[0; 6]);
        let mut back = [0; 6];
        socket.read_exact(&mut back).unwrap();
        assert_eq!((back, proxy.flipped_bits()), ([0, 0, 1, 0, 0, 8], 2));
        assert_eq!((proxy.connections(), proxy.heads()), ((0, 1), vec![vec![0; 6]]));
    }

    #[test]
    fn a_reset_is_seen_as_one_and_a_stall_as_silence() {
        let (_proxy, mut socket) = send(Fault::ResetAfter(5), &[TLS_HANDSHAKE; 20]);
        let error = socket.read(&mut [0; 20]).and_then(|_| socket.read(&mut [0; 20])).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        let (proxy, mut socket) = send(Fault::StallAfter(5), &[TLS_HANDSHAKE; 20]);
        let error = socket.read(&mut [0; 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(proxy.connections(), (1, 0));
    }

    #[test]
    fn what_was_held_back_goes_through_when_the_silence_ends() {
        let proxy = FaultyProxy::start(echo(), |_| Fault::None).unwrap();
        let mut socket = TcpStream::connect(proxy.address()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        proxy.silence(true);
        socket.write_all(b"late").unwrap();
        assert!(socket.read(&mut [0; 4]).is_err());
        proxy.silence(false);
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut back = [0; 4];
        socket.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"late");
    }
}
