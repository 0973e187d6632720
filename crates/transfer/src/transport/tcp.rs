//! Connecting TCP sockets, with their congestion control set before the first packet.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, SocketFlags, SocketType, connect as connect_socket, socket_with, sockopt,
    },
};
use std::{
    io,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

/// How long one address may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection that was made early is of use.
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
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in server.to_socket_addrs()? {
        match connect_one(&address, congestion) {
            Ok(socket) => return Ok(socket.into()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connections that are made while something else is waited for.
#[derive(Clone, Debug)]
pub struct Early {
    made: Arc<Mutex<mpsc::Receiver<TcpStream>>>,
    begun: Instant,
}

impl Early {
    /// Begins so many connections to `server`; those that fail are left out.
    #[must_use]
    pub fn connect(server: &str, count: u32) -> Self {
        let (made, taken) = mpsc::channel();
        for number in 0..count {
            let (server, made) = (server.to_owned(), made.clone());
            // Without a thread the connection is made later, as any other.
            let _ = thread::Builder::new().name(format!("haul-early-{number}")).spawn(move || {
                let _ = connect(&server, None).map(|socket| made.send(socket));
            });
        }
        Self { made: Arc::new(Mutex::new(taken)), begun: Instant::now() }
    }

    /// A server waits for the first word of a connection for some seconds only.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.begun.elapsed() > EARLY_FOR
    }

    /// One that is there already.
    #[must_use]
    pub fn take(&self) -> Option<TcpStream> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.try_recv().ok().filter(|_| !self.is_over())
    }
}

/// Both ends have the same address: the bytes never leave this host.
#[must_use]
pub fn ends_on_this_host(socket: &TcpStream) -> bool {
    match (socket.local_addr(), socket.peer_addr()) {
        (Ok(local), Ok(peer)) => local.ip() == peer.ip(),
        _ => false,
    }
}

fn connect_one(address: &SocketAddr, congestion: Option<&str>) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(congestion) = congestion {
        let _ = haul_sys::congestion::set_congestion(&socket, congestion);
    }
    match connect_socket(&socket, address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => wait_until_connected(&socket)?,
        Err(errno) => return Err(errno.into()),
    }
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

fn wait_until_connected(socket: &OwnedFd) -> io::Result<()> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer within 10 s"));
        }
        let mut fds = [PollFd::new(socket, PollFlags::OUT)];
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&left)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(sockopt::socket_error(socket)??),
            Err(errno) => return Err(errno.into()),
        }
    }
}
