//! The wire of a data stream behind its preface, and the engines that it takes.

use super::{
    private::{self, Private},
    rdma::{self, Stream},
    streams::StreamSetup,
    way::Way,
};
use haul_datapath::{EngineInfo, Wire, WireKind, engines};
use std::{io, os::fd::OwnedFd};

/// Makes the wire of a stream out of its connection, and names the engines that it takes: those
/// `chosen` for the session's wires, or those of a stream whose wire is another than the others'.
///
/// # Errors
/// If the peer does not do its part in time, or is not who the session is with.
pub fn wire(
    stream: &Stream<'_>,
    socket: OwnedFd,
    way: Way,
    (chosen, over_tcp): (&[&'static EngineInfo], &[&'static EngineInfo]),
) -> io::Result<(Wire, Vec<&'static EngineInfo>)> {
    let Some(private) = &stream.setup.private else {
        return rdma::wire(stream, socket, way, (chosen, over_tcp));
    };
    let StreamSetup { keys, session, .. } = stream.setup;
    let stop = || stream.streams.stopping();
    let of_stream = (session, stream.stream);
    let wire = private::wire(private, keys, of_stream, socket, way, &stop)?;
    let engines = engines_for(wire.kind(), chosen);
    Ok((wire, engines))
}

/// Engines that work on this wire: those chosen, and last the one that always does.
fn engines_for(wire: WireKind, chosen: &[&'static EngineInfo]) -> Vec<&'static EngineInfo> {
    let mut engines: Vec<_> =
        chosen.iter().copied().filter(|engine| engine.wires.contains(&wire)).collect();
    let last = if wire == WireKind::Tls { &engines::tls::INFO } else { &engines::read_write::INFO };
    if engines.last().is_none_or(|engine| engine.name != last.name) {
        engines.push(last);
    }
    engines
}

impl StreamSetup {
    /// The kind of the streams' wires.
    #[must_use]
    pub fn wire(&self) -> WireKind {
        match (&self.private, &self.rdma) {
            (Some(Private { by, .. }), _) => by.wire(),
            (None, Some(_)) => WireKind::Fabric,
            (None, None) => WireKind::Tcp,
        }
    }

    /// Why the kernel does not encrypt private streams; `None` where it does, or nothing has to.
    #[must_use]
    pub fn why_not_kernel(&self) -> Option<String> {
        self.private.as_ref()?.why_not_kernel()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_whose_kernel_did_not_take_the_key_has_the_engine_of_this_process() {
        let chosen = [&engines::sendfile::INFO, &engines::splice::INFO, &engines::read_write::INFO];
        let names = |wire| -> Vec<_> {
            engines_for(wire, &chosen.map(|info| info as &EngineInfo))
                .iter()
                .map(|e| e.name)
                .collect()
        };
        assert_eq!(names(WireKind::KernelTls), ["sendfile", "splice", "read-write"]);
        assert_eq!(names(WireKind::Tls), ["tls"]);
    }
}
