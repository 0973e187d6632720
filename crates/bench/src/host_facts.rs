//! Facts about the host that a bench measures on, for its results.

use crate::{pair::loopback_congestion, workshop::Workshop};
use haul_host::Host;
use haul_report::host_facts::{BenchWire, HostFacts, HostFigures};

/// The facts of a bench that works in this workshop.
pub fn of_workshop(bench: &'static str, workshop: &Workshop, wire: BenchWire) -> HostFacts {
    let file_system = workshop.file_system().ok().map(|system| system.kind.to_string());
    let facts = HostFacts::new(bench, figures(&workshop.host), wire, file_system);
    match wire {
        BenchWire::Loopback => {
            let congestion = loopback_congestion(workshop);
            facts.with_congestion(congestion.control, congestion.because)
        }
        BenchWire::Server | BenchWire::ServerHere => facts.chosen_by_path(),
        BenchWire::None => facts,
    }
}

/// The facts of real transfers over loopback whose files, if any, are nowhere in particular.
pub fn of_transfers(bench: &'static str, host: &Host) -> HostFacts {
    HostFacts::new(bench, figures(host), BenchWire::Loopback, None).chosen_by_path()
}

/// The facts of servers that leave the congestion control to the system.
pub fn of_media(host: &Host, file_system: Option<String>, wire: BenchWire) -> HostFacts {
    let facts = HostFacts::new("media", figures(host), wire, file_system);
    facts.with_congestion(None, "not chosen".to_owned())
}

fn figures(host: &Host) -> HostFigures {
    HostFigures {
        cores: host.cores,
        memory_bytes: host.memory_bytes,
        congestion_default: host.congestion_default.clone(),
    }
}
