//! The server's side of a probe: rounds, one after the other, each within its limits.

use super::{
    audit::{self, AUDITS_MAX},
    datagram::KEY_BYTES,
    datagrams::{self, Datagrams},
    endpoints::Pings,
    marks::{LOOK_EVERY, Marks},
    streams::{RunningStreams, Work},
    talk::{Ended, Talk},
};
use crate::{
    bytes::random_bytes,
    constants::BUFFER_BYTES_MAX,
    error::io_fault,
    session::{
        right_lost::RightLost,
        streams::{StreamSetup, Streams},
    },
};
use haul_protocol::{
    Message, ProtocolError, StreamId, limits,
    message::{self, Fault, FaultCode, ProbeKind, Side},
};
use std::{
    io,
    net::{IpAddr, TcpStream},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

/// Time that a client may take to bring its streams.
const SETUP_MAX: Duration = Duration::from_secs(10);
/// Time that datagrams may take to be heard of.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// Time that a client may take between rounds.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Time that all rounds may take together.
const SESSION_MAX: Duration = Duration::from_secs(6 * 3600);
/// Time in which a receiver takes what comes late.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// Time, beside a round trip, after which datagrams on their way have arrived.
const LATE: Duration = Duration::from_millis(200);

/// A probe's session on the server.
pub struct Serving<'a> {
    pub talk: Talk<'a>,
    pub setup: StreamSetup,
    pub streams: Arc<Streams>,
    pub attached: mpsc::Receiver<(StreamId, TcpStream)>,
    /// The address that the client reached, and the port of the server.
    pub local: (IpAddr, u16),
    pub rtt: Duration,
    pub streams_max: u32,
    /// Whether the token allows this round.
    pub allows: &'a dyn Fn(&message::Probe) -> Result<(), Fault>,
    /// The reason why the token is good no more, with which the session is interrupted.
    pub right_lost: RightLost,
}

/// A round on its way.
enum Running {
    Streams(RunningStreams),
    Datagrams(Datagrams),
}

/// Amounts that a probe moved, for the log.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    pub rounds: u32,
    pub bytes: u64,
    /// The reason why the last round failed that did.
    pub fault: Option<Fault>,
}

impl Serving<'_> {
    /// Serves rounds until the client has no more.
    pub fn run(&mut self) -> (Ended, Moved) {
        let (begun, mut moved) = (Instant::now(), Moved::default());
        let mut audits = 0;
        let mut next_stream = 0;
        loop {
            let idle_until = Instant::now() + IDLE_MAX;
            let probe = match self.next_round(idle_until, &mut audits) {
                Ok(probe) => probe,
                Err(ended) => return (self.ended(ended), moved),
            };
            let known = probe.round == moved.rounds + 1 && probe.first_stream.0 >= next_stream;
            if !known {
                let error = ProtocolError::new("a round or stream of a probe out of order");
                return (self.ended(Ended::Violated(error.to_fault())), moved);
            }
            moved.rounds = probe.round;
            next_stream = probe.first_stream.0 + 2 * probe.streams;
            if begun.elapsed() > SESSION_MAX {
                let what = "the probe takes longer than a server allows";
                let needs = format!("at most {} hours", SESSION_MAX.as_secs() / 3600);
                let fault = Fault::new(FaultCode::TooManySessions, Side::Unknown, what);
                let fault = fault.needs(needs).hint("run it again, with fewer rounds");
                self.talk.close(Some(fault.clone()));
                return (Ended::Refused(fault), moved);
            }
            match self.round(&probe) {
                Ok((bytes, fault)) => {
                    moved.bytes += bytes;
                    moved.fault = fault.or(moved.fault);
                }
                Err(ended) => return (self.ended(ended), moved),
            }
        }
    }

    fn ended(&mut self, ended: Ended) -> Ended {
        if let (Ended::Interrupted, Some(fault)) = (&ended, self.right_lost.fault()) {
            self.talk.close(Some(fault.clone()));
            return Ended::Refused(fault.clone());
        }
        match &ended {
            Ended::Violated(fault) => self.talk.close(Some(fault.clone())),
            Ended::Interrupted => {
                let what = "the server ends";
                let fault = Fault::new(FaultCode::ShuttingDown, Side::Unknown, what);
                self.talk.close(Some(fault));
            }
            _ => self.talk.close(None),
        }
        ended
    }

    fn next_round(&mut self, until: Instant, audits: &mut u32) -> Result<message::Probe, Ended> {
        loop {
            let mut next = None;
            for message in self.talk.hear(until)? {
                match message {
                    Message::Probe(probe) if next.is_none() => next = Some(probe),
                    Message::Audit(asked) if *audits < AUDITS_MAX && next.is_none() => {
                        *audits += 1;
                        for part in audit::answer(&asked) {
                            self.talk.say(Message::Audited(part));
                        }
                    }
                    // The round before was over already.
                    Message::ProbeStep(_) if next.is_none() => {}
                    _ => return Err(out_of_place()),
                }
            }
            if let Some(probe) = next {
                return Ok(probe);
            }
            if Instant::now() > until {
                return Err(Ended::Lost(format!("no round for {} s", IDLE_MAX.as_secs())));
            }
        }
    }

    /// Runs one round: what it moved, as this side counted, and why it failed.
    fn round(&mut self, probe: &message::Probe) -> Result<(u64, Option<Fault>), Ended> {
        let round = probe.round;
        let refused = (self.allows)(probe).and_then(|()| self.check(probe)).err();
        let outcome = match refused {
            Some(fault) => Err(Stop::Round(fault)),
            None if matches!(probe.kind, ProbeKind::Streams | ProbeKind::Endpoints) => {
                self.streams_round(probe)
            }
            None if probe.kind == ProbeKind::EndpointPings => self.pings_round(probe),
            None => self.datagrams_round(probe),
        };
        let result = match outcome {
            Ok(streams) => message::ProbeResult { round, streams, fault: None },
            Err(Stop::Round(fault)) => {
                message::ProbeResult { round, fault: Some(fault), streams: Vec::new() }
            }
            Err(Stop::Session(ended)) => return Err(ended),
        };
        let bytes = result.streams.iter().map(|stream| stream.bytes).sum();
        let fault = result.fault.clone();
        self.talk.say(Message::ProbeResult(result));
        Ok((bytes, fault))
    }

    /// Echoes what comes by one pair of RDMA endpoints on another one.
    fn pings_round(&mut self, probe: &message::Probe) -> Result<Vec<message::ProbeStream>, Stop> {
        self.attached.try_iter().for_each(|(stream, _)| self.streams.release(stream));
        self.talk.say(Message::ProbeReady(message::ProbeReady {
            round: probe.round,
            ..Default::default()
        }));
        let wanted = datagrams::streams_of(probe, true);
        let mut claimed = Claimed { streams: self.streams.clone(), ids: Vec::new() };
        let mut streams = self.gather(&wanted, probe, &mut claimed)?;
        streams.sort_unstable_by_key(|(stream, ..)| stream.0);
        let sockets: Vec<TcpStream> = streams.into_iter().map(|(_, socket, _)| socket).collect();
        let (Ok(sockets), Some(route)) = (<[TcpStream; 2]>::try_from(sockets), &self.setup.rdma)
        else {
            return Err(Stop::Session(out_of_place()));
        };
        let pings = Pings::start(route, sockets, probe.block_bytes).map_err(Stop::io)?;
        let time = Duration::from_millis(probe.time_ms.into()) + SETUP_MAX;
        let until = Instant::now() + time;
        while !pings.are_over() && Instant::now() < until {
            let soon = Instant::now() + Duration::from_millis(20);
            if !self.talk.hear(soon)?.is_empty() {
                return Err(Stop::Session(out_of_place()));
            }
        }
        if !pings.are_over() {
            let fault = Fault::new(FaultCode::Stalled, Side::Path, "pings over RDMA do not end");
            return Err(Stop::Round(fault.found(format!("{} s", time.as_secs()))));
        }
        pings.finish().map_err(Stop::io)?;
        Ok(Vec::new())
    }

    fn check(&self, probe: &message::Probe) -> Result<(), Fault> {
        let by_rdma = matches!(probe.kind, ProbeKind::Endpoints | ProbeKind::EndpointPings);
        if by_rdma && self.setup.rdma.is_none() {
            let what = "the session was not opened for RDMA endpoints";
            return Err(Fault::new(FaultCode::NotPermitted, Side::Unknown, what));
        }
        if probe.streams > self.streams_max {
            let what = "the server does not take so many streams";
            return Err(Fault::new(FaultCode::TooManySessions, Side::Unknown, what)
                .needs(format!("at most {}", self.streams_max))
                .found(format!("{}", probe.streams))
                .hint("take fewer --streams, or raise --max-streams there"));
        }
        let connections = datagrams::streams_of(probe, true).len() as u64;
        let buffers_bytes = connections * u64::from(probe.block_bytes);
        if buffers_bytes > BUFFER_BYTES_MAX as u64 {
            let what = "the server does not hold so much memory for a probe";
            return Err(Fault::new(FaultCode::NotPermitted, Side::Unknown, what)
                .needs(format!("at most {BUFFER_BYTES_MAX} bytes in all blocks"))
                .found(format!("{connections} of {} bytes", probe.block_bytes))
                .hint("take a smaller --block, or fewer --streams"));
        }
        let host = &self.setup.host;
        let wanted = &probe.congestion;
        let known = host.may_administer_network && host.congestion_available.contains(wanted)
            || host.congestion_allowed.contains(wanted)
            || *wanted == host.congestion_default;
        if wanted.is_empty() || known {
            return Ok(());
        }
        let what = format!("the server may not use the congestion control {wanted}");
        Err(Fault::new(FaultCode::NotPermitted, Side::Unknown, what)
            .needs("one of net.ipv4.tcp_allowed_congestion_control there")
            .found(host.congestion_allowed.join(" "))
            .hint("load its module there, or run the server as root"))
    }

    fn streams_round(&mut self, probe: &message::Probe) -> Result<Vec<message::ProbeStream>, Stop> {
        // What came late for an earlier round.
        self.attached.try_iter().for_each(|(stream, _)| self.streams.release(stream));
        self.talk.say(Message::ProbeReady(message::ProbeReady {
            round: probe.round,
            ..Default::default()
        }));
        let wanted = datagrams::streams_of(probe, true);
        let mut claimed = Claimed { streams: self.streams.clone(), ids: Vec::new() };
        let streams = self.gather(&wanted, probe, &mut claimed)?;
        let mut setup = self.setup.clone();
        if !probe.congestion.is_empty() {
            setup.congestion.control = Some(probe.congestion.clone());
        }
        setup.pacing_bytes_per_s = Some(probe.rate_bytes_per_s)
            .filter(|rate| *rate > 0)
            .map(|rate| (rate / u64::from(probe.streams)).max(1));
        let running = RunningStreams::start(streams, probe, &setup).map_err(Stop::io)?;
        self.run_round(probe, Running::Streams(running))
    }

    /// Waits for all streams of a round.
    fn gather(
        &mut self,
        wanted: &[(StreamId, bool)],
        probe: &message::Probe,
        claimed: &mut Claimed,
    ) -> Result<Vec<(StreamId, TcpStream, Work)>, Stop> {
        let until = Instant::now() + SETUP_MAX;
        let mut streams = Vec::new();
        while streams.len() < wanted.len() {
            for (id, socket) in self.attached.try_iter() {
                claimed.ids.push(id);
                let Some((_, sends)) = wanted.iter().find(|(stream, _)| *stream == id) else {
                    continue;
                };
                let work = match (sends, probe.discard) {
                    (true, _) => Work::Send,
                    (false, false) => Work::Receive,
                    (false, true) => Work::Discard,
                };
                streams.push((id, socket, work));
            }
            if streams.len() == wanted.len() {
                break;
            }
            if Instant::now() > until {
                let what = "not all data streams of the probe arrived at the server";
                let fault = Fault::new(FaultCode::Stalled, Side::Path, what);
                let needs = format!("{} within {} s", wanted.len(), SETUP_MAX.as_secs());
                let hint = "does a firewall limit connections to the server's port?";
                let found = format!("{}", streams.len());
                return Err(Stop::Round(fault.needs(needs).found(found).hint(hint)));
            }
            if !self.talk.hear(until)?.is_empty() {
                return Err(Stop::Session(out_of_place()));
            }
        }
        Ok(streams)
    }

    fn datagrams_round(
        &mut self,
        probe: &message::Probe,
    ) -> Result<Vec<message::ProbeStream>, Stop> {
        let (ip, port) = self.local;
        let socket = datagrams::bind(ip, port).map_err(Stop::io)?;
        let udp_port = socket.local_addr().map_err(Stop::io)?.port();
        let key: [u8; KEY_BYTES] = random_bytes().map_err(Stop::io)?;
        let datagrams = Datagrams::serve(probe, socket, key).map_err(Stop::io)?;
        self.talk.say(Message::ProbeReady(message::ProbeReady {
            round: probe.round,
            udp_port,
            datagram_key: Some(message::Secret(key)),
        }));
        let until = Instant::now() + HELLO_MAX;
        while !datagrams.are_proved() {
            if Instant::now() > until {
                let what = "datagrams do not come through to the server";
                let fault = Fault::new(FaultCode::Stalled, Side::Path, what)
                    .needs(format!("{} streams by UDP to port {udp_port}", probe.streams))
                    .found(format!("{} within {} s", datagrams.proved(), HELLO_MAX.as_secs()))
                    .hint("let UDP through to that port, as TCP is");
                return Err(Stop::Round(fault));
            }
            let soon = Instant::now() + Duration::from_millis(2);
            if !self.talk.hear(soon)?.is_empty() {
                return Err(Stop::Session(out_of_place()));
            }
        }
        self.run_round(probe, Running::Datagrams(datagrams))
    }

    /// Runs a round, from the begin of its time to its last figures.
    fn run_round(
        &mut self,
        probe: &message::Probe,
        mut running: Running,
    ) -> Result<Vec<message::ProbeStream>, Stop> {
        let round = probe.round;
        self.talk.say(Message::ProbeStep(message::ProbeStep { round, over: false }));
        let is_path_mtu = probe.kind == ProbeKind::PathMtu;
        if let Running::Datagrams(datagrams) = &mut running
            && !is_path_mtu
        {
            datagrams.begin(probe, true).map_err(Stop::io)?;
        }
        let mut marks = Marks::begin(probe);
        while let Some(next) = marks.next() {
            match self.talk.hear(next.min(Instant::now() + LOOK_EVERY))?.as_slice() {
                [] => {}
                [Message::ProbeStep(step)] if step.over && is_path_mtu => return Ok(Vec::new()),
                _ => return Err(Stop::Session(out_of_place())),
            }
            if let Running::Streams(streams) = &running {
                streams.look();
            }
            if Instant::now() >= next {
                marks.take();
                let (at_us, streams) = (marks.elapsed_us(), running.figures());
                if !is_path_mtu {
                    let throttled_ns = marks.throttled_ns();
                    let figures = message::ProbeFigures { round, at_us, streams, throttled_ns };
                    self.talk.say(Message::ProbeFigures(figures));
                }
            }
        }
        self.drain(&running)
    }

    /// Takes what is on its way, and returns the last figures.
    fn drain(&mut self, running: &Running) -> Result<Vec<message::ProbeStream>, Stop> {
        let ended = Instant::now();
        let late = LATE + 2 * self.rtt;
        let until = match running {
            Running::Streams(streams) => {
                streams.end();
                ended + DRAIN_MAX + 2 * self.rtt
            }
            Running::Datagrams(datagrams) => {
                datagrams.end();
                ended + late
            }
        };
        while Instant::now() < until {
            match running {
                Running::Streams(streams) if streams.are_over() => break,
                _ => {}
            }
            let soon = until.min(Instant::now() + Duration::from_millis(5));
            if self.talk.hear(soon)?.iter().any(|m| !matches!(m, Message::ProbeStep(_))) {
                return Err(Stop::Session(out_of_place()));
            }
        }
        let broken = match running {
            Running::Streams(streams) => streams.broken(),
            Running::Datagrams(datagrams) => datagrams.broken(),
        };
        if let Some(why) = broken {
            let fault = Fault::new(FaultCode::IoFailed, Side::Path, "a stream of the probe broke");
            return Err(Stop::Round(fault.found(why).hint("run it again")));
        }
        Ok(running.figures())
    }
}

impl Running {
    fn figures(&self) -> Vec<message::ProbeStream> {
        match self {
            Self::Streams(streams) => streams.figures(),
            Self::Datagrams(datagrams) => datagrams.figures(),
        }
    }
}

/// The reason why a round cannot go on.
enum Stop {
    /// This round failed; the next one may go on.
    Round(Fault),
    Session(Ended),
}

impl Stop {
    fn io(error: io::Error) -> Self {
        Self::Round(io_fault(Side::Unknown, b"", "the server cannot run this round", &error))
    }
}

impl From<Ended> for Stop {
    fn from(ended: Ended) -> Self {
        Self::Session(ended)
    }
}

fn out_of_place() -> Ended {
    Ended::Violated(ProtocolError::new("a message out of place in a probe").to_fault())
}

/// Numbers of streams that are open; given back when dropped.
struct Claimed {
    streams: Arc<Streams>,
    ids: Vec<StreamId>,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.ids.iter().for_each(|stream| self.streams.release(*stream));
    }
}

/// Connections that a probe may have at a time: both ways.
#[must_use]
pub fn connections_max(streams_max: u32) -> u64 {
    u64::from(streams_max.min(limits::STREAMS_MAX)) * 2
}
