//! Measures one pair of engines over loopback: two processes of this program, one on each side.

use crate::{
    side::{Role, SideDone, SideLine, SideSpec},
    workshop::{Residency, SOURCE, TARGET, Workshop},
};
use anyhow::{Context, Result, bail};
use haul_datapath::choose::{CongestionChoice, PathLength, congestion};
use haul_scratch::child::{Child, Wanted};
use serde::{Serialize, Serializer, ser::SerializeStruct};
use std::time::Duration;

/// Rate below which a pair is given up, in bytes a second.
const RATE_BYTES_PER_S_MIN: u64 = 5 << 20;
/// Shortest time limit of a pair, whatever its size.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Longest time that a side may take to start.
const START_MAX: Duration = Duration::from_secs(20);
/// Longest wait for a reason from the receiving side after the sending one was refused.
const REASON_MAX: Duration = Duration::from_secs(5);
/// Loopback's round trip for the chooser: far below a millisecond.
const LOOPBACK_RTT: Duration = Duration::from_micros(30);

/// The source of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    File(Residency),
    /// The first bytes of the file, sent again and again.
    Fixed {
        window_bytes: u64,
    },
}

impl Source {
    pub fn name(self) -> &'static str {
        match self {
            Self::File(residency) => residency.name(),
            Self::Fixed { .. } => "fixed",
        }
    }

    /// Bytes of the region that is sent again and again.
    pub fn region_bytes(self) -> Option<u64> {
        match self {
            Self::Fixed { window_bytes } => Some(window_bytes),
            Self::File(_) => None,
        }
    }
}

/// The target of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nothing: the bytes are thrown away.
    Null,
    /// A new file, synced at the end.
    File,
}

impl Target {
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null:",
            Self::File => "file",
        }
    }
}

/// A pair of engines to measure. As JSON: its fields in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub send_engine: &'static str,
    pub receive_engine: &'static str,
    pub source: Source,
    pub target: Target,
    pub len_bytes: u64,
    pub streams: u32,
    pub send_block_bytes: Option<usize>,
    pub receive_block_bytes: Option<usize>,
}

impl Serialize for Pair {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("pair", 9)?;
        object.serialize_field("send_engine", self.send_engine)?;
        object.serialize_field("receive_engine", self.receive_engine)?;
        object.serialize_field("source", self.source.name())?;
        object.serialize_field("region_bytes", &self.source.region_bytes())?;
        object.serialize_field("target", self.target.name())?;
        object.serialize_field("bytes", &self.len_bytes)?;
        object.serialize_field("streams", &self.streams)?;
        object.serialize_field("send_block_bytes", &self.send_block_bytes)?;
        object.serialize_field("receive_block_bytes", &self.receive_block_bytes)?;
        object.end()
    }
}

/// Figures that a measurement takes besides time and processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    Nothing,
    /// System calls: the tracepoint that counts them makes each one slower, by a tenth of a
    /// microsecond and for all programs, so a rate measured meanwhile is too low where calls are
    /// small.
    SystemCalls,
    /// Bytes on both sides, sampled at this interval.
    Bytes(Duration),
}

/// Results of one measurement.
#[derive(Clone, Debug)]
pub struct Run {
    /// Time from the sender's first call to the last byte at the receiver, or on its disk for a
    /// file.
    pub seconds: f64,
    pub gb_per_s: f64,
    pub send: SideDone,
    pub receive: SideDone,
}

#[derive(Clone, Debug)]
pub enum Outcome {
    Ran(Box<Run>),
    /// An engine or the host cannot run the pair, for this reason.
    Refused(String),
}

/// The congestion control that haul itself would choose over loopback.
pub fn loopback_congestion(workshop: &Workshop) -> CongestionChoice {
    let length = PathLength { rtt: LOOPBACK_RTT, one_subnet: true };
    congestion(&workshop.host, length, workshop.host.may_administer_network)
}

impl Pair {
    /// Runs the pair once, after source and target were made ready.
    ///
    /// # Errors
    /// If nothing can be measured at all: interrupted, no processes.
    pub fn run(&self, workshop: &Workshop, watch: Watch) -> Result<Outcome> {
        workshop.go_on()?;
        workshop.remove_target()?;
        let residency = match self.source {
            Source::File(residency) => residency,
            Source::Fixed { .. } => Residency::Warm,
        };
        if let Some(why) = workshop.bring(&workshop.source(), self.len_bytes, residency)? {
            return Ok(Outcome::Refused(why));
        }
        let outcome = self.move_bytes(workshop, watch);
        workshop.remove_target()?;
        outcome
    }

    fn spec(&self, role: Role, workshop: &Workshop, watch: Watch) -> SideSpec {
        let receives = role == Role::Receive;
        let congestion = loopback_congestion(workshop).control;
        SideSpec {
            engine: if receives { self.receive_engine } else { self.send_engine }.to_owned(),
            role,
            streams: self.streams,
            len_bytes: self.len_bytes,
            block_bytes: if receives { self.receive_block_bytes } else { self.send_block_bytes },
            file: match (receives, self.target) {
                (false, _) => Some(SOURCE.into()),
                (true, Target::File) => Some(TARGET.into()),
                (true, Target::Null) => None,
            },
            repeating_bytes: match self.source {
                Source::Fixed { window_bytes } if !receives => Some(window_bytes),
                _ => None,
            },
            congestion: congestion.filter(|_| !receives),
            sample_every_ms: match watch {
                Watch::Bytes(every) => Some(every.as_millis() as u64),
                Watch::Nothing | Watch::SystemCalls => None,
            },
            count_calls: watch == Watch::SystemCalls,
        }
    }

    fn move_bytes(&self, workshop: &Workshop, watch: Watch) -> Result<Outcome> {
        let time_max = TIME_MAX + Duration::from_secs(self.len_bytes / RATE_BYTES_PER_S_MIN);
        let start = |name: &str, role: Role| {
            let spec = serde_json::to_string(&self.spec(role, workshop, watch))?;
            Child::start(workshop.path(), name, |command| {
                command.args(["bench-side", &spec]);
            })
        };
        let mut receiver = start("receive", Role::Receive)?;
        let port = match next_line(&mut receiver, workshop, START_MAX)? {
            Some(SideLine::Listening { port }) => port,
            Some(SideLine::Refused { why, .. }) => return Ok(self.refused(Role::Receive, &why)),
            _ => bail!("the receiving side did not start: {}", receiver.errors()),
        };
        let send = Role::Send { port };
        let mut sender = start("send", send)?;
        let sent = match next_line(&mut sender, workshop, time_max)? {
            Some(SideLine::Done(sent)) => sent,
            Some(SideLine::Refused { why, by_peer }) => {
                let other = next_line(&mut receiver, workshop, REASON_MAX)?;
                return Ok(match (by_peer, other) {
                    (true, Some(SideLine::Refused { why, by_peer: false })) => {
                        self.refused(Role::Receive, &why)
                    }
                    _ => self.refused(send, &why),
                });
            }
            _ => return Ok(self.gave_up(time_max, &[&sender, &receiver])),
        };
        match next_line(&mut receiver, workshop, time_max)? {
            Some(SideLine::Done(received)) => Ok(Outcome::Ran(Box::new(self.ran(sent, received)))),
            Some(SideLine::Refused { why, .. }) => Ok(self.refused(Role::Receive, &why)),
            _ => Ok(self.gave_up(time_max, &[&sender, &receiver])),
        }
    }

    fn ran(&self, send: SideDone, receive: SideDone) -> Run {
        let ns = receive.end_ns.saturating_sub(send.start_ns).max(1);
        let gb_per_s = self.len_bytes as f64 / ns as f64;
        Run { seconds: ns as f64 / 1e9, gb_per_s, send, receive }
    }

    fn refused(&self, role: Role, why: &str) -> Outcome {
        let engine = match role {
            Role::Send { .. } => self.send_engine,
            Role::Receive | Role::Read => self.receive_engine,
        };
        Outcome::Refused(format!("{engine}: {why}"))
    }

    fn gave_up(&self, time_max: Duration, sides: &[&Child]) -> Outcome {
        let said: Vec<String> = sides.iter().map(|side| side.errors()).collect();
        let time_max = time_max.as_secs();
        Outcome::Refused(format!("not done within {time_max} s, or died: {}", said.join("; ")))
    }
}

fn next_line(side: &mut Child, workshop: &Workshop, wait: Duration) -> Result<Option<SideLine>> {
    let line = side.wait_for(wait, || workshop.go_on(), |line| Wanted::This(line.clone()))?;
    line.map(|line| serde_json::from_value(line).context("a side printed an odd line")).transpose()
}
