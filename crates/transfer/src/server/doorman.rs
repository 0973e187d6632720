//! Doorman of the server: tells what a connection is, by its first bytes.
//!
//! A stranger gets little: a thread with a small stack, a few kilobytes, and some seconds. When all
//! places are taken one of them goes, drawn by lot: neither idlers nor a flood keep all others out.
//! A thread counts until it has been joined, not until its work is done: on a busy machine those
//! that have all but ended would pile up behind the next connections.

use super::{Server, not_let_in::NotLetIn};
use crate::{
    bytes::random_bytes,
    locks::{Lock, lock},
    server::event::ServerEvent,
};
use haul_protocol::frame::{DATA_MAGIC, PREFACE_BYTES, Preface};
use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

/// Stack of a session's thread; its buffers are on the heap.
const STACK_BYTES: usize = 512 << 10;
/// The first byte of a TLS record that carries a handshake (RFC 8446, 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// Connections that have not shown who they are.
#[derive(Debug)]
pub struct Strangers {
    max: usize,
    waiting: Lock<(u64, BTreeMap<u64, Waiting>)>,
}

#[derive(Debug)]
struct Waiting {
    socket: TcpStream,
    made_room: Arc<AtomicBool>,
}

impl Strangers {
    pub fn new(max: u32) -> Self {
        let max = max.max(1) as usize;
        Self { max, waiting: Lock::default() }
    }

    /// Takes a place for a connection.
    ///
    /// # Errors
    /// If no descriptor can be had.
    pub fn enter(&self, socket: &TcpStream) -> io::Result<Stranger<'_>> {
        let socket = socket.try_clone()?;
        let mut waiting = lock(&self.waiting);
        if waiting.1.len() >= self.max
            && let Some(number) = drawn(&waiting.1)
            && let Some(drawn) = waiting.1.remove(&number)
        {
            drawn.made_room.store(true, Ordering::Relaxed);
            let _ = drawn.socket.shutdown(Shutdown::Both);
        }
        waiting.0 += 1;
        let number = waiting.0;
        let made_room = Arc::new(AtomicBool::new(false));
        waiting.1.insert(number, Waiting { socket, made_room: made_room.clone() });
        Ok(Stranger { of: self, number, made_room, let_in: Arc::default() })
    }

    pub fn close_all(&self) {
        for waiting in lock(&self.waiting).1.values() {
            let _ = waiting.socket.shutdown(Shutdown::Both);
        }
    }
}

/// Draws one of the waiting by lot: a flood would leave none of those that have waited longest.
fn drawn(waiting: &BTreeMap<u64, Waiting>) -> Option<u64> {
    let lot = random_bytes().map_or(0, u64::from_le_bytes) as usize;
    waiting.keys().nth(lot % waiting.len().max(1)).copied()
}

/// A place among the strangers; given up when dropped.
pub struct Stranger<'a> {
    of: &'a Strangers,
    number: u64,
    /// Whether the stranger was drawn, and its connection closed.
    made_room: Arc<AtomicBool>,
    let_in: Arc<AtomicBool>,
}

impl Stranger<'_> {
    /// Lets a stranger in that has shown who it is: its place is free, and its thread is that of a
    /// session.
    pub fn let_in(self) {
        self.let_in.store(true, Ordering::Relaxed);
    }
}

impl Drop for Stranger<'_> {
    fn drop(&mut self) {
        lock(&self.of.waiting).1.remove(&self.number);
    }
}

/// The threads of connections, each until it has been joined.
#[derive(Default)]
pub struct Threads<'scope> {
    /// Threads, each with whether its connection was let in.
    running: Vec<(ScopedJoinHandle<'scope, ()>, Arc<AtomicBool>)>,
    /// Whether one of them panicked, which a server tells when it ends and not to those it serves.
    pub panicked: bool,
}

impl<'scope> Threads<'scope> {
    /// Starts a thread that greets a connection.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn greet<'env>(
        &mut self,
        scope: &'scope thread::Scope<'scope, 'env>,
        stranger: Stranger<'scope>,
        greet: impl FnOnce(Stranger<'scope>) + Send + 'scope,
    ) -> io::Result<()> {
        let let_in = stranger.let_in.clone();
        let builder = thread::Builder::new().name("haul-connection".into()).stack_size(STACK_BYTES);
        let thread = builder.spawn_scoped(scope, move || greet(stranger))?;
        self.running.push((thread, let_in));
        Ok(())
    }

    /// Whether connections come faster than those that made room for them can end: the next one
    /// waits.
    pub fn are_crowded(&mut self, strangers: &Strangers) -> bool {
        for (thread, _) in self.running.extract_if(.., |(thread, _)| thread.is_finished()) {
            self.panicked |= thread.join().is_err();
        }
        let greeting = self.running.iter().filter(|(_, let_in)| !let_in.load(Ordering::Relaxed));
        greeting.count() >= strangers.max * 2
    }
}

impl Server {
    /// Greets a connection, on its own thread: finds out what it is.
    pub(super) fn greet(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        stranger: Stranger<'_>,
        on_event: &(dyn Fn(ServerEvent) + Sync),
    ) {
        let deadline = Instant::now() + self.options.handshake_timeout;
        let made_room = stranger.made_room.clone();
        let made_room = move || made_room.load(Ordering::Relaxed);
        let greeted = match first_byte(&socket, deadline) {
            Ok(TLS_HANDSHAKE) => {
                self.control_connection(socket, peer, stranger, deadline, on_event)
            }
            Ok(byte) if byte == DATA_MAGIC[0] => self.data_stream(socket, deadline),
            Ok(byte) if byte.is_ascii_uppercase() => {
                answer_http(&socket);
                Err(NotLetIn::Http)
            }
            Ok(byte) => Err(NotLetIn::FirstByte(byte)),
            // It came and went without a word, as those do who look whether a port is open.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !made_room() => Ok(()),
            Err(error) => Err(error.into()),
        };
        let refused = greeted.map_err(|why| if made_room() { NotLetIn::MadeRoom } else { why });
        if let Err(why) = refused {
            self.refusals.tell(peer, why.to_string()).into_iter().for_each(on_event);
        }
    }

    fn data_stream(&self, mut socket: TcpStream, deadline: Instant) -> Result<(), NotLetIn> {
        let mut bytes = [0; PREFACE_BYTES];
        read_by(&mut socket, &mut bytes, deadline)?;
        let preface = Preface::decode(&bytes).map_err(NotLetIn::Preface)?;
        socket.set_read_timeout(None)?;
        lock(&self.sessions).attach(&preface, socket)
    }
}

/// Looks at the first byte without taking it.
fn first_byte(socket: &TcpStream, deadline: Instant) -> io::Result<u8> {
    let mut byte = [0];
    socket.set_read_timeout(Some(left(deadline)?))?;
    match socket.peek(&mut byte) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(byte[0]),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "it said nothing in time"))
        }
        Err(error) => Err(error),
    }
}

/// Fills `bytes`, however slowly they come, but by the deadline.
fn read_by(socket: &mut TcpStream, bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        socket.set_read_timeout(Some(left(deadline)?))?;
        match socket.read(&mut bytes[filled..]) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "half a preface")),
            Ok(len) => filled += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "half a preface in time"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "it was too slow"));
    }
    Ok(left)
}

fn answer_http(mut socket: &TcpStream) {
    let body = "This is haul's port; it moves files, and speaks no HTTP.\n";
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = socket.set_write_timeout(Some(Duration::from_secs(1)));
    let _ = socket.write_all(answer.as_bytes());
}
