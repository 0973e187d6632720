//! Race of connections to the addresses of a name, as RFC 8305 says. A dead address costs a quarter
//! of a second and not the time after which the kernel gives it up.
//!
//! The families take turns, beginning with that of the first address: the resolver has put the
//! addresses in order (RFC 6724). Each attempt has a head start before the next; one that fails
//! gives it up. The first connection that is made wins, and the others are closed.

use crate::{connecting::LocalEnd, marks::Dscp};
use haul_sys::{flow_label, local_end};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, SocketFlags, SocketType, bind, connect as connect_socket, socket_with,
        sockopt,
    },
};
use std::{
    collections::VecDeque,
    io,
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

/// Head start of an attempt: the Connection Attempt Delay of RFC 8305, section 5.
const HEAD_START: Duration = Duration::from_millis(250);
/// Interval at which an attempt looks whether somebody still waits for the connection.
const STOP_POLL: Duration = Duration::from_millis(100);
/// Most attempts at a time; beyond, one has to fail first.
const ATTEMPTS_MAX: usize = 16;

/// Settings of a socket before it connects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup<'a> {
    pub congestion: Option<&'a str>,
    /// Most bytes of a segment, both ways.
    pub segment_bytes: Option<u32>,
    /// Local end of the connection; any where there is none.
    pub local_end: Option<&'a LocalEnd>,
    pub dscp: Option<Dscp>,
    /// Flow label of packets of IPv6; the kernel's where there is none.
    pub flow_label: Option<u32>,
}

/// Connects to the first of the addresses that answers within `patience`, unless `stop` says that
/// nobody waits for it any more.
///
/// # Errors
/// If none does: the last error, or that there was no answer.
pub fn connect(
    addresses: &[SocketAddr],
    setup: Setup<'_>,
    patience: Duration,
    stop: &dyn Fn() -> bool,
) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut race = Race::new(in_turns(addresses), Instant::now(), patience);
    let mut attempts: Vec<OwnedFd> = Vec::new();
    loop {
        let wait = match race.next(Instant::now(), attempts.len()) {
            Step::Try(address) => {
                match begin(&address, setup) {
                    Ok(Begun::Connected(socket)) => return finish(socket),
                    Ok(Begun::Waits(socket)) => attempts.push(socket),
                    Err(error) => {
                        last = error;
                        race.failed();
                    }
                }
                continue;
            }
            Step::Wait(wait) => wait,
            Step::Lost => return Err(last),
            Step::TimedOut => {
                let text = format!("no answer within {} s", patience.as_secs_f64().ceil());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
        };
        if stop() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "nobody waits for it any more"));
        }
        for index in answered(&attempts, wait.min(STOP_POLL))?.into_iter().rev() {
            let socket = attempts.swap_remove(index);
            match sockopt::socket_error(&socket)
                .map_err(io::Error::from)
                .and_then(|result| result.map_err(io::Error::from))
            {
                Ok(()) => return finish(socket),
                Err(error) => {
                    last = error;
                    race.failed();
                }
            }
        }
    }
}

enum Begun {
    Connected(OwnedFd),
    Waits(OwnedFd),
}

fn begin(address: &SocketAddr, setup: Setup<'_>) -> io::Result<Begun> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(congestion) = setup.congestion {
        let _ = haul_sys::congestion::set_congestion(&socket, congestion);
    }
    if let Some(segment_bytes) = setup.segment_bytes {
        // A kernel that does not take it sends segments as it always does.
        let _ = haul_sys::segment_size::set_segment_bytes_max(&socket, segment_bytes);
    }
    if let Some(local_end) = setup.local_end {
        take_local_end(&socket, local_end)?;
    }
    if let Some(dscp) = setup.dscp {
        dscp.mark(&socket);
    }
    let address = labelled(&socket, *address, setup.flow_label);
    match connect_socket(&socket, &address) {
        Ok(()) => Ok(Begun::Connected(socket)),
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(Begun::Waits(socket)),
        Err(errno) => Err(errno.into()),
    }
}

fn take_local_end(socket: &OwnedFd, local_end: &LocalEnd) -> io::Result<()> {
    let taken = match local_end {
        LocalEnd::Interface(name) => local_end::bind_to_interface(socket, name),
        LocalEnd::Address(address) => {
            // A kernel without it takes a port that no other connection from there has.
            let _ = local_end::bind_without_port(socket);
            bind(socket, &SocketAddr::new(*address, 0)).map_err(io::Error::from)
        }
    };
    taken.map_err(|error| {
        let text = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::AFNOSUPPORT | Errno::INVAL) => {
                "an address of the other family than the server's".to_owned()
            }
            _ => error.to_string(),
        };
        io::Error::new(error.kind(), format!("from {local_end}: {text}"))
    })
}

/// Gives a socket its flow label, and the address that has it; without one where the kernel has no
/// labels.
fn labelled(socket: &OwnedFd, address: SocketAddr, label: Option<u32>) -> SocketAddr {
    match (address, label) {
        (SocketAddr::V6(v6), Some(label)) => {
            // Where the kernel keeps the labels with the highest bit to itself
            // (net.ipv6.flowlabel_state_ranges), one without it has all that is meant.
            let lower = label & !(1 << (flow_label::LABEL_BITS - 1));
            let labelled = flow_label::with_label(socket, v6, label)
                .or_else(|_| flow_label::with_label(socket, v6, lower));
            labelled.map_or(address, SocketAddr::V6)
        }
        _ => address,
    }
}

fn finish(socket: OwnedFd) -> io::Result<TcpStream> {
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket.into())
}

/// Attempts that are over, in rising order; waits for one.
fn answered(attempts: &[OwnedFd], wait: Duration) -> io::Result<Vec<usize>> {
    let mut fds: Vec<_> =
        attempts.iter().map(|socket| PollFd::new(socket, PollFlags::OUT)).collect();
    let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
    match poll(&mut fds, Some(&wait)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let over = |(index, fd): (usize, &PollFd<'_>)| (!fd.revents().is_empty()).then_some(index);
    Ok(fds.iter().enumerate().filter_map(over).collect())
}

/// Alternates the families, and keeps the order within each (RFC 8305, section 4).
fn in_turns(addresses: &[SocketAddr]) -> VecDeque<SocketAddr> {
    let Some(first) = addresses.first() else { return VecDeque::new() };
    let is_first = |address: &&SocketAddr| address.is_ipv4() == first.is_ipv4();
    let mut same = addresses.iter().filter(is_first);
    let mut other = addresses.iter().filter(|address| !is_first(address));
    let mut turns = VecDeque::with_capacity(addresses.len());
    loop {
        let pair = [same.next(), other.next()];
        if pair == [None, None] {
            return turns;
        }
        turns.extend(pair.into_iter().flatten());
    }
}

/// Order and times in which the addresses are tried. It has no socket and no clock.
struct Race {
    waiting: VecDeque<SocketAddr>,
    /// Time when the next attempt may begin; `None` for at once.
    next_at: Option<Instant>,
    deadline: Instant,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Try(SocketAddr),
    /// Wait for an answer, at most this long.
    Wait(Duration),
    /// All attempts have failed.
    Lost,
    TimedOut,
}

impl Race {
    fn new(waiting: VecDeque<SocketAddr>, now: Instant, patience: Duration) -> Self {
        Self { waiting, next_at: None, deadline: now + patience }
    }

    fn next(&mut self, now: Instant, under_way: usize) -> Step {
        if now >= self.deadline {
            return Step::TimedOut;
        }
        let left = self.deadline - now;
        if self.waiting.is_empty() || under_way >= ATTEMPTS_MAX {
            return if under_way == 0 { Step::Lost } else { Step::Wait(left) };
        }
        match self.next_at.filter(|at| under_way > 0 && *at > now) {
            Some(at) => Step::Wait(left.min(at - now)),
            None => {
                self.next_at = Some(now + HEAD_START);
                let next = self.waiting.pop_front().expect("it is not empty");
                Step::Try(next)
            }
        }
    }

    /// Notes that an attempt failed: the next need not wait.
    fn failed(&mut self) {
        self.next_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const LONG: Duration = Duration::from_secs(10);

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// A race of these addresses, and when it began.
    fn race(addresses: &[&str]) -> (Race, Instant) {
        let begun = Instant::now();
        let addresses: Vec<_> = addresses.iter().map(|text| address(text)).collect();
        (Race::new(in_turns(&addresses), begun, Duration::from_secs(10)), begun)
    }

    #[test]
    fn families_take_turns_and_each_keeps_its_order() {
        let (race, _) = race(&["[::1]:1", "[::2]:1", "[::3]:1", "10.0.0.1:1"]);
        let expected = ["[::1]:1", "10.0.0.1:1", "[::2]:1", "[::3]:1"];
        assert_eq!(race.waiting, expected.map(address));
        assert!(in_turns(&[]).is_empty());
    }

    #[test]
    fn each_attempt_has_a_head_start_and_a_failure_gives_it_up() {
        let (mut race, begun) = race(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]);
        let after = |ms| begun + Duration::from_millis(ms);
        assert_eq!(race.next(begun, 0), Step::Try(address("10.0.0.1:1")));
        assert_eq!(race.next(after(100), 1), Step::Wait(Duration::from_millis(150)));
        assert_eq!(race.next(after(250), 1), Step::Try(address("10.0.0.2:1")));
        race.failed();
        assert_eq!(race.next(after(300), 1), Step::Try(address("10.0.0.3:1")));
        assert_eq!(race.next(after(400), 2), Step::Wait(Duration::from_millis(9600)));
        assert_eq!(race.next(after(10_000), 2), Step::TimedOut);
    }

    #[test]
    fn a_race_that_all_lose_is_over_at_once() {
        let (mut race, begun) = race(&["10.0.0.1:1"]);
        assert_eq!(race.next(begun, 0), Step::Try(address("10.0.0.1:1")));
        race.failed();
        assert_eq!(race.next(begun, 0), Step::Lost);
    }

    /// Reason for dead addresses: the backlog of a listener is full, so the kernel drops the SYN,
    /// as a dead host does.
    #[test]
    fn dead_addresses_cost_their_head_starts_only() {
        let live = TcpListener::bind("127.0.0.1:0").unwrap();
        let dead = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&dead, &address("127.0.0.1:0")).unwrap();
        rustix::net::listen(&dead, 0).unwrap();
        let of_dead: SocketAddr = rustix::net::getsockname(&dead).unwrap().try_into().unwrap();
        let setup = Setup::default();
        let short = Duration::from_millis(300);
        let mut filling = Vec::new();
        while let Ok(socket) = connect(&[of_dead], setup, short, &|| false) {
            filling.push(socket);
            assert!(filling.len() < 10, "the backlog is never full");
        }
        let stopped = connect(&[of_dead], setup, LONG, &|| true).unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
        let begun = Instant::now();
        let addresses = [of_dead, of_dead, of_dead, live.local_addr().unwrap()];
        let won = connect(&addresses, setup, LONG, &|| false).unwrap();
        assert_eq!(won.peer_addr().unwrap(), live.local_addr().unwrap());
        assert!(begun.elapsed() >= HEAD_START * 3, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_port_that_refuses_loses_to_one_that_answers() {
        let refuses = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let live = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = [refuses, refuses, live.local_addr().unwrap()];
        let won = connect(&addresses, Setup::default(), LONG, &|| false).unwrap();
        assert_eq!(won.peer_addr().unwrap(), live.local_addr().unwrap());
        let error = connect(&[refuses], Setup::default(), LONG, &|| false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
