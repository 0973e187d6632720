//! Push and pull of a client. It connects, runs the session, and comes back after it was lost.

pub(crate) mod account;
mod coming_back;
pub(crate) mod connect_failure;
mod explaining;
mod final_report;
mod flows;
pub mod globs;
mod granted;
pub mod listing;
mod moved;
pub(crate) mod outage;
mod private;
mod rdma;
mod rdma_report;
pub mod reporting;
mod settled;
mod source_checks;
mod whereabouts;

use crate::{
    Interrupt,
    bytes::{hex, random_bytes},
    client::reporting::{Meter, Reporting},
    connecting::Connector,
    constants::{BUFFER_BYTES_MAX, SOFTWARE},
    engine::Engine,
    error::{TransferError, problem},
    events::{Check, ConnectionState, Event, Lag, Report, SessionOpened, TargetRoom},
    file_options::{FileOptions, Removal},
    manifest::{Lines, Manifest, rename_of},
    name::printable,
    option_conflicts,
    options::{PullRequest, PushRequest, SourceSpec, TargetSpec, TransferOptions, digest_name},
    preflight::{self, Findings},
    problem::{Problem, Side},
    selection::Matcher,
    session::{
        disclosure::Telling,
        headway::{Carried, Cut, Headway},
        moved_earlier::MovedEarlier,
        rdma as endpoints,
        receiving::{Receiving, ReceivingOptions},
        reported::Reported,
        role::{SessionEnd, drive},
        sending::{Giving, Sending, SendingOptions, Sources, following::Written},
        streams::{StreamFigures, StreamSetup, Streams, choose_congestion},
        supply,
        tally::{OfferLimits, Tally},
    },
    source_name::go_into_directory,
    storage::{
        contents_mode, free_space::free_bytes, named_sources::walk_named,
        target_place::TargetPlace, walk::WalkOptions,
    },
    target_names::{
        asked_name, asked_path, check_moved, check_names, expected_names, resolve_local,
        source_name, unmake_local,
    },
    transport::{
        control::Control,
        tcp::{self, Early, Route},
        tls,
        waker::Waker,
    },
    url::HaulUrl,
    verdict,
};
use account::{Account, Figured};
use coming_back::ComingBack;
use connect_failure::{ConnectFailure, is_passing, may_pass_later};
use final_report::{named, of_more, of_report, until_now};
use flows::Flows;
use haul_datapath::{Host, choose};
use haul_protocol::{
    CAPABILITY_RECHECK, ClientHandshake, Message, StreamId,
    handshake::Granted,
    limits,
    message::{self, Direction},
};
use haul_sys::tcp_info::TcpInfo;
use rustls::{ClientConnection, pki_types::ServerName};
use settled::SettledNames;
use source_checks::{check_sources, check_watched, is_directory};
use std::{
    cell::Cell,
    io,
    net::TcpStream,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use whereabouts::TargetMeans;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// Silence of a new control connection after which it is made again, in smaller segments.
const SILENT_AFTER: Duration = Duration::from_secs(4);
/// Most bytes of the paths of one request: they must fit the first message, which is small.
const OPEN_PATHS_BYTES_MAX: usize = 12 << 10;
/// Least round-trip time at which data streams are connected before they are granted.
const EARLY_FROM_RTT: Duration = Duration::from_millis(10);

/// Sends files to a server.
///
/// # Errors
/// When nothing could start, or the transfer broke and could not go on. Files that failed alone
/// are [`Event::Error`]s and make the report's `ok` false.
pub fn push(
    request: &PushRequest,
    interrupt: &Interrupt,
    on_event: &mut dyn FnMut(Event),
) -> Result<Report, TransferError> {
    check_sources(&request.sources)?;
    if request.options.file_options.recording.watch {
        check_watched(&request.sources)?;
    }
    let names = request.sources.iter().map(source_name).collect::<Vec<_>>();
    check_names(&names)?;
    check_moved(&names, request.options.file_options)?;
    let of_base = names.contains(&None);
    let into_directory = go_into_directory(&names) || request.sources.iter().any(is_directory);
    let open = message::Open {
        direction: Direction::Push,
        paths: vec![request.url.path.clone()],
        into_directory,
        contents_mode: contents_mode::of_named(&request.sources),
        peer_engine: engine_name(request.options.receive_engine).unwrap_or_default(),
        ..message::Open::default()
    };
    let client = Client::new(&request.url, &request.options, open, of_base, interrupt)?;
    let work = Work::Push(&request.sources);
    let (report, stored_as) = whereabouts::noting(on_event, |on_event| client.run(&work, on_event));
    let means = TargetMeans::name_if(client.target_is_name.get());
    named(report, |report| {
        let report = whereabouts::of_push(report, request, &names, means);
        whereabouts::stored_as(report, &names, stored_as.as_ref())
    })
}

/// Fetches files from a server.
///
/// # Errors
/// As [`push`].
pub fn pull(
    request: &PullRequest,
    interrupt: &Interrupt,
    on_event: &mut dyn FnMut(Event),
) -> Result<Report, TransferError> {
    let Some(first) = request.urls.first() else {
        return Err(TransferError::start(problem("nothing to pull", "a URL", "none", "")));
    };
    let same = |url: &&HaulUrl| {
        (&url.host, url.port, &url.token) != (&first.host, first.port, &first.token)
    };
    if let Some(other) = request.urls.iter().find(same) {
        let what = "one pull fetches from one server";
        let hint = "pull from the other server by a command of its own";
        let found = format!("{first} and {other}");
        return Err(TransferError::start(problem(
            what,
            "URLs of one server and token",
            &found,
            hint,
        )));
    }
    let paths: Vec<Vec<u8>> = request.urls.iter().map(|url| asked_path(&url.path)).collect();
    let paths_bytes: usize = paths.iter().map(Vec::len).sum();
    if paths.len() > limits::PATHS_MAX || paths_bytes > OPEN_PATHS_BYTES_MAX {
        let needs =
            format!("at most {} paths, {OPEN_PATHS_BYTES_MAX} bytes in all", limits::PATHS_MAX);
        let found = format!("{} paths, {paths_bytes} bytes", paths.len());
        let hint = "pull the directory that holds them, or in several commands";
        return Err(TransferError::start(problem(
            "too much to ask for at once",
            &needs,
            &found,
            hint,
        )));
    }
    let names = paths.iter().map(|path| asked_name(path)).collect::<Vec<_>>();
    check_names(&names)?;
    check_moved(&names, request.options.file_options)?;
    let into_directory = go_into_directory(&names);
    let of_base = names.contains(&None);
    let file_options = with_base(request.options.file_options, of_base);
    if request.options.verify_target && request.target == TargetSpec::Null {
        let what = "cannot read the target back";
        let hint = "leave out --verify-target, or pull to a directory";
        let needs = "a target that keeps what arrives";
        return Err(TransferError::start(problem(what, needs, "null:", hint)));
    }
    let place = resolve_local(&request.target, into_directory, of_base, file_options)?;
    let open = message::Open {
        direction: Direction::Pull,
        paths,
        peer_engine: engine_name(request.options.send_engine).unwrap_or_default(),
        ..message::Open::default()
    };
    if file_options.move_sources && matches!(place, TargetPlace::Null) {
        let needs = "a target that keeps what it receives";
        let what = "nothing can be moved to null:, which throws it away";
        return Err(TransferError::start(problem(what, needs, "null:", "leave out --move")));
    }
    let client = Client::new(first, &request.options, open, of_base, interrupt)?;
    let work = Work::Pull(place.clone());
    let (report, stored_as) = whereabouts::noting(on_event, |on_event| client.run(&work, on_event));
    let report = report.inspect_err(|_| unmake_local(&request.target, &place));
    let means = TargetMeans::name_if(client.target_is_name.get());
    named(report, |report| {
        let report = whereabouts::of_pull(report, request, &names, means);
        whereabouts::stored_as(report, &names, stored_as.as_ref())
    })
}

/// Checks that each path can be said to a server.
fn check_lengths(paths: &[Vec<u8>]) -> Result<(), TransferError> {
    let longest = paths.iter().map(Vec::len).max().unwrap_or(0);
    if longest <= limits::NAME_BYTES_MAX {
        return Ok(());
    }
    let needs = format!("at most {} bytes in the path of a URL", limits::NAME_BYTES_MAX);
    let found = format!("{longest} bytes");
    let hint = "name a directory further down when you serve, or by `haul token new --root`";
    Err(TransferError::start(problem("the path is too long", &needs, &found, hint)))
}

/// The new name of the one source of a pull, where it gets another here.
fn new_name(place: &TargetPlace) -> Option<Vec<u8>> {
    match place {
        TargetPlace::Below { rename, .. } => rename.clone(),
        TargetPlace::Null => None,
    }
}

fn with_base(file_options: FileOptions, of_base: bool) -> FileOptions {
    let removal = file_options.removal.map(|removal| Removal { of_base, ..removal });
    FileOptions { removal, ..file_options }
}

fn engine_name(engine: Option<Engine>) -> Option<String> {
    engine.map(|engine| engine.name().to_owned())
}

fn set_up_failed(error: &dyn std::fmt::Display) -> TransferError {
    let needs = "memory, threads and descriptors for a session";
    let hint = "see this host's limits (ulimit -a)";
    TransferError::broken(problem("no session can be set up", needs, &error.to_string(), hint))
}

enum Work<'a> {
    Push(&'a [SourceSpec]),
    Pull(TargetPlace),
}

struct Client<'a> {
    url: &'a HaulUrl,
    options: &'a TransferOptions,
    open: message::Open,
    interrupt: &'a Interrupt,
    host: Arc<Host>,
    file_options: FileOptions,
    matcher: Option<Matcher>,
    manifest: Option<Arc<Manifest>>,
    /// Whether the target's path is the new name of the source. For a push the first session said
    /// so, for a pull the last one found it out.
    target_is_name: Cell<bool>,
    headway: Arc<Headway>,
    route: Arc<Route>,
}

/// An open session, with what its handshake brought.
struct Opened {
    control: Control,
    granted: Granted,
    session: [u8; 16],
    rtt: Duration,
    early: Option<Early>,
    offers: endpoints::Offers,
    rdma: Option<endpoints::Route>,
}

/// State of the whole run, over all its sessions.
#[derive(Default)]
struct Run {
    /// Bytes that its lost sessions found in place or durable, and had not brought themselves.
    there_before: u64,
    /// Most bytes that its lost sessions can have brought.
    brought_bytes_max: u64,
    done_before: u64,
    names: SettledNames,
    moved_earlier: MovedEarlier,
    account: Account,
    resent: u64,
    mine: message::SideReport,
    theirs: message::SideReport,
    rtt_us: u64,
    path: verdict::Path,
    flows: Flows,
    streams: u32,
    /// Reason why data went by TCP though RDMA was asked for.
    tcp_because: String,
    rdma: Option<endpoints::Route>,
    /// Facts about the server's host with `--preflight`, and the time when they were heard.
    facts: Option<(message::HostFacts, u64)>,
    port: Option<io::Result<Duration>>,
    largest_lag: Option<Lag>,
    written: Written,
    /// Report of how far it was at the end of the session that had the most, unless all was
    /// settled then.
    partial: Option<Report>,
    keeps_source_name: bool,
}

impl<'a> Client<'a> {
    fn new(
        url: &'a HaulUrl,
        options: &'a TransferOptions,
        mut open: message::Open,
        of_base: bool,
        interrupt: &'a Interrupt,
    ) -> Result<Self, TransferError> {
        haul_sys::file_size_limit::survive();
        option_conflicts::check(options, open.direction)?;
        check_lengths(&open.paths)?;
        let Some(token) = &url.token else {
            let hint = "put it into the URL, or set HAUL_TOKEN, or give --token-file";
            return Err(TransferError::start(problem(
                "no token",
                "the server's token",
                "none",
                hint,
            )));
        };
        let transfer: [u8; 16] = random_bytes().map_err(|e| {
            TransferError::start(problem("no random bytes", "", &e.to_string(), ""))
        })?;
        open.token_secret = message::Secret(token.secret);
        open.transfer = transfer;
        open.protection = options.protection.to_message();
        open.digest = options.chosen_digest();
        open.streams = options.streams.unwrap_or(0);
        open.wants_figures = true;
        open.rate_bytes_per_s = options.rate_bytes_per_s.unwrap_or(0);
        let ranges = options.selection.ranges.is_some();
        let file_options = FileOptions { ranges, ..with_base(options.file_options, of_base) };
        let all = options.selection.takes_all();
        let matcher = options.selection.compile().map_err(TransferError::start)?;
        // A receiver needs to know what is left out only where it removes what is not offered.
        let pull = open.direction == Direction::Pull;
        let selection_follows = !all && (pull || file_options.removal.is_some());
        open.file_options = Some(file_options.to_message(selection_follows));
        // A server that only sends has nothing to read back.
        open.verify_target = options.verify_target && !pull;
        let manifest = options.manifest.as_deref().map(Manifest::begin).transpose();
        let manifest = manifest.map_err(TransferError::start)?.map(Arc::new);
        Ok(Self {
            url,
            options,
            open,
            interrupt,
            host: Arc::new(Host::read(Path::new("/"))),
            file_options,
            matcher: (!all).then_some(matcher),
            manifest,
            target_is_name: Cell::new(false),
            route: Arc::new(flows::route(url, &options.connect)?),
            headway: Arc::new(Headway::new(
                options.retry_for,
                choose::span_bytes(0, options.span_bytes),
            )),
        })
    }

    /// Runs the transfer from its begin to its end, or as far as it comes.
    fn run(
        &self,
        work: &Work<'_>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Report, TransferError> {
        let (mut begun, mut run) = (Instant::now(), Run::default());
        let ended = self.sessions(work, &mut run, &mut begun, on_event);
        self.find_out_name(work, run.keeps_source_name);
        let partial = run.partial.map(|report| until_now(report, begun));
        ended.map_err(|error| error.map_report(|report| report.or(partial)))
    }

    /// Runs sessions, one after the other, until the transfer is over.
    fn sessions(
        &self,
        work: &Work<'_>,
        run: &mut Run,
        begun: &mut Instant,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Report, TransferError> {
        let mut back = ComingBack::new();
        // Without time for coming back, the first connection has the time that it needs.
        if self.options.wait || !self.options.retry_for.is_zero() {
            self.headway.begin_waiting(*begun);
        }
        loop {
            let opened = match self.connect() {
                Ok(opened) => opened,
                Err(failure) => {
                    self.not_connected(&mut back, failure, on_event)?;
                    continue;
                }
            };
            match &back.lost {
                Some(why) => {
                    run.account.back(Instant::now());
                    // What the target has kept, it says itself when the files are offered again.
                    on_event(self.outage(ConnectionState::Back, why, back.lost_at));
                }
                None => {
                    self.headway.end_waiting();
                    // What was waited for the server to be there is no time of the transfer.
                    if self.options.wait {
                        *begun = Instant::now();
                    }
                }
            }
            self.headway.begin_session(Instant::now());
            if self.file_options.move_sources {
                run.moved_earlier = run.names.moved(work.source_paths(&self.open));
            }
            let mut names = std::mem::take(&mut run.names);
            names.begin_session();
            let (end, tally) = self.session(opened, work, run, *begun, &mut |event| {
                names.heard(&event);
                on_event(event);
            })?;
            run.names = names;
            if matches!(end, SessionEnd::Finished) {
                return self.finished((run, tally), work, *begun, on_event);
            }
            run.keeps_source_name = tally.keeps_source_name;
            let partial = self.partial_report(run, &tally, *begun);
            run.partial = Some(of_more(run.partial.take(), partial));
            let nothing_yet = back.lost.is_none() && tally.received_bytes + tally.done_files == 0;
            let why = why_lost(end, nothing_yet)?;
            run.lost(&tally);
            run.account.lost(Instant::now(), tally.verified_bytes);
            run.resent += tally.resent_spans;
            self.session_lost(&mut back, why, &tally, on_event)?;
        }
    }

    /// The event of a connection that was lost at `since`, or is back.
    fn outage(&self, state: ConnectionState, why: &str, since: Instant) -> Event {
        let left = self.headway.left(Instant::now()).unwrap_or_default();
        outage::event(state, &self.url.server(), why, since, since.elapsed() + left)
    }

    /// Opens a session; a connection that is made and stays silent is made once again, for the path
    /// may swallow packets of its size.
    fn connect(&self) -> Result<Opened, ConnectFailure> {
        match self.connect_once() {
            Err(ConnectFailure::Silent { .. }) if self.route.segments.control_is_silent() => {
                self.connect_once()
            }
            connected => connected,
        }
    }

    fn connect_once(&self) -> Result<Opened, ConnectFailure> {
        let server = self.url.server();
        let patience = self.within_time_left(tcp::CONNECT_TIMEOUT);
        let stop = || self.interrupt.load(Ordering::Relaxed);
        let socket = self.route.connect(patience, &stop).map_err(|error| {
            let connector = self.options.connect.connector.as_deref();
            match connector.and_then(Connector::is_over) {
                Some(error) => ConnectFailure::NoWay { server: server.clone(), error },
                None => {
                    let error = error.to_string();
                    ConnectFailure::Unreachable { server: server.clone(), error }
                }
            }
        })?;
        let early = self.connect_early(&socket);
        let offers = self.offer_rdma(&socket)?;
        let token = self.url.token.as_ref().expect("checked in `new`");
        let rtt_socket = socket.try_clone();
        let broken = |error: &dyn std::fmt::Display| ConnectFailure::Broken {
            server: server.clone(),
            error: error.to_string(),
        };
        let config = tls::client_config(token.fingerprint).map_err(|e| broken(&e))?;
        // The name is the same for all: the key is what counts.
        let name = ServerName::try_from("haul").expect("a valid name");
        let tls = ClientConnection::new(config, name).map_err(|e| broken(&e))?;
        let mut control = Control::new(socket, tls.into()).map_err(|e| broken(&e))?;
        let open = message::Open {
            target_is_name: self.target_is_name.get(),
            span_bytes: self.span_bytes().unwrap_or(0),
            fabrics: offers.names(),
            ..self.open.clone()
        };
        let (mut handshake, messages) = ClientHandshake::start(SOFTWARE, open);
        for message in messages {
            control.queue(message);
        }
        let granted = self.shake_hands(&mut control, &mut handshake, &server)?;
        self.check_granted(&granted).map_err(ConnectFailure::Refused)?;
        let rdma = self.agreed_rdma(&offers, &granted).map_err(ConnectFailure::Refused)?;
        self.target_is_name.set(granted.opened.target_is_name);
        control.trust();
        let session: [u8; 16] =
            granted.opened.session.as_slice().try_into().map_err(|e| broken(&e))?;
        let measured = rtt_socket.ok().and_then(|s| TcpInfo::of(&s).ok());
        let rtt_us = measured.map_or(0, |tcp| tcp.shortest_rtt_us());
        let rtt = Duration::from_micros(rtt_us.into());
        Ok(Opened { control, granted, session, rtt, early, offers, rdma })
    }

    /// Connects the data streams of a pull during the handshake, on a long path: what the server
    /// has to send would otherwise wait a round trip for them.
    fn connect_early(&self, control: &TcpStream) -> Option<Early> {
        let rtt = Duration::from_micros(TcpInfo::of(control).ok()?.shortest_rtt_us().into());
        let pulls = self.open.direction == Direction::Pull && !self.file_options.dry_run;
        // A control that is chosen has to be set before the connection is made, and by the server's
        // round trip too.
        let length = || self.route.length_of(control, rtt);
        let keeps_control = || choose_congestion(&self.host, length()).control.is_none();
        if !pulls || rtt < EARLY_FROM_RTT || !keeps_control() {
            return None;
        }
        let facts = choose::StreamFacts {
            host: &self.host,
            rtt,
            size_bytes: u64::MAX,
            span_bytes: choose::span_bytes(0, self.span_bytes()),
            sees_copy: self.options.chosen_digest() != message::Digest::None,
            forced: self.options.streams.or(self.options.rate_bytes_per_s.map(|_| 1)),
        };
        Some(Early::connect(&self.route, choose::streams(&facts).0))
    }

    fn shake_hands(
        &self,
        control: &mut Control,
        handshake: &mut ClientHandshake,
        server: &str,
    ) -> Result<Granted, ConnectFailure> {
        let begun = Instant::now();
        let last = begun + self.within_time_left(HANDSHAKE_TIMEOUT);
        let may_shrink = self.route.segments.control_may_shrink();
        let deadline = if may_shrink { last.min(begun + SILENT_AFTER) } else { last };
        loop {
            let messages = control
                .turn(Duration::from_millis(100), None)
                .map_err(|error| ConnectFailure::of_handshake(server, error))?;
            let mut messages = messages.into_iter();
            while let Some(message) = messages.next() {
                let greeted = handshake.handle(message).and_then(|granted| {
                    // An older server is told of as that, before it refuses what it cannot know.
                    handshake.reply().map_or(Ok(()), |reply| self.check_reply(reply))?;
                    Ok(granted)
                });
                match greeted {
                    Ok(None) => {}
                    Ok(Some(granted)) => {
                        // A sending server begins to offer at once.
                        control.unread(messages.collect());
                        return Ok(granted);
                    }
                    Err(fault) => return Err(ConnectFailure::Refused(fault)),
                }
            }
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(ConnectFailure::Interrupted);
            }
            let is_silent =
                || TcpInfo::of(control.socket()).is_ok_and(|tcp| tcp.bytes_received == 0);
            if Instant::now() > deadline && is_silent() {
                return Err(ConnectFailure::Silent { server: server.to_owned() });
            }
            if Instant::now() > last {
                let error = "no answer to the handshake".to_owned();
                return Err(ConnectFailure::Broken { server: server.to_owned(), error });
            }
        }
    }

    fn session(
        &self,
        mut opened: Opened,
        work: &Work<'_>,
        run: &mut Run,
        begun: Instant,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<(SessionEnd, Tally), TransferError> {
        let granted = opened.granted.opened.clone();
        if let Work::Pull(place) = work
            && self.open.paths.iter().any(|path| asked_name(path).is_none())
            && let Err(fault) = contents_mode::give_after(place, granted.contents_mode)
        {
            return Err(TransferError::start(Problem::of(&fault)));
        }
        let setup = self.stream_setup(&opened, run)?;
        on_event(Event::Session(SessionOpened {
            session: hex(&opened.session),
            server: self.url.server(),
            server_software: opened.granted.software.clone(),
            protection: self.options.protection.name().into(),
            digest: digest_name(granted.digest).into(),
            streams: granted.streams,
            rtt_us: run.rtt_us,
        }));
        self.file_options.explain.then(|| on_event(self.explain_path(&opened, &setup, run).into()));
        self.say_selection(&mut opened.control);
        if self.file_options.preflight {
            run.port = Some(self.try_port());
        }
        let waker = Waker::new().map_err(|error| set_up_failed(&error))?;
        let streams = Streams::new(waker.clone());
        let (route, count) = (self.route.clone(), granted.streams);
        let (early, headway) = (opened.early.take(), self.headway.clone());
        let source = supply::Source::Connect { route, count, early, headway };
        let meter = Meter::new(begun, run.done_before, &streams)
            .judging(run.path, self.options.rate_bytes_per_s);
        match work {
            Work::Push(sources) => {
                let options = SendingOptions {
                    giving: Giving::Files,
                    offers: offer_limits(&opened.granted),
                    stall_after: self.options.stall_after,
                    engine: engine_name(self.options.send_engine),
                    span_bytes: self.span_bytes(),
                    file_options: self.file_options,
                    written: std::mem::take(&mut run.written),
                    manifest: self.lines(rename_of(
                        self.open.paths.first().map_or(&b""[..], Vec::as_slice),
                        granted.target_is_name,
                    )),
                    moved_earlier: std::mem::take(&mut run.moved_earlier),
                };
                let sources = Sources::Listed(walk_named(sources, self.walk_options()).into());
                let role = Sending::new(sources, setup, streams, source, options, on_event);
                Ok(self.run_role(&mut opened.control, role, meter, &waker, run))
            }
            Work::Pull(place) => {
                let moved_earlier = std::mem::take(&mut run.moved_earlier);
                let options = self.receiving_options(&opened.granted, place);
                let options = ReceivingOptions { moved_earlier, ..options };
                let role = Receiving::new(place.clone(), setup, streams, source, options, on_event)
                    .map_err(|error| set_up_failed(&error))?;
                Ok(self.run_role(&mut opened.control, role, meter, &waker, run))
            }
        }
    }

    fn receiving_options(&self, granted: &Granted, place: &TargetPlace) -> ReceivingOptions {
        ReceivingOptions {
            telling: Telling::All,
            dry_run: self.file_options.dry_run,
            offers: offer_limits(granted),
            stall_after: self.options.stall_after,
            engine: engine_name(self.options.receive_engine),
            span_bytes: self.span_bytes(),
            expected: expected_names(&self.open.paths),
            matcher: self.matcher.clone(),
            selection: None,
            manifest: self.lines(new_name(place)),
            moved_earlier: MovedEarlier::default(),
            verify_target: self.options.verify_target,
            peer_rechecks: granted.capabilities.contains(&CAPABILITY_RECHECK),
        }
    }

    fn say_selection(&self, control: &mut Control) {
        if self
            .open
            .file_options
            .as_ref()
            .is_some_and(|file_options| file_options.selection_follows)
        {
            for part in self.options.selection.to_message() {
                control.queue(Message::Selection(part));
            }
        }
    }

    /// Makes another connection, as data streams are made, and returns how long that took.
    fn try_port(&self) -> io::Result<Duration> {
        let begun = Instant::now();
        let connected = self.route.connect_stream(None, &|| self.interrupt.load(Ordering::Relaxed));
        connected.map(|_| begun.elapsed())
    }

    /// Bytes of a span: what the user asks for, or less where no larger span comes through.
    fn span_bytes(&self) -> Option<u64> {
        self.headway.smaller_span_bytes().or(self.options.span_bytes)
    }

    /// The file system and free space of the target, as a preflight saw them.
    fn target_room(&self, run: &Run, work: &Work<'_>) -> Option<TargetRoom> {
        let (theirs, _) = run.facts.as_ref()?;
        let target = match work {
            Work::Push(_) => theirs.target.clone()?,
            Work::Pull(place) => preflight::facts(&self.host, Some(place)).target?,
        };
        let file_system = printable(&target.file_system);
        Some(TargetRoom { file_system, free_bytes: free_bytes(&target) })
    }

    /// Checks of a preflight, with what it found out; empty without one.
    fn checks(&self, run: &Run, work: &Work<'_>, tally: &Tally) -> Vec<Check> {
        let (Some((theirs, heard_ms)), Some(port)) = (&run.facts, &run.port) else {
            return Vec::new();
        };
        let place = match work {
            Work::Push(_) => None,
            Work::Pull(place) => Some(place),
        };
        let findings = Findings {
            sends: place.is_none(),
            mine: &preflight::facts(&self.host, place),
            theirs,
            heard_ms: *heard_ms,
            rtt: Duration::from_micros(run.rtt_us),
            streams: run.streams,
            port,
            tally,
            replaced: tally.replaced_files,
        };
        findings.checks()
    }

    fn walk_options(&self) -> WalkOptions {
        WalkOptions::of(&self.options.selection, self.matcher.clone(), self.file_options)
    }

    fn lines(&self, rename: Option<Vec<u8>>) -> Option<Lines> {
        self.manifest.clone().map(|manifest| Lines { manifest, rename })
    }

    /// Settings of a session's streams: what was measured and agreed.
    fn stream_setup(&self, opened: &Opened, run: &mut Run) -> Result<StreamSetup, TransferError> {
        let (granted, control) = (&opened.granted.opened, opened.control.socket());
        let keys =
            opened.control.session_keys(&opened.session).map_err(|error| set_up_failed(&error))?;
        let rtt = opened.rtt.max(Duration::from_micros(granted.rtt_us));
        run.rtt_us = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
        run.streams = granted.streams;
        let earlier = run.why_tcp();
        run.rdma = opened.rdma.clone();
        run.tcp_because = self.tcp_because(opened).unwrap_or(earlier);
        run.path = verdict::Path::of(control, &self.options.connect);
        let streams = u64::from(granted.streams.max(1));
        Ok(StreamSetup {
            keys: Arc::new(keys),
            session: opened.session,
            digest: granted.digest,
            content: self.manifest.is_some()
                || (self.options.verify_target && self.open.direction == Direction::Pull),
            host: self.host.clone(),
            congestion: choose_congestion(&self.host, self.route.length_of(control, rtt)),
            pacing_bytes_per_s: self.options.rate_bytes_per_s.map(|rate| (rate / streams).max(1)),
            buffer_bytes_max: BUFFER_BYTES_MAX / granted.streams.max(1) as usize,
            rdma: opened.rdma.clone(),
            private: self.private()?,
        })
    }

    fn run_role<R: Reported>(
        &self,
        control: &mut Control,
        role: R,
        meter: Meter,
        waker: &Waker,
        run: &mut Run,
    ) -> (SessionEnd, Tally) {
        let their_side = match self.open.direction {
            Direction::Push => Side::Target,
            _ => Side::Source,
        };
        let explain = self.file_options.explain;
        let (server, silence) = (self.url.server(), outage::Silence::new(Instant::now()));
        let (headway, stall_after) = (self.headway.clone(), self.options.stall_after);
        let mut reporting = Reporting {
            role,
            meter,
            facts: None,
            explain,
            their_side,
            server,
            silence,
            headway,
            stall_after,
        };
        let end = drive(control, &mut reporting, waker, self.interrupt, self.headway.lost_after());
        let sockets = reporting.meter.streams.socket_figures();
        self.route.streams_ended(&run.flows.add(&sockets));
        let narrowed = sockets.iter().find_map(|figures| self.route.segments.moves(&figures.tcp));
        narrowed
            .map(supply::narrowed_event)
            .into_iter()
            .for_each(|event| reporting.role.tell(event));
        if matches!(end, SessionEnd::Lost(_)) {
            if control.heard_at.elapsed() > self.headway.lost_after() {
                // A message may have been too large for the path.
                self.route.segments.control_is_silent();
            }
            self.cut_off(&reporting.meter.streams.open());
            self.route.segments.forget_unproved();
        }
        run.facts = reporting.facts.or(run.facts.take());
        let (mut role, meter) = (reporting.role, reporting.meter);
        role.stop();
        run.mine = role.report();
        run.written = role.take_written();
        let theirs = role.take_peer_report();
        run.account.add(&match (&theirs, &end) {
            (Some(theirs), SessionEnd::Finished) => meter
                .heard
                .finished(&Figured { mine: of_report(&run.mine), theirs: of_report(theirs) }),
            _ => {
                let both = Figured { mine: of_report(&run.mine), theirs: meter.theirs };
                meter.heard.lost(Instant::now(), &both)
            }
        });
        run.theirs = theirs.unwrap_or_default();
        for text in [&mut run.theirs.engine, &mut run.theirs.because] {
            *text = printable(text);
        }
        let lags = [run.largest_lag.take(), role.largest_lag()];
        run.largest_lag = lags.into_iter().flatten().max_by_key(|lag| lag.bytes);
        (end, role.tally().clone())
    }

    /// Notes that the session was lost with these streams open: what they have under way is lost
    /// with it.
    fn cut_off(&self, open: &[(StreamId, StreamFigures)]) {
        let at_work = open.iter().filter(|(_, figures)| figures.in_span);
        let carried = at_work.map(|(_, figures)| Carried::of(figures));
        if let Some(carried) = carried.max_by_key(|carried| carried.payload_bytes) {
            let cut = Cut { carried, at_work: true, oldest_at_work: None };
            self.headway.stream_cut(Instant::now(), &cut);
        }
    }
}

fn offer_limits(granted: &Granted) -> OfferLimits {
    let message::Opened { offers_max, offer_bytes_max, .. } = granted.opened;
    OfferLimits { files: offers_max, bytes: offer_bytes_max }
}

/// The reason why another session is to be tried.
///
/// # Errors
/// If none is: a fault that does not pass, or Ctrl-C.
fn why_lost(end: SessionEnd, nothing_yet: bool) -> Result<String, TransferError> {
    match end {
        SessionEnd::Finished => Ok(String::new()),
        SessionEnd::Interrupted => Err(TransferError::interrupted()),
        SessionEnd::Lost(why) => Ok(why),
        SessionEnd::Refused(fault) if is_passing(&fault) => Ok(Problem::of(&fault).to_string()),
        SessionEnd::Refused(fault) if nothing_yet && may_pass_later(&fault) => {
            Err(TransferError::Unavailable(Box::new(Problem::of(&fault))))
        }
        SessionEnd::Refused(fault) if nothing_yet => Err(TransferError::start(Problem::of(&fault))),
        SessionEnd::Refused(fault) => Err(TransferError::broken(Problem::of(&fault))),
    }
}
