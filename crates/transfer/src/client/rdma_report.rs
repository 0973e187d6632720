//! Figures of RDMA endpoints, out of both sides' reports.

use crate::{
    events::{RdmaReport, RdmaSource, RdmaTarget},
    name::printable,
    session::stages,
};
use haul_protocol::message;

/// Sum of both sides' figures; `None` where no data went by RDMA. The server's words are made
/// printable.
pub(super) fn rdma_report(
    source: &message::SideReport,
    target: &message::SideReport,
) -> Option<RdmaReport> {
    let [of_source, of_target] = [&source.rdma, &target.rdma];
    let provider = &of_source.as_ref().or(of_target.as_ref())?.provider;
    let seconds = |ns| stages::round(ns as f64 / 1e9, 6);
    let (source, target) = (of_source.clone(), of_target.clone());
    let (source, target) = (source.unwrap_or_default(), target.unwrap_or_default());
    Some(RdmaReport {
        provider: printable(provider),
        source: RdmaSource {
            port: printable(&source.port),
            streams: source.streams,
            window_bytes: source.window_bytes,
            buffered_bytes: source.buffered_bytes,
            windows: source.windows,
            registrations: source.registrations,
            registering_seconds: seconds(source.registering_ns),
            waits_for_room: source.waits_for_room,
            refused: printable(&source.refused),
        },
        target: RdmaTarget {
            port: printable(&target.port),
            streams: target.streams,
            direct_bytes: target.direct_bytes,
            cached_bytes: target.cached_bytes,
            registrations: target.registrations,
            registering_seconds: seconds(target.registering_ns),
        },
    })
}
