//! Explanation of the path (`--explain`): streams, congestion control, RDMA or TCP.

use super::{Client, Opened, Run};
use crate::{
    events::Explained,
    session::{numa, streams::StreamSetup},
    transport::tcp,
};
use haul_datapath::choose;
use std::{path::Path, time::Duration};

impl Client<'_> {
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
        // The server has chosen, and may have other facts.
        let because = if count == granted.streams { because } else { "by the server".into() };
        let noun = if granted.streams == 1 { "stream" } else { "streams" };
        let streams = format!("{} {noun}: {because}", granted.streams);
        let same_host = tcp::ends_on_this_host(opened.control.socket());
        let placed = numa::near_interface(Path::new("/"), opened.control.socket(), &self.host);
        let placed = placed.map(|placement| placement.because);
        let wire = self.wire_in_words(opened);
        Explained::path(rtt, same_host, setup, streams, wire.into_iter().chain(placed))
    }
}
