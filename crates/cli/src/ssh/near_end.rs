//! The near end of a copy over ssh: runs ssh(1) once, and gets URLs of a server at the other side.
//!
//! ssh asks for passwords and host keys at the user's terminal. While it does, what it says on
//! standard error is shown; once haul has answered, that is kept for the words of a failure. The
//! token is in memory, and in no command line, environment or log.

use super::{
    bridge::Bridge,
    by_proxy::{ProxyRule, Reachable},
    channels::Channels,
    direct_host::KnownHost,
    frame::{self, FrameError, NOISE_BYTES_MAX, THROUGH},
    install::Installer,
    led::{self, Place},
    login::Login,
    messages::{
        Answer, Come, EncodedPath, Lacks, NeededRights, Order, Purpose, Request, Start, VERSION,
    },
    ports::Ports,
    problem,
    program::SshProgram,
    reverse::Listening,
    send_order::SendTarget,
    troubles::{self, NoAnswer},
    ways::{self, ThroughSsh, Way},
};
use haul_transfer::{
    ConnectOptions, Connector, Event, HaulUrl, Interrupt, Name, Problem, Report, SOFTWARE, Side,
    Token, TransferError,
};
use std::{
    io::{self, BufReader, Read, Write},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Longest time until haul at the other side answers: people look for a phone within it.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(600);
/// Most answers that wait to be taken.
const HEARD_MAX: usize = 16;
/// Interval at which the start is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Age at which a line of ssh's is shown while there is no answer: a failure tells it by itself.
const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// Time for the rest of an output once its program has ended.
const REST_WAIT_MAX: Duration = Duration::from_secs(1);
/// Time for the addresses of the server, all together, to answer.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Time for them where there is another way, and for the first connection of that one.
const WAY_WAIT_MAX: Duration = Duration::from_secs(5);
/// Time for ssh to end when all is done.
const END_WAIT_MAX: Duration = Duration::from_secs(5);
/// Least grace that a server is asked for.
const GRACE_MIN: Duration = Duration::from_secs(10);
/// Most bytes that are kept of standard error.
const SAID_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a request: what any pipe takes without a reader.
const REQUEST_PATHS_BYTES_MAX: usize = 12 << 10;

/// Paths of another machine, and what is to be done with them.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub login: Login,
    pub paths: Vec<Vec<u8>>,
    pub purpose: Purpose,
    pub removes: bool,
    /// Rights that a push to it needs, where another machine makes it.
    pub of_another: Option<NeededRights>,
    /// Ports that the server may take; any free one where there are none.
    pub ports: Option<Ports>,
    /// Way that the data is to go.
    pub way: Way,
    /// Time for which a client that lost its connection tries to come back.
    pub retry_for: Duration,
    /// Proxy by which the server is connected to.
    pub proxy: ProxyRule,
    /// Choices of the user for the connections to it.
    pub connect: ConnectOptions,
}

/// A running ssh, with a server at its other side that ends with it.
#[derive(Debug)]
pub struct NearEnd {
    child: Child,
    input: Option<ChildStdin>,
    said: Arc<Said>,
    wanted: Wanted,
    /// The directory that is served there.
    root: Vec<u8>,
    grace: Duration,
    /// Host and port in the URLs.
    server: Option<String>,
    other_way: OtherWay,
    /// Events that the user is to know before the transfer.
    notes: Vec<Event>,
    /// Gives what follows on standard output to its reader.
    decide: Option<mpsc::Sender<Onward>>,
    /// Whether the other side knows other ways for the data.
    takes_orders: bool,
    is_end_told: bool,
    installed: Option<Event>,
    place: Place,
    /// Whether the other side sees another machine's address in the place of this one's.
    sees_another: bool,
}

/// Way of the data where it is not by connections to the other side.
#[derive(Clone, Debug, Default)]
enum OtherWay {
    #[default]
    None,
    Reverse(Arc<Listening>),
    Ssh(Arc<ThroughSsh>),
    /// Through this ssh and that of the machine that sends.
    ToTarget(Arc<Bridge>),
    ToSource(Arc<Bridge>),
}

/// Reader of what follows an answer on standard output.
#[derive(Debug)]
enum Onward {
    Channels(Arc<Channels>),
    FromTarget(Arc<Bridge>),
    FromSource(Arc<Bridge>),
}

impl NearEnd {
    /// Time for which a client that lost its connection tries to come back.
    #[must_use]
    pub fn retry_for(&self) -> Duration {
        self.wanted.retry_for
    }

    /// Runs ssh and waits until the server there can be reached; gives the URLs of the paths.
    ///
    /// # Errors
    /// If ssh fails, haul is not there or cannot begin, or its port cannot be reached.
    pub fn start(
        program: &SshProgram,
        wanted: Wanted,
        interrupt: &Interrupt,
    ) -> Result<(Self, Vec<HaulUrl>), TransferError> {
        let (mut near, start) = Self::start_server(program, wanted, interrupt)?;
        let urls = near.reach(program, &start, interrupt)?;
        Ok((near, urls))
    }

    /// Runs ssh and waits for a server that another machine will send to, of which this is known.
    ///
    /// # Errors
    /// If ssh fails, or haul is not there or cannot begin.
    pub fn start_for_another(
        program: &SshProgram,
        wanted: Wanted,
        sender: &KnownHost,
        interrupt: &Interrupt,
    ) -> Result<(Self, SendTarget), TransferError> {
        let known = KnownHost::of(program, &wanted.login);
        let (mut near, start) = Self::start_server(program, wanted, interrupt)?;
        near.check(&start)?;
        near.takes_orders = start.takes_orders;
        if near.wanted.way != Way::Any && !start.takes_orders {
            let problem = troubles::no_other_way(&near.wanted.login, &start.software);
            return Err(TransferError::start(problem));
        }
        near.place = Place::new(&start.addresses, known);
        let sender = Place { told: Vec::new(), known: sender.clone() };
        let (name, ports) = (near.wanted.login.to_string(), near.wanted.ports);
        let hosts = led::hosts(&near.place, &sender, (start.port, ports));
        let target = SendTarget::of(name, &start, hosts);
        let target = target.ok_or_else(|| near.odd("no path", &start.software))?;
        Ok((near, target))
    }

    fn start_server(
        program: &SshProgram,
        wanted: Wanted,
        interrupt: &Interrupt,
    ) -> Result<(Self, Start), TransferError> {
        let request = request(&wanted).map_err(TransferError::start)?;
        match Self::begin(program, wanted, &request, interrupt)? {
            (near, _, Answer::Started(start)) => Ok((near, start)),
            (near, ..) => Err(near.odd("no start", "")),
        }
    }

    /// Runs ssh and waits for the answer to a request; gives what comes behind it, too.
    ///
    /// # Errors
    /// If ssh fails, or haul is not there or cannot begin.
    pub(super) fn begin(
        program: &SshProgram,
        wanted: Wanted,
        request: &Request,
        interrupt: &Interrupt,
    ) -> Result<(Self, mpsc::Receiver<Heard>, Answer), TransferError> {
        if !program.is_there() {
            let missing = io::Error::from(io::ErrorKind::NotFound);
            return Err(TransferError::start(troubles::not_started(program, &missing)));
        }
        let request = frame::bytes(request).map_err(|error| {
            TransferError::start(problem("cannot ask over ssh", "", &error.to_string(), ""))
        })?;
        let installer = program.installs.then(Installer::of_this_program).transpose();
        let mut installer = installer.map_err(TransferError::start)?;
        let mut child = program
            .command(&wanted.login, installer.as_ref().map(|copied| (copied, request.len())))
            .spawn()
            .map_err(|error| TransferError::start(troubles::not_started(program, &error)))?;
        let said = Arc::new(Said::default());
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut input), Some(output), Some(errors)) = pipes else {
            unreachable!("all three are pipes")
        };
        // A program that is gone already is noticed by its end.
        let _ = input.write_all(&request);
        let (decide, decided) = mpsc::channel();
        let mut near = Self {
            child,
            input: Some(input),
            said: said.clone(),
            wanted,
            root: Vec::new(),
            grace: Duration::ZERO,
            server: None,
            other_way: OtherWay::None,
            notes: Vec::new(),
            decide: Some(decide),
            takes_orders: false,
            is_end_told: false,
            installed: None,
            place: Place::default(),
            sees_another: false,
        };
        let heard = listen((output, decided), errors, said).map_err(|error| {
            let found = error.to_string();
            TransferError::start(problem("cannot start a thread for ssh", "", &found, ""))
        })?;
        let (mut lacks_it, mut has_it) = (false, false);
        loop {
            match (near.wait_for_answer(program, &heard, interrupt)?, &mut installer) {
                (Answer::Refused(refusal), _) => {
                    let problem = troubles::refused(&near.wanted.login, refusal);
                    return Err(TransferError::start(problem));
                }
                // Each is said once: who goes on saying so would be copied to without end.
                (Answer::Lacks(lacks), Some(installer)) if !lacks_it => {
                    lacks_it = true;
                    near.install(installer, &lacks, interrupt)?;
                }
                (Answer::Installed {}, Some(_)) if lacks_it && !has_it => {
                    has_it = true;
                    near.say(&request);
                }
                (answer, _) => return Ok((near, heard, answer)),
            }
        }
    }

    /// Says something to the other side; one that is gone already is noticed by its end.
    fn say(&mut self, bytes: &[u8]) {
        let _ = self.input.as_mut().map(|input| input.write_all(bytes));
    }

    /// Says that this end is through; whether it could be said.
    pub(super) fn say_through(&mut self) -> bool {
        match &self.other_way {
            OtherWay::Ssh(ssh) => ssh.channels().say_through().is_ok(),
            OtherWay::ToSource(bridge) => bridge.to_source().say_through().is_ok(),
            OtherWay::ToTarget(bridge) => bridge.to_target().say_through().is_ok(),
            OtherWay::None | OtherWay::Reverse(_) => {
                self.input.as_mut().is_some_and(|input| input.write_all(&[THROUGH]).is_ok())
            }
        }
    }

    /// Whether the other side knows other ways for the data than connections to it.
    #[must_use]
    pub fn takes_orders(&self) -> bool {
        self.takes_orders
    }

    /// Has the other side come to a machine that waits for it. One that does not is missed there.
    pub(super) fn have_it_come_to(&mut self, come: Come) {
        let order = frame::bytes(&Order::Come(come));
        order.iter().for_each(|order| self.say(order));
    }

    /// Has data go through the ssh of the machine that sends and then through this one.
    ///
    /// # Errors
    /// If one of them takes nothing any more.
    pub(super) fn carry_for(&mut self, source: &mut Self) -> Result<Arc<Bridge>, TransferError> {
        let lost = |near: &Self| {
            let what = format!("ssh to {} cannot carry data", near.wanted.login);
            let hint = "look whether that machine is up, and run the same command again";
            TransferError::start(problem(&what, "an ssh that runs", "it has ended", hint))
        };
        // Nothing is taken before all is there: by its input the other side is told of the end.
        for near in [&*self, &*source] {
            if near.input.is_none() || near.decide.is_none() {
                return Err(lost(near));
            }
        }
        let order = frame::bytes(&Order::Channels).map_err(|_| lost(self))?;
        let told = self.input.as_mut().map(|input| input.write_all(&order));
        told.and_then(Result::ok).ok_or_else(|| lost(self))?;
        let of = |near: &mut Self| near.input.take().zip(near.decide.take());
        let (to_target, decide) = of(self).ok_or_else(|| lost(self))?;
        let (to_source, decide_source) = of(source).ok_or_else(|| lost(source))?;
        let processes = [source.child.id(), self.child.id()];
        let bridge = Arc::new(Bridge::new(to_source.into(), to_target.into(), processes));
        self.other_way = OtherWay::ToTarget(bridge.clone());
        source.other_way = OtherWay::ToSource(bridge.clone());
        decide.send(Onward::FromTarget(bridge.clone())).map_err(|_| lost(self))?;
        let from_source = Onward::FromSource(bridge.clone());
        decide_source.send(from_source).map_err(|_| lost(source))?;
        Ok(bridge)
    }

    /// Lets what follows on standard output be read by nobody: data goes by another way.
    pub(super) fn carries_nothing(&mut self) {
        self.decide = None;
    }

    /// The place of the other side, where another machine sends to it.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The machine at the other side.
    #[must_use]
    pub(super) fn login(&self) -> &Login {
        &self.wanted.login
    }

    /// Notes the address at which another machine has found the server.
    pub fn reached_at(&mut self, server: &str) {
        self.server = Some(server.to_owned());
    }

    /// Copies this program to the other side.
    fn install(
        &mut self,
        installer: &mut Installer,
        lacks: &Lacks,
        interrupt: &Interrupt,
    ) -> Result<(), TransferError> {
        let Some(input) = &mut self.input else { return Ok(()) };
        let far = self.wanted.login.to_string();
        let copied = installer.copy(input, &far, &mut |still| {
            !interrupt.load(Ordering::Relaxed) && still < ANSWER_WAIT_MAX
        });
        let is_whole = copied.map_err(|error| {
            let what = format!("cannot copy haul to {far}");
            TransferError::start(problem(&what, "", &error.to_string(), ""))
        })?;
        self.installed = is_whole.then(|| installer.told(&far, lacks));
        // A pipe that is full would hold up the end.
        self.input = self.input.take().filter(|_| is_whole);
        Ok(())
    }

    /// Tells once that haul was copied to the other side, if it was.
    #[must_use]
    pub fn installed(&mut self) -> Option<Event> {
        self.installed.take()
    }

    pub(super) fn odd(&self, found: &str, software: &str) -> TransferError {
        let what = format!("haul at {} answered what cannot be used", self.wanted.login);
        let needs = format!("a start of version {VERSION}, which {SOFTWARE} has");
        let of = if software.is_empty() { String::new() } else { format!(" of {software}") };
        let hint = "install the same haul on both machines";
        TransferError::start(problem(&what, &needs, &format!("{found}{of}"), hint))
    }

    pub(super) fn wait_for_answer(
        &mut self,
        program: &SshProgram,
        heard: &mpsc::Receiver<Heard>,
        interrupt: &Interrupt,
    ) -> Result<Answer, TransferError> {
        let deadline = Instant::now() + ANSWER_WAIT_MAX;
        loop {
            let heard = match heard.recv_timeout(LOOK_EVERY) {
                Ok(heard) => Some(heard),
                // The pipe may be held open by another that ssh has left behind.
                Err(_) if self.has_ended() => {
                    Some(heard.recv_timeout(REST_WAIT_MAX).unwrap_or_default())
                }
                Err(_) => None,
            };
            match heard {
                Some(Heard { answer: Ok(answer), .. }) => return Ok(answer),
                Some(Heard { answer: Err(why), noise }) => {
                    return Err(self.no_answer(program, why, &noise, interrupt));
                }
                None => {}
            }
            if interrupt.load(Ordering::Relaxed) {
                return Err(TransferError::interrupted());
            }
            if Instant::now() > deadline {
                let why = FrameError::Damaged(format!("none in {} s", ANSWER_WAIT_MAX.as_secs()));
                return Err(self.no_answer(program, why, b"", interrupt));
            }
            self.said.show();
        }
    }

    fn no_answer(
        &mut self,
        program: &SshProgram,
        why: FrameError,
        noise: &[u8],
        interrupt: &Interrupt,
    ) -> TransferError {
        // Ctrl-C reaches ssh by the terminal, too.
        if interrupt.load(Ordering::Relaxed) {
            return TransferError::interrupted();
        }
        self.input = None;
        let is_over = matches!(why, FrameError::Ended);
        let status = if is_over { self.wait(REST_WAIT_MAX) } else { None };
        self.said.wait_for_rest();
        let said = self.said.bytes();
        let login = &self.wanted.login;
        let no_answer = NoAnswer { program, login, status, why, noise, said: &said };
        no_answer.error()
    }

    /// Finds the address by which the server can be reached, and makes the URLs.
    fn reach(
        &mut self,
        program: &SshProgram,
        start: &Start,
        interrupt: &Interrupt,
    ) -> Result<Vec<HaulUrl>, TransferError> {
        let (token, paths) = self.check(start)?;
        let login = self.wanted.login.clone();
        let known = KnownHost::of(program, &login);
        let place = Place::new(&start.addresses, known);
        self.sees_another = place.sees_another();
        let servers = reachable(&place, start, &self.wanted);
        let stop = || interrupt.load(Ordering::Relaxed);
        let decide = self.decide.take();
        if self.wanted.way != Way::Any && !start.takes_orders {
            return Err(TransferError::start(troubles::no_other_way(&login, &start.software)));
        }
        let Wanted { way, proxy: ProxyRule { proxy, .. }, connect, .. } = &self.wanted;
        // One of the environment counts where it is to lead to an address.
        let is_all_direct = servers.by_proxy.is_empty() && !servers.direct.is_empty();
        let proxy = proxy.as_ref().filter(|_| !is_all_direct);
        let has_others = start.takes_orders && !ways::has_named_path(proxy, connect);
        let wait_max = if has_others { WAY_WAIT_MAX } else { CONNECT_WAIT_MAX };
        let by_tcp = (*way == Way::Any).then(|| servers.connect(proxy, connect, wait_max, &stop));
        let (host, port, proxy) = match by_tcp {
            Some(Ok((server, proxy))) => (server.ip().to_string(), server.port(), proxy.cloned()),
            _ if stop() => return Err(TransferError::interrupted()),
            // Who names a path has data go by it, and by no other way.
            Some(Err(error)) if !has_others => {
                let problem = troubles::unreachable(&login, &servers.all(), &error);
                return Err(TransferError::start(problem));
            }
            other => {
                let why = other
                    .and_then(Result::err)
                    .map(|error| troubles::unreachable(&login, &servers.all(), &error).found);
                self.find_other_way(why, decide, interrupt)?;
                (login.host().to_owned(), start.port, None)
            }
        };
        let url = |path| HaulUrl {
            token: Some(token.clone()),
            host: host.clone(),
            port,
            path,
            proxy: proxy.clone(),
        };
        let urls: Vec<HaulUrl> = paths.into_iter().map(url).collect();
        self.server = urls.first().map(HaulUrl::server);
        Ok(urls)
    }

    /// Checks what the other side has told about its server, and notes it.
    fn check(&mut self, start: &Start) -> Result<(Token, Vec<Vec<u8>>), TransferError> {
        let odd = |found: &str| self.odd(found, &start.software);
        if start.version > VERSION {
            return Err(odd(&format!("version {}", start.version)));
        }
        let token: Token = start.token.parse().map_err(|_| odd("no token"))?;
        let paths: Option<Vec<Vec<u8>>> = start.paths.iter().map(EncodedPath::bytes).collect();
        let paths = paths.filter(|paths| paths.len() == self.wanted.paths.len());
        let paths = paths.ok_or_else(|| odd("other paths"))?;
        let root = start.root.bytes().ok_or_else(|| odd("no directory"))?;
        self.root = root;
        self.grace = Duration::from_millis(start.grace_ms);
        Ok((token, paths))
    }

    /// Has the other side come, or data go through ssh. `no_direct` is why no connection could be
    /// made to it; `None` where none was tried.
    fn find_other_way(
        &mut self,
        no_direct: Option<String>,
        decide: Option<mpsc::Sender<Onward>>,
        interrupt: &Interrupt,
    ) -> Result<(), TransferError> {
        let login = self.wanted.login.clone();
        let left_out = ways::left_out(&self.wanted.connect);
        let mut why = no_direct.map(|found| format!("no connection to {login}: {found}"));
        let from_to = |way: &str| format!("connections to {login} -> {way}");
        if self.wanted.way != Way::ThroughSsh {
            match self.have_it_come(interrupt) {
                Ok(listening) => {
                    self.other_way = OtherWay::Reverse(listening);
                    let from_to = from_to("connections from there");
                    self.notes.extend(why.map(|why| Event::Fallback {
                        side: Side::Path,
                        from_to,
                        why: why + &left_out,
                    }));
                    return Ok(());
                }
                Err(problem) if self.wanted.way == Way::Reverse => {
                    return Err(TransferError::start(problem));
                }
                Err(_) if interrupt.load(Ordering::Relaxed) => {
                    return Err(TransferError::interrupted());
                }
                Err(problem) => {
                    let none = format!("none from there: {}", problem.found);
                    why = why.map(|why| format!("{why}; {none}"));
                }
            }
        }
        let lost = |error: io::Error| {
            let found = error.to_string();
            TransferError::start(problem("ssh cannot carry data", "", &found, ""))
        };
        // It is gone where a copy of haul did not go out whole.
        let input = self.input.take().ok_or_else(|| lost(io::ErrorKind::BrokenPipe.into()));
        let mut input = input?;
        frame::write(&mut input, &Order::Channels).map_err(lost)?;
        let channels = Channels::new(input.into());
        let onward = Onward::Channels(channels.clone());
        let decided = decide.and_then(|decide| decide.send(onward).ok());
        decided.ok_or_else(|| lost(io::ErrorKind::BrokenPipe.into()))?;
        let because = match &why {
            Some(_) => "as no connection could be made beside it (see --port-range)",
            None => "as --through-ssh says",
        };
        let ssh = ThroughSsh::new(channels, Some(self.child.id()), because.to_owned());
        self.other_way = OtherWay::Ssh(Arc::new(ssh));
        let from_to = from_to("through ssh");
        self.notes.extend(why.map(|why| {
            let why = why + &left_out;
            Event::Fallback { side: Side::Path, from_to, why }
        }));
        Ok(())
    }

    /// Listens, and has the other side come.
    fn have_it_come(&mut self, interrupt: &Interrupt) -> Result<Arc<Listening>, Problem> {
        let (listening, mut come) = Listening::begin(self.wanted.ports)?;
        // A jump host has services of its own, to which this copy leads nobody.
        come.is_elsewhere = self.sees_another;
        let (port, login) = (come.port, &self.wanted.login);
        let none = |found: &str| {
            let what = format!("{login} cannot connect to this machine");
            let needs = format!("a way for TCP from there to port {port} here");
            let hint = "if a firewall is between that lets some ports through, name them by \
                        --port-range FIRST-LAST";
            problem(&what, &needs, found, hint)
        };
        let input = self.input.as_mut().ok_or_else(|| none("ssh takes no more words"))?;
        frame::write(input, &Order::Come(come)).map_err(|error| none(&error.to_string()))?;
        let stop = || interrupt.load(Ordering::Relaxed);
        if listening.has_come_within(WAY_WAIT_MAX, &stop) {
            return Ok(Arc::new(listening));
        }
        Err(none(&format!("no connection within {} s", WAY_WAIT_MAX.as_secs())))
    }

    /// Maker of the connections to the server; `None` where TCP makes them, to its address.
    #[must_use]
    pub fn connector(&self) -> Option<Arc<dyn Connector>> {
        match &self.other_way {
            OtherWay::None | OtherWay::ToSource(_) | OtherWay::ToTarget(_) => None,
            OtherWay::Reverse(listening) => Some(listening.clone()),
            OtherWay::Ssh(ssh) => Some(ssh.clone()),
        }
    }

    /// Gives the events that the user is to know before the transfer, once.
    pub fn take_notes(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.notes)
    }

    /// Tells once that ssh has ended before the copy, if it has. Where ssh carries the data, the
    /// copy ends with it, and says so itself.
    #[must_use]
    pub fn end_of_ssh(&mut self) -> Option<Event> {
        let is_needed = matches!(self.other_way, OtherWay::Ssh(_) | OtherWay::ToTarget(_));
        if is_needed || self.is_end_told || !self.has_ended() {
            return None;
        }
        self.is_end_told = true;
        let how = self.wait(Duration::ZERO).map(troubles::ended).unwrap_or_default();
        let (login, grace_s) = (&self.wanted.login, self.grace.as_secs());
        let why = format!(
            "ssh to {login} ended early ({how}); the copy goes on, and the server there ends with \
             it, or {grace_s} s after its connection is lost"
        );
        Some(Event::Fallback { side: Side::Path, from_to: "with ssh -> without it".into(), why })
    }

    /// The report with the places there as the user calls them.
    #[must_use]
    pub fn named(&self, mut report: Report) -> Report {
        for name in [&mut report.from, &mut report.to] {
            if let Some(shown) = self.shown(name) {
                *name = shown;
            }
        }
        report
    }

    fn shown(&self, name: &Name) -> Option<Name> {
        let url: HaulUrl = std::str::from_utf8(&name.0).ok()?.parse().ok()?;
        let is_there = self.server.as_ref().is_some_and(|server| url.server() == *server);
        let slash = if self.root.ends_with(b"/") { &b""[..] } else { b"/" };
        let login = format!("{}:", self.wanted.login).into_bytes();
        is_there.then(|| Name([&login, &self.root, slash, &url.path].concat()))
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Waits for the end of ssh, no longer than this.
    pub(super) fn wait(&mut self, time_max: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + time_max;
        loop {
            let status = self.child.try_wait().ok()?;
            if status.is_some() || Instant::now() >= deadline {
                return status;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Ends ssh: the server is told that all is done.
impl Drop for NearEnd {
    fn drop(&mut self) {
        let told = self.say_through();
        self.input = None;
        let waits_for_end = told && !self.grace.is_zero();
        let time_max = if waits_for_end { END_WAIT_MAX } else { Duration::ZERO };
        if self.wait(time_max).is_none() {
            // An error says that it is gone by now.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Addresses of the server to which it may lead this machine, the best first: the one that ssh has
/// come to, those of the name that it has used, and others of that machine.
fn reachable(place: &Place, start: &Start, wanted: &Wanted) -> Reachable {
    let addresses = led::addresses(place, &Place::here(), (start.port, wanted.ports));
    Reachable::at(&addresses, start.port, &place.known, &wanted.proxy)
}

/// The request for what is wanted.
///
/// # Errors
/// If it is too long.
pub(super) fn request(wanted: &Wanted) -> Result<Request, Problem> {
    let bytes: usize = wanted.paths.iter().map(Vec::len).sum();
    if bytes > REQUEST_PATHS_BYTES_MAX {
        let needs = format!("paths of at most {REQUEST_PATHS_BYTES_MAX} bytes in all");
        let hint = "pull the directory that holds them, or in several commands";
        return Err(problem("too much to ask for at once", &needs, &format!("{bytes}"), hint));
    }
    let grace = wanted.retry_for.max(GRACE_MIN);
    Ok(Request {
        version: VERSION,
        software: SOFTWARE.to_owned(),
        purpose: wanted.purpose,
        removes: wanted.removes,
        of_another: wanted.of_another,
        paths: wanted.paths.iter().map(|path| EncodedPath::of(path)).collect(),
        ports: wanted.ports,
        grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
        send: None,
    })
}

/// The first words of the other side.
#[derive(Debug)]
pub(super) struct Heard {
    pub answer: Result<Answer, FrameError>,
    noise: Vec<u8>,
}

impl Default for Heard {
    fn default() -> Self {
        Self { answer: Err(FrameError::Ended), noise: Vec::new() }
    }
}

/// Begins to read both outputs, each by a thread that ends with it. What comes behind the answer is
/// for the channels, if it is decided that there are some.
fn listen(
    (mut output, decided): (ChildStdout, mpsc::Receiver<Onward>),
    mut errors: ChildStderr,
    said: Arc<Said>,
) -> io::Result<mpsc::Receiver<Heard>> {
    // Who shows events slowly holds the other side back, and keeps no more than these.
    let (tell, heard) = mpsc::sync_channel(HEARD_MAX);
    thread::Builder::new().name("haul-ssh-output".to_owned()).spawn(move || {
        loop {
            let mut noise = Vec::new();
            let answer = frame::read(&mut output, NOISE_BYTES_MAX, &mut noise);
            let is_last = matches!(
                answer,
                Err(_) | Ok(Answer::Started(_) | Answer::Refused(_) | Answer::Channels {})
            );
            if tell.send(Heard { answer, noise }).is_err() || is_last {
                break;
            }
        }
        let Ok(onward) = decided.recv() else {
            // A pipe that nobody reads would end the other side.
            let _ = io::copy(&mut output, &mut io::sink());
            return;
        };
        let mut output = BufReader::new(output);
        match onward {
            Onward::Channels(channels) => drop(channels.read_from(&mut output, None)),
            Onward::FromTarget(bridge) => bridge.carry_from_target(&mut output),
            Onward::FromSource(bridge) => bridge.carry_from_source(&mut output, &mut |answer| {
                tell.send(Heard { answer, noise: Vec::new() }).is_ok()
            }),
        }
    })?;
    thread::Builder::new().name("haul-ssh-errors".to_owned()).spawn(move || {
        let mut part = [0; 4096];
        while let Ok(len @ 1..) = errors.read(&mut part) {
            said.add(&part[..len]);
        }
        said.lock().has_ended = true;
    })?;
    Ok(heard)
}

/// The standard error of ssh, in which that of the other side is, too.
#[derive(Debug, Default)]
struct Said(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    bytes: Vec<u8>,
    shown: usize,
    changed: Option<Instant>,
    has_ended: bool,
}

impl Said {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, part: &[u8]) {
        let mut lines = self.lock();
        lines.bytes.extend_from_slice(part);
        let excess = lines.bytes.len().saturating_sub(SAID_BYTES_MAX);
        lines.bytes.drain(..excess);
        lines.shown = lines.shown.saturating_sub(excess);
        lines.changed = Some(Instant::now());
    }

    fn bytes(&self) -> Vec<u8> {
        self.lock().bytes.clone()
    }

    /// Shows what is old enough: a question of the other side that waits for its answer.
    fn show(&self) {
        let mut lines = self.lock();
        let is_old = lines.changed.is_some_and(|changed| changed.elapsed() > SHOWN_AFTER);
        if is_old && lines.shown < lines.bytes.len() {
            let text = String::from_utf8_lossy(&lines.bytes[lines.shown..]);
            let text: Vec<String> = text.lines().map(haul_report::printable::printable).collect();
            let _ = writeln!(io::stderr(), "{}", text.join("\n"));
            lines.shown = lines.bytes.len();
        }
    }

    fn wait_for_rest(&self) {
        let deadline = Instant::now() + REST_WAIT_MAX;
        while !self.lock().has_ended && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::login;
    use std::{ffi::OsStr, fs, process::Stdio};

    /// An end whose ssh writes what it is told to a file.
    fn near(told: &std::path::Path) -> NearEnd {
        let place = login::parse(OsStr::new("dtn1:x")).unwrap().unwrap();
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "cat > \"$0\""]).arg(told).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let wanted = Wanted {
            login: place.login,
            paths: vec![place.path],
            purpose: Purpose::Push,
            removes: false,
            of_another: None,
            ports: None,
            way: Way::Any,
            retry_for: Duration::ZERO,
            proxy: ProxyRule::default(),
            connect: ConnectOptions::default(),
        };
        NearEnd {
            input: child.stdin.take(),
            child,
            said: Arc::default(),
            wanted,
            root: Vec::new(),
            grace: Duration::from_secs(3600),
            server: None,
            other_way: OtherWay::None,
            notes: Vec::new(),
            decide: Some(mpsc::channel().0),
            takes_orders: true,
            is_end_told: false,
            installed: None,
            place: Place::default(),
            sees_another: false,
        }
    }

    /// One that is told nothing waits for its grace, which may be hours.
    #[test]
    fn a_target_is_told_that_all_is_over_where_its_ssh_or_the_other_cannot_carry_data() {
        let scratch = tempfile::tempdir().unwrap();
        let told = |name: &str| scratch.path().join(name);
        let (mut target, mut source) = (near(&told("target")), near(&told("source")));
        source.input = None;
        assert!(target.carry_for(&mut source).is_err());
        drop((target, source));
        assert_eq!(fs::read(told("target")).unwrap(), [THROUGH]);

        let (mut target, mut source) = (near(&told("target")), near(&told("source")));
        target.decide = None;
        assert!(target.carry_for(&mut source).is_err());
        drop((target, source));
        assert_eq!(fs::read(told("target")).unwrap(), [THROUGH]);
        assert_eq!(fs::read(told("source")).unwrap(), [THROUGH]);
    }
}
