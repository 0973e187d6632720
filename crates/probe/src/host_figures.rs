//! What a probe's results tell of this host.

use haul_host::Host;
use haul_report::host_facts::HostFigures;

/// What of the host stands at the top of results.
#[must_use]
pub fn host_figures(host: &Host) -> HostFigures {
    HostFigures {
        cores: host.cores,
        memory_bytes: host.memory_bytes,
        congestion_default: host.congestion_default.clone(),
    }
}
