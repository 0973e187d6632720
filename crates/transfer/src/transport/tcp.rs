//! Connections to a server, with what has to be set before the first packet.

use super::{
    by_proxy,
    fireflies::{Ends, Fireflies, Usage},
    race::{self, Setup},
    resolve,
    segments::Segments,
};
use crate::{
    connecting::ConnectOptions,
    locks::{Lock, lock},
    marks::SciTag,
    proxy::Proxy,
    url::HaulUrl,
};
use haul_datapath::choose::PathLength;
use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// Time in which the addresses of a server, all together, have to answer.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which a connection that was made early is of use.
const EARLY_FOR: Duration = Duration::from_secs(5);

/// The way to a server, and what was found out about it: all connections of a run take it.
#[derive(Debug)]
pub struct Route {
    server: String,
    proxy: Option<Proxy>,
    options: ConnectOptions,
    /// Address that answered last.
    winner: Lock<Option<SocketAddr>>,
    /// Streams so far, of which each takes the next local end.
    streams: AtomicUsize,
    fireflies: Option<Fireflies>,
    /// Sizes of the segments on this way.
    pub segments: Segments,
}

impl Route {
    /// Route to `server` (`host:port`).
    ///
    /// # Errors
    /// If a collector of marked streams is not known.
    pub fn new(server: String, options: ConnectOptions) -> io::Result<Self> {
        let fireflies = options.scitag.map(|tag| Fireflies::new(tag, &options.collectors));
        Ok(Self {
            server,
            proxy: None,
            fireflies: fireflies.transpose()?,
            options,
            winner: Lock::default(),
            streams: AtomicUsize::new(0),
            segments: Segments::default(),
        })
    }

    /// Route to the server of a URL, by its proxy where it has one.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of(url: &HaulUrl, options: ConnectOptions) -> io::Result<Self> {
        Ok(Self { proxy: url.proxy.clone(), ..Self::new(url.server(), options)? })
    }

    /// Gives the route without fireflies: nobody is told of its streams.
    #[must_use]
    pub fn without_fireflies(self) -> Self {
        Self { fireflies: None, ..self }
    }

    /// Tells of the end of all marked streams; `usage` has the bytes of those that moved any.
    pub fn streams_ended(&self, usage: &BTreeMap<Ends, Usage>) {
        self.fireflies.iter().for_each(|fireflies| fireflies.end_all(usage));
    }

    /// Connects to the first of the addresses that answers, as the options say.
    fn race(
        &self,
        addresses: &[SocketAddr],
        setup: Setup<'_>,
        patience: Duration,
        stop: &dyn Fn() -> bool,
    ) -> io::Result<TcpStream> {
        let setup = Setup { dscp: self.options.dscp, ..setup };
        race::connect(addresses, setup, patience, stop)
    }

    /// Makes a control connection to the address that answers first; one that has answered before
    /// is tried before the others.
    ///
    /// # Errors
    /// If the name has no address or none of them answers: the last error.
    pub fn connect(&self, patience: Duration, stop: &dyn Fn() -> bool) -> io::Result<TcpStream> {
        if let Some(connector) = &self.options.connector {
            return connector.connect(patience, stop);
        }
        if let Some(proxy) = &self.proxy {
            let segment_bytes = Some(self.segments.of_control());
            let local_end = self.options.local_ends.first();
            let dscp = self.options.dscp;
            let setup = Setup { segment_bytes, local_end, dscp, ..Setup::default() };
            return by_proxy::connect(proxy, &self.server, setup, patience, stop);
        }
        let winner = self.winner();
        let mut addresses = winner.into_iter().collect::<Vec<_>>();
        match resolve::addresses_unless(&self.server, stop) {
            Ok(found) => {
                addresses.extend(found.into_iter().filter(|address| Some(*address) != winner));
            }
            // The name may be known again when the network is.
            Err(_) if winner.is_some() => {}
            Err(error) => return Err(error),
        }
        let segment_bytes = Some(self.segments.of_control());
        let local_end = self.options.local_ends.first();
        let setup = Setup { segment_bytes, local_end, ..Setup::default() };
        let socket = self.race(&addresses, setup, patience, stop)?;
        *lock(&self.winner) = Some(socket.peer_addr()?);
        Ok(socket)
    }

    /// How long the way to the server is, by a round trip on its control connection: by a proxy or
    /// ssh the connection's own ends are not the path's.
    #[must_use]
    pub fn length_of(&self, control: &TcpStream, rtt: Duration) -> PathLength {
        let is_direct = self.proxy.is_none() && self.options.connector.is_none();
        if is_direct { length_of(control, rtt) } else { PathLength { rtt, one_subnet: false } }
    }

    /// Makes a data stream to the address of the control connection: behind another one there may
    /// be another host.
    ///
    /// A congestion control is set before the connection is made: bbr turns the kernel's pacing on
    /// when a connection begins, and another control that is chosen later keeps it on
    /// (`sk_pacing_status`, Linux 4.13), which costs a short path a timer for each burst. One that
    /// is not permitted is left.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn connect_stream(
        &self,
        congestion: Option<&str>,
        stop: &dyn Fn() -> bool,
    ) -> io::Result<TcpStream> {
        let socket = match &self.options.connector {
            Some(connector) => connector.connect(CONNECT_TIMEOUT, stop)?,
            None => self.connect_next(congestion, stop)?,
        };
        self.fireflies.iter().for_each(|fireflies| fireflies.begin(&socket));
        Ok(socket)
    }

    fn connect_next(
        &self,
        congestion: Option<&str>,
        stop: &dyn Fn() -> bool,
    ) -> io::Result<TcpStream> {
        let ends = &self.options.local_ends;
        let number = self.streams.fetch_add(1, Ordering::Relaxed);
        let setup = Setup {
            congestion,
            segment_bytes: self.segments.of_stream(),
            local_end: ends.get(number % ends.len().max(1)),
            flow_label: self.options.scitag.map(SciTag::flow_label),
            ..Setup::default()
        };
        if let Some(proxy) = &self.proxy {
            let setup = Setup { dscp: self.options.dscp, ..setup };
            return by_proxy::connect(proxy, &self.server, setup, CONNECT_TIMEOUT, stop);
        }
        let addresses = match self.winner() {
            Some(winner) => vec![winner],
            None => resolve::addresses_unless(&self.server, stop)?,
        };
        self.race(&addresses, setup, CONNECT_TIMEOUT, stop)
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

/// How long a connection's path is, by a round trip that was measured on it.
#[must_use]
pub fn length_of(socket: &TcpStream, rtt: Duration) -> PathLength {
    PathLength::of(rtt, || match (socket.local_addr(), socket.peer_addr()) {
        (Ok(local), Ok(peer)) => {
            haul_sys::interfaces::are_in_one_subnet(local.ip(), peer.ip()).unwrap_or(false)
        }
        _ => false,
    })
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
        let route = Route::new(format!("localhost:{port}"), ConnectOptions::default()).unwrap();
        let control = route.connect(CONNECT_TIMEOUT, &|| false).unwrap();
        let stream = route.connect_stream(None, &|| false).unwrap();
        assert_eq!(control.peer_addr().unwrap(), listener.local_addr().unwrap());
        assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
    }
}
