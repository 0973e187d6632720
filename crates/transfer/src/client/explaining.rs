//! Explanation of the path (`--explain`): streams, congestion control, RDMA or TCP.

use super::{Client, Opened, Run};
use crate::{
    connecting::Connector,
    events::Explained,
    session::{numa, rdma, streams::StreamSetup},
    verdict,
};
use haul_datapath::choose;
use std::{path::Path, time::Duration};

impl Client<'_> {
    /// The way of the connections; `None` where they are made to the server's address.
    pub(super) fn way_in_words(&self) -> Option<String> {
        self.options.connect.connector.as_deref().map(Connector::in_words)
    }

    /// Explains how the path of a session was chosen for.
    pub(super) fn explain_path(
        &self,
        opened: &Opened,
        setup: &StreamSetup,
        run: &Run,
    ) -> Explained {
        let granted = &opened.granted.opened;
        let rtt = Duration::from_micros(run.rtt_us);
        let facts = choose::StreamFacts {
            host: &self.host,
            rtt,
            size_bytes: u64::MAX,
            span_bytes: choose::span_bytes(0, self.span_bytes()),
            sees_copy: setup.sees_bytes(),
            forced: self.options.streams.or(self.options.rate_bytes_per_s.map(|_| 1)),
        };
        let (count, because) = choose::streams(&facts);
        let (count, because) = if opened.rdma.is_some() && count > rdma::PAIRS_MAX {
            let because = "more pairs of RDMA endpoints would share the same memory";
            (rdma::PAIRS_MAX, because.into())
        } else {
            (count, because)
        };
        // The server has chosen, and may have other facts.
        let because = if count == granted.streams { because } else { "by the server".into() };
        let noun = if granted.streams == 1 { "stream" } else { "streams" };
        let streams = format!("{} {noun}: {because}", granted.streams);
        let same_host = run.path == verdict::Path::Loopback;
        let placed = numa::near_interface(Path::new("/"), opened.control.socket(), &self.host);
        let placed = placed.map(|placement| placement.because);
        let wire = self.wire_in_words(opened);
        let others = self.way_in_words().into_iter().chain(wire).chain(placed);
        Explained::path(rtt, same_host, setup, streams, others)
    }
}
