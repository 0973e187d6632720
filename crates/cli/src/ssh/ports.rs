//! Ports that one end of a copy listens on.

use haul_transfer::Problem;
use serde::{Deserialize, Serialize};
use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    str::FromStr,
};

/// A range of ports, both ends among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    pub first: u16,
    pub last: u16,
}

/// Reads `50000-50100`, or one port.
impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        let both = port(first).zip(port(last)).filter(|(first, last)| first <= last);
        let ports = both.map(|(first, last)| Self { first, last });
        ports.ok_or_else(|| format!("{text:?} is no range of ports; write it like 50000-50100"))
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Free port of all addresses: what a server of one copy listens on unless its words say otherwise.
pub const ANY_FREE_PORT: &str = "[::]:0";

impl Ports {
    /// Address and port of all addresses of this host that a server can listen on now.
    ///
    /// # Errors
    /// If no port of the range is free.
    pub fn free_address(self) -> Result<String, Problem> {
        // Whoever takes the port before the server does is told of by the server.
        listen(Some(self)).map(|(_, address)| address.to_string())
    }
}

/// Listens on a port of the range, or on any where there is none, of all addresses.
///
/// # Errors
/// If none of them is free.
pub fn listen(ports: Option<Ports>) -> Result<(TcpListener, SocketAddr), Problem> {
    let ports = ports.unwrap_or(Ports { first: 0, last: 0 });
    // Several copies begin at different ports, so that few tries are needed.
    let count = u32::from(ports.last.saturating_sub(ports.first)) + 1;
    let begin = std::process::id() % count;
    let mut found = String::new();
    for at in 0..count {
        let offset = u16::try_from((begin + at) % count).unwrap_or_default();
        let port = ports.first + offset;
        let bound = TcpListener::bind(("::", port)).or_else(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Err(error),
            // A host without IPv6.
            _ => TcpListener::bind(("0.0.0.0", port)),
        });
        match bound.and_then(|listener| listener.local_addr().map(|address| (listener, address))) {
            Ok(bound) => return Ok(bound),
            Err(error) => found = error.to_string(),
        }
    }
    let needs = "a port of it that is free, and that your user may take there";
    let what = format!("cannot listen on any of the ports {ports}");
    Err(Problem::in_general(&what, needs, &found, "name others by --port-range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ports_has_two_ends_or_one_port() {
        let read = |text: &str| text.parse::<Ports>();
        assert_eq!(read("50000-50100"), Ok(Ports { first: 50_000, last: 50_100 }));
        assert_eq!(read("7000").unwrap().to_string(), "7000-7000");
        for bad in ["", "0", "1-0", "5-4", "-5", "1-70000", "a-b"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_port_that_is_taken_is_passed_over_and_a_full_range_is_told() {
        let (taken, address) = listen(None).unwrap();
        let port = address.port();
        let only = Ports { first: port, last: port };
        let Err(full) = listen(Some(only)) else { panic!("{taken:?} has it") };
        assert!(full.to_string().contains("--port-range"), "{full}");
        let two = Ports { first: port.saturating_sub(1), last: port };
        if let Ok((_, other)) = listen(Some(two)) {
            assert_eq!(other.port(), port - 1);
        }
    }
}
