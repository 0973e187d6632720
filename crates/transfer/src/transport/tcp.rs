//! Connections to a server, with what has to be set before the first packet.

use super::{
    by_proxy,
    race::{self, Setup},
    segments::Segments,
};
use crate::{
    locks::{Lock, lock},
    proxy::Proxy,
    url::HaulUrl,
};
use std::{
    io,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Time in which the addresses of a server, all together, have to answer.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which a connection that was made early is of use.
const EARLY_FOR: Duration = Duration::from_secs(5);

/// Connects to the first address of `server` (`host:port`) that answers.
///
/// A congestion control is set before the connection is made: bbr turns the kernel's pacing on when
/// a connection begins, and another control that is chosen later keeps it on (`sk_pacing_status`,
/// Linux 4.13), which costs a short path a timer for each burst. One that is not permitted is left.
///
/// # Errors
/// If the name has no address or none of them answers: the last error.
pub fn connect(server: &str, congestion: Option<&str>) -> io::Result<TcpStream> {
    let addresses = server.to_socket_addrs()?.collect::<Vec<_>>();
    let setup = Setup { congestion, segment_bytes: None };
    race::connect(&addresses, setup, CONNECT_TIMEOUT, &|| false)
}

/// The way to a server, and what was found out about it: all connections of a run take it.
#[derive(Debug)]
pub struct Route {
    server: String,
    proxy: Option<Proxy>,
    /// Address that answered last.
    winner: Lock<Option<SocketAddr>>,
    /// Sizes of the segments on this way.
    pub segments: Segments,
}

impl Route {
    /// Route to `server` (`host:port`).
    #[must_use]
    pub fn new(server: String) -> Self {
        Self { server, proxy: None, winner: Lock::default(), segments: Segments::default() }
    }

    /// Route to the server of a URL, by its proxy where it has one.
    #[must_use]
    pub fn of(url: &HaulUrl) -> Self {
        Self { proxy: url.proxy.clone(), ..Self::new(url.server()) }
    }

    /// Makes a control connection to the address that answers first; one that has answered before
    /// is tried before the others.
    ///
    /// # Errors
    /// If the name has no address or none of them answers: the last error.
    pub fn connect(&self, patience: Duration, stop: &dyn Fn() -> bool) -> io::Result<TcpStream> {
        if let Some(proxy) = &self.proxy {
            let segment_bytes = Some(self.segments.of_control());
            let setup = Setup { congestion: None, segment_bytes };
            return by_proxy::connect(proxy, &self.server, setup, patience, stop);
        }
        let winner = self.winner();
        let mut addresses = winner.into_iter().collect::<Vec<_>>();
        match self.server.to_socket_addrs() {
            Ok(found) => addresses.extend(found.filter(|address| Some(*address) != winner)),
            // The name may be known again when the network is.
            Err(_) if winner.is_some() => {}
            Err(error) => return Err(error),
        }
        let segment_bytes = Some(self.segments.of_control());
        let setup = Setup { congestion: None, segment_bytes };
        let socket = race::connect(&addresses, setup, patience, stop)?;
        *lock(&self.winner) = Some(socket.peer_addr()?);
        Ok(socket)
    }

    /// Makes a data stream to the address of the control connection: behind another one there may
    /// be another host. See [`connect`] about the congestion control.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn connect_stream(
        &self,
        congestion: Option<&str>,
        stop: &dyn Fn() -> bool,
    ) -> io::Result<TcpStream> {
        let setup = Setup { congestion, segment_bytes: self.segments.of_stream() };
        if let Some(proxy) = &self.proxy {
            return by_proxy::connect(proxy, &self.server, setup, CONNECT_TIMEOUT, stop);
        }
        match self.winner() {
            Some(winner) => race::connect(&[winner], setup, CONNECT_TIMEOUT, stop),
            None => connect(&self.server, congestion),
        }
    }

    fn winner(&self) -> Option<SocketAddr> {
        *lock(&self.winner)
    }
}

/// Connections that are made while something else is waited for.
#[derive(Clone, Debug)]
pub struct Early {
    made: Arc<Lock<mpsc::Receiver<TcpStream>>>,
    begun: Instant,
}

impl Early {
    /// Begins `count` connections; those that fail are left out.
    #[must_use]
    pub fn connect(route: &Arc<Route>, count: u32) -> Self {
        let (made, taken) = mpsc::channel();
        for number in 0..count {
            let (route, made) = (route.clone(), made.clone());
            // Without a thread the connection is made later, as any other.
            let _ = thread::Builder::new().name(format!("haul-early-{number}")).spawn(move || {
                let _ = route.connect_stream(None, &|| false).map(|socket| made.send(socket));
            });
        }
        Self { made: Arc::new(Lock::new(taken)), begun: Instant::now() }
    }

    /// Whether the connections are too old: a server waits for the first word of one for some
    /// seconds only.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.begun.elapsed() > EARLY_FOR
    }

    /// Takes a connection that is there already.
    #[must_use]
    pub fn take(&self) -> Option<TcpStream> {
        let made = lock(&self.made);
        made.try_recv().ok().filter(|_| !self.is_over())
    }
}

/// Whether both ends have the same address, so that the bytes never leave this host.
#[must_use]
pub fn ends_on_this_host(socket: &TcpStream) -> bool {
    match (socket.local_addr(), socket.peer_addr()) {
        (Ok(local), Ok(peer)) => local.ip() == peer.ip(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn data_streams_go_to_the_address_of_the_control_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // `localhost` is ::1 too, where nobody listens.
        let route = Route::new(format!("localhost:{port}"));
        let control = route.connect(CONNECT_TIMEOUT, &|| false).unwrap();
        let stream = route.connect_stream(None, &|| false).unwrap();
        assert_eq!(control.peer_addr().unwrap(), listener.local_addr().unwrap());
        assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
    }
}
