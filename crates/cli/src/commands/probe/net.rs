//! `haul probe net`: runs the rounds, tells of each as it comes, and shows all at the end.

use super::net_tables;
use crate::{
    args::probe::net::LowProbeNet,
    commands::{results, token_source},
    failure::{ExitStatus, Failure},
    interrupt,
    ui::{self, steps::Steps, units},
};
use haul_host::Host;
use haul_probe::host_figures::host_figures;
use haul_report::{
    host_facts::{BenchWire, HostFacts},
    results::Results,
    steps::ShowSteps as _,
};
use haul_transfer::internals::net::{self, Event, NetReport};
use serde_json::json;
use std::path::Path;

/// Runs the probe and shows what it found.
///
/// # Errors
/// If nothing could start, or it broke off.
pub fn run(low: &LowProbeNet) -> Result<ExitStatus, Failure> {
    let mut probe = low.checked()?;
    token_source::complete(std::slice::from_mut(&mut probe.url), low.token_file.as_deref())?;
    results::ready(&low.output)?;
    let interrupt = interrupt::on_signals()?;
    let mut steps = None;
    let report = net::run(&probe, &interrupt, &mut |event| tell(event, &mut steps));
    drop(steps);
    let report = report?;
    for refused in &report.refused {
        ui::print_to_stderr(&format!("not measured: {}: {}", refused.what, refused.why));
    }
    results::show(results_of(&report), &low.output)
}

/// Tells an event on a line that moves, where standard error is a terminal.
fn tell(event: Event, steps: &mut Option<Steps>) {
    match event {
        Event::Connected { rounds, .. } => *steps = Some(Steps::new(rounds)),
        Event::PathMtuBegins => {
            if let Some(steps) = steps {
                steps.show("the path's MTU");
            }
        }
        Event::RoundBegins { what, .. } => {
            if let Some(steps) = steps {
                steps.begin(&what);
            }
        }
        Event::RoundEnded(round) => {
            if let Some(steps) = steps {
                steps.show(&format!("{}: {}", round.what(), units::rate(round.gbit_per_s())));
            }
        }
        // It is said at the end, with all that was measured.
        Event::RoundRefused { .. } => {}
    }
}

fn results_of(report: &NetReport) -> Results {
    let wire = if report.loopback { BenchWire::ServerHere } else { BenchWire::Server };
    let host = Host::read(Path::new("/"));
    let mut results = Results {
        title: net_tables::sentence(report),
        verdict: Vec::new(),
        words: net_tables::words(report),
        facts: HostFacts::new(
            "probe net",
            host_figures(&host),
            wire,
            Some("none takes part".to_owned()),
        )
        .chosen_by_path(),
        sections: net_tables::sections(report),
        figures: Vec::new(),
        studies: Vec::new(),
        lines: Vec::new(),
        measured: !report.rounds.is_empty(),
    };
    for round in &report.rounds {
        let mut line = json!(round);
        line["event"] = json!("round");
        line["what"] = json!(round.what());
        line["gbit_per_s"] = json!(round.gbit_per_s());
        results.line(&line);
    }
    results.line(&json!({
        "event": "report",
        "ok": report.refused.is_empty(),
        "server": report.server,
        "software": report.software,
        "loopback": report.loopback,
        "rdma": report.rdma,
        "verdict": report.verdict,
        "path": report.path,
        "buffers": report.buffers,
        "refused": report.refused,
    }));
    results
}
