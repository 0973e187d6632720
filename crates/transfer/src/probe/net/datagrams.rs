//! Datagrams of a round on one side: which address is sent to, what left, what arrived.
//!
//! A server sends nothing but challenges, which are no longer than what asked for them, to an
//! address that has not sent one back: nobody can have it flood a third.

use super::{
    datagram::{Arrivals, HEADER_BYTES, Header, KEY_BYTES, Kind},
    paced::{Paced, Sent},
};
use crate::{
    bytes::random_bytes,
    locks::{Lock, lock},
    session::streams::schedstat,
};
use haul_protocol::{StreamId, message};
use haul_sys::datagrams::{Batch, join_receives};
use rustix::{
    net::sockopt::{
        self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover,
        set_ipv6_mtu_discover,
    },
    thread::{Pid, gettid},
};
use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Interval at which a waiting thread looks whether its round is over.
const PATIENCE: Duration = Duration::from_millis(50);
/// Socket buffer for what waits for a thread without a processor, where the host allows so much.
const BUFFER_BYTES: usize = 4 << 20;
const STACK_BYTES: usize = 256 << 10;

/// One stream of datagrams.
#[derive(Debug)]
struct Leg {
    stream: StreamId,
    sends: bool,
    socket: Arc<UdpSocket>,
    /// Secret of the server, from which it makes a challenge for each address. A client has none:
    /// it challenges nobody.
    secret: Option<[u8; blake3::KEY_LEN]>,
    /// Address that has proved itself. A client knows the server from the begin.
    peer: OnceLock<SocketAddr>,
    sent: Sent,
    arrivals: Lock<Arrivals>,
    thread: OnceLock<Pid>,
}

/// Datagrams of all streams of a round; its threads end when it is dropped.
pub struct Datagrams {
    key: [u8; KEY_BYTES],
    legs: Vec<Arc<Leg>>,
    over: Arc<AtomicBool>,
    stopped: Arc<AtomicBool>,
    broken: Arc<Lock<Option<String>>>,
    threads: Vec<JoinHandle<()>>,
}

/// The streams of a round and whether this side sends on each.
#[must_use]
pub fn streams_of(probe: &message::Probe, is_server: bool) -> Vec<(StreamId, bool)> {
    let (mut streams, mut next) = (Vec::new(), probe.first_stream.0);
    for (wanted, sends) in [(probe.to_server, !is_server), (probe.to_client, is_server)] {
        if wanted {
            streams.extend((next..next + probe.streams).map(|stream| (StreamId(stream), sends)));
            next += probe.streams;
        }
    }
    streams
}

/// Binds a socket to this address, at a free port where the wanted one is taken.
///
/// # Errors
/// What bind(2) says.
pub fn bind(ip: IpAddr, port: u16) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((ip, port)).or_else(|_| UdpSocket::bind((ip, 0)))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    // As large as this user may have them.
    let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES);
    let _ = sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES);
    // An older kernel gives them one by one.
    let _ = join_receives(&socket);
    Ok(socket)
}

/// Sets a socket so that its datagrams are never cut, not even where the kernel believes that they
/// must be (ip(7), IP_PMTUDISC_PROBE).
///
/// # Errors
/// What setsockopt(2) says.
pub fn never_cut(socket: &UdpSocket) -> io::Result<()> {
    match socket.local_addr()? {
        SocketAddr::V4(_) => set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::PROBE)?,
        SocketAddr::V6(_) => set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::PROBE)?,
    }
    Ok(())
}

impl Datagrams {
    /// Makes the server's side: one socket, and a thread that answers and counts.
    ///
    /// # Errors
    /// If no thread or random number can be had.
    pub fn serve(
        probe: &message::Probe,
        socket: UdpSocket,
        key: [u8; KEY_BYTES],
    ) -> io::Result<Self> {
        if probe.kind == message::ProbeKind::PathMtu {
            never_cut(&socket)?;
        }
        let socket = Arc::new(socket);
        let legs = streams_of(probe, true)
            .into_iter()
            .map(|(stream, sends)| Ok(leg(stream, sends, socket.clone(), Some(random_bytes()?))));
        let mut all = Self::new(key, legs.collect::<io::Result<_>>()?);
        all.listen(&socket, all.legs.clone())?;
        Ok(all)
    }

    /// Makes the client's side: a socket for each stream, connected to the server.
    ///
    /// # Errors
    /// If one cannot be had.
    pub fn connect(
        probe: &message::Probe,
        (local, server): (IpAddr, SocketAddr),
        key: [u8; KEY_BYTES],
    ) -> io::Result<Self> {
        let legs = streams_of(probe, false).into_iter().map(|(stream, sends)| {
            let socket = bind(local, 0)?;
            socket.connect(server)?;
            let leg = leg(stream, sends, Arc::new(socket), None);
            let _ = leg.peer.set(server);
            Ok(leg)
        });
        Ok(Self::new(key, legs.collect::<io::Result<_>>()?))
    }

    fn new(key: [u8; KEY_BYTES], legs: Vec<Arc<Leg>>) -> Self {
        Self {
            key,
            legs,
            over: Arc::default(),
            stopped: Arc::default(),
            broken: Arc::default(),
            threads: Vec::new(),
        }
    }

    /// Whether the server has heard of each stream where it is.
    #[must_use]
    pub fn are_proved(&self) -> bool {
        self.legs.iter().all(|leg| leg.peer.get().is_some())
    }

    /// Number of streams that the server has heard of.
    #[must_use]
    pub fn proved(&self) -> usize {
        self.legs.iter().filter(|leg| leg.peer.get().is_some()).count()
    }

    /// Tells the server where a client's streams are, and sends back what it challenges them with;
    /// to be called until the server has heard of all.
    pub fn prove(&self) {
        for leg in &self.legs {
            let hello = Header::new(Kind::Hello, leg.stream).encode(&self.key);
            // What ICMP says of an earlier one is no news here.
            let _ = leg.socket.send(&hello);
        }
        let mut bytes = [0; 2 * HEADER_BYTES];
        for leg in &self.legs {
            // The first answer takes a round trip; later ones of the same stream do no harm.
            let Ok(len) = leg.socket.recv(&mut bytes) else { continue };
            let header = Header::decode(&bytes[..len], &self.key);
            if let Some(challenge) = header.filter(|header| header.kind == Kind::Challenge) {
                let proof = Header { kind: Kind::Proof, ..challenge };
                let _ = leg.socket.send(&proof.encode(&self.key));
            }
        }
    }

    /// Begins the time of a round: senders send, a client's receivers receive.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn begin(&mut self, probe: &message::Probe, is_server: bool) -> io::Result<()> {
        for leg in self.legs.clone() {
            if leg.sends {
                self.send(leg, probe)?;
            } else if !is_server {
                let socket = leg.socket.clone();
                self.listen(&socket, vec![leg])?;
            }
        }
        Ok(())
    }

    fn send(&mut self, leg: Arc<Leg>, probe: &message::Probe) -> io::Result<()> {
        let Some(target) = leg.peer.get().copied() else {
            return Err(io::Error::other("no address to send to"));
        };
        let (key, datagram_bytes) = (self.key, probe.block_bytes as usize);
        let rate_bytes_per_s = (probe.rate_bytes_per_s / u64::from(probe.streams)).max(1);
        // Cutting is a setting of the socket, so streams that share one do not cut.
        let shares = |other: &&Arc<Leg>| other.sends && Arc::ptr_eq(&other.socket, &leg.socket);
        let may_cut = self.legs.iter().filter(shares).count() == 1;
        let (over, broken) = (self.over.clone(), self.broken.clone());
        self.spawn(move || {
            let _ = leg.thread.set(gettid());
            let paced = Paced {
                socket: &leg.socket,
                target,
                key,
                stream: leg.stream,
                datagram_bytes,
                rate_bytes_per_s,
                may_cut,
                sent: &leg.sent,
            };
            if let Err(error) = paced.run(&over) {
                let why = format!("datagrams of {datagram_bytes} bytes: {error}");
                lock(&broken).get_or_insert(why);
            }
        })
    }

    fn listen(&mut self, socket: &Arc<UdpSocket>, legs: Vec<Arc<Leg>>) -> io::Result<()> {
        let (socket, key, stopped) = (socket.clone(), self.key, self.stopped.clone());
        self.spawn(move || {
            if let Some(receives) = legs.iter().find(|leg| !leg.sends) {
                let _ = receives.thread.set(gettid());
            }
            let (mut batch, begun) = (Batch::new(), Instant::now());
            while !stopped.load(Ordering::Relaxed) {
                // A timeout, or what ICMP said of something that was sent.
                if batch.receive(&*socket).is_err() {
                    continue;
                }
                let now_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                for (datagram, from) in batch.datagrams() {
                    let Some(header) = Header::decode(datagram, &key) else { continue };
                    let leg = legs.iter().find(|leg| leg.stream == header.stream);
                    if let (Some(leg), Some(from)) = (leg, from) {
                        leg.take(&header, datagram, (from, now_ns), &key);
                    }
                }
            }
        })
    }

    fn spawn(&mut self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = thread::Builder::new().name("haul-datagrams".into()).stack_size(STACK_BYTES);
        self.threads.push(thread.spawn(work)?);
        Ok(())
    }

    /// Stops the senders; receivers go on.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    #[must_use]
    pub fn figures(&self) -> Vec<message::ProbeStream> {
        self.legs.iter().map(|leg| leg.figures()).collect()
    }

    #[must_use]
    pub fn broken(&self) -> Option<String> {
        lock(&self.broken).clone()
    }

    /// The socket of a round with one stream.
    #[must_use]
    pub fn socket(&self) -> Option<&UdpSocket> {
        self.legs.first().map(|leg| &*leg.socket)
    }

    #[must_use]
    pub fn key(&self) -> &[u8; KEY_BYTES] {
        &self.key
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.stopped.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Challenge that an address has to send back, which nobody else can know: a host that hears its
/// own challenge cannot prove another's address, and have that flooded.
fn challenge_of(secret: &[u8; blake3::KEY_LEN], address: SocketAddr) -> u64 {
    let hash = blake3::keyed_hash(secret, address.to_string().as_bytes());
    let (first, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
    u64::from_le_bytes(*first)
}

fn leg(
    stream: StreamId,
    sends: bool,
    socket: Arc<UdpSocket>,
    secret: Option<[u8; blake3::KEY_LEN]>,
) -> Arc<Leg> {
    Arc::new(Leg {
        stream,
        sends,
        socket,
        secret,
        peer: OnceLock::new(),
        sent: Sent::default(),
        arrivals: Lock::default(),
        thread: OnceLock::new(),
    })
}

impl Leg {
    fn take(
        &self,
        header: &Header,
        datagram: &[u8],
        (from, now_ns): (SocketAddr, u64),
        key: &[u8; KEY_BYTES],
    ) {
        let is_peer = self.peer.get() == Some(&from);
        let challenge = || self.secret.map(|secret| challenge_of(&secret, from));
        match header.kind {
            Kind::Hello => {
                if let Some(value) = challenge() {
                    let challenge = Header { value, ..Header::new(Kind::Challenge, self.stream) };
                    let _ = self.socket.send_to(&challenge.encode(key), from);
                }
            }
            Kind::Proof if challenge() == Some(header.value) => {
                // The first address that proved itself keeps the stream.
                let _ = self.peer.set(from);
            }
            Kind::Data if is_peer && !self.sends => {
                lock(&self.arrivals).arrived(header, datagram.len(), now_ns);
            }
            Kind::Size if is_peer && self.secret.is_some() => {
                let went_back = self.socket.send_to(datagram, from).is_ok();
                let ack = Header {
                    sequence: header.sequence,
                    sent_ns: went_back.into(),
                    value: datagram.len() as u64,
                    ..Header::new(Kind::Ack, self.stream)
                };
                let _ = self.socket.send_to(&ack.encode(key), from);
            }
            _ => {}
        }
    }

    fn figures(&self) -> message::ProbeStream {
        let (cpu_ns, run_queue_ns) =
            self.thread.get().copied().and_then(schedstat).unwrap_or_default();
        let stream = message::ProbeStream {
            stream: self.stream,
            sends: self.sends,
            cpu_ns,
            run_queue_ns,
            ..Default::default()
        };
        if self.sends {
            let datagrams = self.sent.datagrams.load(Ordering::Relaxed);
            let bytes = self.sent.bytes.load(Ordering::Relaxed);
            return message::ProbeStream { bytes, datagrams, sequence_next: datagrams, ..stream };
        }
        let arrivals = lock(&self.arrivals);
        message::ProbeStream {
            bytes: arrivals.bytes,
            datagrams: arrivals.datagrams,
            sequence_next: arrivals.sequence_next,
            reordered: arrivals.reordered,
            duplicates: arrivals.duplicates,
            jitter_ns: arrivals.jitter_ns(),
            ..stream
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_heard_his_own_challenge_cannot_prove_the_address_of_another() {
        let probe = message::Probe {
            kind: message::ProbeKind::Datagrams,
            to_client: true,
            streams: 1,
            block_bytes: 1000,
            ..Default::default()
        };
        let key = [7; KEY_BYTES];
        let socket = bind(IpAddr::from([127, 0, 0, 1]), 0).unwrap();
        let server = socket.local_addr().unwrap();
        let datagrams = Datagrams::serve(&probe, socket, key).unwrap();
        let (own, of_another) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        own.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let stream = streams_of(&probe, true)[0].0;
        own.send_to(&Header::new(Kind::Hello, stream).encode(&key), server).unwrap();
        let mut bytes = [0; HEADER_BYTES];
        own.recv(&mut bytes).unwrap();
        let challenge = Header::decode(&bytes, &key).unwrap();
        assert_eq!(challenge.kind, Kind::Challenge);
        let proof = Header { kind: Kind::Proof, ..challenge }.encode(&key);
        of_another.send_to(&proof, server).unwrap();
        // Datagrams of loopback arrive in order: when the second counts, the first did not.
        own.send_to(&proof, server).unwrap();
        while datagrams.proved() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let address = own.local_addr().unwrap();
        assert_eq!(datagrams.legs[0].peer.get(), Some(&address));
    }
}
