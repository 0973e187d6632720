//! Sessions of the server: letting clients in, and running what they asked for.

use super::{
    ServeRoot, Server,
    data_keys::ChosenKeys,
    doorman::Stranger,
    not_let_in::NotLetIn,
    open_sessions::{Entry, Place, Sessions},
};
use crate::{
    Interrupt,
    bytes::{hex, random_bytes},
    constants::{BUFFER_BYTES_MAX, SOFTWARE},
    error::{io_problem_fault, problem},
    events::{Event, FileCounts},
    file_options::FileOptions,
    locks::{Guard, lock},
    name::Name,
    options::{Protection, STALL_AFTER_DEFAULT, digest_name},
    preflight, rights,
    selection::Arriving,
    server::event::ServerEvent,
    session::{
        disclosure::Telling,
        figures_for_client::TellingFigures,
        listening::LOST_AFTER,
        moved_earlier::MovedEarlier,
        private::{Part, Private},
        rdma,
        receiving::{Receiving, ReceivingOptions},
        right_lost::RightLost,
        role::{SessionEnd, drive},
        sending::{Giving, Sending, SendingOptions, Sources, following::Written},
        streams::{StreamSetup, Streams, choose_congestion},
        supply,
        tally::{OfferLimits, Tally},
    },
    state::Grant,
    storage::{
        attributes::Attributes,
        contents_mode,
        name_at_target::final_name,
        named_sources::asked_sources,
        root::Links,
        target_place::{PathMeans, TargetPlace},
        waited_for::{Held, SESSIONS_ENDING, Waiting},
        walk::{Top, Walk, WalkOptions},
    },
    token::Token,
    transport::{
        control::{Control, ControlError},
        tcp,
        waker::Waker,
    },
};
use haul_datapath::choose::{self, StreamFacts};
use haul_protocol::{
    CAPABILITY_PRIVATE, CAPABILITY_RECHECK, Message, ServerHandshake, StreamId,
    handshake::ServerStep,
    limits,
    message::{self, Digest, Direction, Fault, FaultCode, Side},
};
use haul_sys::tcp_info::TcpInfo;
use rustls::ServerConnection;
use std::{
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// Limits on what a client may have offered and unsettled: 80,000 small files a second over 100 ms
/// need that many, with names of up to 128 bytes, and take 1 KiB of memory each.
const OFFER_LIMITS: OfferLimits = OfferLimits { files: 24_576, bytes: 9 << 20 };
/// Time that a single-use token's next session waits for one that is just ending.
const SINGLE_USE_PATIENCE: Duration = Duration::from_secs(2);
/// Most problems of one session that are told, each by a line.
const PROBLEMS_TOLD_MAX: u64 = 1000;
/// Time that a session may take to yield to its successor.
const SUPERSEDE_PATIENCE: Duration = Duration::from_secs(60);

/// A session that was accepted, with what was agreed in the handshake.
struct Accepted {
    session: [u8; 16],
    open: message::Open,
    capabilities: Vec<u32>,
    grant: Grant,
    setup: StreamSetup,
    /// Keys of the data streams, where the client is to be told them.
    told_keys: Option<message::DataKeys>,
    /// The reason why RDMA that the client offered is not used.
    fabric_refused: String,
    streams: Arc<Streams>,
    streams_granted: u32,
    rtt: Duration,
    attached: mpsc::Receiver<(StreamId, TcpStream)>,
    waker: Waker,
    interrupt: Interrupt,
    right_lost: RightLost,
    peer: String,
}

impl Accepted {
    /// The message that tells the client what was agreed, once there is something to do.
    fn opened(&self, work: &Work) -> message::Opened {
        message::Opened {
            session: self.session,
            protection: self.open.protection,
            digest: self.open.digest,
            streams: self.streams_granted,
            offers_max: OFFER_LIMITS.files,
            offer_bytes_max: OFFER_LIMITS.bytes,
            rtt_us: u64::try_from(self.rtt.as_micros()).unwrap_or(u64::MAX),
            verify_target: self.open.verify_target,
            target_is_name: matches!(
                work,
                Work::Receive(TargetPlace::Below { rename: Some(_), .. })
            ),
            discard: self
                .open
                .file_options
                .as_ref()
                .is_some_and(|file_options| file_options.discard),
            contents_mode: if let Work::Send(_, mode) = work { *mode } else { 0 },
            fabric: self
                .setup
                .rdma
                .as_ref()
                .map_or("", |route| route.fabric.provider().name())
                .into(),
            fabric_refused: self.fabric_refused.clone(),
            data_keys: self.told_keys.clone(),
        }
    }
}

enum Work {
    Receive(TargetPlace),
    /// A pull: its sources, and the mode of the directories whose contents these are.
    Send(Vec<Top>, u32),
}

impl Server {
    pub(super) fn control_connection(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        stranger: Stranger<'_>,
        deadline: Instant,
        on_event: &(dyn Fn(ServerEvent) + Sync),
    ) -> Result<(), NotLetIn> {
        socket.set_read_timeout(None)?;
        let tls = ServerConnection::new(self.tls.clone())?;
        let mut control = Control::new(socket, tls.into())?;
        let refuse = |control: &mut Control, fault: Fault| {
            let problem = crate::problem::Problem::of(&fault);
            control.queue(Message::Refused(fault));
            control.close(Duration::from_secs(2));
            Err(NotLetIn::Refused(Box::new(problem)))
        };
        let (open, capabilities) = match shake_hands(&mut control, deadline) {
            Ok(asked) => asked,
            Err(HandshakeFailure::Fault(fault)) => return refuse(&mut control, fault),
            Err(HandshakeFailure::Control(error)) => return Err(NotLetIn::Handshake(error)),
        };
        if open.direction == Direction::Probe {
            return match self.probe(
                &mut control,
                (&open, &capabilities),
                (peer, stranger),
                on_event,
            ) {
                Ok(()) => Ok(()),
                Err(HandshakeFailure::Fault(fault)) => refuse(&mut control, fault),
                Err(HandshakeFailure::Control(error)) => Err(NotLetIn::Control(error)),
            };
        }
        let accepted = match self.accept_open(&mut control, (open, capabilities), peer) {
            Ok(accepted) => accepted,
            Err(fault) => return refuse(&mut control, fault),
        };
        let _place = Place { sessions: &self.sessions, session: accepted.session };
        stranger.let_in();
        control.trust();
        match self.prepare(&accepted) {
            Ok(work) => {
                control.queue(Message::Opened(accepted.opened(&work)));
                self.serve(&mut control, accepted, work, on_event);
            }
            Err(fault) => {
                self.leave(&accepted.session, None);
                return refuse(&mut control, fault);
            }
        }
        Ok(())
    }

    /// Checks that the token allows what it is asked for.
    fn authorize(&self, open: &message::Open) -> Result<Grant, Fault> {
        let purpose = purpose_of(open);
        let purpose = purpose.as_ref().map(|purpose| &purpose[..]);
        let needs = rights::needed(open);
        let grant = self.state.authorize(&open.token_secret.0, &self.served, purpose, &needs);
        // No token would help then, so that its rights are no matter. Who has none for what is
        // served is not told.
        let is_let_in = match &grant {
            Ok(_) => true,
            Err(fault) => {
                fault.code == FaultCode::RightMissing
                    && self.state.look_at(&open.token_secret.0, &self.served, &[]).is_ok()
            }
        };
        if is_let_in && self.options.read_only && rights::changes_files(&needs) {
            let what = "the server is read-only";
            let fault = Fault::new(FaultCode::RightMissing, Side::Unknown, what);
            return Err(fault.hint(match open.direction {
                Direction::Pull => {
                    "pull from it without --move, or have it started without --read-only"
                }
                _ => "have it started without --read-only, or pull from it",
            }));
        }
        grant
    }

    /// Checks the token and what it is asked for, and makes a place for the session.
    fn accept_open(
        &self,
        control: &mut Control,
        (open, capabilities): (message::Open, Vec<u32>),
        peer: SocketAddr,
    ) -> Result<Accepted, Fault> {
        let grant = self.authorize(&open)?;
        check_protection(&open, self.options.protection_min, &capabilities)?;
        let failed = |error: &dyn std::fmt::Display| no_room("no session can be set up", error);
        let session: [u8; 16] = random_bytes().map_err(|e| failed(&e))?;
        let ChosenKeys { keys, told: told_keys } =
            ChosenKeys::new(control, &session, &capabilities).map_err(|e| failed(&e))?;
        let waker = Waker::new().map_err(|e| failed(&e))?;
        let streams = Streams::new(waker.clone());
        let (attach, attached) = mpsc::channel();
        let interrupt: Interrupt = Arc::new(AtomicBool::new(false));
        let right_lost = RightLost::default();
        let tcp = TcpInfo::of(control.socket()).unwrap_or_default();
        let rtt = Duration::from_micros(tcp.shortest_rtt_us().into());
        let (rdma, fabric_refused) = self.agree_rdma(&open, control.socket());
        let count = self.stream_count(&open, rtt, rdma.as_ref());
        let entry = Entry {
            streams_granted: count.into(),
            transfer: open.transfer,
            token_id: grant.token_id.clone(),
            keys: keys.clone(),
            attach,
            streams: streams.clone(),
            interrupt: interrupt.clone(),
            right_lost: right_lost.clone(),
            is_probe: false,
        };
        self.place_for(&open, &grant)?.open.insert(session, entry);
        if grant.single_use {
            // Once more: another may have used it up before this one had its place. While it has
            // it, no other session of the token begins, so that this answer stays true.
            self.authorize(&open).inspect_err(|_| drop(lock(&self.sessions).remove(&session)))?;
        }
        let rate = Some(open.rate_bytes_per_s).filter(|rate| *rate > 0);
        let setup = StreamSetup {
            rdma,
            private: self.private(&open),
            keys,
            session,
            digest: open.digest,
            content: open.verify_target && open.direction == Direction::Push,
            host: self.host.clone(),
            congestion: choose_congestion(&self.host, tcp::length_of(control.socket(), rtt)),
            pacing_bytes_per_s: rate.map(|rate| (rate / u64::from(count)).max(1)),
            buffer_bytes_max: BUFFER_BYTES_MAX / count as usize,
        };
        let (peer, streams_granted) = (peer.to_string(), count);
        Ok(Accepted {
            session,
            open,
            capabilities,
            grant,
            setup,
            told_keys,
            fabric_refused,
            streams,
            streams_granted,
            rtt,
            attached,
            waker,
            interrupt,
            right_lost,
            peer,
        })
    }

    /// TLS of the data streams, where the client asks for private ones.
    fn private(&self, open: &message::Open) -> Option<Private> {
        let part = Part::Server(self.data_tls.clone());
        let engine = Some(&*open.peer_engine).filter(|name| !name.is_empty());
        let is_private = open.protection == message::Protection::Private;
        is_private.then(|| Private::new(part, engine, self.options.rekey_after_bytes))
    }

    /// Opens an RDMA provider that the client offers; else the reason why the streams stay TCP.
    pub(super) fn agree_rdma(
        &self,
        open: &message::Open,
        control: &TcpStream,
    ) -> (Option<rdma::Route>, String) {
        if open.fabrics.is_empty() {
            return (None, String::new());
        }
        if open.protection == message::Protection::Private {
            return (None, "--protection private goes by TCP".into());
        }
        if !self.options.rdma {
            return (None, "the server was started without --fabric".into());
        }
        match rdma::accept(&open.fabrics, control) {
            Ok(fabric) => {
                // The client decides whether a stream may stay TCP.
                let (part, tcp_instead) = (rdma::Part::Listens, None);
                let fabric = rdma::Opening::opened(fabric);
                (Some(rdma::Route { fabric, part, tcp_instead }), String::new())
            }
            Err(none) => (None, none.to_string()),
        }
    }

    /// Locks the sessions when this one may be added.
    ///
    /// The same transfer on an earlier connection is a leftover and yields. A single-use token has
    /// one session at a time.
    fn place_for(&self, open: &message::Open, grant: &Grant) -> Result<Guard<'_, Sessions>, Fault> {
        let begun = Instant::now();
        let mut waiting = None;
        loop {
            let sessions = lock(&self.sessions);
            let of_token = || {
                let of_token = |e: &&Entry| e.token_id == grant.token_id && !e.is_probe;
                sessions.open.values().filter(of_token)
            };
            let is_leftover = |entry: &&Entry| entry.transfer == open.transfer;
            let mut leftovers = of_token().filter(is_leftover).peekable();
            if leftovers.peek().is_some() {
                for old in leftovers {
                    old.interrupt.store(true, Ordering::Relaxed);
                    old.streams.wake();
                }
                if begun.elapsed() > SUPERSEDE_PATIENCE {
                    let what = "the earlier connection of this transfer does not end";
                    return Err(Fault::new(FaultCode::Locked, Side::Target, what)
                        .hint("its disk may hang; try again later"));
                }
            } else if grant.single_use && of_token().next().is_some() {
                let waiting = waiting
                    .get_or_insert_with(|| Waiting::new(Held::TokenId(grant.token_id.clone())));
                let patience =
                    if waiting.is_doubted() { SUPERSEDE_PATIENCE } else { SINGLE_USE_PATIENCE };
                if begun.elapsed() > patience {
                    let what = "the token is for one transfer, which is running";
                    return Err(Fault::new(FaultCode::TokenUsed, Side::Unknown, what).hint(
                        "let that one end, or ask for a new token (`haul token new` there)",
                    ));
                }
            } else {
                if sessions.open.len() >= self.options.sessions_max as usize {
                    let what = "the server has as many sessions as it may";
                    let fault = Fault::new(FaultCode::TooManySessions, Side::Unknown, what);
                    return Err(fault.hint("try again later, or raise --max-sessions there"));
                }
                return Ok(sessions);
            }
            drop(sessions);
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn stream_count(&self, open: &message::Open, rtt: Duration, rdma: Option<&rdma::Route>) -> u32 {
        let facts = StreamFacts {
            host: &self.host,
            rtt,
            // Not known yet; spans beyond the first few change nothing.
            size_bytes: u64::MAX,
            span_bytes: choose::span_bytes(0, Some(open.span_bytes).filter(|bytes| *bytes > 0)),
            sees_copy: open.digest != Digest::None || open.verify_target,
            // A limited rate needs no second stream, and one keeps to it exactly.
            forced: Some(open.streams)
                .filter(|streams| *streams > 0)
                .or((open.rate_bytes_per_s > 0).then_some(1)),
        };
        let most = self.options.streams_max.clamp(1, limits::STREAMS_MAX);
        let pairs_max = rdma.map_or(limits::STREAMS_MAX, |_| rdma::PAIRS_MAX);
        choose::streams(&facts).0.clamp(1, most.min(pairs_max))
    }

    /// Checks that the served directory is still at its path. That path is the operator's, and not
    /// told.
    fn check_in_place(&self) -> Result<(), Fault> {
        let ServeRoot::Directory(path) = &self.options.root else { return Ok(()) };
        let Some(found) = self.served.in_its_place(path) else { return Ok(()) };
        let what = "the directory that the server was started with is not at its path any more";
        Err(Fault::new(FaultCode::IoFailed, Side::Unknown, what)
            .needs("the same directory, of the same file system")
            .found(format!("{found} there"))
            .hint("put or mount it there again, or start the server again"))
    }

    /// Finds the target or the sources that the client named.
    fn prepare(&self, accepted: &Accepted) -> Result<Work, Fault> {
        let open = &accepted.open;
        let root = match &self.root {
            None => None,
            Some(root) => {
                self.check_in_place()?;
                let below = std::os::unix::ffi::OsStrExt::as_bytes(accepted.grant.root.as_os_str());
                let root = root.below(below, Links::Refuse);
                Some(root.map_err(|error| no_token_root(&error))?)
            }
        };
        match open.direction {
            Direction::Push => {
                let path = open.paths.first().map_or(&b""[..], Vec::as_slice);
                let file_options = FileOptions::from_message(open.file_options.as_ref());
                let place = match root {
                    None => TargetPlace::Null,
                    Some(root) => {
                        let means = match open.target_is_name {
                            true => PathMeans::Name,
                            false => PathMeans::directory_if(open.into_directory),
                        };
                        TargetPlace::resolve(&root, path, means, file_options)?
                    }
                };
                contents_mode::give(&place, open.contents_mode)?;
                if file_options.move_sources && matches!(place, TargetPlace::Null) {
                    return Err(thrown_away());
                }
                if open.verify_target && matches!(place, TargetPlace::Null) {
                    let what = "null: keeps nothing that could be read back";
                    let fault = Fault::new(FaultCode::NameRefused, Side::Target, what);
                    return Err(fault.hint("leave out --verify-target, or push to a directory"));
                }
                Ok(Work::Receive(place))
            }
            Direction::Pull => {
                let mode = contents_mode::of_asked(root.as_ref(), &open.paths);
                Ok(Work::Send(asked_sources(root.as_ref(), &open.paths), mode))
            }
            Direction::Unknown | Direction::Probe => {
                let what = "the client asked neither to push nor to pull";
                Err(Fault::new(FaultCode::ProtocolViolation, Side::Unknown, what))
            }
        }
    }

    fn serve(
        &self,
        control: &mut Control,
        accepted: Accepted,
        work: Work,
        on_event: &(dyn Fn(ServerEvent) + Sync),
    ) {
        let begun = Instant::now();
        let id = accepted.session;
        let session = hex(&id);
        on_event(ServerEvent::Session {
            session: session.clone(),
            peer: accepted.peer.clone(),
            direction: match work {
                Work::Receive(_) => "pushes to".into(),
                Work::Send(..) => "pulls".into(),
            },
            token: accepted.grant.token_id.clone(),
            path: shown_paths(&accepted.open),
        });
        self.say_facts(control, &accepted.open, &work);
        let (mut told, new_name) = (0, new_name(&work));
        let mut tell = |event: Event| {
            let session = session.clone();
            // The files of a session are counted at its end; a client can have any number fail.
            told += u64::from(matches!(event, Event::Error(_) | Event::Fallback { .. }));
            match event {
                Event::File(mut file) => {
                    file.path = here(new_name.as_deref(), file.path);
                    on_event(ServerEvent::File { session, file });
                }
                Event::Error(_) | Event::Fallback { .. } if told > PROBLEMS_TOLD_MAX => {}
                Event::Error(mut problem) => {
                    problem.path = here(new_name.as_deref(), problem.path);
                    on_event(ServerEvent::Error { session, problem });
                }
                Event::Fallback { from_to, why, .. } => {
                    on_event(ServerEvent::Fallback { session, from_to, why });
                }
                _ => {}
            }
        };
        let single_use = used_up_by(&accepted);
        let peer = accepted.peer.clone();
        let dry_run = FileOptions::from_message(accepted.open.file_options.as_ref()).dry_run;
        let (end, tally) = run_role(control, accepted, work, &mut tell);
        if let Some(problem) = untold(told) {
            on_event(ServerEvent::Error { session: session.clone(), problem });
        }
        if let (SessionEnd::Finished, Some(token), 0) = (&end, single_use, tally.failed_files)
            && let Err(problem) = self.state.use_up(&token)
        {
            on_event(ServerEvent::Error { session: session.clone(), problem });
        }
        self.leave(&id, Some(&end));
        on_event(ServerEvent::SessionEnded {
            session: hex(&id),
            peer,
            ok: matches!(end, SessionEnd::Finished) && tally.failed_files == 0,
            dry_run,
            bytes: tally.verified_bytes,
            seconds: begun.elapsed().as_secs_f64(),
            // What a dry run would remove stays.
            files: FileCounts {
                removed: tally.removed_files * u64::from(!dry_run),
                ..tally.counts()
            },
            why: why_ended(&end),
        });
    }

    /// Tells the client of a preflight what is known of this host.
    fn say_facts(&self, control: &mut Control, open: &message::Open, work: &Work) {
        if open.file_options.as_ref().is_some_and(|file_options| file_options.preflight) {
            let place = match work {
                Work::Receive(place) => Some(place),
                Work::Send(..) => None,
            };
            control.queue(Message::Facts(preflight::facts(&self.host, place)));
        }
    }

    fn leave(&self, session: &[u8; 16], end: Option<&SessionEnd>) {
        if let Some(root) = &self.root {
            root.close_parents();
        }
        let mut sessions = lock(&self.sessions);
        sessions.open.remove(session);
        match end {
            Some(SessionEnd::Finished | SessionEnd::Refused(_)) => sessions.ended_for_good = true,
            Some(_) => sessions.cut_off_at = Some(Instant::now()),
            None => {}
        }
    }
}

/// Id of the token that is of no use any more once this session is complete.
fn used_up_by(accepted: &Accepted) -> Option<String> {
    let uses_up = accepted.grant.single_use && purpose_of(&accepted.open).is_some();
    uses_up.then(|| accepted.grant.token_id.clone())
}

fn why_ended(end: &SessionEnd) -> String {
    match end {
        SessionEnd::Finished => String::new(),
        SessionEnd::Refused(fault) => crate::problem::Problem::of(fault).to_string(),
        SessionEnd::Lost(why) => format!("connection lost: {why}"),
        SessionEnd::Interrupted => "interrupted".into(),
    }
}

/// Says how many problems of a session were left out.
fn untold(problems: u64) -> Option<crate::problem::Problem> {
    let more = problems.checked_sub(PROBLEMS_TOLD_MAX).filter(|more| *more > 0)?;
    let found = format!("{more} more than {PROBLEMS_TOLD_MAX}");
    Some(problem("not every problem of this session is told", "", &found, ""))
}

/// The new name of the one source of a push, where it gets another here.
fn new_name(work: &Work) -> Option<Vec<u8>> {
    match work {
        Work::Receive(TargetPlace::Below { rename, .. }) => rename.clone(),
        Work::Receive(TargetPlace::Null) | Work::Send(..) => None,
    }
}

/// The name that an offered file has here: the log of this host speaks of its own files.
fn here(new_name: Option<&[u8]>, offered: Name) -> Name {
    match new_name {
        Some(_) if !offered.0.is_empty() => Name(final_name(b"", new_name, &offered.0)),
        _ => offered,
    }
}

fn walk_options(file_options: FileOptions) -> WalkOptions {
    WalkOptions {
        attributes: Arc::new(Attributes::new(file_options.preserve)),
        watch: file_options.recording.watch.then(Arc::default),
        is_moved: file_options.move_sources,
        ..WalkOptions::default()
    }
}

fn run_role(
    control: &mut Control,
    accepted: Accepted,
    work: Work,
    tell: &mut dyn FnMut(Event),
) -> (SessionEnd, Tally) {
    let Accepted { open, capabilities, grant, setup, streams, attached, waker, interrupt, .. } =
        accepted;
    let by_token = (grant.token_id.clone(), accepted.right_lost);
    let source = supply::Source::Attach(attached);
    let file_options = FileOptions::from_message(open.file_options.as_ref());
    let follows = |file_options: &message::FileOptions| file_options.selection_follows;
    let selection = open.file_options.as_ref().is_some_and(follows).then(Arriving::default);
    let engine = Some(open.peer_engine.clone()).filter(|name| !name.is_empty());
    match work {
        Work::Send(top, _) => {
            let options = SendingOptions {
                giving: Giving::to(&grant, &open),
                offers: OFFER_LIMITS,
                stall_after: STALL_AFTER_DEFAULT,
                engine,
                span_bytes: Some(open.span_bytes).filter(|bytes| *bytes > 0),
                file_options,
                written: Written::default(),
                manifest: None,
                moved_earlier: MovedEarlier::default(),
            };
            let walk = walk_options(file_options);
            let sources = match selection {
                Some(arriving) => Sources::awaiting(top, walk, arriving),
                None => Sources::Listed(Box::new(Walk::new(top, walk))),
            };
            let role = Sending::new(sources, setup, streams, source, options, tell);
            let mut telling = TellingFigures::new(role, by_token, open.wants_figures);
            let end = drive(control, &mut telling, &waker, &interrupt, LOST_AFTER);
            telling.role.stop();
            (end, telling.role.tally().clone())
        }
        Work::Receive(place) => {
            let options = ReceivingOptions {
                telling: Telling::to(grant.rights),
                dry_run: file_options.dry_run,
                offers: OFFER_LIMITS,
                stall_after: STALL_AFTER_DEFAULT,
                engine,
                span_bytes: Some(open.span_bytes).filter(|bytes| *bytes > 0),
                expected: None,
                matcher: None,
                selection,
                manifest: None,
                moved_earlier: MovedEarlier::default(),
                verify_target: open.verify_target,
                peer_rechecks: capabilities.contains(&CAPABILITY_RECHECK),
            };
            match Receiving::new(place, setup, streams, source, options, tell) {
                Ok(role) => {
                    let mut telling = TellingFigures::new(role, by_token, open.wants_figures);
                    let end = drive(control, &mut telling, &waker, &interrupt, LOST_AFTER);
                    SESSIONS_ENDING.fetch_add(1, Ordering::Relaxed);
                    telling.role.stop();
                    SESSIONS_ENDING.fetch_sub(1, Ordering::Relaxed);
                    (end, telling.role.tally().clone())
                }
                Err(error) => (SessionEnd::Lost(error.to_string()), Tally::default()),
            }
        }
    }
}

pub enum HandshakeFailure {
    Fault(Fault),
    Control(ControlError),
}

/// Hears what the client asks for, and the capabilities that both sides have.
fn shake_hands(
    control: &mut Control,
    deadline: Instant,
) -> Result<(message::Open, Vec<u32>), HandshakeFailure> {
    let mut handshake = ServerHandshake::default();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let slow = std::io::Error::new(std::io::ErrorKind::TimedOut, "it was too slow");
            return Err(HandshakeFailure::Control(ControlError::Io(slow)));
        }
        let messages = match control.turn(left, None) {
            Ok(messages) => messages,
            Err(ControlError::Protocol(error)) => {
                return Err(HandshakeFailure::Fault(error.to_fault()));
            }
            Err(error) => return Err(HandshakeFailure::Control(error)),
        };
        for message in messages {
            match handshake.handle(message, SOFTWARE).map_err(HandshakeFailure::Fault)? {
                ServerStep::Reply(reply) => control.queue(reply),
                ServerStep::Open { open, capabilities, .. } => return Ok((open, capabilities)),
            }
        }
    }
}

fn check_protection(
    open: &message::Open,
    least: Protection,
    capabilities: &[u32],
) -> Result<(), Fault> {
    let fits = match (open.protection, open.digest) {
        (message::Protection::Private, Digest::Crc32c | Digest::Xxh3128) => {
            capabilities.contains(&CAPABILITY_PRIVATE)
        }
        (message::Protection::Safe, Digest::AesGmac) => least <= Protection::Safe,
        (message::Protection::Clear, Digest::None | Digest::Crc32c | Digest::Xxh3128) => {
            least == Protection::Clear
        }
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let what = "the server does not take this protection";
    Err(Fault::new(FaultCode::ProtectionTooLow, Side::Unknown, what)
        .needs(format!("--protection {} or more", least.name()))
        .found(format!("{:?} with {}", open.protection, digest_name(open.digest)).to_lowercase())
        .hint("leave --protection and --digest out"))
}

/// The fault of a token whose root cannot be opened. The root was resolved when the token was made;
/// a link on its way came later, maybe by another token, and would open what this one was not made
/// for.
fn no_token_root(error: &std::io::Error) -> Fault {
    let what = "the token's root cannot be opened on the server";
    if error.raw_os_error() != Some(rustix::io::Errno::LOOP.raw_os_error()) {
        return io_problem_fault(Side::Unknown, what, error);
    }
    Fault::new(FaultCode::RightMissing, Side::Unknown, what)
        .needs("the directory that was there when the token was made")
        .found("a symbolic link in its place")
        .hint("ask for a new token (`haul token new` there)")
}

/// The fault of a move into nothing, which would leave the files nowhere.
fn thrown_away() -> Fault {
    let what = "the target throws everything away, so nothing can be moved there";
    Fault::new(FaultCode::RightMissing, Side::Target, what)
        .needs("a target that keeps what it receives")
        .found("null:")
        .hint("leave out --move")
}

/// Hash of what a client asks for: the same command gives the same. `None` for what leaves nothing
/// anywhere: a token for one transfer is still good for that afterwards.
fn purpose_of(open: &message::Open) -> Option<[u8; 32]> {
    let file_options = FileOptions::from_message(open.file_options.as_ref());
    // A pull that lists is held to that: session/sending/giving.rs.
    let lists = rights::lists_only(open);
    if lists || (file_options.leaves_nothing() && open.direction == Direction::Push) {
        return None;
    }
    // Tokens keep this hash across versions, so it is of the number that the wire has.
    let mut text = (open.direction as i32).to_le_bytes().to_vec();
    for path in &open.paths {
        text.extend_from_slice(path);
        text.push(0);
    }
    Some(Token::secret_hash(&text))
}

fn shown_paths(open: &message::Open) -> String {
    let paths = open.paths.iter().map(|path| String::from_utf8_lossy(path).into_owned());
    paths.collect::<Vec<_>>().join(" ")
}

/// Fault of a server that has no room for one more session or probe.
pub(super) fn no_room(what: &str, error: &dyn std::fmt::Display) -> Fault {
    Fault::new(FaultCode::IoFailed, Side::Unknown, what)
        .needs("memory, threads and descriptors of the server for it")
        .found(error.to_string())
        .hint("try again when others have ended, or raise the server's limits (ulimit -a)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        options::{PushRequest, ServeOptions, SourceSpec},
        rights::Rights,
        state::NewToken,
        url::HaulUrl,
    };
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
    use std::{fs, io::Write, path::Path};

    #[test]
    fn a_server_without_room_says_what_to_do() {
        let error = std::io::Error::from_raw_os_error(24);
        let fault = no_room("no session can be set up", &error);
        assert!(fault.found.contains("Too many open files") && !fault.hint.is_empty(), "{fault:?}");
    }

    /// A pipe in the place of a file: whoever reads it waits until it is answered.
    fn put_pipe(path: &Path) {
        let beside = path.with_extension("pipe");
        mknodat(CWD, &beside, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        fs::rename(beside, path).unwrap();
    }

    /// The end to answer by, once somebody reads the pipe.
    fn reader_of(path: &Path) -> fs::File {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match open(path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()) {
                Ok(pipe) => return pipe.into(),
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
                Err(error) => panic!("nobody reads {}: {error}", path.display()),
            }
        }
    }

    #[test]
    fn a_disk_that_is_slow_to_say_the_tokens_holds_up_no_other_session() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        let options = ServeOptions {
            listen: "127.0.0.1:0".to_owned(),
            ..ServeOptions::new(ServeRoot::Null, state.clone())
        };
        let server = Server::bind(options).unwrap();
        let new =
            NewToken { single_use: true, ..NewToken::new(server.served.clone(), Rights::ALL) };
        let (token, _) = server.state.new_token(&new).unwrap();
        let url = HaulUrl { token: Some(token), ..server.url() };
        let mut request = PushRequest::new([SourceSpec::Zero(1 << 20)], url);
        request.options.file_options.discard = true;
        let tokens = state.join("tokens.json");
        let list = fs::read(&tokens).unwrap();
        put_pipe(&tokens);
        let interrupt = Interrupt::default();
        thread::scope(|scope| {
            scope.spawn(|| server.run(&interrupt, &|_| {}).unwrap());
            let pushed = scope.spawn(|| crate::client::push(&request, &interrupt, &mut |_| {}));
            // The token is looked at when the client shows it, and once more when it gets a place.
            let mut first = reader_of(&tokens);
            put_pipe(&tokens);
            first.write_all(&list).unwrap();
            drop(first);
            let mut second = reader_of(&tokens);
            let is_free = (0..100).any(|_| {
                thread::sleep(Duration::from_millis(1));
                server.sessions.try_lock().is_some()
            });
            fs::write(tokens.with_extension("new"), &list).unwrap();
            fs::rename(tokens.with_extension("new"), &tokens).unwrap();
            second.write_all(&list).unwrap();
            drop(second);
            let pushed = pushed.join().unwrap();
            interrupt.store(true, Ordering::Relaxed);
            assert!(pushed.is_ok_and(|report| report.ok), "the push");
            assert!(is_free, "the list of sessions is locked while the tokens are read");
        });
    }
}
