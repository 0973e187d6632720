//! Flows of a run: what went over each connection, added up by the local end.

use crate::{
    connecting::ConnectOptions,
    error::{TransferError, problem},
    events::LocalEndReport,
    session::{stages::rate_of, streams::StreamFigures},
    transport::{
        fireflies::{Ends, Usage, canonical},
        tcp::Route,
    },
    url::HaulUrl,
};
use std::{collections::BTreeMap, net::IpAddr};

/// Makes the route of a run to its server.
///
/// # Errors
/// If a collector of marked streams is not known.
pub(super) fn route(url: &HaulUrl, connect: &ConnectOptions) -> Result<Route, TransferError> {
    Route::of(url, connect.clone()).map_err(|error| {
        let needs = "collectors whose names are known (--firefly)";
        let hint = "write it HOST or HOST:PORT, or leave it out";
        TransferError::start(problem("cannot tell of streams", needs, &error.to_string(), hint))
    })
}

/// Streams and bytes of each local address, over all sessions of a run.
#[derive(Debug, Default)]
pub(super) struct Flows(BTreeMap<IpAddr, (u32, u64)>);

impl Flows {
    /// Adds the streams of a session that is over; gives what each has moved.
    pub fn add(&mut self, streams: &[StreamFigures]) -> BTreeMap<Ends, Usage> {
        let mut usage = BTreeMap::new();
        for figures in streams {
            let Some((local, peer)) = figures.ends else { continue };
            let (local, peer) = (canonical(local), canonical(peer));
            let tcp = &figures.tcp;
            let used = Usage { received: tcp.bytes_received, sent: tcp.bytes_acked };
            let (count, bytes) = self.0.entry(local.ip()).or_default();
            *count += 1;
            *bytes += used.received.saturating_add(used.sent);
            usage.insert((local, peer), used);
        }
        usage
    }

    /// The report of each local address, the one with the most bytes first.
    pub fn report(&self, seconds: f64) -> Vec<LocalEndReport> {
        let of = |(address, (streams, bytes)): (&IpAddr, &(u32, u64))| LocalEndReport {
            address: address.to_string(),
            streams: *streams,
            bytes: *bytes,
            gbit_per_s: rate_of(*bytes, seconds),
        };
        let mut all: Vec<LocalEndReport> = self.0.iter().map(of).collect();
        all.sort_by_key(|end| std::cmp::Reverse(end.bytes));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_sys::TcpInfo;

    #[test]
    fn streams_are_added_up_by_their_local_address_over_all_sessions() {
        let stream = |local: &str, bytes| StreamFigures {
            ends: Some((local.parse().unwrap(), "[::ffff:10.0.0.9]:7440".parse().unwrap())),
            tcp: TcpInfo { bytes_acked: bytes, bytes_received: 1, ..TcpInfo::default() },
            ..StreamFigures::default()
        };
        let mut flows = Flows::default();
        let both = [stream("10.0.0.1:5", 99), stream("10.0.0.2:5", 199), StreamFigures::default()];
        let usage = flows.add(&both);
        let ends = ("10.0.0.2:5".parse().unwrap(), "10.0.0.9:7440".parse().unwrap());
        assert_eq!((usage.len(), usage[&ends]), (2, Usage { received: 1, sent: 199 }));
        flows.add(&[stream("[::ffff:10.0.0.1]:6", 899)]);
        let found = flows.report(8e-6);
        let found: Vec<_> =
            found.iter().map(|end| (&*end.address, end.streams, end.bytes)).collect();
        assert_eq!(found, [("10.0.0.1", 2, 1000), ("10.0.0.2", 1, 200)]);
        assert_eq!(flows.report(8e-6)[0].gbit_per_s, 1.0);
    }
}
