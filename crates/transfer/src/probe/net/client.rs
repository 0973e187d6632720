//! The client's side of a probe: opens a session, and runs its rounds one after the other.

use super::{
    AuditGoal, NetReport, PeerAudit, audit,
    datagrams::{Datagrams, streams_of},
    endpoints::{PING_BYTES, PINGS_TIME, Pings},
    endpoints_verdict,
    marks::{LOOK_EVERY, Marks},
    narrow,
    opening::open,
    path_mtu,
    report::{Direction, PathFacts, Ping, RdmaFacts, RefusedRound, Round, Verdict},
    streams::{RunningStreams, Work},
    summary::{Counted, Sample, SideSamples},
    talk::{Ended, Talk},
    verdict,
};
use crate::{
    Interrupt,
    digest::SessionKeys,
    error::{TransferError, problem},
    preflight,
    probe::net::{
        report::words,
        request::{Event, NetProbe, Receive, Transport, Ways},
    },
    problem::{Problem, Side},
    session::{
        rdma,
        streams::{StreamSetup, choose_congestion},
    },
    transport::tcp::{self, Route},
};
use haul_datapath::Host;
use haul_protocol::{
    Message, StreamId, limits,
    message::{self, Fault, HostFacts, ProbeKind},
};
use haul_sys::tcp_info::TcpInfo;
use std::{
    io::{self, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Longest time that the server may take to answer, beside what a round takes.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Largest datagram that is sent without being asked for: jumbo frames, less the headers.
const DATAGRAM_BYTES_MAX: u32 = 8952;
/// MTU that is taken for a path that tells none: Ethernet's.
const MTU_DEFAULT: u32 = 1500;
/// Interval between the datagrams that show the server where a stream is.
const HELLO_EVERY: Duration = Duration::from_millis(50);

/// Measures everything that was asked for.
pub(super) fn run(
    probe: &NetProbe,
    interrupt: &Interrupt,
    on_event: &mut dyn FnMut(Event),
) -> Result<NetReport, TransferError> {
    let plan = plan(probe)?;
    let route =
        Route::of(&probe.url, probe.connect.clone()).map_err(|error| set_up_failed(&error))?;
    let route = route.without_fireflies();
    let mut opened = open(probe, &route, interrupt)?;
    let socket = opened.control.socket().try_clone().map_err(|error| set_up_failed(&error))?;
    let mut session = Session {
        talk: Talk::new(&mut opened.control, None, interrupt),
        socket,
        server: probe.url.server(),
        keys: opened.keys,
        session: opened.session,
        addresses: opened.addresses,
        rtt: opened.rtt,
        host: Arc::new(Host::read(Path::new("/"))),
        facts: HostFacts::default(),
        rdma: opened.rdma,
        round: 0,
        next_stream: 0,
        route,
        stream_mss_bytes: 0,
        probe,
    };
    session.hear_facts()?;
    let server = opened.addresses.1.to_string();
    on_event(Event::Connected {
        server: server.clone(),
        software: opened.software.clone(),
        rounds: plan.len(),
    });
    let mut report = NetReport {
        server,
        software: opened.software,
        loopback: tcp::ends_on_this_host(&session.socket),
        rounds: Vec::new(),
        refused: Vec::new(),
        path: PathFacts::default(),
        buffers: Vec::new(),
        rdma: None,
        verdict: Verdict::default(),
        audit: None,
    };
    if let Some(goal) = &probe.audit {
        report.audit = Some(session.hear_audit(goal)?);
    }
    let measured = session.all_rounds(&plan, &mut report, on_event);
    let last_words = match &measured {
        Err(Stop::Violated(fault)) => Some(fault.clone()),
        _ => None,
    };
    session.talk.close(last_words);
    measured.map_err(|stop| stop.into_error(&session.server))?;
    needs_a_round(&report)?;
    if session.stream_mss_bytes > 0 {
        report.path.tcp_mss_bytes = session.stream_mss_bytes;
    }
    let own = preflight::facts(&session.host, None);
    report.buffers = verdict::buffers(&report.rounds, &own, &session.facts);
    let rtts = report.rounds.iter().flat_map(|round| &round.ways).map(|way| way.min_rtt_us);
    let known = rtts.chain([report.path.min_rtt_us]).filter(|rtt| *rtt > 0);
    report.path.min_rtt_us = known.min().unwrap_or(0);
    report.verdict =
        endpoints_verdict::of_all(&report).unwrap_or_else(|| verdict::of_all(&report, probe));
    Ok(report)
}

fn needs_a_round(report: &NetReport) -> Result<(), TransferError> {
    match report.refused.first() {
        Some(refused) if report.rounds.is_empty() => {
            let what = format!("no round of the probe could be measured ({})", refused.what);
            Err(TransferError::start(problem(&what, "", &refused.why, "")))
        }
        _ => Ok(()),
    }
}

/// A round to come.
#[derive(Clone, Debug)]
struct Planned {
    streams: u32,
    congestion: Option<String>,
    receive: Receive,
    wire: Wire,
}

/// The wire of a round's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    /// TCP or UDP, as the probe says.
    Network,
    /// RDMA endpoints.
    Rdma,
}

/// Plans the rounds: everything with everything, so that what is compared runs side by side.
fn plan(probe: &NetProbe) -> Result<Vec<Planned>, TransferError> {
    let mut plan = Vec::new();
    let wires: &[Wire] =
        if probe.rdma.is_some() { &[Wire::Network, Wire::Rdma] } else { &[Wire::Network] };
    for _ in 0..probe.rounds.max(1) {
        for streams in &probe.streams {
            for congestion in &probe.congestion {
                for receive in &probe.receive {
                    for wire in wires {
                        let most = if *wire == Wire::Rdma { rdma::PAIRS_MAX } else { u32::MAX };
                        let (streams, congestion) = ((*streams).min(most), congestion.clone());
                        plan.push(Planned { streams, congestion, receive: *receive, wire: *wire });
                    }
                }
            }
        }
    }
    let rounds_max = limits::PROBE_ROUNDS_MAX as usize - narrow::ROUNDS_BESIDE;
    let fits = (1..=rounds_max).contains(&plan.len());
    let whole = probe.time.checked_add(probe.omit).unwrap_or(Duration::MAX);
    if fits && whole.as_millis() <= u128::from(limits::PROBE_MS_MAX) {
        return Ok(plan);
    }
    let needs =
        format!("1 to {} rounds of at most {} s each", rounds_max, limits::PROBE_MS_MAX / 1000);
    let found = format!("{} of {} s", plan.len(), whole.as_secs());
    let hint = "take fewer of them, or shorter ones";
    Err(TransferError::start(problem("cannot run this probe", &needs, &found, hint)))
}

fn set_up_failed(error: &dyn std::fmt::Display) -> TransferError {
    let needs = "memory, threads and descriptors for a probe";
    let hint = "see this host's limits (ulimit -a)";
    TransferError::broken(problem("no probe can be set up", needs, &error.to_string(), hint))
}

/// The reason why a round does not go on.
enum Stop {
    /// This round failed; the next one may go on.
    Round(Problem),
    /// The segments are too large for the path: the round begins again with smaller ones.
    Narrowed,
    Interrupted,
    Refused(Fault),
    Violated(Fault),
    Lost(String),
}

impl Stop {
    fn here(what: &str, error: &io::Error) -> Self {
        Self::Round(problem(what, "", &error.to_string(), ""))
    }

    fn into_error(self, server: &str) -> TransferError {
        match self {
            Self::Narrowed => Self::Lost("its segments vanish".into()).into_error(server),
            // Of the only ones that there were.
            Self::Round(problem) => TransferError::start(problem),
            Self::Interrupted => TransferError::interrupted(),
            Self::Refused(fault) | Self::Violated(fault) => {
                TransferError::broken(Problem::of(&fault))
            }
            Self::Lost(why) => {
                let what = format!("the connection to {server} was lost in the middle of a probe");
                let needs = "a server that stays until the end";
                let hint = "see whether it still runs, then run the probe again";
                let problem = problem(&what, needs, &why, hint);
                TransferError::broken(Problem { side: Side::Path, ..problem })
            }
        }
    }
}

impl From<Ended> for Stop {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Interrupted => Self::Interrupted,
            Ended::Refused(fault) => Self::Refused(fault),
            Ended::Violated(fault) => Self::Violated(fault),
            Ended::Lost(why) => Self::Lost(why),
            Ended::Closed => Self::Lost("the server closed it".into()),
        }
    }
}

struct Session<'a> {
    talk: Talk<'a>,
    /// Socket of the control connection, for the kernel's figures.
    socket: TcpStream,
    server: String,
    keys: Arc<SessionKeys>,
    session: [u8; 16],
    addresses: (SocketAddr, SocketAddr),
    rtt: Duration,
    host: Arc<Host>,
    facts: HostFacts,
    rdma: Option<rdma::Route>,
    round: u32,
    next_stream: u32,
    /// Route to the server; the rounds find out how large its packets may be.
    route: Route,
    /// MSS of the data streams, in bytes; 0: no stream was opened.
    stream_mss_bytes: u32,
    probe: &'a NetProbe,
}

/// The streams or datagrams that this side runs in a round.
enum Running {
    Streams(RunningStreams),
    Datagrams(Datagrams),
}

impl Running {
    fn figures(&self) -> Vec<message::ProbeStream> {
        match self {
            Self::Streams(streams) => streams.figures(),
            Self::Datagrams(datagrams) => datagrams.figures(),
        }
    }

    fn end(&self) {
        match self {
            Self::Streams(streams) => streams.end(),
            Self::Datagrams(datagrams) => datagrams.end(),
        }
    }

    fn broken(&self) -> Option<String> {
        match self {
            Self::Streams(streams) => streams.broken(),
            Self::Datagrams(datagrams) => datagrams.broken(),
        }
    }
}

impl Session<'_> {
    fn all_rounds(
        &mut self,
        plan: &[Planned],
        report: &mut NetReport,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<(), Stop> {
        self.look_at_path(report, on_event)?;
        self.look_at_endpoints(report)?;
        let mut refused = None;
        for (at, planned) in plan.iter().enumerate() {
            let number = at + 1;
            let what = self.words(planned);
            on_event(Event::RoundBegins { number, what: what.clone() });
            match self.measure(planned, report) {
                Ok((asked, ways)) => {
                    let round = Round {
                        number,
                        transport: self.transport(planned),
                        streams: planned.streams,
                        congestion: planned.congestion.clone(),
                        receive: planned.receive.name(),
                        block_bytes: asked.block_bytes,
                        ways,
                    };
                    on_event(Event::RoundEnded(Box::new(round.clone())));
                    report.rounds.push(round);
                }
                Err(Stop::Round(problem)) => {
                    let why = problem.to_string();
                    let event =
                        Event::RoundRefused { number, what: what.clone(), why: why.clone() };
                    on_event(event);
                    report.refused.push(RefusedRound { number, what, why });
                    refused.get_or_insert(problem);
                }
                Err(stop) => return Err(stop),
            }
        }
        match refused {
            Some(problem) if report.rounds.is_empty() => Err(Stop::Round(problem)),
            _ => Ok(()),
        }
    }

    fn transport(&self, planned: &Planned) -> String {
        match (self.probe.transport, &self.rdma) {
            (Transport::Tcp, Some(route)) if planned.wire == Wire::Rdma => {
                format!("rdma-{}", route.name())
            }
            (Transport::Tcp, _) => "tcp".into(),
            (Transport::Udp { .. }, _) => "udp".into(),
        }
    }

    fn words(&self, planned: &Planned) -> String {
        let both = self.probe.ways == Ways::Both;
        let congestion = planned.congestion.as_deref();
        words(&self.transport(planned), planned.streams, congestion, (planned.receive.name(), both))
    }

    /// Hears the facts of the server's host, which come right behind its opening.
    fn hear_facts(&mut self) -> Result<(), TransferError> {
        let server = self.server.clone();
        let facts = self.hear_one(ANSWER_MAX, &mut |message| match message {
            Message::Facts(facts) => Some(facts),
            _ => None,
        });
        self.facts = facts.map_err(|stop| stop.into_error(&server))?;
        Ok(())
    }

    fn hear_audit(&mut self, goal: &AuditGoal) -> Result<PeerAudit, TransferError> {
        let rtt_us = u64::try_from(self.rtt.as_micros()).unwrap_or(u64::MAX);
        self.talk.say(Message::Audit(audit::question(goal, rtt_us)));
        let server = self.server.clone();
        let mut found = PeerAudit::default();
        loop {
            let part = self.hear_one(ANSWER_MAX, &mut |message| match message {
                Message::Audited(part) => Some(part),
                _ => None,
            });
            if audit::take(&mut found, part.map_err(|stop| stop.into_error(&server))?) {
                return Ok(found);
            }
        }
    }

    /// Hears the next message, which has to be the wanted one, or the end of a round that cannot
    /// be.
    fn hear_one<T>(
        &mut self,
        patience: Duration,
        pick: &mut dyn FnMut(Message) -> Option<T>,
    ) -> Result<T, Stop> {
        let until = Instant::now() + patience;
        loop {
            if let Some(message) = self.hear(until)? {
                if let Message::ProbeResult(message::ProbeResult { fault: Some(fault), .. }) =
                    &message
                {
                    return Err(Stop::Round(Problem::of(fault)));
                }
                return pick(message).ok_or_else(out_of_place);
            }
            if Instant::now() >= until {
                let why = format!("no answer within {} s", patience.as_secs());
                return Err(Stop::Lost(why));
            }
        }
    }

    /// Hears at most one message; others come by the next calls.
    fn hear(&mut self, until: Instant) -> Result<Option<Message>, Stop> {
        let messages = self.talk.hear(until)?;
        let mut messages = messages.into_iter();
        let first = messages.next();
        self.talk.unhear(messages.collect());
        Ok(first)
    }

    /// Numbers of the next round and of its first stream.
    fn next_numbers(&mut self, streams: u32) -> (u32, StreamId) {
        self.round += 1;
        let first = StreamId(self.next_stream);
        self.next_stream += 2 * streams;
        (self.round, first)
    }

    fn asked(&mut self, planned: &Planned, path: &PathFacts) -> message::Probe {
        let ways = self.probe.ways;
        let (round, first_stream) = self.next_numbers(planned.streams);
        let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let (kind, block_bytes) = match self.probe.transport {
            Transport::Tcp if planned.wire == Wire::Rdma => {
                (ProbeKind::Endpoints, self.probe.block_bytes)
            }
            Transport::Tcp => (ProbeKind::Streams, self.probe.block_bytes),
            Transport::Udp { datagram_bytes } => {
                let fitting = || self.datagram_bytes(path);
                (ProbeKind::Datagrams, datagram_bytes.unwrap_or_else(fitting))
            }
        };
        let default_rate = match self.probe.transport {
            Transport::Tcp => 0,
            Transport::Udp { .. } => crate::probe::net::request::DATAGRAM_RATE_DEFAULT,
        };
        message::Probe {
            round,
            kind,
            to_server: ways != Ways::ToClient,
            to_client: ways != Ways::ToServer,
            streams: planned.streams,
            first_stream,
            block_bytes,
            time_ms: ms(self.probe.time).max(1),
            omit_ms: ms(self.probe.omit),
            interval_ms: ms(self.probe.interval).max(limits::PROBE_INTERVAL_MS_MIN),
            congestion: planned.congestion.clone().unwrap_or_default(),
            rate_bytes_per_s: self.probe.rate_bytes_per_s.unwrap_or(default_rate),
            discard: planned.receive == Receive::Discard,
        }
    }

    /// Payload of a datagram that the path takes whole, in bytes.
    fn datagram_bytes(&self, path: &PathFacts) -> u32 {
        let passes = [path.passes_to_server_bytes, path.passes_to_client_bytes];
        let believed = TcpInfo::of(&self.socket).map_or(0, |tcp| tcp.path_mtu_bytes);
        let known = passes.into_iter().chain([believed]).filter(|mtu| *mtu > 0).min();
        let packet_bytes = known.unwrap_or(MTU_DEFAULT);
        let header_bytes = path_mtu::header_bytes(canonical(self.addresses.0));
        packet_bytes.saturating_sub(header_bytes).clamp(512, DATAGRAM_BYTES_MAX)
    }

    /// Measures a round, and once more where its segments are too large for the path.
    fn measure(
        &mut self,
        planned: &Planned,
        report: &mut NetReport,
    ) -> Result<(message::Probe, Vec<super::report::Way>), Stop> {
        let (asked, ways) = loop {
            let asked = self.asked(planned, &report.path);
            match self.measure_once(&asked, report.loopback) {
                Err(Stop::Narrowed) => self.give_up(&asked)?,
                measured => break (asked, measured?),
            }
        };
        if let Some(narrowed) = self.route.segments.narrowed() {
            let to_server = if asked.to_server { Direction::ToServer } else { Direction::ToClient };
            let is_v4 = canonical(self.addresses.0).is_ipv4();
            narrow::tell(&mut report.path, narrowed, to_server, is_v4);
        }
        Ok((asked, ways))
    }

    fn measure_once(
        &mut self,
        asked: &message::Probe,
        loopback: bool,
    ) -> Result<Vec<super::report::Way>, Stop> {
        let ready = self.ready(asked)?;
        let (running, marks) = match asked.kind {
            ProbeKind::Streams | ProbeKind::Endpoints => self.begin_streams(asked)?,
            _ => self.begin_datagrams(asked, &ready)?,
        };
        let (mine, theirs, counted_from) = self.watch(asked, running, marks)?;
        let way = |direction, sender, receiver| {
            Counted { asked, direction, sender, receiver, counted_from }.way()
        };
        let mut ways = Vec::new();
        if asked.to_server {
            ways.push(way(Direction::ToServer, &mine, &theirs));
        }
        if asked.to_client {
            ways.push(way(Direction::ToClient, &theirs, &mine));
        }
        match asked.kind {
            ProbeKind::Endpoints => {
                let link_gbit_per_s = self.rdma.as_ref().and_then(link_gbit_per_s);
                endpoints_verdict::of_ways(&mut ways, self.probe, (loopback, link_gbit_per_s));
            }
            _ => verdict::of_ways(&mut ways, self.probe, loopback),
        }
        Ok(ways)
    }

    fn ready(&mut self, asked: &message::Probe) -> Result<message::ProbeReady, Stop> {
        self.talk.say(Message::Probe(asked.clone()));
        let round = asked.round;
        self.hear_one(ANSWER_MAX, &mut |message| match message {
            Message::ProbeReady(ready) if ready.round == round => Some(ready),
            _ => None,
        })
    }

    fn hear_begin(&mut self, round: u32) -> Result<(), Stop> {
        self.hear_one(ANSWER_MAX, &mut |message| match message {
            Message::ProbeStep(step) if step.round == round => Some(()),
            _ => None,
        })
    }

    fn setup(&self, asked: &message::Probe) -> StreamSetup {
        let mut setup = StreamSetup {
            rdma: self.rdma.clone(),
            private: None,
            keys: self.keys.clone(),
            session: self.session,
            digest: message::Digest::None,
            content: false,
            host: self.host.clone(),
            congestion: choose_congestion(&self.host, self.route.length_of(&self.socket, self.rtt)),
            pacing_bytes_per_s: Some(asked.rate_bytes_per_s)
                .filter(|rate| *rate > 0)
                .map(|rate| (rate / u64::from(asked.streams)).max(1)),
            buffer_bytes_max: 0,
        };
        if !asked.congestion.is_empty() {
            setup.congestion.control = Some(asked.congestion.clone());
        }
        setup
    }

    fn begin_streams(&mut self, asked: &message::Probe) -> Result<(Running, Marks), Stop> {
        let setup = self.setup(asked);
        let streams = self.connect_streams(asked, &setup);
        let streams =
            streams.map_err(|error| Stop::here("no data stream can be opened", &error))?;
        self.hear_begin(asked.round)?;
        let running = RunningStreams::start(streams, asked, &setup);
        let running = running.map_err(|error| Stop::here("no data stream can be set up", &error));
        // The server has begun: whatever it says of this round is of no use any more.
        let running = running.or_else(|stop| self.give_up(asked).and(Err(stop)))?;
        Ok((Running::Streams(running), Marks::begin(asked)))
    }

    /// Hears a round out that this side could not run.
    fn give_up(&mut self, asked: &message::Probe) -> Result<(), Stop> {
        let until = Instant::now() + round_time(asked) + ANSWER_MAX;
        while Instant::now() < until {
            if let Some(Message::ProbeResult(_)) = self.hear(until)? {
                return Ok(());
            }
        }
        Err(Stop::Lost("the server does not end a round".into()))
    }

    /// Connects the streams of a round all at once, as each takes a round trip.
    fn connect_streams(
        &self,
        asked: &message::Probe,
        setup: &StreamSetup,
    ) -> io::Result<Vec<(StreamId, TcpStream, Work)>> {
        let congestion = setup.congestion.control.as_deref();
        let connect = |stream: StreamId, sends: bool| {
            let mut socket = self.route.connect_stream(congestion, &|| false)?;
            let preface = self.keys.sign_preface(stream, self.session);
            socket.write_all(&preface.encode())?;
            let work = match (sends, asked.discard) {
                (true, _) => Work::Send,
                (false, false) => Work::Receive,
                (false, true) => Work::Discard,
            };
            Ok((stream, socket, work))
        };
        thread::scope(|scope| {
            let threads: Vec<_> = streams_of(asked, false)
                .into_iter()
                .map(|(stream, sends)| {
                    let connect = &connect;
                    thread::Builder::new().spawn_scoped(scope, move || connect(stream, sends))
                })
                .collect();
            let failed = |_| io::Error::other("a thread that connects panicked");
            threads.into_iter().map(|thread| thread?.join().map_err(failed)?).collect()
        })
    }

    fn begin_datagrams(
        &mut self,
        asked: &message::Probe,
        ready: &message::ProbeReady,
    ) -> Result<(Running, Marks), Stop> {
        let mut datagrams = self.prove_datagrams(asked, ready)?;
        datagrams
            .begin(asked, false)
            .map_err(|error| Stop::here("no datagrams can be sent", &error))?;
        Ok((Running::Datagrams(datagrams), Marks::begin(asked)))
    }

    /// Shows the server where the datagrams are to go, until it has heard of all.
    fn prove_datagrams(
        &mut self,
        asked: &message::Probe,
        ready: &message::ProbeReady,
    ) -> Result<Datagrams, Stop> {
        let key = ready.datagram_key.ok_or_else(out_of_place)?.0;
        let local = canonical(self.addresses.0).ip();
        let mut server = self.addresses.1;
        server.set_port(ready.udp_port);
        let server = canonical(server);
        let datagrams = Datagrams::connect(asked, (local, server), key)
            .map_err(|error| Stop::here("no datagrams can be sent", &error))?;
        let until = Instant::now() + ANSWER_MAX;
        while Instant::now() < until {
            datagrams.prove();
            let soon = Instant::now() + HELLO_EVERY;
            while Instant::now() < soon {
                match self.hear(soon)? {
                    Some(Message::ProbeStep(step)) if step.round == asked.round => {
                        return Ok(datagrams);
                    }
                    Some(Message::ProbeResult(message::ProbeResult {
                        fault: Some(fault), ..
                    })) => {
                        return Err(Stop::Round(Problem::of(&fault)));
                    }
                    Some(_) => return Err(out_of_place()),
                    None => {}
                }
            }
        }
        Err(Stop::Lost("the server waits for datagrams, and does not say so".into()))
    }

    /// Watches a round, from its begin to the server's last figures.
    fn watch(
        &mut self,
        asked: &message::Probe,
        running: Running,
        mut marks: Marks,
    ) -> Result<(SideSamples, SideSamples, usize), Stop> {
        let mut mine = SideSamples { cores_max: self.host.cores, ..Default::default() };
        let mut theirs = SideSamples { cores_max: self.facts.cores, ..Default::default() };
        let give_up_at = marks.begun() + round_time(asked) + ANSWER_MAX;
        loop {
            let until = marks.next().unwrap_or(give_up_at);
            match self.hear(until.min(Instant::now() + LOOK_EVERY))? {
                Some(Message::ProbeFigures(figures)) if figures.round == asked.round => {
                    if theirs.samples.len() >= marks.count() {
                        return Err(out_of_place());
                    }
                    let message::ProbeFigures { at_us, streams, throttled_ns, .. } = figures;
                    theirs.samples.push(Sample { at_us, streams, throttled_ns });
                }
                Some(Message::ProbeResult(result)) if result.round == asked.round => {
                    if let Some(fault) = &result.fault {
                        return Err(Stop::Round(Problem::of(fault)));
                    }
                    theirs.last = result.streams;
                    break;
                }
                Some(_) => return Err(out_of_place()),
                None => {}
            }
            if marks.next().is_some_and(|next| Instant::now() >= next) {
                marks.take();
                mine.samples.push(sample(&marks, &running));
                if marks.next().is_none() {
                    running.end();
                }
            }
            self.look(&running, theirs.samples.last(), marks.begun())?;
            if let Some(why) = running.broken() {
                // Where the server went away its connection says so in the next moment.
                self.hear(Instant::now() + Duration::from_millis(200))?;
                let what = "a stream of the probe broke";
                let needs = "streams that stay until the round is over";
                return Err(Stop::Lost(format!("{what}: {why}; needs {needs}")));
            }
            if Instant::now() > give_up_at {
                return Err(Stop::Lost("the server does not end a round".into()));
            }
        }
        // What is still on its way to this side.
        while marks.next().is_some() || matches!(running, Running::Datagrams(_)) {
            let at = marks.next().unwrap_or_else(|| Instant::now() + self.rtt);
            while Instant::now() < at {
                self.hear(at)?.map_or(Ok(()), |_| Err(out_of_place()))?;
            }
            if marks.next().is_none() {
                break;
            }
            marks.take();
            mine.samples.push(sample(&marks, &running));
        }
        running.end();
        mine.last = running.figures();
        if theirs.samples.len() != mine.samples.len() {
            return Err(out_of_place());
        }
        Ok((mine, theirs, marks.counted_from()))
    }

    /// Looks whether a round's streams get through.
    fn look(
        &mut self,
        running: &Running,
        theirs: Option<&Sample>,
        begun: Instant,
    ) -> Result<(), Stop> {
        let Running::Streams(streams) = running else { return Ok(()) };
        if streams.are_by_rdma() {
            return Ok(());
        }
        streams.look();
        let segments = &self.route.segments;
        if narrow::must_narrow(streams, theirs, begun.elapsed(), segments) {
            return Err(Stop::Narrowed);
        }
        for tcp in streams.sockets() {
            segments.moves(&tcp);
            self.stream_mss_bytes = tcp.mss_bytes;
        }
        Ok(())
    }

    /// Finds out the path's MTU, by the kernel's belief and by what arrives.
    fn look_at_path(
        &mut self,
        report: &mut NetReport,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<(), Stop> {
        let tcp = TcpInfo::of(&self.socket).unwrap_or_default();
        if self.probe.path_mtu {
            on_event(Event::PathMtuBegins);
            match self.path_mtu() {
                Ok(facts) => report.path = facts,
                Err(Stop::Round(problem)) => report.path.unmeasured = Some(problem.to_string()),
                Err(stop) => return Err(stop),
            }
        } else {
            report.path.unmeasured = Some("it was not asked for".into());
        }
        let path = &mut report.path;
        path.tcp_mss_bytes = tcp.mss_bytes;
        path.min_rtt_us = u32::try_from(self.rtt.as_micros()).unwrap_or(u32::MAX);
        if path.believed_mtu_bytes == 0 {
            path.believed_mtu_bytes = tcp.path_mtu_bytes;
        }
        Ok(())
    }

    /// Names the RDMA endpoints, and measures messages that go there and back.
    fn look_at_endpoints(&mut self, report: &mut NetReport) -> Result<(), Stop> {
        let Some(route) = self.rdma.clone() else { return Ok(()) };
        let ping = match self.pings(&route) {
            Ok(times_ns) => Ping::of(PING_BYTES, &times_ns),
            Err(Stop::Round(problem)) => {
                let (what, why) = ("round trips over RDMA".to_owned(), problem.to_string());
                report.refused.push(RefusedRound { number: 0, what, why });
                None
            }
            Err(stop) => return Err(stop),
        };
        report.rdma = Some(RdmaFacts {
            provider: route.name(),
            device: route.fabric.port(),
            link_gbit_per_s: link_gbit_per_s(&route),
            ping,
        });
        Ok(())
    }

    fn pings(&mut self, route: &rdma::Route) -> Result<Vec<u64>, Stop> {
        let (round, first_stream) = self.next_numbers(1);
        let asked = message::Probe {
            round,
            kind: ProbeKind::EndpointPings,
            to_server: true,
            to_client: true,
            streams: 1,
            first_stream,
            block_bytes: PING_BYTES,
            time_ms: u32::try_from(PINGS_TIME.as_millis()).unwrap_or(u32::MAX),
            interval_ms: u32::MAX,
            ..message::Probe::default()
        };
        self.ready(&asked)?;
        let failed = |error: io::Error| Stop::here("messages over RDMA cannot be measured", &error);
        let setup = self.setup(&asked);
        let streams = self.connect_streams(&asked, &setup).map_err(failed)?;
        let sockets: Vec<TcpStream> = streams.into_iter().map(|(_, socket, _)| socket).collect();
        let sockets = <[TcpStream; 2]>::try_from(sockets).map_err(|_| out_of_place())?;
        let pings = Pings::start(route, sockets, PING_BYTES).map_err(failed)?;
        let until = Instant::now() + ANSWER_MAX;
        let mut fault = None;
        let mut is_told = false;
        while (!pings.are_over() || !is_told) && Instant::now() < until {
            match self.hear(Instant::now() + Duration::from_millis(20))? {
                Some(Message::ProbeResult(result)) if result.round == round => {
                    (fault, is_told) = (result.fault, true);
                }
                Some(_) => return Err(out_of_place()),
                None => {}
            }
        }
        if !is_told {
            return Err(Stop::Lost("the server does not end a round".into()));
        }
        if let Some(fault) = fault {
            return Err(Stop::Round(Problem::of(&fault)));
        }
        pings.finish().map_err(failed)
    }

    fn path_mtu(&mut self) -> Result<PathFacts, Stop> {
        let (round, first_stream) = self.next_numbers(1);
        let ways = self.probe.ways;
        let asked = message::Probe {
            round,
            kind: ProbeKind::PathMtu,
            to_server: ways != Ways::ToClient,
            // One way is enough: everything is sent back.
            to_client: ways == Ways::ToClient,
            streams: 1,
            first_stream,
            block_bytes: limits::PROBE_BLOCK_BYTES_MIN,
            time_ms: u32::try_from(path_mtu::TIME_MAX.as_millis()).unwrap_or(u32::MAX) + 5000,
            interval_ms: u32::MAX,
            ..message::Probe::default()
        };
        let ready = self.ready(&asked)?;
        let datagrams = self.prove_datagrams(&asked, &ready)?;
        let measured = path_mtu::measure(&datagrams, first_stream, self.rtt);
        self.talk.say(Message::ProbeStep(message::ProbeStep { round, over: true }));
        self.hear_one(ANSWER_MAX, &mut |message| match message {
            Message::ProbeResult(result) if result.round == round => Some(()),
            _ => None,
        })?;
        measured.map_err(|error| Stop::here("the path's MTU cannot be measured", &error))
    }
}

/// Rate of the card's port, as sysfs tells it.
fn link_gbit_per_s(route: &rdma::Route) -> Option<f64> {
    let machine = haul_host::tune::Machine::live();
    let device = haul_host::rdma::device_of_domain(&machine, &route.fabric.port())?;
    let active = device.ports.iter().filter(|port| port.is_active());
    let fastest = active.filter_map(haul_host::rdma::Port::rate_bits_per_s).max()?;
    // Soft-RoCE tells a rate that means nothing.
    (!device.is_software).then_some(fastest as f64 / 1e9)
}

/// Figures of this side at this moment.
fn sample(marks: &Marks, running: &Running) -> Sample {
    let (at_us, throttled_ns) = (marks.elapsed_us(), marks.throttled_ns());
    Sample { at_us, streams: running.figures(), throttled_ns }
}

fn round_time(asked: &message::Probe) -> Duration {
    Duration::from_millis(u64::from(asked.time_ms) + u64::from(asked.omit_ms))
}

fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        // An address of a link keeps its interface.
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_none() => address,
        _ => SocketAddr::new(address.ip().to_canonical(), address.port()),
    }
}

fn out_of_place() -> Stop {
    let what = "a message out of place in a probe";
    Stop::Violated(haul_protocol::ProtocolError::new(what).to_fault())
}
