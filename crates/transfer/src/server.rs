//! Server of transfers: one port, where connections show what they are before anything is done.

mod data_keys;
mod doorman;
pub mod event;
mod inlet;
mod lost_rights;
mod not_let_in;
mod open_sessions;
mod probes;
pub mod reachable;
mod refusals;
mod sessions;

use crate::{
    Interrupt,
    error::problem,
    locks::{Lock, lock, rank},
    options::{ServeOptions, ServeRoot},
    rights::Rights,
    served_root::ServedRoot,
    server::event::ServerEvent,
    state::{StateDirectory, usual_state_directories},
    storage::root::Root,
    token::Token,
    transport::{resolve, tls},
    url::HaulUrl,
};
use crate::{problem::Problem, session::streams::choose_congestion};
use doorman::{Strangers, Threads};
use haul_datapath::{Host, choose::PathLength};
pub use inlet::Inlet;
use open_sessions::Sessions;
use reachable::Hosts;
use refusals::Refusals;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use rustls::ServerConfig;
use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener},
    os::fd::AsFd,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Interval at which the listener looks whether it is to end.
const POLL: Duration = Duration::from_millis(100);
/// Time that a server with `--once` waits for a client that was cut off to come back.
const ONCE_LINGER: Duration = Duration::from_secs(60);
/// Connections that may wait to be accepted; the kernel bounds them by net.core.somaxconn. In a
/// flood a queue of the standard library's 128 is full, and a client that then comes asks again
/// after 1, 3 and 7 s (tcp(7)).
const BACKLOG: i32 = 4096;
/// Pause after an error of accept(2), so that one that lasts costs no processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// Stack of the thread that watches the tokens.
const WATCH_STACK_BYTES: usize = 256 << 10;
/// Pause until some of the connections that made room have ended.
const CROWD_PAUSE: Duration = Duration::from_millis(1);

/// A bound server.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    hosts: Hosts,
    options: ServeOptions,
    state: StateDirectory,
    tls: Arc<ServerConfig>,
    /// TLS of private data streams.
    data_tls: Arc<ServerConfig>,
    token: Token,
    host: Arc<Host>,
    /// Directory that is served; `None`: `null:`.
    root: Option<Arc<Root>>,
    /// Served directory as tokens know it.
    served: ServedRoot,
    strangers: Strangers,
    refusals: Refusals,
    inlet: Inlet,
    sessions: Lock<Sessions, rank::Sessions>,
}

impl Server {
    /// Opens root, state and port.
    ///
    /// # Errors
    /// Says which of them, and what to do.
    pub fn bind(options: ServeOptions) -> Result<Self, Problem> {
        if options.rdma {
            // Before a client waits for it.
            haul_fabric::load().map_err(|error| {
                problem("cannot serve with --fabric", "", &error.to_string(), "leave it out")
            })?;
        }
        let state = StateDirectory::open(&options.state_directory)?;
        let root = match &options.root {
            ServeRoot::Null => None,
            ServeRoot::Directory(path) => {
                state.check_not_served(path)?;
                // Other servers of this user may have theirs in the usual places.
                let mut closed = usual_state_directories();
                closed.push(state.path().to_owned());
                Some(Root::open_served(path, &closed).map_err(|error| {
                    let what = format!("cannot serve {}", path.display());
                    problem(&what, "a directory that this user may read", &error.to_string(), "")
                })?)
            }
        };
        let identity = state.identity()?;
        let broken_key = |error: io::Error| {
            let what = "the server's key in the state directory cannot be used";
            let hint = "remove key.der and certificate.der there; tokens given out become void";
            problem(what, "", &error.to_string(), hint)
        };
        let tls = tls::server_config(&identity).map_err(broken_key)?;
        let data_tls = tls::server_data_config(&identity).map_err(broken_key)?;
        let rights = if options.read_only { Rights::READ_ONLY } else { Rights::ALL };
        let served = served_root(&options.root, root.as_ref())?;
        let token = state.serve_token(&served, rights)?;
        let (listener, address) = listen(&options.listen)?;
        let host = Arc::new(Host::read(Path::new("/")));
        // What a path of no length takes; a socket of a longer path is set when it is accepted.
        if let Some(control) = choose_congestion(&host, PathLength::default()).control {
            let _ = haul_sys::congestion::set_congestion(&listener, &control);
        }
        mark(&listener, &options)?;
        crate::raise_open_files_limit();
        haul_sys::file_size_limit::survive();
        let advertised = options.advertise.clone().map(Hosts::chosen);
        let inlet = Inlet::new().map_err(|error| {
            problem("no server can be set up", "descriptors", &error.to_string(), "see ulimit -n")
        })?;
        Ok(Self {
            listener,
            address,
            hosts: advertised.unwrap_or_else(|| Hosts::of(address.ip())),
            strangers: Strangers::new(options.strangers_max),
            refusals: Refusals::new(),
            inlet,
            options,
            state,
            tls,
            data_tls,
            token,
            host,
            root,
            served,
            sessions: Lock::default(),
        })
    }

    /// Address and port that the server listens on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the whole root, with the token inside: for the one who is to have it.
    #[must_use]
    pub fn url(&self) -> HaulUrl {
        self.url_by(&self.hosts.names[0])
    }

    /// URLs of the whole root by each name and address of this machine, the best first.
    #[must_use]
    pub fn urls(&self) -> Vec<HaulUrl> {
        self.hosts.names.iter().map(|host| self.url_by(host)).collect()
    }

    /// Directories within the root that are served to nobody: state directories, with their keys.
    #[must_use]
    pub fn not_served(&self) -> &[PathBuf] {
        self.root.as_ref().map_or(&[], |root| root.closed())
    }

    /// Hosts by which the server is reached.
    #[must_use]
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Gives the way in for connections that the server has not accepted itself.
    #[must_use]
    pub fn inlet(&self) -> Inlet {
        self.inlet.clone()
    }

    fn url_by(&self, host: &str) -> HaulUrl {
        let (token, host) = (Some(self.token.clone()), host.to_owned());
        HaulUrl { token, host, port: self.address.port(), path: Vec::new(), proxy: None }
    }

    /// Serves until interrupted, or with `once` until a session has ended.
    ///
    /// # Errors
    /// If the listening socket fails.
    ///
    /// # Panics
    /// If `on_event` does: in a session's thread it ends that session, and this call panics when
    /// the server ends; otherwise as soon as the sessions are interrupted.
    pub fn run(
        &self,
        interrupt: &Interrupt,
        on_event: &(dyn Fn(ServerEvent) + Sync),
    ) -> Result<(), Problem> {
        let (goes_on, over) = mpsc::channel();
        let result = thread::scope(|scope| {
            // It goes when `goes_on` does.
            let watch = move || self.watch_tokens(&over);
            let builder = thread::Builder::new().name("haul-tokens".into());
            builder.stack_size(WATCH_STACK_BYTES).spawn_scoped(scope, watch).map_err(|error| {
                let needs = "a thread that watches the tokens";
                problem("the server cannot run", needs, &error.to_string(), "see ulimit -u")
            })?;
            let _goes_on = goes_on;
            let mut threads = Threads::default();
            let accept = || loop {
                if interrupt.load(Ordering::Relaxed) || self.is_over() {
                    break Ok(());
                }
                self.refusals.take_untold(false).into_iter().for_each(on_event);
                if threads.are_crowded(&self.strangers) {
                    thread::sleep(CROWD_PAUSE);
                    continue;
                }
                match self.accept() {
                    Ok(None) => {}
                    Ok(Some((socket, peer))) => {
                        let greeted = self.strangers.enter(&socket).and_then(|stranger| {
                            threads.greet(scope, stranger, move |stranger| {
                                self.greet(socket, peer, stranger, on_event);
                            })
                        });
                        if let Err(error) = greeted {
                            let why = format!("no thread or descriptor for it: {error}");
                            self.refusals.tell(peer, why).into_iter().for_each(on_event);
                        }
                    }
                    Err(error) => {
                        let hint = "see the host's limits (ulimit -n) and its network";
                        let found = error.to_string();
                        break Err(problem("the listening socket failed", "", &found, hint));
                    }
                }
            };
            // Who was let in would be waited for, though nobody hears of it any more.
            let result = catch_unwind(AssertUnwindSafe(accept));
            self.strangers.close_all();
            lock(&self.sessions).interrupt_all();
            let result = result.unwrap_or_else(|panic| resume_unwind(panic));
            assert!(!threads.panicked, "the thread of a connection panicked");
            result
        });
        self.refusals.take_untold(true).into_iter().for_each(on_event);
        result
    }

    fn accept(&self) -> io::Result<Option<(std::net::TcpStream, SocketAddr)>> {
        let fds = [self.listener.as_fd(), self.inlet.as_fd()];
        let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let timeout = Timespec::try_from(POLL).map_err(io::Error::other)?;
        if poll(&mut fds, Some(&timeout)).unwrap_or(0) == 0 {
            return Ok(None);
        }
        if let Some(given) = self.inlet.take() {
            return Ok(Some(given));
        }
        match self.listener.accept() {
            Ok((socket, peer)) => {
                socket.set_nonblocking(false)?;
                Ok(Some((socket, canonical(peer))))
            }
            Err(error) => {
                let errno = error.raw_os_error().map(Errno::from_raw_os_error);
                // Only a socket that is none any more ends the server. What accept(2) says of one
                // connection, of the network or of memory passes: serve those who are in.
                let broken = [Errno::BADF, Errno::INVAL, Errno::NOTSOCK];
                if errno.is_some_and(|errno| broken.contains(&errno)) {
                    return Err(error);
                }
                if errno != Some(Errno::AGAIN) {
                    thread::sleep(ACCEPT_PAUSE);
                }
                Ok(None)
            }
        }
    }

    /// Whether a server with `once` is done: a session has ended for good, or was cut off and did
    /// not come back.
    fn is_over(&self) -> bool {
        if !self.options.once {
            return false;
        }
        let sessions = lock(&self.sessions);
        sessions.ended_for_good
            || (sessions.is_empty()
                && sessions.cut_off_at.is_some_and(|at: Instant| at.elapsed() > ONCE_LINGER))
    }
}

/// Has the connections of a listener marked as the options say.
fn mark(listener: &TcpListener, options: &ServeOptions) -> Result<(), Problem> {
    options.dscp.iter().for_each(|dscp| dscp.mark(listener));
    if !options.reflects_flow_label {
        return Ok(());
    }
    haul_sys::flow_label::reflect(listener).map_err(|error| {
        let needs = "an address of IPv6 to listen on, and net.ipv6.flowlabel_consistency = 0";
        let hint = "`sysctl net.ipv6.flowlabel_consistency=0`, or leave --reflect-flow-label out";
        problem("cannot give flow labels back", needs, &error.to_string(), hint)
    })
}

fn served_root(named: &ServeRoot, root: Option<&Arc<Root>>) -> Result<ServedRoot, Problem> {
    let (ServeRoot::Directory(path), Some(root)) = (named, root) else {
        return Ok(ServedRoot::Null);
    };
    ServedRoot::of(root, path).map_err(|error| {
        let what = format!("cannot serve {}", path.display());
        problem(&what, "a file system that tells inodes", &error.to_string(), "")
    })
}

/// Address of a peer as it is shown: by IPv4, though a socket of IPv6 took its connection.
fn canonical(peer: SocketAddr) -> SocketAddr {
    match peer.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddr::from((v4, peer.port())),
        IpAddr::V6(_) => peer,
    }
}

/// Listens on an address. `[::]` takes IPv4 too, where the host has IPv6; otherwise 0.0.0.0 stands
/// in.
fn listen(address: &str) -> Result<(TcpListener, SocketAddr), Problem> {
    let bind = |address: &str| TcpListener::bind(&*resolve::addresses(address)?);
    let bound = bind(address).or_else(|error| match address.strip_prefix("[::]:") {
        Some(port) if error.kind() != io::ErrorKind::AddrInUse => bind(&format!("0.0.0.0:{port}")),
        _ => Err(error),
    });
    let ready = bound.and_then(|listener| {
        // Asked a second time, listen(2) sets the length of the queue.
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    ready.map_err(|error| {
        let what = format!("cannot listen on {address}");
        let (needs, hint) = match error.kind() {
            io::ErrorKind::AddrInUse => (
                "a free port",
                "choose another with --listen ADDRESS:PORT; port 0 takes a free one",
            ),
            io::ErrorKind::PermissionDenied => (
                "a port that this user may listen on",
                "choose one from 1024 on with --listen ADDRESS:PORT",
            ),
            _ => (
                "an address of this host, and a port up to 65535",
                "`ip address` lists the addresses; --listen :PORT takes all",
            ),
        };
        problem(&what, needs, &error.to_string(), hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{PushRequest, SourceSpec};
    use std::{
        net::TcpStream,
        sync::{atomic::AtomicBool, mpsc},
    };

    /// A server of `null:`, whose state goes with the directory.
    fn bind(state: &tempfile::TempDir) -> Arc<Server> {
        let mut options = ServeOptions::new(ServeRoot::Null, state.path().join("state"));
        options.listen = "127.0.0.1:0".to_owned();
        options.handshake_timeout = Duration::from_secs(3600);
        Arc::new(Server::bind(options).unwrap())
    }

    /// Runs a server on a thread; says whether it panicked when it ends.
    fn run(
        server: &Arc<Server>,
        interrupt: &Interrupt,
        on_event: impl Fn(ServerEvent) + Send + Sync + 'static,
    ) -> mpsc::Receiver<bool> {
        let (server, interrupt) = (server.clone(), interrupt.clone());
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let run = || server.run(&interrupt, &on_event);
            let _ = tell.send(catch_unwind(AssertUnwindSafe(run)).is_err());
        });
        told
    }

    #[test]
    fn a_handler_that_panics_while_connections_are_taken_ends_the_server() {
        let state = tempfile::tempdir().unwrap();
        let server = bind(&state);
        let ended = run(&server, &Interrupt::default(), |event| panic!("of a test: {event}"));
        let silent = TcpStream::connect(server.local_addr()).unwrap();
        thread::sleep(POLL * 3);
        for _ in 0..100 {
            let _ = server.refusals.tell(silent.local_addr().unwrap(), "of a test".to_owned());
        }
        server.refusals.end_window();
        assert_eq!(ended.recv_timeout(Duration::from_secs(20)), Ok(true));
    }

    #[test]
    fn a_handler_that_panics_in_a_session_ends_that_session_alone() {
        let state = tempfile::tempdir().unwrap();
        let server = bind(&state);
        let (interrupt, has_panicked) = (Interrupt::default(), AtomicBool::new(false));
        let ended = run(&server, &interrupt, move |event| {
            let begins = matches!(event, ServerEvent::Session { .. });
            assert!(!begins || has_panicked.swap(true, Ordering::Relaxed), "of a test");
        });
        let mut request = PushRequest::new([SourceSpec::Zero(1 << 20)], server.url());
        request.options.retry_for = Duration::ZERO;
        let push = || crate::push(&request, &Interrupt::default(), &mut |_| {});
        // A first connection that breaks early is made once more by the client itself.
        assert!(push().or_else(|_| push()).unwrap().ok);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !lock(&server.sessions).is_empty() {
            assert!(Instant::now() < deadline, "the session is still in the list");
            thread::sleep(Duration::from_millis(5));
        }
        interrupt.store(true, Ordering::Relaxed);
        assert_eq!(ended.recv_timeout(Duration::from_secs(20)), Ok(true));
    }
}
