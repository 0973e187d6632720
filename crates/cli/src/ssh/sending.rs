//! The far end of a copy between two other machines: a push from where the files are.
//!
//! It goes to the server that another ssh has begun, and sends what a pull would get: from below
//! the directory that a forced command names, and no link leads out. It ends with its ssh.

use super::{
    far_end::{Ended, hear_end, tell},
    messages::{Answer, Purpose, PushEnded, Refusal, Request},
    paths::Places,
    problem,
    send_order::{SendOrder, SendTarget},
};
use haul_transfer::{
    Beneath, HaulUrl, Interrupt, Problem, PushRequest, ServeOptions, SourceSpec, Token,
    TransferError, TransferOptions, expand_beneath,
    internals::{connect_to_first, parse_size},
};
use std::{
    ffi::OsString,
    io::{self, Write},
    net::{SocketAddr, ToSocketAddrs},
    os::unix::ffi::OsStringExt,
    sync::atomic::Ordering,
    thread,
    time::Duration,
};

/// Time for the addresses of the target, all together, to answer.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Most addresses that are tried.
const ADDRESSES_MAX: usize = 32;

/// Reads the options of a push for these sources.
pub type ReadOptions = fn(&[String], &[OsString]) -> Result<TransferOptions, Problem>;

/// Sends what was asked for, and tells its events.
///
/// # Errors
/// If no near end is there to be told.
pub fn run(
    (request, order): (&Request, &SendOrder),
    (serve, places): (&ServeOptions, Places<'_>),
    read_options: ReadOptions,
    output: &mut dyn Write,
    interrupt: &Interrupt,
) -> Result<Ended, Problem> {
    let prepared = prepare((request, order), (serve, places), read_options, interrupt);
    let (push, server) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            tell(output, &Answer::Refused(Refusal::of(error.problem())))?;
            return Ok(Ended::Refused);
        }
    };
    tell(output, &Answer::Sending { server: server.to_string() })?;
    let stop = interrupt.clone();
    let watch = thread::Builder::new().name("haul-ssh-watch".to_owned()).spawn(move || {
        hear_end(&mut io::stdin(), &mut |_, _| None);
        stop.store(true, Ordering::Relaxed);
    });
    watch.map_err(|error| {
        let needs = "one more thread";
        problem("cannot watch the other end of ssh", needs, &error.to_string(), "see ulimit -u")
    })?;
    haul_transfer::raise_open_files_limit();
    let result = haul_transfer::push(&push, interrupt, &mut |event| {
        let told = serde_json::to_value(&event).map(Answer::Told);
        if told.is_ok_and(|told| tell(output, &told).is_err()) {
            interrupt.store(true, Ordering::Relaxed);
        }
    });
    let value = |problem: &Problem| serde_json::to_value(problem).unwrap_or_default();
    let ended = match &result {
        Ok(report) => PushEnded::Done(serde_json::to_value(report).unwrap_or_default()),
        Err(TransferError::CouldNotStart(problem) | TransferError::Unavailable(problem)) => {
            PushEnded::NotStarted(value(problem))
        }
        Err(TransferError::Interrupted { .. }) => PushEnded::Interrupted,
        Err(error) => PushEnded::Broken(value(&error.problem())),
    };
    tell(output, &Answer::Ended(Box::new(ended)))?;
    Ok(Ended::Served)
}

fn prepare(
    (request, order): (&Request, &SendOrder),
    (serve, places): (&ServeOptions, Places<'_>),
    read_options: ReadOptions,
    interrupt: &Interrupt,
) -> Result<(PushRequest, SocketAddr), TransferError> {
    let start = TransferError::start;
    let paths = request.checked_paths().map_err(start)?;
    let words: Vec<OsString> = paths.iter().cloned().map(OsString::from_vec).collect();
    let mut options = read_options(&order.options, &words).map_err(start)?;
    check_restrictions(serve, &options).map_err(start)?;
    let streams_max = serve.streams_max;
    options.streams = options.streams.map(|streams| streams.min(streams_max));
    let served = places.served(Purpose::Pull, &paths).map_err(start)?;
    let mut sources = Vec::new();
    for path in served.paths {
        if let Some(size) = zeros(&path).map_err(start)? {
            sources.push(SourceSpec::Zero(size));
            continue;
        }
        let path = path.strip_suffix(b"/.").map_or(path.clone(), |dir| [dir, b"/"].concat());
        let place = Beneath { root: served.root.clone(), path };
        sources.extend(expand_beneath(&place)?.into_iter().map(SourceSpec::Beneath));
    }
    let (url, server) = find(&order.target, interrupt)?;
    let mut push = PushRequest::new(sources, url);
    push.options = options;
    Ok((push, server))
}

/// Holds what an administrator has written beside `serve --over-ssh`.
fn check_restrictions(serve: &ServeOptions, options: &TransferOptions) -> Result<(), Problem> {
    let refused = |needs: &str, found: &str| {
        let hint = "leave that out, or ask the administrator of that machine";
        Err(problem("haul there may not send so", needs, found, hint))
    };
    if serve.read_only && options.file_options.move_sources {
        return refused("sources that stay, as it is read-only", "--move");
    }
    if options.protection < serve.protection_min {
        let needs = format!("--protection {}", serve.protection_min);
        return refused(&needs, &format!("--protection {}", options.protection));
    }
    Ok(())
}

fn zeros(path: &[u8]) -> Result<Option<u64>, Problem> {
    if path == b"null:" {
        let hint = "zero:SIZE is a source without a disk";
        return Err(problem("cannot send null:", "a source", "what only receives", hint));
    }
    let Some(size) = path.strip_prefix(b"zero:").filter(|_| !path.contains(&b'/')) else {
        return Ok(None);
    };
    parse_size(&String::from_utf8_lossy(size)).map(Some).map_err(|why| {
        problem("cannot read the source zero:", "a size behind the colon", &why.to_string(), "")
    })
}

/// Finds the address by which the target's server can be reached from here.
fn find(
    target: &SendTarget,
    interrupt: &Interrupt,
) -> Result<(HaulUrl, SocketAddr), TransferError> {
    let SendTarget { name, token, port, hosts, path } = target;
    let odd = |found: &str| {
        let what = "cannot send to what is no server of haul's";
        TransferError::start(problem(what, "a token and a path", found, ""))
    };
    let token: Token = token.parse().map_err(|_| odd("no token"))?;
    let path = path.bytes().ok_or_else(|| odd("no path"))?;
    let found = hosts.iter().take(ADDRESSES_MAX).filter_map(|host| {
        // A name may mean nothing here.
        (host.as_str(), *port).to_socket_addrs().ok()
    });
    let addresses: Vec<SocketAddr> = found.flatten().take(ADDRESSES_MAX).collect();
    let stop = || interrupt.load(Ordering::Relaxed);
    let reached =
        connect_to_first(&addresses, CONNECT_WAIT_MAX, &stop).and_then(|socket| socket.peer_addr());
    let server = reached.map_err(|error| {
        let tried: Vec<String> = addresses.iter().map(|one| one.ip().to_string()).collect();
        let tried = if tried.is_empty() { "no address".to_owned() } else { tried.join(", ") };
        TransferError::start(problem(
            &format!("cannot reach {name} from here"),
            "a way for TCP from this machine to a free port of that one",
            &format!("{error} (tried {tried}, port {port})"),
            "if a firewall is between that lets some ports through, name them by --port-range \
             FIRST-LAST",
        ))
    })?;
    let (host, port) = (server.ip().to_string(), server.port());
    Ok((HaulUrl { token: Some(token), host, port, path, proxy: None }, server))
}
