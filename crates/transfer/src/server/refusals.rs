//! Refused connections in the log: each is told with its address, a flood in a few lines.
//!
//! `LINES_MAX` lines an address in ten seconds, `LINES_MAX_ALL` of all addresses together; what is
//! beyond them is counted, and told in a line for each address when the time is over.

use crate::{
    locks::{Lock, lock},
    server::event::ServerEvent,
};
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

const WINDOW: Duration = Duration::from_secs(10);
const LINES_MAX: u64 = 16;
const LINES_MAX_ALL: u64 = 200;
/// Most addresses that are counted apart; what others do beyond all lines is told without theirs.
const ADDRESSES_MAX: usize = 63;

/// Refusals of one address in this window.
#[derive(Debug, Default)]
struct Peer {
    told: u64,
    untold: u64,
    last_why: String,
}

#[derive(Debug)]
struct Window {
    begun: Instant,
    told: u64,
    peers: BTreeMap<IpAddr, Peer>,
    others: Peer,
}

impl Window {
    fn new() -> Self {
        Self { begun: Instant::now(), told: 0, peers: BTreeMap::new(), others: Peer::default() }
    }
}

#[derive(Debug)]
pub struct Refusals(Lock<Window>);

impl Refusals {
    pub fn new() -> Self {
        Self(Lock::new(Window::new()))
    }

    /// Counts a refused connection: returns the line for it, if it is told now.
    pub fn tell(&self, address: SocketAddr, why: String) -> Option<ServerEvent> {
        let mut window = lock(&self.0);
        let Window { told: told_in_all, peers, others, .. } = &mut *window;
        let key = network_of(address.ip());
        let (peer, lines_max) = if peers.len() < ADDRESSES_MAX || peers.contains_key(&key) {
            (peers.entry(key).or_default(), LINES_MAX)
        } else {
            (others, LINES_MAX_ALL)
        };
        if peer.told < lines_max && *told_in_all < LINES_MAX_ALL {
            peer.told += 1;
            *told_in_all += 1;
            return Some(ServerEvent::Refused { peer: address.to_string(), why, times: 1 });
        }
        peer.untold += 1;
        peer.last_why = why;
        None
    }

    /// Ends the window, as its time would.
    #[cfg(test)]
    pub fn end_window(&self) {
        lock(&self.0).begun -= WINDOW;
    }

    /// Takes the refusals that were not told, once the window is over or the server ends.
    pub fn take_untold(&self, server_ends: bool) -> Vec<ServerEvent> {
        let mut window = lock(&self.0);
        if window.begun.elapsed() < WINDOW && !server_ends {
            return Vec::new();
        }
        let over = std::mem::replace(&mut *window, Window::new());
        let name = |address: IpAddr| match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("{address}/64"),
        };
        let peers = over.peers.into_iter().map(|(address, peer)| (name(address), peer));
        let all = peers.chain([("other addresses".to_owned(), over.others)]);
        let told = |(peer, Peer { untold, last_why, .. })| {
            let why = format!("{untold} more; the last: {last_why}");
            (untold > 0).then_some(ServerEvent::Refused { peer, why, times: untold })
        };
        all.filter_map(told).collect()
    }
}

/// Network of an address: a client that has one address of IPv6 has its whole network (RFC 6177).
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], port))
    }

    fn times_of(event: &ServerEvent) -> u64 {
        match event {
            ServerEvent::Refused { times, .. } => *times,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_flood_from_one_address_is_a_few_lines_and_hides_nobody_else() {
        let refusals = Refusals::new();
        let told = (0..10_000).filter_map(|port| refusals.tell(address(1, port), "it".into()));
        assert_eq!(told.count() as u64, LINES_MAX);
        let other = refusals.tell(address(2, 5), "other".into()).expect("is told");
        let expected =
            ServerEvent::Refused { peer: "127.0.0.2:5".into(), why: "other".into(), times: 1 };
        assert_eq!(other, expected);
        assert!(refusals.take_untold(false).is_empty(), "the window is not over");
        let untold = refusals.take_untold(true);
        assert_eq!(untold.iter().map(times_of).collect::<Vec<_>>(), [10_000 - LINES_MAX]);
        assert!(untold[0].to_string().contains("127.0.0.1"), "{}", untold[0]);
        assert!(refusals.take_untold(true).is_empty(), "it is told once");
    }

    #[test]
    fn a_flood_from_many_addresses_takes_few_lines_and_little_memory() {
        let refusals = Refusals::new();
        let mut lines = 0;
        for number in 0..100_000_u32 {
            let address = SocketAddr::from((number.to_be_bytes(), 1));
            lines += refusals.tell(address, "w".repeat(1000)).map_or(0, |event| times_of(&event));
        }
        assert_eq!(lines, LINES_MAX_ALL);
        let untold = refusals.take_untold(true);
        assert!(untold.len() <= ADDRESSES_MAX + 1, "{}", untold.len());
        assert_eq!(untold.iter().map(times_of).sum::<u64>() + lines, 100_000);
    }

    #[test]
    fn the_addresses_of_one_network_of_ipv6_are_one() {
        let of = |text: &str| network_of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
