//! Fireflies: datagrams that tell of each marked stream when it begins and when it ends.
//!
//! Each says whose data it is and how much it was (SciTags Technical Specification, schema firefly
//! version 1).
//!
//! They go to the host at the other end, where collectors on the way see them, and to collectors
//! that are named. Nobody answers, and one that is lost is lost.

use super::resolve;
use crate::{
    constants::SOFTWARE,
    locks::{Lock, lock},
    marks::SciTag,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
};

/// Port of collectors.
const PORT: u16 = 10514;
/// Facility local0, severity informational (RFC 5424, 6.2.1).
const PRIORITY: u8 = 134;

/// Both ends of a stream, this side's first.
pub type Ends = (SocketAddr, SocketAddr);

/// Marked streams whose end was not told yet.
#[derive(Debug)]
pub struct Fireflies {
    tag: SciTag,
    collectors: Vec<SocketAddr>,
    open: Lock<BTreeMap<Ends, Timestamp>>,
}

/// Bytes that a stream has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub received: u64,
    pub sent: u64,
}

impl Fireflies {
    /// Fireflies of a tag, for these collectors too (`HOST:PORT`).
    ///
    /// # Errors
    /// If one of them is no address and no name that is known.
    pub fn new(tag: SciTag, collectors: &[String]) -> io::Result<Self> {
        let mut found = Vec::new();
        for collector in collectors {
            let with_port = match has_port(collector) {
                true => collector.clone(),
                false => format!("{collector}:{PORT}"),
            };
            let named =
                |error: io::Error| io::Error::new(error.kind(), format!("{collector}: {error}"));
            found.extend(resolve::addresses(&with_port).map_err(named)?.into_iter().next());
        }
        Ok(Self { tag, collectors: found, open: Lock::default() })
    }

    /// Tells that a stream has begun.
    pub fn begin(&self, socket: &TcpStream) {
        let (Ok(local), Ok(peer)) = (socket.local_addr(), socket.peer_addr()) else { return };
        let ends = (canonical(local), canonical(peer));
        let now = Timestamp::now();
        lock(&self.open).insert(ends, now);
        self.tell(ends, now, None);
    }

    /// Tells that all streams that had begun have ended, with the bytes that `usage` has of them.
    pub fn end_all(&self, usage: &BTreeMap<Ends, Usage>) {
        for (ends, begun) in std::mem::take(&mut *lock(&self.open)) {
            self.tell(ends, begun, Some(usage.get(&ends).copied().unwrap_or_default()));
        }
    }

    /// Tells of a stream; with `ended`, that it is over.
    fn tell(&self, ends: Ends, begun: Timestamp, ended: Option<Usage>) {
        let now = Timestamp::now();
        let message = message(self.tag, ends, (begun, now), ended);
        let host = haul_host::host_name().unwrap_or_else(|| "-".to_owned());
        let text = format!("<{PRIORITY}>1 {now} {host} haul - firefly-json - {message}");
        let at_peer = SocketAddr::new(ends.1.ip(), PORT);
        for to in self.collectors.iter().chain([&at_peer]) {
            let any: IpAddr = match to {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            // One that cannot be sent is lost, as one on the way is.
            let _ =
                UdpSocket::bind((any, 0)).and_then(|socket| socket.send_to(text.as_bytes(), to));
        }
    }
}

fn message(
    tag: SciTag,
    (local, peer): Ends,
    (begun, now): (Timestamp, Timestamp),
    ended: Option<Usage>,
) -> Value {
    let mut lifecycle = json!({
        "state": if ended.is_some() { "end" } else { "start" },
        "start-time": begun.to_string(),
        "current-time": now.to_string(),
    });
    let Usage { received, sent } = ended.unwrap_or_default();
    if ended.is_some() {
        lifecycle["end-time"] = now.to_string().into();
    }
    json!({
        "version": 1,
        "flow-lifecycle": lifecycle,
        "flow-id": {
            "afi": if local.is_ipv4() { "ipv4" } else { "ipv6" },
            "src-ip": local.ip().to_string(),
            "dst-ip": peer.ip().to_string(),
            "protocol": "tcp",
            "src-port": local.port(),
            "dst-port": peer.port(),
        },
        "usage": { "received": received, "sent": sent },
        "context": {
            "experiment-id": tag.experiment,
            "activity-id": tag.activity,
            "application": SOFTWARE,
        },
    })
}

/// Whether a text has a port behind its host: `HOST:PORT`, `[ADDRESS]:PORT`.
fn has_port(text: &str) -> bool {
    let behind = text.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>().is_ok()));
    behind.is_some_and(|(host, is_port)| is_port && (!host.contains(':') || host.ends_with(']')))
}

/// An end as the network has it: of IPv4, though a socket of IPv6 has it.
pub(crate) fn canonical(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, time::Duration};

    fn heard(collector: &UdpSocket) -> (String, Value) {
        let mut bytes = [0; 2048];
        let len = collector.recv(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..len]).unwrap();
        let (header, json) = text.split_at(text.find('{').unwrap());
        (header.to_owned(), serde_json::from_str(json).unwrap())
    }

    #[test]
    fn a_collector_hears_of_the_begin_and_the_end_of_each_stream() {
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        collector.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let tag = SciTag { experiment: 2, activity: 14 };
        let address = collector.local_addr().unwrap().to_string();
        let fireflies = Fireflies::new(tag, &[address]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        fireflies.begin(&socket);
        let (header, begin) = heard(&collector);
        assert!(header.starts_with("<134>1 2") && header.ends_with(" haul - firefly-json - "));
        assert_eq!(begin["version"], 1);
        assert_eq!(begin["flow-lifecycle"]["state"], "start");
        assert_eq!(begin["flow-lifecycle"]["end-time"], Value::Null);
        let (local, peer) = (socket.local_addr().unwrap(), socket.peer_addr().unwrap());
        let ends = &begin["flow-id"];
        assert_eq!((&ends["afi"], &ends["protocol"]), (&"ipv4".into(), &"tcp".into()));
        assert_eq!((&ends["src-ip"], &ends["dst-ip"]), (&"127.0.0.1".into(), &"127.0.0.1".into()));
        assert_eq!(ends["src-port"], local.port());
        assert_eq!(ends["dst-port"], peer.port());
        assert_eq!(begin["context"]["experiment-id"], 2);
        assert_eq!(begin["context"]["activity-id"], 14);
        let usage = Usage { received: 7, sent: 1 << 40 };
        fireflies.end_all(&BTreeMap::from([((local, peer), usage)]));
        let (_, end) = heard(&collector);
        assert_eq!(end["flow-lifecycle"]["state"], "end");
        assert_eq!(end["flow-lifecycle"]["start-time"], begin["flow-lifecycle"]["start-time"]);
        assert!(end["flow-lifecycle"]["end-time"].is_string());
        assert_eq!(
            (&end["usage"]["received"], &end["usage"]["sent"]),
            (&7.into(), &(1_u64 << 40).into())
        );
        fireflies.end_all(&BTreeMap::new());
        collector.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(collector.recv(&mut [0]).is_err(), "an end is told once");
    }

    #[test]
    fn a_collector_without_a_port_has_the_usual_one_and_one_that_is_not_known_is_refused() {
        assert!(["h:1", "[::1]:1", "10.0.0.1:10514"].into_iter().all(has_port));
        assert!(!["h", "::1", "[::1]", "10.0.0.1", "h:"].into_iter().any(has_port));
        let tag = SciTag { experiment: 1, activity: 1 };
        let fireflies = Fireflies::new(tag, &["127.0.0.1".to_owned()]).unwrap();
        assert_eq!(fireflies.collectors[0].port(), PORT);
        let error = Fireflies::new(tag, &["nobody.invalid".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("nobody.invalid"), "{error}");
    }
}
