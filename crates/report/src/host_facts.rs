//! Facts about the host that numbers were measured on: without them numbers mean nothing to others.

use crate::units;
use serde::Serialize;
use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket},
};

/// The way of the bytes from one side to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BenchWire {
    /// No network card: one host is both ends.
    Loopback,
    /// A server elsewhere, as its URL says.
    Server,
    /// A server that runs on this very host.
    ServerHere,
    /// No wire, as nothing was sent.
    None,
}

impl BenchWire {
    /// The wire to a server by its host and port.
    #[must_use]
    pub fn to(server: &str) -> Self {
        // Connecting a UDP socket sends nothing; it only chooses the way (connect(2)).
        let ends_here = |address: SocketAddr| -> io::Result<bool> {
            let any: IpAddr = match address {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let socket = UdpSocket::bind((any, 0))?;
            socket.connect(address)?;
            Ok(socket.local_addr()?.ip() == address.ip())
        };
        let addresses = server.to_socket_addrs().into_iter().flatten();
        let mut found = addresses.filter_map(|address| ends_here(address).ok());
        if found.any(|here| here) { Self::ServerHere } else { Self::Server }
    }
}

/// The host's facts as they stand at the top of all results.
#[derive(Clone, Debug, Serialize)]
pub struct HostFacts {
    event: &'static str,
    bench: &'static str,
    haul: &'static str,
    build: &'static str,
    measured: String,
    kernel: String,
    cpu: String,
    cores: u32,
    memory_bytes: u64,
    file_system: String,
    wire: BenchWire,
    /// The congestion control that the system has by default.
    congestion_default: String,
    /// The congestion control of the streams; `null` leaves the system's own.
    congestion_chosen: Option<String>,
    congestion_because: String,
}

/// Figures of the host's hardware and its kernel's settings, without which numbers say little.
#[derive(Clone, Debug, Default)]
pub struct HostFigures {
    pub cores: u32,
    pub memory_bytes: u64,
    pub congestion_default: String,
}

impl HostFacts {
    /// The facts of this host, whose congestion control stays the system's own. `file_system` is
    /// the one that is measured, where that is known.
    #[must_use]
    pub fn new(
        bench: &'static str,
        host: HostFigures,
        wire: BenchWire,
        file_system: Option<String>,
    ) -> Self {
        Self {
            event: "host",
            bench,
            haul: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            measured: jiff::Zoned::now().strftime("%Y-%m-%d %H:%M %Z").to_string(),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            cpu: cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            cores: host.cores,
            memory_bytes: host.memory_bytes,
            file_system: file_system.unwrap_or_else(|| UNKNOWN.to_owned()),
            wire,
            congestion_default: host.congestion_default,
            congestion_chosen: None,
            congestion_because: String::new(),
        }
    }

    /// Adds the congestion control of the streams; `None` leaves the system's own.
    #[must_use]
    pub fn with_congestion(self, chosen: Option<String>, because: String) -> Self {
        Self { congestion_chosen: chosen, congestion_because: because, ..self }
    }

    /// Says that each transfer chooses the congestion control itself.
    #[must_use]
    pub fn chosen_by_path(self) -> Self {
        self.with_congestion(None, "each transfer chooses for its path".to_owned())
    }

    /// The facts in words, for tables and pages.
    #[must_use]
    pub fn rows(&self) -> Vec<(String, String)> {
        let wire = match self.wire {
            BenchWire::Loopback => "loopback: both ends are this host, no network card takes part",
            BenchWire::Server => "to a server elsewhere",
            BenchWire::ServerHere => {
                "loopback: the server is on this host, no network card takes part"
            }
            BenchWire::None => "",
        };
        let own = &self.congestion_default;
        let congestion = match &self.congestion_chosen {
            Some(chosen) => format!("{chosen} ({})", self.congestion_because),
            None => format!("{}; the system's own is {own}", self.congestion_because),
        };
        [
            ("haul", format!("{} ({} build)", self.haul, self.build)),
            ("measured", self.measured.clone()),
            ("kernel", format!("Linux {}", self.kernel)),
            (
                "processor",
                format!("{}, {} usable", self.cpu, units::count(self.cores.into(), "core")),
            ),
            ("memory", units::bytes(self.memory_bytes)),
            ("file system", self.file_system.clone()),
            ("wire", wire.to_owned()),
            ("congestion control", congestion),
        ]
        .into_iter()
        .filter(|(fact, _)| {
            self.wire != BenchWire::None || !["wire", "congestion control"].contains(fact)
        })
        .map(|(fact, value)| (fact.to_owned(), value))
        .collect()
    }
}

const UNKNOWN: &str = "not known";

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().map_or_else(|| UNKNOWN.to_owned(), |line| line.trim().to_owned())
}

/// The processor's model: x86 has a line "model name"; others may have "Model" or nothing.
fn cpu_model(cpuinfo: &str) -> String {
    let value = |wanted: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == wanted).then(|| value.trim().to_owned())
        })
    };
    ["model name", "Model", "uarch"]
        .into_iter()
        .find_map(value)
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_this_host_is_said_to_be_here() {
        assert_eq!(BenchWire::to("127.0.0.1:7117"), BenchWire::ServerHere);
        // An address for documentation (RFC 5737), which no host has.
        assert_eq!(BenchWire::to("192.0.2.1:7117"), BenchWire::Server);
    }

    #[test]
    fn the_processor_has_its_name_or_its_architecture() {
        let x86 = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t: a b\n";
        assert_eq!(cpu_model(x86), "Some CPU @ 2 GHz");
        assert_eq!(cpu_model("processor : 0\n"), std::env::consts::ARCH);
    }
}
