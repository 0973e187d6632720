//! Ways from the machine that sends to the target of a copy between two other machines.
//!
//! They are those of a push over ssh, in the same order: connections to the target, connections
//! from it, and at last frames of channels, which the machine that asked for the copy carries from
//! one ssh to the other.

use super::{
    by_proxy::Reachable,
    channels::{Channels, frames::Outgoing},
    far_end::addresses_here,
    frame,
    led::Confined,
    messages::Answer,
    ports::{self, ANY_FREE_PORT},
    problem,
    reverse::Listening,
    send_order::{SendOrder, SendTarget},
    sending::ProxyChoice,
    troubles,
    ways::{self, ThroughSsh, Way},
};
use haul_transfer::{
    ConnectOptions, Connector, Event, HaulUrl, Interrupt, Problem, Proxy, Side, Token,
    TransferError,
};
use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Time for the addresses of the target, all together, to answer.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Time for them where there is another way, and for the first connection of that one.
const WAY_WAIT_MAX: Duration = Duration::from_secs(5);
/// Most addresses that are tried.
const ADDRESSES_MAX: usize = 32;

/// The end of ssh here: words for the machine that asked for the copy, and frames for the target.
#[derive(Debug)]
pub struct OwnEnd {
    outgoing: Arc<Outgoing>,
    channels: Arc<Channels>,
    /// Whether data goes by the channels.
    carries: AtomicBool,
}

impl OwnEnd {
    /// An end that writes to `outgoing`.
    #[must_use]
    pub fn new(outgoing: Outgoing) -> Self {
        let outgoing = Arc::new(outgoing);
        let channels = Channels::beside(outgoing.clone());
        Self { outgoing, channels, carries: AtomicBool::new(false) }
    }

    #[must_use]
    pub fn channels(&self) -> &Arc<Channels> {
        &self.channels
    }

    /// Whether data goes by the channels, so that their end is told by what they carry.
    #[must_use]
    pub fn carries(&self) -> bool {
        self.carries.load(Ordering::Relaxed)
    }

    /// Tells the machine that asked for the copy something.
    ///
    /// # Errors
    /// If it is gone.
    pub fn tell(&self, answer: &Answer) -> Result<(), Problem> {
        let said = frame::bytes(answer).and_then(|bytes| self.outgoing.say(&bytes, &[]));
        said.map_err(|error| {
            problem("cannot answer the other end of ssh", "", &error.to_string(), "")
        })
    }
}

/// A way that was found.
#[derive(Debug)]
pub struct FoundWay {
    pub url: HaulUrl,
    /// Maker of the connections; `None` for TCP to the server's address, or by a proxy.
    pub connector: Option<Arc<dyn Connector>>,
    /// Word on why it is not the one before it.
    pub note: Option<Event>,
}

/// A search for the way to the target.
#[derive(Debug)]
pub struct Search<'a> {
    pub order: &'a SendOrder,
    pub proxy: &'a ProxyChoice,
    /// Choices of the user for the connections to the target.
    pub connect: &'a ConnectOptions,
    /// Address that an administrator has this machine listen on, else that of any free port.
    pub listen: &'a str,
    /// Bounds of the connections, for a key for one directory.
    pub confined: Option<Confined>,
    pub own: &'a OwnEnd,
    pub interrupt: &'a Interrupt,
}

impl Search<'_> {
    /// Finds the first way that there is.
    ///
    /// # Errors
    /// If there is none, or the one that the user has named is not there.
    pub fn find(&self) -> Result<FoundWay, TransferError> {
        let way = self.order.other_ways.map_or(Way::Any, |ways| ways.way);
        // Who names a path has data go by it, and by no other way.
        let has_named = ways::has_named_path(self.proxy.proxy.as_ref(), self.connect);
        let has_others = self.order.other_ways.is_some() && !has_named;
        let name = &self.order.target.name;
        let mut why = None;
        if way == Way::Any {
            match self.reach(if has_others { WAY_WAIT_MAX } else { CONNECT_WAIT_MAX }) {
                Ok((server, proxy)) => {
                    let url = self.url(server.ip().to_string(), server.port())?;
                    let url = HaulUrl { proxy: proxy.cloned(), ..url };
                    return Ok(FoundWay { url, connector: None, note: None });
                }
                Err(problem) if !has_others => return Err(TransferError::start(problem)),
                Err(problem) => why = Some(format!("no connection to {name}: {}", problem.found)),
            }
            self.check_is_wanted()?;
        }
        let url = self.url(host_of(name).to_owned(), self.order.target.port)?;
        let note = |why: Option<String>, way: &str| {
            let from_to = format!("connections to {name} -> {way}");
            let left_out = ways::left_out(self.connect);
            why.map(|why| Event::Fallback { side: Side::Path, from_to, why: why + &left_out })
        };
        if way != Way::ThroughSsh {
            match self.wait_for_target() {
                Ok(listening) => {
                    let note = note(why, "connections from there");
                    return Ok(FoundWay { url, connector: Some(Arc::new(listening)), note });
                }
                Err(problem) if way == Way::Reverse => return Err(TransferError::start(problem)),
                Err(problem) => {
                    let none = format!("none from there: {}", problem.found);
                    why = why.map(|why| format!("{why}; {none}"));
                }
            }
            self.check_is_wanted()?;
        }
        self.own.carries.store(true, Ordering::Relaxed);
        self.own.tell(&Answer::Channels {}).map_err(TransferError::start)?;
        let because = match &why {
            Some(_) => "as no connection could be made beside it (see --port-range)",
            None => "as --through-ssh says",
        };
        let because = format!("by way of the machine that asked for the copy, {because}");
        let connector = ThroughSsh::new(self.own.channels.clone(), None, because);
        let note = note(why, "through ssh");
        Ok(FoundWay { url, connector: Some(Arc::new(connector)), note })
    }

    fn check_is_wanted(&self) -> Result<(), TransferError> {
        let is_over = self.interrupt.load(Ordering::Relaxed);
        if is_over { Err(TransferError::interrupted()) } else { Ok(()) }
    }

    fn url(&self, host: String, port: u16) -> Result<HaulUrl, TransferError> {
        let odd = |found: &str| {
            let what = "cannot send to what is no server of haul's";
            let hint = "install the same haul on all three machines";
            TransferError::start(problem(what, "a token and a path", found, hint))
        };
        let SendTarget { token, path, .. } = &self.order.target;
        let token: Token = token.parse().map_err(|_| odd("no token"))?;
        let path = path.bytes().ok_or_else(|| odd("no path"))?;
        Ok(HaulUrl { token: Some(token), host, port, path, proxy: None })
    }

    /// Finds the address by which the target's server can be reached from here, and the proxy to
    /// it. Hosts without a proxy come first.
    fn reach(&self, time_max: Duration) -> Result<(SocketAddr, Option<&Proxy>), Problem> {
        let SendTarget { name, port, hosts, .. } = &self.order.target;
        let ProxyChoice { proxy, without } = self.proxy;
        let addresses = |is_meant: &dyn Fn(&String) -> bool| -> Vec<SocketAddr> {
            let hosts = hosts.iter().take(ADDRESSES_MAX).filter(|host| is_meant(host));
            // A name may mean nothing here.
            let found = hosts.filter_map(|host| (host.as_str(), *port).to_socket_addrs().ok());
            let may_be =
                |to: &SocketAddr| self.confined.as_ref().is_none_or(|it| it.may_connect(to));
            found.flatten().filter(may_be).take(ADDRESSES_MAX).collect()
        };
        let is_direct = |host: &String| proxy.is_none() || without.contains(host);
        let servers = Reachable {
            direct: addresses(&is_direct),
            by_proxy: addresses(&|host| !is_direct(host)),
        };
        let stop = || self.interrupt.load(Ordering::Relaxed);
        let reached = servers.connect(proxy.as_ref(), self.connect, time_max, &stop);
        let others = match self.confined {
            Some(_) => "; a key for one directory leads to no address that is private here",
            None => "",
        };
        reached.map_err(|error| {
            let what = format!("cannot reach {name} from here");
            let needs = "a way for TCP from this machine to a free port of that one";
            let tried: Vec<String> = servers.all().iter().map(|one| one.ip().to_string()).collect();
            if tried.is_empty() {
                let found = format!("{}{others}", troubles::NO_ADDRESS);
                return problem(&what, needs, &found, troubles::NO_ADDRESS_HINT);
            }
            problem(
                &what,
                needs,
                &format!("{error} (tried {}, port {port}{others})", tried.join(", ")),
                "if a firewall is between that lets some ports through, name them by --port-range \
                 FIRST-LAST",
            )
        })
    }

    /// Listens, and waits for the target, which is told to come.
    fn wait_for_target(&self) -> Result<Listening, Problem> {
        let ports = self.order.other_ways.and_then(|ways| ways.ports);
        let listener = if self.listen == ANY_FREE_PORT {
            ports::listen(ports)?
        } else {
            listen_at(self.listen).map_err(|error| {
                let what = format!("cannot listen on {}", self.listen);
                let hint = "wait until it is free, or ask the administrator of that machine";
                problem(&what, "what --listen there names", &error.to_string(), hint)
            })?
        };
        let (listening, mut come) = Listening::on(listener)?;
        come.addresses = addresses_here(&come.addresses);
        let port = come.port;
        self.own.tell(&Answer::Listens(come))?;
        let stop = || self.interrupt.load(Ordering::Relaxed);
        if listening.has_come_within(WAY_WAIT_MAX, &stop) {
            return Ok(listening);
        }
        let what = format!("{} cannot connect to this machine", self.order.target.name);
        let needs = format!("a way for TCP from there to port {port} here");
        let found = format!("no connection within {} s", WAY_WAIT_MAX.as_secs());
        let hint = "if a firewall is between that lets some ports through, name them by \
                    --port-range FIRST-LAST; a key for one directory lets no target come here";
        Err(problem(&what, &needs, &found, hint))
    }
}

fn listen_at(address: &str) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// The host of a login, as it is shown.
pub fn host_of(login: &str) -> &str {
    let host = login.rsplit('@').next().unwrap_or(login);
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.filter(|inner| inner.parse::<IpAddr>().is_ok()).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::messages::EncodedPath;
    use haul_transfer::LocalEnd;

    /// The target may let in some addresses alone, and another has another way to it.
    #[test]
    fn the_way_is_sought_from_the_address_that_the_data_comes_from() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let order = SendOrder {
            target: SendTarget {
                name: "dtn2".into(),
                token: String::new(),
                port: server.local_addr().unwrap().port(),
                hosts: vec!["127.0.0.1".into()],
                path: EncodedPath::of(b""),
            },
            options: Vec::new(),
            other_ways: None,
        };
        let mut connect = ConnectOptions::default();
        connect.local_ends = vec![LocalEnd::Address([127, 0, 0, 3].into())];
        let (_, output) = io::pipe().unwrap();
        let own = OwnEnd::new(Outgoing::new(output.into()));
        let (listen, interrupt) = (ANY_FREE_PORT, &Interrupt::default());
        let proxy = &ProxyChoice::default();
        let search = Search {
            order: &order,
            proxy,
            connect: &connect,
            listen,
            confined: None,
            own: &own,
            interrupt,
        };
        search.reach(CONNECT_WAIT_MAX).unwrap();
        assert_eq!(server.accept().unwrap().1.ip().to_string(), "127.0.0.3");
        // Nobody asks a proxy for a way to nowhere.
        let proxied = TcpListener::bind("127.0.0.1:0").unwrap();
        let by = format!("http://{}", proxied.local_addr().unwrap());
        let by = ProxyChoice { proxy: Some(by.parse().unwrap()), ..ProxyChoice::default() };
        let nowhere = SendTarget { hosts: Vec::new(), ..order.target.clone() };
        let nowhere = SendOrder { target: nowhere, options: Vec::new(), other_ways: None };
        let of_nowhere = Search { order: &nowhere, proxy: &by, ..search };
        let refused = of_nowhere.reach(CONNECT_WAIT_MAX).unwrap_err();
        assert!(refused.found.starts_with("it told no address that haul may use"), "{refused}");
        proxied.set_nonblocking(true).unwrap();
        assert_eq!(proxied.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // A key for one directory leads to no service of the machine.
        let search = Search { confined: Some(Confined::default()), ..search };
        let refused = search.reach(CONNECT_WAIT_MAX).unwrap_err();
        assert!(refused.found.starts_with("it told no address that haul may use"), "{refused}");
        assert!(refused.found.contains("a key for one directory"), "{refused}");
        assert!(!refused.hint.contains("firewall"), "{refused}");
    }
}
