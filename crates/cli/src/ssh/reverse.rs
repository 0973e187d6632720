//! Connections the other way round: the near end listens, and the far end comes.
//!
//! It is for a machine that lets ssh in and nothing else, while it may go out. The far end keeps
//! some connections waiting, so that the near end has one at once, also when ssh is gone. Each has
//! shown by a MAC of a challenge that it knows the secret, which has come through ssh; a session
//! then shows both ends who they are, as on any other connection.

use super::{
    messages::Come,
    ports::{self, Ports},
};
use haul_transfer::{
    ConnectOptions, Connector, Inlet, Interrupt, Problem,
    internals::{PROOF_BYTES, connect_to_first, is_proof, own_addresses, proof, random_bytes},
};
use rustix::net::sockopt;
use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Connections that the far end keeps waiting.
const WAITING: u32 = 4;
/// Most of them that the near end keeps, and most that may show at a time who they are.
const KEPT_MAX: usize = 64;
/// Time for the far end to connect, and for each end's word.
const STEP_WAIT_MAX: Duration = Duration::from_secs(5);
/// Pauses of the far end before it comes again.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Interval at which each looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Silence after which a waiting connection is tried: many firewalls forget one after minutes.
const KEPT_ALIVE_AFTER: Duration = Duration::from_secs(20);
const CHALLENGE_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
/// Byte by which the near end takes a connection that waits.
const GO: u8 = b'!';

/// The listener of a near end, and the connections that wait there.
#[derive(Debug)]
pub struct Listening {
    waiting: Arc<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    secret: Secret,
    sockets: Mutex<VecDeque<TcpStream>>,
    has_come: Condvar,
    strangers: AtomicUsize,
    stop: Interrupt,
}

struct Secret([u8; SECRET_BYTES]);

/// Shows no secret.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Listening {
    /// Listens on a port of the range, and gives the words that the far end comes by.
    ///
    /// # Errors
    /// If no port is free, or no thread can be had.
    pub fn begin(ports: Option<Ports>) -> Result<(Self, Come), Problem> {
        Self::on(ports::listen(ports)?)
    }

    /// Waits at a listener, and gives the words that the far end comes by.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn on((listener, address): (TcpListener, SocketAddr)) -> Result<(Self, Come), Problem> {
        let failed = |error: io::Error| {
            super::problem(
                "cannot wait for the other side's connections",
                "",
                &error.to_string(),
                "",
            )
        };
        let secret: [u8; SECRET_BYTES] = random_bytes().map_err(failed)?;
        let waiting = Arc::new(Waiting {
            secret: Secret(secret),
            sockets: Mutex::default(),
            has_come: Condvar::new(),
            strangers: AtomicUsize::new(0),
            stop: Interrupt::default(),
        });
        listener.set_nonblocking(true).map_err(failed)?;
        let of_thread = waiting.clone();
        let run = move || of_thread.accept(&listener);
        thread::Builder::new().name("haul-ssh-reverse".into()).spawn(run).map_err(failed)?;
        let come = Come {
            port: address.port(),
            addresses: own_addresses().iter().map(IpAddr::to_string).collect(),
            secret: haul_transfer::internals::hex(&secret),
            is_elsewhere: false,
        };
        Ok((Self { waiting }, come))
    }

    /// Waits until the far end has come, no longer than this.
    #[must_use]
    pub fn has_come_within(&self, time_max: Duration, stop: &dyn Fn() -> bool) -> bool {
        let deadline = Instant::now() + time_max;
        let mut sockets = self.waiting.lock();
        while sockets.is_empty() && Instant::now() < deadline && !stop() {
            sockets = self.waiting.wait(sockets);
        }
        !sockets.is_empty()
    }
}

/// Ends the listener; connections that were taken stay.
impl Drop for Listening {
    fn drop(&mut self) {
        self.waiting.stop.store(true, Ordering::Relaxed);
        self.waiting.lock().clear();
    }
}

impl Connector for Listening {
    fn connect(&self, patience: Duration, stop: &dyn Fn() -> bool) -> io::Result<TcpStream> {
        let deadline = Instant::now() + patience;
        let mut sockets = self.waiting.lock();
        loop {
            while let Some(mut socket) = sockets.pop_front() {
                if is_alive(&socket) && socket.write_all(&[GO]).is_ok() {
                    socket.set_read_timeout(None)?;
                    socket.set_write_timeout(None)?;
                    return Ok(socket);
                }
            }
            if stop() || Instant::now() >= deadline {
                let text = format!("no connection came from there in {} s", patience.as_secs());
                return Err(io::Error::new(ErrorKind::TimedOut, text));
            }
            sockets = self.waiting.wait(sockets);
        }
    }

    fn is_over(&self) -> Option<String> {
        None
    }

    fn is_through_ssh(&self) -> bool {
        false
    }

    fn in_words(&self) -> String {
        "the other side made the connections, as none could be made to it".into()
    }
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, VecDeque<TcpStream>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        sockets: MutexGuard<'a, VecDeque<TcpStream>>,
    ) -> MutexGuard<'a, VecDeque<TcpStream>> {
        let waited = self.has_come.wait_timeout(sockets, LOOK_EVERY);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        while !self.stop.load(Ordering::Relaxed) {
            let Ok((socket, _)) = listener.accept() else {
                thread::sleep(LOOK_EVERY / 10);
                continue;
            };
            if self.strangers.fetch_add(1, Ordering::Relaxed) >= KEPT_MAX {
                self.strangers.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let waiting = self.clone();
            let greet = move || {
                let known = waiting.greet(socket);
                waiting.strangers.fetch_sub(1, Ordering::Relaxed);
                known.ok().into_iter().for_each(|socket| waiting.keep(socket));
            };
            if thread::Builder::new().name("haul-ssh-greet".into()).spawn(greet).is_err() {
                self.strangers.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Lets a connection show that it knows the secret.
    fn greet(&self, mut socket: TcpStream) -> io::Result<TcpStream> {
        socket.set_nonblocking(false)?;
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(STEP_WAIT_MAX))?;
        let challenge: [u8; CHALLENGE_BYTES] = random_bytes()?;
        socket.write_all(&challenge)?;
        let mut shown = [0; PROOF_BYTES];
        read_within(&mut socket, &mut shown, STEP_WAIT_MAX)?;
        let is_known = is_proof(&self.secret.0, &challenge, &shown);
        is_known.then_some(socket).ok_or_else(|| ErrorKind::PermissionDenied.into())
    }

    fn keep(&self, socket: TcpStream) {
        let mut sockets = self.lock();
        if sockets.len() < KEPT_MAX && !self.stop.load(Ordering::Relaxed) {
            sockets.push_back(socket);
            self.has_come.notify_all();
        }
    }
}

/// Begins to come to a near end: connections wait there, and each that is taken is given to the
/// server, until one of `stops` is set. `own` is the address that the near end's ssh has come from.
///
/// # Errors
/// If the words are none, or no thread can be had.
pub fn come(
    come: &Come,
    own: Option<IpAddr>,
    inlet: &Inlet,
    stops: [&Interrupt; 2],
) -> io::Result<()> {
    let told = come.addresses.iter().filter_map(|text| text.parse().ok());
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in own.into_iter().chain(told) {
        let address = SocketAddr::new(address, come.port);
        if !addresses.contains(&address) && addresses.len() < KEPT_MAX {
            addresses.push(address);
        }
    }
    let secret = come.secret_bytes().ok_or(ErrorKind::InvalidData)?;
    for number in 0..WAITING {
        let coming = Coming {
            addresses: addresses.clone(),
            secret,
            inlet: inlet.clone(),
            stops: stops.map(Clone::clone),
        };
        let builder = thread::Builder::new().name(format!("haul-ssh-coming-{number}"));
        builder.spawn(move || coming.run())?;
    }
    Ok(())
}

struct Coming {
    addresses: Vec<SocketAddr>,
    secret: [u8; SECRET_BYTES],
    inlet: Inlet,
    stops: [Interrupt; 2],
}

impl Coming {
    fn run(&self) {
        let mut pause = PAUSE_MIN;
        while !self.is_over() {
            let taken = self.wait_to_be_taken().and_then(|socket| self.inlet.give(socket));
            if taken.is_ok() {
                pause = PAUSE_MIN;
                continue;
            }
            let until = Instant::now() + pause;
            while Instant::now() < until && !self.is_over() {
                thread::sleep(LOOK_EVERY.min(pause));
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn is_over(&self) -> bool {
        self.stops.iter().any(|stop| stop.load(Ordering::Relaxed))
    }

    /// Connects, shows that it knows the secret, and waits until the near end takes it.
    fn wait_to_be_taken(&self) -> io::Result<TcpStream> {
        let (connect, stop) = (ConnectOptions::default(), || self.is_over());
        let mut socket = connect_to_first(&self.addresses, &connect, STEP_WAIT_MAX, &stop)?;
        socket.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEPT_ALIVE_AFTER)?;
        let mut challenge = [0; CHALLENGE_BYTES];
        read_within(&mut socket, &mut challenge, STEP_WAIT_MAX)?;
        socket.write_all(&proof(&self.secret, &challenge))?;
        socket.set_read_timeout(Some(LOOK_EVERY))?;
        let mut word = [0];
        loop {
            match socket.read(&mut word) {
                Ok(1) if word[0] == GO => break,
                Ok(_) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if is_pause(&error) && !self.is_over() => {}
                Err(error) => return Err(error),
            }
        }
        socket.set_read_timeout(None)?;
        Ok(socket)
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::TimedOut)
}

/// Whether the other side of a connection that waits is still there.
fn is_alive(socket: &TcpStream) -> bool {
    let set = socket.set_nonblocking(true);
    let seen = socket.peek(&mut [0]);
    let unset = socket.set_nonblocking(false);
    let waits = seen.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    set.is_ok() && unset.is_ok() && waits
}

/// Fills `bytes` within a time, however slowly they come.
fn read_within(socket: &mut TcpStream, bytes: &mut [u8], time_max: Duration) -> io::Result<()> {
    let deadline = Instant::now() + time_max;
    let mut filled = 0;
    while filled < bytes.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        match socket.read(&mut bytes[filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => filled += len,
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(come: &Come) -> TcpStream {
        TcpStream::connect(("127.0.0.1", come.port)).unwrap()
    }

    fn short() -> Duration {
        Duration::from_millis(300)
    }

    /// A stranger that says nothing, one that guesses, and one that says a proof it has heard.
    #[test]
    fn only_who_knows_the_secret_is_taken() {
        let (listening, come) = Listening::begin(None).unwrap();
        let silent = connect(&come);
        let mut guesses = connect(&come);
        guesses.write_all(&[7; PROOF_BYTES]).unwrap();
        let mut knows = connect(&come);
        let mut challenge = [0; CHALLENGE_BYTES];
        knows.read_exact(&mut challenge).unwrap();
        let shown = proof(&come.secret_bytes().unwrap(), &challenge);
        let mut replays = connect(&come);
        replays.write_all(&shown).unwrap();
        assert!(!listening.has_come_within(short(), &|| false), "nobody has shown it");
        knows.write_all(&shown).unwrap();
        assert!(listening.has_come_within(STEP_WAIT_MAX, &|| false));
        let taken = listening.connect(STEP_WAIT_MAX, &|| false).unwrap();
        assert_eq!(taken.peer_addr().unwrap().port(), knows.local_addr().unwrap().port());
        assert!(listening.connect(short(), &|| false).is_err(), "no other was kept");
        drop((silent, replays));
    }

    #[test]
    fn a_connection_that_has_gone_while_it_waited_is_not_taken() {
        let (listening, come) = Listening::begin(None).unwrap();
        let mut gone = connect(&come);
        let mut challenge = [0; CHALLENGE_BYTES];
        gone.read_exact(&mut challenge).unwrap();
        gone.write_all(&proof(&come.secret_bytes().unwrap(), &challenge)).unwrap();
        assert!(listening.has_come_within(STEP_WAIT_MAX, &|| false));
        drop(gone);
        thread::sleep(short() / 3);
        assert!(listening.connect(short(), &|| false).is_err());
    }

    #[test]
    fn a_proof_in_parts_is_waited_for_and_no_longer_than_allowed() {
        let (listening, come) = Listening::begin(None).unwrap();
        let mut slow = connect(&come);
        let mut challenge = [0; CHALLENGE_BYTES];
        slow.read_exact(&mut challenge).unwrap();
        let shown = proof(&come.secret_bytes().unwrap(), &challenge);
        for part in shown.chunks(8) {
            slow.write_all(part).unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        assert!(listening.has_come_within(STEP_WAIT_MAX, &|| false));
        let (mut near, _far) = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (near, listener.accept().unwrap())
        };
        let error = read_within(&mut near, &mut [0; 4], short()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
