//! Data streams over RDMA endpoints: which provider a session uses, and how a stream gets its pair.
//!
//! A stream begins as every other, as a TCP connection with a signed preface. Behind it the server
//! says the contact of an endpoint that waits for this very stream, and the client connects to it.
//! From then on bytes go by the pair, and the connection is its lifeline: they end together, so
//! that a stream is cut, given up and fenced as every other.

use super::streams::{Beside, RdmaEnd, StreamFigures, StreamSetup};
use crate::{
    locks::{Lock, lock},
    options::Rdma,
};
use haul_datapath::{EngineInfo, FabricEnd, FabricFigures, Wire, engines};
use haul_fabric::{Contact, Error, Fabric, Pair, Provider, Wait};
use rustix::net::sockopt;
use std::{
    io::{self, Read, Write},
    net::{IpAddr, TcpStream},
    os::fd::OwnedFd,
    time::Duration,
};

/// Time in which the peer has to answer behind the preface, and to connect.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time of silence after which the kernel asks whether the connection is still there.
const KEEP_AFTER: Duration = Duration::from_secs(30);
/// Most bytes of a contact on the wire.
const CONTACT_BYTES_MAX: usize = 1024;

/// Providers that were opened on this host, the preferred one first.
#[derive(Clone, Debug, Default)]
pub struct Offers {
    pub fabrics: Vec<Fabric>,
    /// The reasons in words why others were not.
    pub refused: Vec<String>,
}

impl Offers {
    /// Opens the providers that are wanted, beside a connection.
    #[must_use]
    pub fn open(wanted: Rdma, beside: &TcpStream) -> Self {
        let providers: &[Provider] = match &wanted {
            Rdma::Auto => &[Provider::Verbs, Provider::Efa, Provider::Cxi, Provider::Shm],
            Rdma::Only(provider) => &[*provider],
        };
        let mut offers = Self::default();
        for provider in providers {
            match open(*provider, beside) {
                Ok(fabric) => offers.fabrics.push(fabric),
                Err(error) => offers.refused.push(error.to_string()),
            }
        }
        offers
    }

    /// Names of the providers, for the wire.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.fabrics.iter().map(|fabric| fabric.provider().name().to_owned()).collect()
    }

    /// Finds the provider that the server has chosen.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Fabric> {
        self.fabrics.iter().find(|fabric| fabric.provider().name() == name)
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
            Ok(provider) => open(provider, beside).map_err(|error| error.to_string()),
            Err(unknown) => Err(format!("{name}: {unknown}")),
        };
        match opened {
            Ok(fabric) => return Ok(fabric),
            Err(error) => refused.push(error),
        }
    }
    Err(NoneInCommon(refused))
}

fn open(provider: Provider, beside: &TcpStream) -> Result<Fabric, Error> {
    let addresses = [beside.local_addr(), beside.peer_addr()];
    let [local, peer] = addresses.map(|address| {
        address.map_or(IpAddr::from([0, 0, 0, 0]), |address| address.ip().to_canonical())
    });
    if provider == Provider::Shm && local != peer {
        let found = format!("a peer at {peer}");
        return Err(Error::NoProvider { provider, needs: "both ends on one host", found });
    }
    Fabric::open(provider, local)
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
    pub fabric: Fabric,
    pub part: Part,
}

/// The direction in which a stream's bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Sends,
    Receives,
}

/// Makes the wire of a stream out of its connection, and names the engines that it takes.
///
/// # Errors
/// If the peer does not come to the pair in time, or the provider fails.
pub fn wire(
    setup: &StreamSetup,
    socket: OwnedFd,
    way: Way,
    candidates: Vec<&'static EngineInfo>,
    figures: &Lock<StreamFigures>,
) -> io::Result<(Wire, Vec<&'static EngineInfo>)> {
    let Some(route) = &setup.rdma else { return Ok((Wire::Tcp(socket), candidates)) };
    let (pair, memory) = (pair(route, socket)?, setup.buffer_bytes_max);
    let (end, beside) = match way {
        Way::Sends => {
            let mut end = pair.into_sender(memory, Wait::Adaptive)?;
            if let Some(bytes_per_s) = setup.pacing_bytes_per_s {
                end.set_rate(bytes_per_s);
            }
            let beside = Beside::Sent(end.moved_bytes());
            (FabricEnd::Sends(end), beside)
        }
        Way::Receives => {
            let end = pair.into_receiver(memory, Wait::Adaptive)?;
            let beside = Beside::Received(end.moved_bytes());
            (FabricEnd::Receives(end), beside)
        }
    };
    let fabric = &route.fabric;
    let (provider, port) = (fabric.provider().name(), fabric.port());
    let mut figures = lock(figures);
    figures.beside = Some(beside);
    figures.rdma = Some(RdmaEnd { provider, port, figures: FabricFigures::default() });
    Ok((Wire::Fabric(Box::new(end)), vec![&engines::fabric::INFO]))
}

fn pair(route: &Route, socket: OwnedFd) -> io::Result<Pair> {
    // Nothing more is said on it, and what lies between might forget it.
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEP_AFTER)?;
    let mut socket = TcpStream::from(socket);
    match route.part {
        Part::Listens => {
            let ticket = crate::bytes::random_bytes()?;
            let listening = route.fabric.listen(ticket)?;
            let contact = listening.contact().encode();
            let len = u16::try_from(contact.len()).expect("far less than 64 KiB").to_le_bytes();
            socket.write_all(&[&len[..], &contact].concat())?;
            Ok(listening.accept(socket.into(), PATIENCE)?)
        }
        Part::Connects => {
            let contact = read_contact(&mut socket)?;
            Ok(route.fabric.connect(&contact, socket.into(), PATIENCE)?)
        }
    }
}

fn read_contact(socket: &mut TcpStream) -> io::Result<Contact> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut len = [0; 2];
    socket.read_exact(&mut len)?;
    let len = usize::from(u16::from_le_bytes(len));
    if len > CONTACT_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a contact of more than 1024 bytes",
        ));
    }
    let mut contact = vec![0; len];
    socket.read_exact(&mut contact)?;
    socket.set_read_timeout(None)?;
    Ok(Contact::decode(&contact)?)
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
        near.write_all(&[3, 0, 1]).unwrap();
        drop(near);
        let error = read_contact(&mut far).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_client_that_offers_what_nobody_has_is_told_why_of_each() {
        let (near, _far) = sockets();
        let names = ["udp", "cxi"].map(str::to_owned);
        let said = accept(&names, &near).unwrap_err().to_string();
        assert!(said.contains("udp: no such provider"), "{said}");
        assert!(said.contains("Slingshot") || said.contains("libfabric-dev"), "{said}");
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
