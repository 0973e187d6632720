//! Data streams over RDMA endpoints: which provider a session uses, and how a stream gets its pair.
//!
//! A stream begins as every other, as a TCP connection with a signed preface. Behind it the server
//! says the contact of an endpoint that waits for this very stream, and the client connects to it.
//! From then on bytes go by the pair, and the connection is its lifeline: they end together, so
//! that a stream is cut, given up and fenced as every other.

use super::{
    streams::{Beside, RdmaEnd, StreamError, StreamEvent, StreamFigures, StreamSetup, Streams},
    way::Way,
};
use crate::{
    locks::{Lock, lock},
    name::printable,
    options::Rdma,
};
use haul_datapath::{EngineInfo, FabricEnd, FabricFigures, Wire, engines};
pub use haul_fabric::PAIRS_MAX;
use haul_fabric::{Contact, Error, Fabric, LocalAddress, Mover, Pair, Provider};
use haul_protocol::StreamId;
use rustix::net::sockopt;
use std::{
    io::{self, Read, Write},
    net::{IpAddr, TcpStream},
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, OnceLock},
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time in which the peer has to answer behind the preface, and to connect.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time of silence after which the kernel asks whether the connection is still there.
const KEEP_AFTER: Duration = Duration::from_secs(30);
/// Directories of the kernel for RDMA cards and for Slingshot's, below the root: without both, no
/// provider of a card finds one.
const CARDS: [&str; 2] = ["sys/class/infiniband", "sys/class/cxi"];
/// Most bytes of a contact on the wire.
const CONTACT_BYTES_MAX: usize = 1024;

/// Providers that this host has, the preferred one first.
#[derive(Clone, Debug, Default)]
pub struct Offers {
    pub fabrics: Vec<Opening>,
    /// The reasons in words why others were not opened.
    pub refused: Vec<String>,
}

impl Offers {
    /// Opens the providers that are wanted, beside a connection.
    #[must_use]
    pub fn open(wanted: Rdma, beside: &TcpStream) -> Self {
        let mut offers = Self::default();
        for provider in providers(&wanted) {
            match local_address(*provider, beside).and_then(|at| Fabric::open(*provider, at)) {
                Ok(fabric) => offers.fabrics.push(Opening::opened(fabric)),
                Err(error) => offers.refused.push(error.to_string()),
            }
        }
        offers
    }

    /// Offers the one provider that is there without a card, while a thread opens it; where others
    /// may be there, opens them as [`Self::open`] does. The other side goes on meanwhile: it takes
    /// the space for the first file.
    #[must_use]
    pub fn begin(wanted: Rdma, beside: &TcpStream) -> Self {
        let Some(provider) = without_a_card(wanted, has_cards(Path::new("/"))) else {
            return Self::open(wanted, beside);
        };
        // A build without libfabric is told at once.
        match local_address(provider, beside) {
            Ok(local) if cfg!(feature = "fabric") => {
                let fabrics = vec![Opening::begin(provider, local)];
                Self { fabrics, refused: Vec::new() }
            }
            Ok(_) | Err(_) => Self::open(wanted, beside),
        }
    }

    /// Names of the providers, for the wire.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.fabrics.iter().map(|fabric| fabric.provider().name().to_owned()).collect()
    }

    /// Finds the provider that the server has chosen.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Opening> {
        self.fabrics.iter().find(|fabric| fabric.provider().name() == name)
    }
}

/// A provider that is open, or is being opened by a thread while the session begins.
#[derive(Clone, Debug)]
pub struct Opening(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    provider: Provider,
    outcome: Arc<OnceLock<Result<Fabric, Error>>>,
    thread: Option<JoinHandle<()>>,
}

impl Opening {
    /// Takes a provider that is open.
    #[must_use]
    pub fn opened(fabric: Fabric) -> Self {
        let provider = fabric.provider();
        let outcome = Arc::new(OnceLock::from(Ok(fabric)));
        Self(Arc::new(Opened { provider, outcome, thread: None }))
    }

    fn begin(provider: Provider, local: LocalAddress) -> Self {
        let outcome = Arc::new(OnceLock::new());
        let opened = outcome.clone();
        let open = move || {
            opened.get_or_init(|| Fabric::open(provider, local));
        };
        let thread = thread::Builder::new().name("haul-opening".into()).spawn(open);
        if let Err(error) = &thread {
            let code = error.raw_os_error().unwrap_or_default();
            let failed = Error::Call { call: "a thread", code, words: error.to_string() };
            outcome.get_or_init(|| Err(failed));
        }
        Self(Arc::new(Opened { provider, outcome, thread: thread.ok() }))
    }

    #[must_use]
    pub fn provider(&self) -> Provider {
        self.0.provider
    }

    /// Waits until the provider is open.
    ///
    /// # Errors
    /// What [`Fabric::open`] says.
    pub fn fabric(&self) -> Result<&Fabric, Error> {
        self.0.outcome.wait().as_ref().map_err(Clone::clone)
    }

    /// The reason why the provider could not be opened, if that is known by now.
    #[must_use]
    pub fn failed(&self) -> Option<&Error> {
        self.0.outcome.get()?.as_ref().err()
    }

    /// The name of the card's port, once the provider is open; none where that fails.
    #[must_use]
    pub fn port(&self) -> String {
        self.fabric().map_or_else(|_| String::new(), Fabric::port)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // A process that ends takes the library away, also from a thread that still loads it.
        self.thread.take().map(JoinHandle::join);
    }
}

/// The reasons why this host has none of the providers that a client offers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server has none of these: {}", .0.join("; "))]
pub struct NoneInCommon(Vec<String>);

/// Opens the first provider that a client offers and this host has.
///
/// # Errors
/// If there is none.
pub fn accept(names: &[String], beside: &TcpStream) -> Result<Fabric, NoneInCommon> {
    let mut refused = Vec::new();
    for name in names {
        let opened = match name.parse() {
            Ok(provider) => local_address(provider, beside)
                .and_then(|local| Fabric::open(provider, local))
                .map_err(|error| error.to_string()),
            Err(unknown) => Err(format!("{name}: {unknown}")),
        };
        match opened {
            Ok(fabric) => return Ok(fabric),
            Err(error) => refused.push(error),
        }
    }
    Err(NoneInCommon(refused))
}

/// Whether the kernel has cards of any kind.
fn has_cards(root: &Path) -> bool {
    CARDS.iter().any(|directory| root.join(directory).exists())
}

/// The one provider that what is wanted comes to and that is there without a card.
fn without_a_card(wanted: Rdma, has_cards: bool) -> Option<Provider> {
    match wanted {
        Rdma::Auto if !has_cards => Some(Provider::Shm),
        Rdma::Only(provider) if provider.mover() == Mover::Kernel => Some(provider),
        Rdma::Auto | Rdma::Only(_) => None,
    }
}

/// Providers that stand for what is wanted, the preferred one first.
fn providers(wanted: &Rdma) -> &[Provider] {
    match wanted {
        Rdma::Auto => &[Provider::Verbs, Provider::Efa, Provider::Cxi, Provider::Shm],
        Rdma::Only(provider) => std::slice::from_ref(provider),
    }
}

/// The address at which a provider is to be opened, beside a connection.
fn local_address(provider: Provider, beside: &TcpStream) -> Result<LocalAddress, Error> {
    let unknown = LocalAddress::from(IpAddr::from([0, 0, 0, 0]));
    let [local, peer] = [beside.local_addr(), beside.peer_addr()]
        .map(|address| address.map_or(unknown, LocalAddress::from));
    if provider == Provider::Shm && local != peer {
        let found = format!("a peer at {peer}");
        return Err(Error::NoProvider { provider, needs: "both ends on one host", found });
    }
    Ok(local)
}

/// The part of this side in getting a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The server's: an endpoint waits.
    Listens,
    /// The client's.
    Connects,
}

/// RDMA endpoints for the streams of a session.
#[derive(Clone, Debug)]
pub struct Route {
    pub fabric: Opening,
    pub part: Part,
    /// The reason why streams stay TCP from now on, once there is one; `None` where none may.
    pub tcp_instead: Option<Arc<Lock<Option<String>>>>,
}

impl Route {
    /// The provider's name, for the wire.
    #[must_use]
    pub fn name(&self) -> String {
        self.fabric.provider().name().to_owned()
    }

    /// Endpoints of this host by libfabric's `tcp`, for tests.
    #[cfg(all(test, feature = "fabric"))]
    pub(crate) fn of_this_host(part: Part, tcp_instead: Option<Arc<Lock<Option<String>>>>) -> Self {
        let fabric = Fabric::open(Provider::Tcp, IpAddr::from([127, 0, 0, 1])).expect("libfabric");
        Self { fabric: Opening::opened(fabric), part, tcp_instead }
    }

    /// The reason why streams stay TCP from now on.
    #[must_use]
    pub fn why_tcp(&self) -> Option<String> {
        lock(self.tcp_instead.as_ref()?).clone()
    }

    /// Lets the streams stay TCP from now on, where they may. False if they did already.
    fn give_up(&self, why: &str) -> bool {
        let Some(tcp_instead) = &self.tcp_instead else { return false };
        let mut reason = lock(tcp_instead);
        let is_first = reason.is_none();
        reason.get_or_insert_with(|| why.to_owned());
        is_first
    }

    /// Says, or hears, whether a stream gets endpoints.
    fn agree(&self, socket: &mut TcpStream) -> io::Result<bool> {
        if self.part == Part::Connects {
            let wants = self.why_tcp().is_none();
            socket.write_all(&[u8::from(wants)])?;
            return Ok(wants);
        }
        let mut wants = [0];
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.read_exact(&mut wants)?;
        socket.set_read_timeout(None)?;
        match wants {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a stream that is to go neither by TCP nor by RDMA",
            )),
        }
    }
}

/// A stream of a session, as far as its endpoints are concerned.
#[derive(Clone, Copy)]
pub struct Stream<'a> {
    pub streams: &'a Streams,
    pub setup: &'a StreamSetup,
    pub stream: StreamId,
    pub figures: &'a Lock<StreamFigures>,
}

impl Stream<'_> {
    /// Hears that the stream has failed: endpoints that break before they brought anything are none
    /// that others should try, too.
    pub fn ended(&self, error: &StreamError) {
        let brought = lock(self.figures).beside.as_ref().map(Beside::bytes);
        if brought == Some(0) {
            self.give_up(error);
        }
    }

    /// Lets the session's streams stay TCP, where they may, and tells that once.
    fn give_up(&self, error: &dyn std::fmt::Display) {
        let Some(route) = &self.setup.rdma else { return };
        let why = error.to_string();
        if !self.streams.stopping() && route.give_up(&why) {
            let from_to = format!("RDMA by {} -> TCP", route.fabric.provider());
            self.streams.tell(StreamEvent::Fallback { from_to, why, stream: self.stream });
        }
    }
}

/// Makes the wire of a stream out of its connection, and names the engines that it takes: those
/// `chosen`, or those `over_tcp` for a stream that stays TCP.
///
/// # Errors
/// If the peer does not come to the pair in time, or the provider fails.
pub fn wire(
    stream: &Stream<'_>,
    socket: OwnedFd,
    way: Way,
    (chosen, over_tcp): (&[&'static EngineInfo], &[&'static EngineInfo]),
) -> io::Result<(Wire, Vec<&'static EngineInfo>)> {
    let Some(route) = &stream.setup.rdma else {
        return Ok((Wire::Tcp(socket), chosen.to_vec()));
    };
    let mut socket = TcpStream::from(socket);
    if let (Part::Connects, Err(error)) = (route.part, route.fabric.fabric()) {
        stream.give_up(&error);
    }
    if !route.agree(&mut socket)? {
        let mut engines = over_tcp.to_vec();
        if engines.is_empty() {
            engines.push(&engines::read_write::INFO);
        }
        return Ok((Wire::Tcp(socket.into()), engines));
    }
    let end = end(route, stream, socket, way).inspect_err(|error| stream.give_up(error))?;
    Ok((Wire::Fabric(Box::new(end)), vec![&engines::fabric::INFO]))
}

fn end(route: &Route, stream: &Stream<'_>, socket: TcpStream, way: Way) -> io::Result<FabricEnd> {
    let memory = stream.setup.buffer_bytes_max;
    let pair = pair(route, socket)?;
    let (end, beside) = match way {
        Way::Sends => {
            let mut end = pair.into_sender(memory)?;
            if let Some(bytes_per_s) = stream.setup.pacing_bytes_per_s {
                end.set_rate(bytes_per_s);
            }
            let beside = Beside::Sent(end.moved_bytes());
            (FabricEnd::Sends(end), beside)
        }
        Way::Receives => {
            let end = pair.into_receiver(memory)?;
            let beside = Beside::Received(end.moved_bytes());
            (FabricEnd::Receives(end), beside)
        }
    };
    let (provider, port) = (route.fabric.provider().name(), route.fabric.port());
    let mut figures = lock(stream.figures);
    figures.beside = Some(beside);
    figures.rdma = Some(RdmaEnd { provider, port, figures: FabricFigures::default() });
    Ok(end)
}

/// Makes the pair of a stream that has no other wire, out of its connection behind the preface.
///
/// # Errors
/// If the peer does not come to the pair in time or wants TCP, or the provider fails.
pub fn only_pair(route: &Route, mut socket: TcpStream) -> io::Result<Pair> {
    if !route.agree(&mut socket)? {
        let why = "a stream that stays TCP where only RDMA endpoints are asked for";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    pair(route, socket)
}

fn pair(route: &Route, mut socket: TcpStream) -> io::Result<Pair> {
    // Nothing more is said on it, and what lies between might forget it.
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEP_AFTER)?;
    match route.part {
        Part::Listens => {
            let ticket = crate::bytes::random_bytes()?;
            let listening = route.fabric.fabric()?.listen(ticket).inspect_err(|error| {
                let words = error.to_string();
                let words = words.as_bytes();
                let words = &words[..words.len().min(CONTACT_BYTES_MAX)];
                // A client that does not hear it finds the stream closed.
                let _ = socket.write_all(&[&[0, 0][..], &with_length(words)].concat());
            })?;
            socket.write_all(&with_length(&listening.contact().encode()))?;
            Ok(listening.accept(socket.into(), PATIENCE)?)
        }
        Part::Connects => {
            let contact = read_contact(&mut socket)?;
            check_place(route.fabric.provider(), contact.ip(), &socket)?;
            Ok(route.fabric.fabric()?.connect(&contact, socket.into(), PATIENCE)?)
        }
    }
}

/// Refuses an endpoint at an address that means a machine of this end's choice, not of the peer's:
/// the server could have it connect to services of its own host. A card may have another address
/// than the connection. Providers without addresses of sockets lead to no service.
fn check_place(provider: Provider, ip: Option<IpAddr>, beside: &TcpStream) -> io::Result<()> {
    match provider {
        Provider::Verbs | Provider::Tcp => {}
        Provider::Efa | Provider::Cxi | Provider::Shm => return Ok(()),
    }
    let refused = |found: String| {
        let why = format!("the server named an endpoint {found}, which may be of another machine");
        Err(io::Error::new(io::ErrorKind::InvalidData, why))
    };
    let Some(ip) = ip else { return refused("without an IP address".to_owned()) };
    let is_of_peer = beside.peer_addr().is_ok_and(|peer| peer.ip().to_canonical() == ip);
    let means_many = match ip {
        IpAddr::V4(v4) => v4.is_link_local() || matches!(v4.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(v6) => {
            v6.is_unicast_link_local()
                || v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
        }
    };
    if means_many && !is_of_peer { refused(format!("at {ip}")) } else { Ok(()) }
}

/// Bytes with their length in front.
fn with_length(bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).expect("far less than 64 KiB");
    [&len.to_le_bytes()[..], bytes].concat()
}

fn read_contact(socket: &mut TcpStream) -> io::Result<Contact> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let contact = read_with_length(socket)?;
    if contact.is_empty() {
        let words = String::from_utf8_lossy(&read_with_length(socket)?).into_owned();
        let why = format!("the server made no endpoint: {}", printable(&words));
        return Err(io::Error::other(why));
    }
    socket.set_read_timeout(None)?;
    Ok(Contact::decode(&contact)?)
}

fn read_with_length(socket: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut len = [0; 2];
    socket.read_exact(&mut len)?;
    let len = usize::from(u16::from_le_bytes(len));
    if len > CONTACT_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a contact of more than 1024 bytes",
        ));
    }
    let mut bytes = vec![0; len];
    socket.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn sockets() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a peer");
        (near, listener.accept().expect("a client").0)
    }

    #[test]
    fn a_contact_that_is_too_long_or_none_is_refused_and_one_that_breaks_off_too() {
        let (mut near, mut far) = sockets();
        near.write_all(&1025_u16.to_le_bytes()).unwrap();
        let error = read_contact(&mut far).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("more than 1024 bytes"), "{error}");
        // The longest is read, and found to be none.
        near.write_all(&1024_u16.to_le_bytes()).unwrap();
        near.write_all(&[7; 1024]).unwrap();
        let said = read_contact(&mut far).unwrap_err().to_string();
        assert!(!said.contains("more than 1024 bytes"), "{said}");
        near.write_all(&[3, 0, 1, 2, 3]).unwrap();
        // Of a build without libfabric it says so.
        let kinds = [io::ErrorKind::InvalidData, io::ErrorKind::Unsupported];
        assert!(kinds.contains(&read_contact(&mut far).unwrap_err().kind()));
        near.write_all(&[&[0, 0][..], &with_length(b"no\x1bmemory")].concat()).unwrap();
        let said = read_contact(&mut far).unwrap_err().to_string();
        assert!(said.starts_with("the server made no endpoint: no") && !said.contains('\x1b'));
        near.write_all(&[3, 0, 1]).unwrap();
        drop(near);
        let error = read_contact(&mut far).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[cfg(feature = "fabric")]
    #[test]
    fn a_client_says_of_each_stream_whether_it_stays_tcp_and_nothing_else_is_heard() {
        let (near, _far) = sockets();
        let local = local_address(Provider::Tcp, &near).unwrap();
        let fabric = Opening::opened(Fabric::open(Provider::Tcp, local).unwrap());
        let route = |part, tcp_instead| Route { fabric: fabric.clone(), part, tcp_instead };
        let server = route(Part::Listens, None);
        let (auto, only) =
            (route(Part::Connects, Some(Arc::default())), route(Part::Connects, None));
        let said = |client: &Route| {
            let (mut near, mut far) = sockets();
            let wants = client.agree(&mut near).unwrap();
            assert_eq!(server.agree(&mut far).unwrap(), wants);
            wants
        };
        assert!(said(&auto) && said(&only));
        assert!(auto.clone().give_up("no memory") && !auto.give_up("nor that"), "the first counts");
        assert!(!only.give_up("no memory") && !server.give_up("no memory"));
        assert_eq!(auto.why_tcp().as_deref(), Some("no memory"));
        assert!(!said(&auto) && said(&only));
        let (mut near, mut far) = sockets();
        near.write_all(&[2]).unwrap();
        assert_eq!(server.agree(&mut far).unwrap_err().kind(), io::ErrorKind::InvalidData);
        near.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(server.agree(&mut far).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[cfg(feature = "fabric")]
    #[test]
    fn a_stream_whose_endpoints_brought_nothing_lets_the_others_stay_tcp_and_tells_it_once() {
        let mut setup = StreamSetup::of_nobody();
        let route = Route::of_this_host(Part::Connects, Some(Arc::default()));
        assert_eq!(route.name(), "tcp");
        setup.rdma = Some(route.clone());
        let streams = Streams::new(crate::transport::waker::Waker::new().expect("a waker"));
        let ended = |brought: Option<u64>, error: StreamError| {
            let beside = brought.map(|bytes| Beside::Received(Arc::new(bytes.into())));
            let figures = Lock::new(StreamFigures { beside, ..StreamFigures::default() });
            let stream = StreamId(7);
            Stream { streams: &streams, setup: &setup, stream, figures: &figures }.ended(&error);
            let tell = |event| match event {
                StreamEvent::Fallback { from_to, why, stream: StreamId(7) } => (from_to, why),
                other => panic!("{other:?}"),
            };
            streams.take_events().into_iter().map(tell).collect::<Vec<_>>()
        };
        assert_eq!(ended(None, StreamError::Closed), [], "one that had no endpoints");
        assert_eq!(ended(Some(1), StreamError::Closed), [], "endpoints that work");
        assert_eq!(route.why_tcp(), None);
        let why = StreamError::Closed.to_string();
        let told = ("RDMA by tcp -> TCP".to_owned(), why.clone());
        assert_eq!(ended(Some(0), StreamError::Closed), [told]);
        assert_eq!(route.why_tcp(), Some(why.clone()));
        let another = || StreamError::Socket(io::ErrorKind::TimedOut.into());
        assert_eq!(ended(Some(0), another()), [], "it is told already");
        assert_eq!(route.why_tcp(), Some(why));
        // A session that ends breaks its own endpoints.
        *lock(route.tcp_instead.as_ref().expect("it may")) = None;
        streams.request_stop();
        assert_eq!(ended(Some(0), another()), []);
        assert_eq!(route.why_tcp(), None);
    }

    #[cfg(feature = "fabric")]
    #[test]
    fn a_stream_without_another_wire_is_a_pair_and_never_stays_tcp() {
        let server = Route::of_this_host(Part::Listens, None);
        let client = Route::of_this_host(Part::Connects, None);
        let (near, far) = sockets();
        let connects = std::thread::spawn(move || only_pair(&client, near).map(drop));
        only_pair(&server, far).expect("a pair");
        connects.join().expect("no panic").expect("a pair");
        let (mut near, far) = sockets();
        near.write_all(&[0]).unwrap();
        let error = only_pair(&server, far).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("stays TCP"), "{error}");
    }

    #[cfg(feature = "fabric")]
    #[test]
    fn a_server_leads_a_client_to_no_endpoint_that_is_of_another_machine() {
        let refused = |octets: [u8; 4], len: usize| {
            let (mut near, far) = sockets();
            let family = rustix::net::AddressFamily::INET.as_raw().to_ne_bytes();
            let address = [&family[..], &22_u16.to_be_bytes(), &octets, &[0; 8]].concat();
            let contact = [&[7; 16][..], &2_u32.to_le_bytes(), &address[..len]].concat();
            near.write_all(&with_length(&contact)).unwrap();
            // A stream that is cut: what may be connected to is not waited for.
            drop(near);
            pair(&Route::of_this_host(Part::Connects, None), far).unwrap_err().to_string()
        };
        for octets in [[127, 0, 0, 2], [169, 254, 169, 254], [0, 0, 0, 0], [224, 0, 0, 1]] {
            let said = refused(octets, 16);
            assert!(said.contains(&format!("at {}", IpAddr::from(octets))), "{said}");
        }
        assert!(refused([127, 0, 0, 1], 15).contains("without an IP address"), "cut off");
        // The peer itself, and a card of it.
        for octets in [[127, 0, 0, 1], [192, 0, 2, 7]] {
            let said = refused(octets, 16);
            assert!(!said.contains("of another machine"), "{said}");
        }
        let beside = sockets().0;
        assert!(check_place(Provider::Efa, None, &beside).is_ok());
    }

    #[test]
    fn a_client_that_offers_what_nobody_has_is_told_why_of_each() {
        let (near, _far) = sockets();
        let names = ["udp", "cxi"].map(str::to_owned);
        let said = accept(&names, &near).unwrap_err().to_string();
        assert!(said.contains("udp: no such provider"), "{said}");
        assert!(said.contains("Slingshot") || said.contains("libfabric-dev"), "{said}");
    }

    #[cfg(feature = "fabric")]
    #[test]
    fn a_provider_without_a_card_is_offered_before_it_is_open_and_waited_for() {
        let (near, _far) = sockets();
        for provider in [Provider::Shm, Provider::Tcp] {
            let offers = Offers::begin(Rdma::Only(provider), &near);
            assert_eq!(offers.names(), [provider.name()]);
            let opening = offers.find(provider.name()).expect("it is offered").clone();
            assert!(opening.0.thread.is_some(), "a thread opens it");
            assert_eq!(opening.fabric().unwrap().provider(), provider);
            assert_eq!((opening.failed(), opening.port().is_empty()), (None, false));
        }
        let auto = Offers::begin(Rdma::Auto, &near);
        let is_alone = !has_cards(Path::new("/"));
        assert_eq!(auto.find("shm").expect("this host").0.thread.is_some(), is_alone);
        let cards = Offers::begin(Rdma::Only(Provider::Cxi), &near);
        assert!(has_slingshot() || cards.refused.len() == 1, "it is told at once");
    }

    #[cfg(feature = "fabric")]
    fn has_slingshot() -> bool {
        Path::new("/sys/class/cxi").exists()
    }

    /// Case of a host with a card, whose streams would have gone by shared memory.
    #[test]
    fn a_provider_is_offered_before_it_is_open_where_no_card_could_be_preferred() {
        let root = tempfile::tempdir().unwrap();
        assert!(!has_cards(root.path()));
        for kind in ["infiniband", "cxi"] {
            let directory = root.path().join("sys/class").join(kind);
            std::fs::create_dir_all(&directory).unwrap();
            assert!(has_cards(root.path()), "{kind}");
            std::fs::remove_dir(directory).unwrap();
        }
        let auto = [false, true].map(|has_cards| without_a_card(Rdma::Auto, has_cards));
        assert_eq!(auto, [Some(Provider::Shm), None]);
        let only = [Provider::Verbs, Provider::Shm, Provider::Tcp];
        let only = only.map(|provider| without_a_card(Rdma::Only(provider), true));
        assert_eq!(only, [None, Some(Provider::Shm), Some(Provider::Tcp)]);
    }

    /// Case of a process that ended while a thread of it was loading the library.
    #[cfg(feature = "fabric")]
    #[test]
    fn a_provider_that_nobody_waits_for_any_more_has_been_opened_or_not() {
        let opening = Opening::begin(Provider::Tcp, IpAddr::from([127, 0, 0, 1]).into());
        let outcome = opening.0.outcome.clone();
        drop(opening);
        assert!(outcome.get().is_some(), "its thread has ended");
    }

    #[cfg(feature = "fabric")]
    #[test]
    fn a_provider_that_could_not_be_opened_says_why_whenever_it_is_asked() {
        if has_slingshot() {
            return;
        }
        let opening = Opening::begin(Provider::Cxi, IpAddr::from([127, 0, 0, 1]).into());
        let error = opening.fabric().unwrap_err();
        assert!(error.to_string().contains("needs a Slingshot card"), "{error}");
        assert_eq!((opening.failed(), opening.port()), (Some(&error), String::new()));
    }

    #[test]
    fn memory_is_shared_with_a_peer_on_the_same_host_alone() {
        let offers = Offers::open(Rdma::Only(Provider::Shm), &sockets().0);
        let names = if cfg!(feature = "fabric") { &["shm"][..] } else { &[] };
        assert_eq!(offers.names(), names, "{offers:?}");
        assert_eq!(offers.find("shm").is_some(), cfg!(feature = "fabric"));
        assert!(offers.find("tcp").is_none());
        // A client of 127.0.0.2 is this host as well, and its address does not say so.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let route = [std::net::SocketAddr::from(([127, 0, 0, 2], 0))];
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        )
        .expect("a socket");
        rustix::net::bind(&socket, &route[0]).expect("an address of loopback");
        rustix::net::connect(&socket, &listener.local_addr().expect("an address")).expect("a peer");
        let offers = Offers::open(Rdma::Only(Provider::Shm), &TcpStream::from(socket));
        assert!(offers.fabrics.is_empty());
        assert!(
            offers.refused[0].contains("needs both ends on one host, found a peer at 127.0.0.1")
        );
    }
}
