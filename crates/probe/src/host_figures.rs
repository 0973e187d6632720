//! Figures of this host in a probe's results.

use haul_host::Host;
use haul_report::host_facts::HostFigures;

/// Figures of the host that stand at the top of results.
#[must_use]
pub fn host_figures(host: &Host) -> HostFigures {
    HostFigures {
        cores: host.cores,
        memory_bytes: host.memory_bytes,
        congestion_default: host.congestion_default.clone(),
    }
}
