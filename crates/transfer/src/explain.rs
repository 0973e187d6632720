//! Explanation of the choices (`--explain`). It tells the facts that the engines, the streams and
//! the congestion control were chosen by, what there was to choose from, and the choice.

use crate::{
    events::{Candidate, Event, Explained},
    name::printable,
    problem::Side,
    session::streams::StreamSetup,
};
use haul_datapath::{EngineInfo, Host, Verdict, choose};
use haul_protocol::{limits::EXPLAINED_MAX, message};
use haul_report::units;
use std::time::Duration;

impl Explained {
    /// Explains one side's engines, with the facts about its host behind those about its files.
    #[must_use]
    pub fn engines(
        side: Side,
        mut facts: Vec<String>,
        host: &Host,
        choice: &choose::Choice,
    ) -> Self {
        facts.extend(host_facts(host));
        let usable = |engine: &&'static EngineInfo| Candidate {
            engine: engine.name.into(),
            usable: true,
            what: engine.summary.into(),
        };
        let passed_over = |engine: &choose::PassedOver| Candidate {
            engine: engine.name.clone(),
            usable: false,
            what: engine.why.clone(),
        };
        let mut candidates: Vec<Candidate> = choice.candidates.iter().map(usable).collect();
        candidates.extend(choice.passed_over.iter().map(passed_over));
        if side == Side::Target
            && let Verdict::Refused { needs, found } = haul_datapath::zcrx::verdict(host)
        {
            let what = format!("needs {needs}, found {found}");
            candidates.push(Candidate { engine: "io_uring zcrx".into(), usable: false, what });
        }
        Self { side, facts, candidates, because: vec![choice.because.clone()] }
    }

    /// Explains streams, spans and congestion control.
    #[must_use]
    pub fn path(
        rtt: Duration,
        same_host: bool,
        setup: &StreamSetup,
        streams: String,
        others: impl Iterator<Item = String>,
    ) -> Self {
        let host = &setup.host;
        let place = if same_host { ", both ends on this host" } else { "" };
        let permitted = if host.may_administer_network {
            &host.congestion_available
        } else {
            &host.congestion_allowed
        };
        let facts = vec![
            format!("round trip {:.2} ms{place}", rtt.as_secs_f64() * 1e3),
            format!(
                "congestion control {} by default, permitted: {}",
                host.congestion_default,
                permitted.join(", ")
            ),
        ];
        let mut because = vec![setup.congestion.because.clone(), streams];
        because.extend(others);
        if let Some(rate) = setup.pacing_bytes_per_s {
            because.push(format!("each stream is paced at {:.0} MB/s", rate as f64 / 1e6));
        }
        Self { side: Side::Path, facts, candidates: Vec::new(), because }
    }

    pub(crate) fn into_message(self) -> message::Explained {
        let candidate =
            |Candidate { engine, usable, what }| message::Candidate { engine, usable, what };
        message::Explained {
            facts: self.facts.into_iter().take(EXPLAINED_MAX).collect(),
            candidates: self.candidates.into_iter().map(candidate).take(EXPLAINED_MAX).collect(),
            because: self.because.join("; "),
        }
    }

    /// Explanation that a peer sent of its side, made printable: its words reach a terminal.
    pub(crate) fn from_message(explained: &message::Explained, side: Side) -> Self {
        let candidate = |candidate: &message::Candidate| Candidate {
            engine: printable(&candidate.engine),
            usable: candidate.usable,
            what: printable(&candidate.what),
        };
        Self {
            side,
            facts: explained.facts.iter().map(|fact| printable(fact)).collect(),
            candidates: explained.candidates.iter().map(candidate).collect(),
            because: vec![printable(&explained.because)],
        }
    }
}

impl From<Explained> for Event {
    fn from(explained: Explained) -> Self {
        Self::Explained(explained)
    }
}

/// Facts about the host that the choice depends on.
fn host_facts(host: &Host) -> Vec<String> {
    let io_uring = if host.io_uring_disabled { "switched off" } else { "permitted" };
    let locked = match host.memlock_limit_bytes {
        u64::MAX => "no limit".to_owned(),
        bytes => units::bytes_in_words(bytes),
    };
    let (major, minor) = host.kernel;
    vec![
        format!(
            "Linux {major}.{minor}, {} cores, {} of memory, of which {} are available",
            host.cores,
            units::bytes(host.memory_bytes),
            units::bytes(host.memory_available_bytes)
        ),
        format!(
            "writers wait for the disk from {} unwritten on",
            units::bytes(host.dirty_limit_bytes)
        ),
        format!("io_uring is {io_uring}, locked memory has {locked}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_datapath::{
        WireKind,
        choose::{SendFacts, Source},
    };

    #[test]
    fn what_a_peer_explains_arrives_without_control_characters() {
        let host = Host { kernel: (6, 1), cores: 2, io_uring_disabled: true, ..Host::default() };
        let facts = SendFacts {
            host: &host,
            wire: WireKind::Tcp,
            source: Source::File(haul_host::FsKind::Ext),
            size_bytes: 1 << 30,
            resident_share: 0.0,
            digest: true,
            forced: None,
        };
        let choice = choose::send_engine(&facts).unwrap();
        let mine = Explained::engines(Side::Source, vec!["ext4".into()], &host, &choice);
        let usable = |name: &str| {
            mine.candidates.iter().find(|c| c.engine == name).map(|candidate| candidate.usable)
        };
        assert_eq!((usable("io-uring"), usable("direct")), (Some(false), Some(true)));
        let said = mine.clone().into_message();
        assert_eq!(Explained::from_message(&said, Side::Source), mine);
        let hostile = message::Explained { facts: vec!["\x1b[2J".into()], ..said };
        assert!(!Explained::from_message(&hostile, Side::Source).facts[0].contains('\x1b'));
    }
}
