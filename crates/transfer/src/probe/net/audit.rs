//! Audit of the server's host: asked for in a probe's session, answered by the host's own checks.

use haul_host::{
    checks,
    tune::{self, Finding, Goal, Machine, Role, Wanted},
};
use haul_protocol::{limits, message};
use serde::Serialize;

/// Most audits that one session may ask for.
pub(crate) const AUDITS_MAX: u32 = 4;
/// Findings beyond which no more are taken from a server.
pub(crate) const FINDINGS_MAX: usize = 1024;

/// The goal that a peer's host is checked for.
#[derive(Clone, Copy, Debug)]
pub struct AuditGoal {
    /// The use that the host is tuned for.
    pub role: Role,
    /// Rate to tune for, in bits a second; `None`: that of the host's fastest card.
    pub rate_bits_per_s: Option<u64>,
    /// Round-trip time to tune for, in milliseconds; `None`: as the path is measured.
    pub rtt_ms: Option<f64>,
}

/// Findings of a peer's checks, in its words.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PeerAudit {
    /// The goal in words: role, rate and round-trip time.
    pub goal: String,
    /// Share of the settings that are right, by weight: 0 to 100.
    pub score: u32,
    /// Findings of each check.
    pub findings: Vec<PeerFinding>,
}

/// A [`Finding`] without its changes, which are made on the peer.
#[derive(Clone, Debug, Serialize)]
pub struct PeerFinding {
    /// Heading that the check stands under.
    pub group: String,
    /// Name of the check.
    pub check: String,
    /// The thing that was checked, such as a network card.
    pub subject: String,
    /// State of the setting, in a word: whether it is right.
    pub state: String,
    /// Weight of the setting, in a word: how much it matters.
    pub weight: String,
    /// The value that the host has.
    pub found: String,
    /// The value that it should have.
    pub wanted: String,
    /// The reason for the value, in a sentence.
    pub note: String,
    /// Command that sets the wanted value.
    pub command: String,
    /// Requirement of the command, such as root.
    pub needs: String,
}

pub(super) fn question(goal: &AuditGoal, measured_rtt_us: u64) -> message::Audit {
    let rtt_us = goal.rtt_ms.map_or(measured_rtt_us, |rtt_ms| (rtt_ms * 1000.0) as u64);
    message::Audit {
        role: word(&goal.role),
        rate_bits_per_s: goal.rate_bits_per_s.unwrap_or(0),
        rtt_us,
    }
}

/// Runs the checks here, and puts what they found into messages.
pub(crate) fn answer(asked: &message::Audit) -> Vec<message::Audited> {
    let machine = Machine::live();
    let role = match &asked.role[..] {
        "test-host" => Role::TestHost,
        "media" => Role::Media,
        _ => Role::Dtn,
    };
    let wanted = Wanted {
        role,
        rate_bits_per_s: Some(asked.rate_bits_per_s).filter(|rate| *rate > 0),
        rtt_ms: Some(asked.rtt_us as f64 / 1000.0).filter(|rtt| *rtt > 0.0),
        card: None,
    };
    let goal = Goal::of(&machine, &wanted);
    let findings = checks::audit(&machine, &goal);
    let score = tune::score(&findings);
    let parts: Vec<&[Finding]> = findings.chunks(limits::AUDIT_FINDINGS_MAX).collect();
    let last = parts.len().saturating_sub(1);
    let part = |(index, part): (usize, &&[Finding])| message::Audited {
        goal: goal.words(),
        score,
        findings: part.iter().map(finding).collect(),
        more_follows: index < last,
    };
    let messages: Vec<message::Audited> = parts.iter().enumerate().map(part).collect();
    if messages.is_empty() { vec![message::Audited::default()] } else { messages }
}

fn finding(finding: &Finding) -> message::AuditFinding {
    let group = checks::find(finding.check).map_or("", |check| check.group.title());
    let text = |text: &str| {
        // What a driver says may be long; nobody reads more of it.
        text.chars().take(500).collect::<String>()
    };
    message::AuditFinding {
        group: group.to_owned(),
        check: finding.check.to_owned(),
        subject: text(&finding.subject),
        state: word(&finding.state),
        weight: word(&finding.weight),
        found: text(&finding.found),
        wanted: text(&finding.wanted),
        note: text(&finding.note),
        command: text(&finding.command),
        needs: finding.needs.words().to_owned(),
    }
}

/// The word for a value, as JSON has it.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// Adds a part of the answer to `audit`; true once it was the last.
pub(super) fn take(audit: &mut PeerAudit, part: message::Audited) -> bool {
    audit.goal = part.goal;
    audit.score = part.score.min(100);
    audit.findings.extend(part.findings.into_iter().map(|finding| PeerFinding {
        group: finding.group,
        check: finding.check,
        subject: finding.subject,
        state: finding.state,
        weight: finding.weight,
        found: finding.found,
        wanted: finding.wanted,
        note: finding.note,
        command: finding.command,
        needs: finding.needs,
    }));
    !part.more_follows || audit.findings.len() > FINDINGS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_answered_is_what_is_understood() {
        let goal = AuditGoal { role: Role::TestHost, rate_bits_per_s: None, rtt_ms: Some(80.0) };
        let asked = question(&goal, 5);
        assert_eq!((&asked.role[..], asked.rtt_us), ("test-host", 80_000));
        let parts = answer(&asked);
        assert!(parts.len() > 1, "more findings than one part holds");
        let mut audit = PeerAudit::default();
        let ends: Vec<bool> = parts.into_iter().map(|part| take(&mut audit, part)).collect();
        assert!(ends.iter().rev().skip(1).all(|end| !end) && ends.last() == Some(&true));
        assert!(audit.goal.contains("80 ms") && audit.score <= 100);
        assert!(audit.findings.iter().any(|finding| finding.check == "tcp-buffers"));
        assert!(audit.findings.iter().all(|finding| !finding.group.is_empty()));
    }
}
