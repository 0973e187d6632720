//! Largest packets that the path takes whole, found by datagrams that must not be cut.
//!
//! A size that the kernel believes in and that vanishes, while a smaller one arrives, is a black
//! hole: somewhere it is dropped, and so is the message that should say so (RFC 4821, 1.1).

use super::{
    datagram::{HEADER_BYTES, Header, Kind},
    datagrams::{Datagrams, never_cut},
    report::{BlackHole, Direction, PathFacts},
};
use crate::session::listening::LOST_AFTER;
use haul_protocol::StreamId;
use rustix::net::sockopt;
use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

/// Sizes of packets that are tried first: the least of IPv6, tunnels, Ethernet, jumbo frames.
const SIZES: [u32; 9] = [1280, 1400, 1420, 1450, 1492, 1500, 4352, 8000, 9000];
/// Largest packet that IP carries, in bytes.
const PACKET_BYTES_MAX: u32 = 65_535;
/// Times that each size is sent: one that is lost once is no hole.
const TRIES: u32 = 3;
/// Time that an answer may take, beside the time there and back.
const ANSWER: Duration = Duration::from_millis(100);
/// Difference of two sizes up to which they count as one.
const PRECISION_BYTES: u32 = 4;
/// Longest time for all sizes: nothing is said meanwhile, and a silent peer is taken for lost.
pub const TIME_MAX: Duration = Duration::from_secs(10);
const _: () = assert!(TIME_MAX.as_secs() < LOST_AFTER.as_secs());

/// Answers to the datagrams of one size.
#[derive(Clone, Copy, Debug, Default)]
struct Answered {
    arrived: bool,
    came_back: bool,
    /// Whether the server's interface could not send this size.
    too_large_there: bool,
}

struct Sizes<'a> {
    socket: &'a UdpSocket,
    datagrams: &'a Datagrams,
    stream: StreamId,
    header_bytes: u32,
    wait: Duration,
    /// Answers by size of the packet.
    answered: BTreeMap<u32, Answered>,
    deadline: Instant,
}

/// Finds out which sizes arrive, each way.
///
/// # Errors
/// If the socket cannot be used.
pub fn measure(datagrams: &Datagrams, stream: StreamId, rtt: Duration) -> io::Result<PathFacts> {
    let Some(socket) = datagrams.socket() else { return Ok(PathFacts::default()) };
    never_cut(socket)?;
    let local = socket.local_addr()?;
    let interface_bytes = interface_mtu(local).unwrap_or(PACKET_BYTES_MAX);
    let header_bytes = header_bytes(local);
    let mut sizes = Sizes {
        socket,
        datagrams,
        stream,
        header_bytes,
        wait: ANSWER + 3 * rtt,
        answered: BTreeMap::new(),
        deadline: Instant::now() + TIME_MAX,
    };
    let largest = interface_bytes.min(PACKET_BYTES_MAX);
    let first: Vec<u32> =
        SIZES.into_iter().filter(|size| *size < largest).chain([largest]).collect();
    sizes.try_all(&first)?;
    sizes.narrow(|answered| answered.arrived)?;
    sizes.narrow(|answered| answered.came_back)?;
    let believed = believed_mtu(socket, local).unwrap_or(0);
    Ok(sizes.facts(interface_bytes, believed))
}

/// Length of IP's header and UDP's, in bytes, without options.
#[must_use]
pub fn header_bytes(local: SocketAddr) -> u32 {
    if local.is_ipv4() { 28 } else { 48 }
}

/// Reads the MTU that the kernel believes the path of a connected socket has (ip(7), IP_MTU).
///
/// # Errors
/// What getsockopt(2) says.
pub fn believed_mtu(socket: &UdpSocket, local: SocketAddr) -> io::Result<u32> {
    Ok(if local.is_ipv4() { sockopt::ip_mtu(socket)? } else { sockopt::ipv6_mtu(socket)? })
}

/// MTU of the interface that has this address.
fn interface_mtu(local: SocketAddr) -> Option<u32> {
    let name = haul_sys::interfaces::name_of(local.ip()).ok()??;
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?;
    text.trim().parse().ok()
}

impl Sizes<'_> {
    /// Sends each size up to `TRIES` times, and takes what comes back meanwhile.
    fn try_all(&mut self, sizes: &[u32]) -> io::Result<()> {
        for size in sizes {
            self.answered.entry(*size).or_default();
        }
        for _ in 0..TRIES {
            for size in sizes {
                self.send(*size);
            }
            let until = (Instant::now() + self.wait).min(self.deadline);
            while Instant::now() < until && !self.all_came_back(sizes) {
                self.take()?;
            }
            if self.all_came_back(sizes) {
                break;
            }
        }
        Ok(())
    }

    fn all_came_back(&self, sizes: &[u32]) -> bool {
        sizes.iter().all(|size| self.answered.get(size).is_some_and(|answered| answered.came_back))
    }

    fn send(&self, size: u32) {
        let payload_bytes = size.saturating_sub(self.header_bytes) as usize;
        let mut bytes = super::streams::noise(payload_bytes.max(HEADER_BYTES));
        let header = Header { sequence: size.into(), ..Header::new(Kind::Size, self.stream) };
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode(self.datagrams.key()));
        // Larger than this host's own interface, or what ICMP said of an earlier one.
        if self.socket.send(&bytes).is_err() {
            let _ = self.socket.send(&bytes);
        }
    }

    fn take(&mut self) -> io::Result<()> {
        let mut bytes = vec![0; PACKET_BYTES_MAX as usize];
        let len = match self.socket.recv(&mut bytes) {
            Ok(len) => len,
            // A timeout, or news of ICMP: a size that is too large.
            Err(_) => return Ok(()),
        };
        let Some(header) = Header::decode(&bytes[..len], self.datagrams.key()) else {
            return Ok(());
        };
        let size = u32::try_from(header.sequence).unwrap_or(u32::MAX);
        let Some(answered) = self.answered.get_mut(&size) else { return Ok(()) };
        match header.kind {
            Kind::Ack => {
                answered.arrived = true;
                answered.too_large_there |= header.sent_ns == 0;
            }
            Kind::Size => {
                answered.arrived = true;
                answered.came_back = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Closes in on the largest size that passes.
    fn narrow(&mut self, passes: fn(&Answered) -> bool) -> io::Result<()> {
        loop {
            let largest = self.largest(passes);
            let vanishes = self.smallest_that_vanishes(passes, largest);
            let (Some(largest), Some(vanishes)) = (largest, vanishes) else { return Ok(()) };
            if vanishes - largest <= PRECISION_BYTES || Instant::now() >= self.deadline {
                return Ok(());
            }
            let middle = largest + (vanishes - largest) / 2;
            self.try_all(&[middle])?;
        }
    }

    fn largest(&self, passes: fn(&Answered) -> bool) -> Option<u32> {
        self.answered.iter().filter(|(_, answered)| passes(answered)).map(|(size, _)| *size).max()
    }

    fn smallest_that_vanishes(
        &self,
        passes: fn(&Answered) -> bool,
        above: Option<u32>,
    ) -> Option<u32> {
        let vanished = self.answered.iter().filter(|(_, answered)| !passes(answered));
        vanished.map(|(size, _)| *size).find(|size| Some(*size) > above)
    }

    fn facts(&self, interface_mtu_bytes: u32, believed_mtu_bytes: u32) -> PathFacts {
        let there: fn(&Answered) -> bool = |answered| answered.arrived;
        let back: fn(&Answered) -> bool = |answered| answered.came_back;
        let hole = |direction, passes: fn(&Answered) -> bool| {
            let passes_bytes = self.largest(passes)?;
            let vanishes_bytes = self.smallest_that_vanishes(passes, Some(passes_bytes))?;
            let of_size = self.answered.get(&vanishes_bytes).copied().unwrap_or_default();
            let is_known = match direction {
                Direction::ToServer => vanishes_bytes > believed_mtu_bytes,
                // Nothing came back of what did not arrive, or could not leave.
                Direction::ToClient => !of_size.arrived || of_size.too_large_there,
            };
            (!is_known).then_some(BlackHole {
                direction,
                vanishes_bytes,
                passes_bytes,
                own_queue: false,
            })
        };
        let largest = |passes| self.largest(passes).unwrap_or(0);
        PathFacts {
            interface_mtu_bytes,
            believed_mtu_bytes,
            passes_to_server_bytes: largest(there),
            passes_to_client_bytes: largest(back),
            black_hole: hole(Direction::ToServer, there)
                .or_else(|| hole(Direction::ToClient, back)),
            ..PathFacts::default()
        }
    }
}
