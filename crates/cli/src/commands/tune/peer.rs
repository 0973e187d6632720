//! The peer of `haul tune`: findings of its own checks, and a short probe of the path to it.

use crate::{
    args::{tune::LowTune, usage_problem},
    commands::token_source,
    failure::Failure,
    interrupt,
    ui::{self, json, printable, units},
};
use haul_host::tune::Role;
use haul_transfer::{
    HaulUrl, Interrupt,
    internals::net::{self, AuditGoal, NetProbe, NetReport, PeerAudit, PeerFinding, Ways},
};
use std::time::Duration;

/// Number of a probe's streams: as many as a transfer takes on a long path.
const STREAMS: u32 = 4;
/// Time of the audit's own probe, which only looks.
const LOOK_TIME: Duration = Duration::from_secs(2);
/// Time left out at a probe's beginning, while windows open.
const OMIT: Duration = Duration::from_millis(500);

/// The server at the other end, and who may stop the probes of it.
pub struct Peer {
    url: HaulUrl,
    interrupt: Interrupt,
}

impl Peer {
    /// The peer of a command line; `None` where no URL was given.
    ///
    /// # Errors
    /// If the URL or its token cannot be taken.
    pub fn of(low: &LowTune) -> Result<Option<Self>, Failure> {
        let Some(url) = &low.url else { return Ok(None) };
        let mut url: HaulUrl = url.parse().map_err(|error: haul_transfer::UrlError| {
            // The word itself is not shown: it may hold a token.
            usage_problem(&error.to_string(), "", "", "")
        })?;
        token_source::complete(std::slice::from_mut(&mut url), low.token_file.as_deref())?;
        Ok(Some(Self { url, interrupt: interrupt::on_signals()? }))
    }

    /// Makes a short probe, and asks for what the server's checks find.
    ///
    /// # Errors
    /// If it could not start, or broke off.
    pub fn look(&self, low: &LowTune) -> Result<NetReport, Failure> {
        let wanted = low.wanted();
        let role: Role = wanted.role;
        let audit =
            AuditGoal { role, rate_bits_per_s: wanted.rate_bits_per_s, rtt_ms: wanted.rtt_ms };
        let probe = NetProbe { time: LOOK_TIME, audit: Some(audit), ..self.probe(Ways::ToServer) };
        let quiet: &mut dyn FnMut(net::Event) = &mut |_| {};
        let to_server = net::run(&probe, &self.interrupt, quiet);
        // A token that may only read can be probed the other way.
        let report = to_server.or_else(|error| {
            let to_client = NetProbe { ways: Ways::ToClient, ..probe.clone() };
            net::run(&to_client, &self.interrupt, quiet).map_err(|_| error)
        });
        Ok(report?)
    }

    /// Measures what the path carries now, both ways together, in Gbit/s.
    ///
    /// # Errors
    /// If it could not be measured.
    pub fn measure(&self, time: Duration) -> Result<f64, Failure> {
        let probe = NetProbe { time, path_mtu: false, ..self.probe(Ways::Both) };
        let report = net::run(&probe, &self.interrupt, &mut |_| {})?;
        Ok(report.rounds.iter().map(net::Round::gbit_per_s).sum())
    }

    fn probe(&self, ways: Ways) -> NetProbe {
        let streams = vec![STREAMS];
        NetProbe { ways, streams, omit: OMIT, ..NetProbe::new(self.url.clone()) }
    }
}

/// The path's round trip time in milliseconds, for the goal.
pub fn rtt_ms(report: &NetReport) -> Option<f64> {
    let rtt_us = report.path.min_rtt_us;
    // Less than this is within a host or a rack, and no goal.
    (rtt_us >= 50).then(|| (f64::from(rtt_us) / 10.0).round() / 100.0)
}

pub fn print_json(report: &NetReport) {
    json::print(&serde_json::json!({
        "event": "path", "server": report.server, "path": report.path,
        "buffers": report.buffers, "verdict": report.verdict,
    }));
    let Some(audit) = &report.audit else { return };
    for finding in &audit.findings {
        let mut line = serde_json::json!(finding);
        line["event"] = "peer_finding".into();
        json::print(&line);
    }
    json::print(&serde_json::json!({
        "event": "peer", "server": report.server, "goal": audit.goal, "score": audit.score,
    }));
}

/// The path and then the peer in words, as paragraphs.
pub fn text(report: &NetReport, all: bool) -> String {
    let mut parts = vec![path_text(report)];
    if let Some(audit) = &report.audit {
        parts.push(peer_text(audit, &report.server, all));
    }
    parts.join("\n\n")
}

fn path_text(report: &NetReport) -> String {
    let path = &report.path;
    let mut lines = vec![format!("The path to {}", report.server)];
    if report.loopback {
        lines.push("  -  both ends are this host: there is no network between them".to_owned());
    }
    let rtt_us = path.min_rtt_us;
    if rtt_us > 0 {
        lines.push(format!("  ok round trip time: {} ms at least", f64::from(rtt_us) / 1000.0));
    }
    if let Some(hole) = &path.black_hole {
        lines.push(format!(
            "  !! MTU: packets of {} bytes vanish without a word, {} pass: a smaller MTU on the \
             way, and what routers say of it is dropped",
            hole.vanishes_bytes, hole.passes_bytes
        ));
    } else if path.passes_to_server_bytes > 0 {
        lines.push(format!(
            "  ok MTU: packets of {} bytes arrive there and {} here; this host's card has {}",
            path.passes_to_server_bytes, path.passes_to_client_bytes, path.interface_mtu_bytes
        ));
    }
    for buffers in &report.buffers {
        let (rtt, needed) =
            (f64::from(buffers.rtt_us) / 1000.0, units::bytes(buffers.needed_bytes));
        let mark = if buffers.enough { "ok" } else { "!!" };
        lines.push(format!(
            "  {mark} buffers: {} streams at {rtt:.2} ms need {needed} each; allowed are {} to \
             send, {} to receive",
            buffers.streams,
            units::bytes(buffers.send_max_bytes),
            units::bytes(buffers.receive_max_bytes)
        ));
        if !buffers.enough && !buffers.advice.is_empty() {
            lines.push(format!("     {}", buffers.advice));
        }
    }
    let verdict = &report.verdict;
    let said = [&verdict.sentence, &verdict.advice];
    lines
        .extend(said.iter().filter(|words| !words.is_empty()).map(|words| format!("     {words}")));
    lines.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n")
}

fn peer_text(audit: &PeerAudit, server: &str, all: bool) -> String {
    let PeerAudit { goal, score, findings } = audit;
    let mut lines = vec![format!("The peer {server}: {score} of 100 as a {goal}")];
    let is_news = |finding: &&PeerFinding| matches!(&finding.state[..], "improve" | "unknown");
    let shown: Vec<&PeerFinding> =
        findings.iter().filter(|finding| all || is_news(finding)).collect();
    let mut group = "";
    for finding in shown {
        if finding.group != group {
            group = &finding.group;
            lines.push(group.to_owned());
        }
        lines.push(peer_block(finding));
    }
    lines.iter().map(|line| clean(line)).collect::<Vec<_>>().join("\n")
}

/// Lines of the peer, each without what could play with a terminal: another host wrote them.
fn clean(lines: &str) -> String {
    lines.lines().map(printable).collect::<Vec<_>>().join("\n")
}

fn peer_block(finding: &PeerFinding) -> String {
    let PeerFinding { check, subject, state, weight, found, wanted, note, command, needs, .. } =
        finding;
    let mark = match (&state[..], &weight[..]) {
        ("improve", "high") => "!!",
        ("improve", "medium") => "! ",
        ("improve", _) => ". ",
        ("good", _) => "ok",
        ("absent", _) => "- ",
        _ => "? ",
    };
    let one_line = |text: &str| text.replace(['\n', '\r'], " ");
    let wanted = if wanted.is_empty() { String::new() } else { format!(" -> {wanted}") };
    let mut lines = vec![one_line(&format!("  {mark} {check:<19} {subject}: {found}{wanted}"))];
    let mut below = |text: &str| lines.push(format!("{:25}{}", "", one_line(text)));
    if !note.is_empty() {
        below(note);
    }
    if state == "improve" && !command.is_empty() {
        let who = if needs == "root" { String::new() } else { format!("needs {needs}: ") };
        below(&format!("{who}there: $ {command}"));
    }
    lines.join("\n")
}

/// Tells that a measurement begins that takes its time.
pub fn tell_measuring(low: &LowTune, changes: usize) {
    if !low.json {
        let each = low.measure_time.0 + OMIT;
        let rounds = u32::try_from((changes + 1) * super::measure::ROUNDS).unwrap_or(u32::MAX);
        let whole = units::time((each * rounds).as_secs_f64());
        ui::print_to_stdout(&format!(
            "Measuring {changes} changes, one at a time, over the path: about {whole}."
        ));
    }
}
