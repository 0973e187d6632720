//! `haul serve --over-ssh`: the far end of a copy, which ssh(1) starts.
//!
//! It reads what is asked for from standard input, begins a server on a free port with a key and a
//! token of its own, and tells both on standard output. It ends when the near end says so, and when
//! ssh is gone: a session that runs then runs to its end, and a client that was cut off has a grace
//! to come back. What it made for itself, key and token, goes with it.

use super::{
    channels::Channels,
    frame::{self, THROUGH},
    led::Confined,
    messages::{Answer, Come, EncodedPath, Order, Refusal, Request, Start, VERSION},
    paths::Places,
    ports::{ANY_FREE_PORT, Ports},
    problem, reverse,
    sending::{self, ReadOptions},
};
use haul_scratch::leftovers::OwnDirectory;
use haul_transfer::{
    Inlet, Interrupt, NewToken, Problem, SOFTWARE, ServeOptions, ServeRoot, ServedRoot, Server,
    ServerEvent, StateDirectory, internals::local_addresses,
};
use std::{
    io::{self, IsTerminal, Read, Write},
    net::IpAddr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

/// Longest grace that a near end gets.
const GRACE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Interval at which it looks, once ssh is gone, whether the grace is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Begin of the name of the directory that holds key and token.
const SCRATCH_PREFIX: &str = "haul-over-ssh-";
/// Variable in which sshd(8) tells both addresses of its connection: the third word is its own.
const CONNECTION: &str = "SSH_CONNECTION";

/// The outcome of a far end, for its exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Served,
    /// The near end was told why nothing could begin.
    Refused,
}

/// Serves one copy. `options` are those of `haul serve`; root and state are set here. With `only`
/// nothing outside of that directory is served. `read_options` reads those of a push from here.
///
/// # Errors
/// If no near end is there to be told.
pub fn run(
    options: ServeOptions,
    only: Option<PathBuf>,
    read_options: ReadOptions,
    output: &mut dyn Write,
    interrupt: &Interrupt,
) -> Result<Ended, Problem> {
    let hint =
        "it is for ssh: `haul push FILE user@host:` starts it; `haul serve DIR` is for people";
    let mut input = io::stdin();
    if input.is_terminal() {
        let needs = "a request of haul on standard input";
        return Err(problem("nothing to serve", needs, "a terminal", hint));
    }
    let request: Request = frame::read(&mut input, 0, &mut Vec::new()).map_err(|error| {
        let needs = "a request of haul on standard input";
        problem("nothing to serve", needs, &error.to_string(), hint)
    })?;
    if let Some(order) = &request.send {
        let home = home()?;
        let places = Places { home: &home, only: only.as_deref() };
        let asked = (&request, order);
        return sending::run(asked, (&options, places), read_options, interrupt);
    }
    let (begun, start) = match begin(options, only.as_deref(), &request) {
        Ok(begun) => begun,
        Err(problem) => {
            tell(output, &Answer::Refused(Refusal::of(problem)))?;
            return Ok(Ended::Refused);
        }
    };
    let grace = Duration::from_millis(start.grace_ms);
    tell(output, &Answer::Started(start))?;
    let activity = Arc::new(Activity::default());
    let (watched, stop) = (activity.clone(), interrupt.clone());
    let mut orders = Orders {
        inlet: begun.server.inlet(),
        stop: interrupt.clone(),
        is_confined: only.is_some(),
        coming: None,
    };
    // It may wait for a word still when all is over, so nobody waits for it.
    let watch = thread::Builder::new().name("haul-ssh-watch".to_owned()).spawn(move || {
        if hear_end(&mut io::stdin(), &mut |order, input| orders.take(order, input))
            == NearEnd::Gone
        {
            watched.wait_until_over(grace);
        }
        stop.store(true, Ordering::Relaxed);
    });
    watch.map_err(|error| {
        let needs = "one more thread";
        problem("cannot watch the other end of ssh", needs, &error.to_string(), "see ulimit -u")
    })?;
    begun.server.run(interrupt, &|event| activity.note(&event))?;
    Ok(Ended::Served)
}

/// Tells the near end something.
///
/// # Errors
/// If it is gone.
fn tell(output: &mut dyn Write, answer: &Answer) -> Result<(), Problem> {
    frame::write(output, answer)
        .map_err(|error| problem("cannot answer the other end of ssh", "", &error.to_string(), ""))
}

/// A server that has begun, and the directory that goes with it.
struct Begun {
    server: Server,
    _scratch: OwnDirectory,
}

fn begin(
    mut options: ServeOptions,
    only: Option<&Path>,
    request: &Request,
) -> Result<(Begun, Start), Problem> {
    let paths = request.checked_paths()?;
    let home = home()?;
    let served = Places { home: &home, only }.served(request.purpose, &paths)?;
    let scratch = OwnDirectory::new(&scratch_parent(), SCRATCH_PREFIX).map_err(|error| {
        let what = format!("cannot make a directory in {}", scratch_parent().display());
        problem(&what, "room for a key and a token", &error.to_string(), "set TMPDIR there")
    })?;
    options.root = ServeRoot::Directory(served.root.clone());
    options.state_directory = scratch.path().join("state");
    let state_directory = options.state_directory.clone();
    let server = bind(options, request.ports)?;
    let root = ServedRoot::named(&served.root)?;
    let new = NewToken::new(root, request.rights());
    let (token, _) = StateDirectory::open(&state_directory)?.new_token(&new)?;
    let grace = Duration::from_millis(request.grace_ms).min(GRACE_MAX);
    let start = Start {
        version: VERSION,
        software: SOFTWARE.to_owned(),
        token: token.reveal(),
        port: server.local_addr().port(),
        addresses: addresses_here(&server.hosts().names),
        paths: served.paths.iter().map(|path| EncodedPath::of(path)).collect(),
        root: EncodedPath::of(served.root.as_os_str().as_bytes()),
        grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
        takes_orders: true,
    };
    Ok((Begun { server, _scratch: scratch }, start))
}

/// Binds a server, to a port of the range that the near end wants. Words of an administrator beside
/// `--over-ssh` come first.
fn bind(mut options: ServeOptions, ports: Option<Ports>) -> Result<Server, Problem> {
    if let Some(ports) = ports.filter(|_| options.listen == ANY_FREE_PORT) {
        options.listen = ports.free_address()?;
    }
    Server::bind(options)
}

fn home() -> Result<PathBuf, Problem> {
    let named = std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    named.map_or_else(std::env::current_dir, Ok).map_err(|error| {
        problem("no home directory", "HOME in the environment", &error.to_string(), "")
    })
}

/// The directory of the user's sockets and locks, which is in memory, else that of temporary files.
fn scratch_parent() -> PathBuf {
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    named.filter(|path| path.is_dir()).unwrap_or_else(std::env::temp_dir)
}

/// Bounds of the connections from here for the holder of a key for one directory.
pub(super) fn confined() -> Confined {
    confined_by(&std::env::var(CONNECTION).unwrap_or_default())
}

/// Bounds of those connections by what sshd tells of its own one.
fn confined_by(connection: &str) -> Confined {
    let mut words = connection.split_whitespace();
    let mut address = |at| words.nth(at)?.parse::<IpAddr>().ok().map(|it| it.to_canonical());
    // The addresses of both ends, each with a port behind.
    let (from, to) = (address(0), address(1));
    Confined { own: local_addresses().into_iter().chain(to).collect(), from }
}

/// Addresses by which another may come, as [`addresses`] has them.
pub(super) fn addresses_here(hosts: &[String]) -> Vec<String> {
    addresses(std::env::var(CONNECTION).ok().as_deref(), hosts)
}

/// Addresses by which the near end may come: first the one that its ssh has come to. A host of
/// `hosts` that is a name is left out, as the near end may know it for another machine.
fn addresses(connection: Option<&str>, hosts: &[String]) -> Vec<String> {
    let own = connection.and_then(|words| words.split_whitespace().nth(2));
    let mut addresses: Vec<String> = Vec::new();
    for text in own.into_iter().chain(hosts.iter().map(String::as_str)) {
        // One with a scope means nothing elsewhere.
        let Ok(address) = text.parse::<IpAddr>() else { continue };
        let address = address.to_canonical().to_string();
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// The end of what the near end says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NearEnd {
    Through,
    Gone,
}

/// Hears the near end out. Each order of it is given to `take`, with what follows, and may tell how
/// the near end went.
fn hear_end(
    input: &mut dyn Read,
    take: &mut dyn FnMut(Order, &mut dyn Read) -> Option<NearEnd>,
) -> NearEnd {
    let mut byte = [0];
    loop {
        match input.read(&mut byte) {
            Ok(1) if byte[0] == THROUGH => return NearEnd::Through,
            Ok(1) if byte[0] == frame::FIRST => {
                let order = frame::read(&mut byte.chain(&mut *input), 0, &mut Vec::new());
                // An order of a newer end is left: the near end sees that nothing comes of it.
                let ended = order.ok().and_then(|order| take(order, input));
                if let Some(ended) = ended {
                    return ended;
                }
            }
            Ok(1) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return NearEnd::Gone,
        }
    }
}

/// Means for another way for the data.
struct Orders {
    inlet: Inlet,
    stop: Interrupt,
    /// Whether the near end may only do what a forced command lets it: it gets connections to where
    /// its ssh has come from, and to no other machine.
    is_confined: bool,
    /// Switch that ends the connections to the near end, once there are some.
    coming: Option<Interrupt>,
}

/// Ports below this one are for services of the system, which nobody is to be led to.
const PORT_MIN_CONFINED: u16 = 1024;

/// The order as far as an end may follow it, and the address that its ssh has come from where that
/// is to be tried first. `connection` is what sshd tells of it.
fn allowed(
    is_confined: bool,
    mut come: Come,
    connection: Option<&str>,
) -> Option<(Come, Option<IpAddr>)> {
    let own = connection.and_then(|words| words.split_whitespace().next());
    let own = own.and_then(|text| text.parse::<IpAddr>().ok());
    let own = own.map(|address| address.to_canonical()).filter(|_| !come.is_elsewhere);
    if !is_confined {
        return Some((come, own));
    }
    // Behind a relay on this host, ssh comes from an address of its own, with all services there.
    // Nobody listens elsewhere for a confined end.
    let is_another = confined_by(connection.unwrap_or_default()).may_come_back();
    let is_meant = own.is_some() && is_another && come.port >= PORT_MIN_CONFINED;
    come.addresses.clear();
    is_meant.then_some((come, own))
}

impl Orders {
    fn take(&mut self, order: Order, input: &mut dyn Read) -> Option<NearEnd> {
        match order {
            // One near end has one listener.
            Order::Come(come) if self.coming.is_none() => {
                let connection = std::env::var(CONNECTION).ok();
                let allowed = allowed(self.is_confined, come, connection.as_deref());
                if let Some((come, own)) = allowed {
                    let over = Interrupt::default();
                    self.coming = Some(over.clone());
                    // The near end sees that nobody comes.
                    let _ = reverse::come(&come, own, &self.inlet, [&self.stop, &over]);
                }
                None
            }
            Order::Come(_) => None,
            Order::Channels => {
                self.coming.iter().for_each(|over| over.store(true, Ordering::Relaxed));
                let output = rustix::io::dup(rustix::stdio::stdout()).ok()?;
                let channels = Channels::new(output);
                channels.read_from(&mut io::BufReader::new(input), Some(&self.inlet));
                // Nobody can come back without ssh.
                Some(NearEnd::Through)
            }
        }
    }
}

/// Sessions of the server, as far as its end depends on them.
#[derive(Debug, Default)]
struct Activity(Mutex<Sessions>);

#[derive(Debug, Default)]
struct Sessions {
    open: u32,
    /// The time when the last one ended.
    ended_at: Option<Instant>,
    /// Whether one that moved files came to its end.
    is_complete: bool,
}

impl Activity {
    fn note(&self, event: &ServerEvent) {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            ServerEvent::Session { .. } => sessions.open += 1,
            ServerEvent::SessionEnded { ok, dry_run, .. } => {
                sessions.open = sessions.open.saturating_sub(1);
                sessions.ended_at = Some(Instant::now());
                sessions.is_complete |= *ok && !*dry_run;
            }
            _ => {}
        }
    }

    /// Waits, since ssh is gone, until no client is there and none is to come back.
    fn wait_until_over(&self, grace: Duration) {
        let gone_at = Instant::now();
        while !self.is_over(gone_at, grace, Instant::now()) {
            thread::sleep(LOOK_EVERY);
        }
    }

    fn is_over(&self, gone_at: Instant, grace: Duration, now: Instant) -> bool {
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = sessions.ended_at.map_or(gone_at, |ended| ended.max(gone_at));
        let is_waited_for = now.saturating_duration_since(since) < grace;
        sessions.open == 0 && (sessions.is_complete || !is_waited_for)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_transfer::FileCounts;

    #[test]
    fn the_address_that_ssh_came_to_is_first_and_names_are_left_out() {
        let hosts = ["dtn1", "10.0.0.5", "192.168.1.5", "2001:db8::5"].map(String::from);
        for (connection, first) in [
            (Some("10.9.9.9 4711 192.168.1.5 22"), "192.168.1.5"),
            (Some("::1 4711 ::ffff:192.168.1.5 22"), "192.168.1.5"),
            (Some("fe80::2%eth0 4711 fe80::1%eth0 22"), "10.0.0.5"),
            (Some(""), "10.0.0.5"),
            (None, "10.0.0.5"),
        ] {
            let found = addresses(connection, &hosts);
            assert_eq!((found[0].as_str(), found.len()), (first, 3), "{connection:?}");
        }
    }

    #[test]
    fn only_the_agreed_byte_says_that_all_is_done() {
        let hear = |mut said: &[u8]| {
            let mut orders = 0;
            let ended = hear_end(&mut said, &mut |_, _| {
                orders += 1;
                None
            });
            (ended, orders)
        };
        assert_eq!(hear(b"\n."), (NearEnd::Through, 0));
        assert_eq!(hear(b""), (NearEnd::Gone, 0));
        assert_eq!(hear(b"x"), (NearEnd::Gone, 0));
        let mut order = Vec::new();
        let come = Come { port: 1, addresses: vec![], secret: String::new(), is_elsewhere: false };
        frame::write(&mut order, &Order::Come(come)).unwrap();
        assert_eq!(hear(&[b"x", &order[..], b"."].concat()), (NearEnd::Through, 1));
        order.clear();
        frame::write(&mut order, &"an order of a newer end").unwrap();
        assert_eq!(hear(&[&order[..], b"."].concat()), (NearEnd::Through, 0));
    }

    /// A key for one directory is no key to the network behind the server.
    #[test]
    fn a_confined_end_comes_to_where_its_ssh_is_from_and_to_no_service_of_a_system() {
        let come = |port, is_elsewhere| Come {
            port,
            addresses: vec!["10.0.0.9".into()],
            secret: String::new(),
            is_elsewhere,
        };
        let from = |address: &str| format!("{address} 4711 192.0.2.1 22");
        let allowed = |is_confined, come, from: &str| allowed(is_confined, come, Some(from));
        let (free, own) = allowed(false, come(25, false), &from("::ffff:192.0.2.7")).unwrap();
        assert_eq!((free.port, free.addresses.len()), (25, 1));
        assert_eq!(own.unwrap().to_string(), "192.0.2.7");
        let (_, own) = allowed(false, come(25, true), &from("192.0.2.7")).unwrap();
        assert_eq!(own, None, "another listens");
        let (held, own) = allowed(true, come(50_000, false), &from("192.0.2.7")).unwrap();
        assert_eq!((held.port, held.addresses.len()), (50_000, 0), "the address of its ssh");
        assert!(own.is_some());
        assert!(allowed(true, come(50_000, true), &from("192.0.2.7")).is_none());
        assert!(allowed(true, come(25, false), &from("192.0.2.7")).is_none());
        // The machine itself by its loopback, by the address that ssh came to, and what means a
        // machine on one link, or none.
        for address in ["127.0.0.1", "::1", "192.0.2.1", "169.254.169.254", "fe80::1", "0.0.0.0"] {
            let from = from(address);
            assert!(allowed(true, come(50_000, false), &from).is_none(), "{address}");
        }
        assert!(allowed(true, come(50_000, false), "UNKNOWN 65535 UNKNOWN 65535").is_none());
    }

    /// The kernel delivers to an address whose interface has no carrier, too, such as a bridge's.
    #[test]
    fn a_confined_end_knows_every_address_of_its_machine() {
        let all = haul_sys::interfaces::addresses().unwrap();
        let own = confined_by("192.0.2.7 4711 192.0.2.1 22").own;
        assert!(all.iter().all(|one| own.contains(&one.address)), "{own:?}");
        assert!(own.iter().any(|one| one.to_string() == "192.0.2.1"), "where ssh came to");
    }

    #[test]
    fn a_server_whose_ssh_is_gone_waits_for_its_session_and_then_for_the_grace() {
        let begins = ServerEvent::Session {
            session: String::new(),
            peer: String::new(),
            direction: String::new(),
            token: String::new(),
            path: String::new(),
        };
        let ends = |ok, dry_run| ServerEvent::SessionEnded {
            session: String::new(),
            peer: String::new(),
            ok,
            dry_run,
            bytes: 0,
            seconds: 0.0,
            files: FileCounts::default(),
            why: String::new(),
        };
        let (grace, gone) = (Duration::from_secs(60), Instant::now());
        let after = |seconds| gone + Duration::from_secs(seconds);
        let activity = Activity::default();
        assert!(
            !activity.is_over(gone, grace, after(59)) && activity.is_over(gone, grace, after(60))
        );
        activity.note(&begins);
        assert!(!activity.is_over(gone, grace, after(3600)), "a session runs");
        for event in [ends(false, false), begins.clone(), ends(true, true)] {
            activity.note(&event);
        }
        assert!(!activity.is_over(gone, grace, after(59)), "cut off, or only listed");
        assert!(activity.is_over(gone, grace, after(3600)));
        activity.note(&begins);
        activity.note(&ends(true, false));
        assert!(activity.is_over(gone, grace, after(1)), "nothing is left to do");
    }
}
