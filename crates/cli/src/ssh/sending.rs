//! The far end of a copy between two other machines: a push from where the files are.
//!
//! It goes to the server that another ssh has begun, and sends what a pull would get: from below
//! the directory that a forced command names, and no link leads out. It ends with its ssh.

use super::{
    channels::{self, frames::Outgoing},
    far_end::{self, Ended},
    messages::{Answer, Purpose, PushEnded, Refusal, Request},
    paths::Places,
    problem,
    send_order::SendOrder,
    send_way::{FoundWay, OwnEnd, Search},
};
use haul_transfer::{
    Beneath, Event, Interrupt, Problem, Proxy, PushRequest, ServeOptions, SourceSpec,
    TransferError, TransferOptions, expand_beneath, internals::parse_size,
};
use std::{
    ffi::OsString,
    io,
    os::unix::ffi::OsStringExt,
    sync::{Arc, atomic::Ordering},
    thread,
};

/// Options of a push that came from another machine.
#[derive(Debug)]
pub struct PushOptions {
    pub options: TransferOptions,
    pub proxy: ProxyChoice,
}

/// Proxy by which a target is reached, of the options or of the environment, and hosts of the
/// target that the environment has reached without it.
#[derive(Debug, Default)]
pub struct ProxyChoice {
    /// The proxy; `None` where no host is reached by one.
    pub proxy: Option<Proxy>,
    pub without: Vec<String>,
}

/// Reads the options of a push for these sources, to a machine with these hosts.
pub type ReadOptions = fn(&[String], &[OsString], &[String]) -> Result<PushOptions, Problem>;

/// Sends what was asked for, and tells its events.
///
/// # Errors
/// If no near end is there to be told.
pub fn run(
    (request, order): (&Request, &SendOrder),
    (serve, places): (&ServeOptions, Places<'_>),
    read_options: ReadOptions,
    interrupt: &Interrupt,
) -> Result<Ended, Problem> {
    let own = own_end()?;
    watch(&own, interrupt)?;
    let prepared = prepare((request, order), (serve, places), read_options);
    let found = prepared.and_then(|(sources, PushOptions { options, proxy })| {
        let (proxy, listen, connect) = (&proxy, &serve.listen, &options.connect);
        let confined = places.only.map(|_| far_end::confined());
        let own = &*own;
        let found = Search { order, proxy, connect, listen, confined, own, interrupt }.find()?;
        Ok((sources, options, found))
    });
    let (sources, mut options, FoundWay { url, connector, note }) = match found {
        Ok(found) => found,
        Err(error) => {
            own.tell(&Answer::Refused(Refusal::of(error.problem())))?;
            return Ok(Ended::Refused);
        }
    };
    own.tell(&Answer::Sending { server: url.server() })?;
    options.connect.connector = connector;
    let mut push = PushRequest::new(sources, url);
    push.options = options;
    haul_transfer::raise_open_files_limit();
    let mut tell = |event: Event| {
        let told = serde_json::to_value(&event).map(Answer::Told);
        if told.is_ok_and(|told| own.tell(&told).is_err()) {
            interrupt.store(true, Ordering::Relaxed);
        }
    };
    note.into_iter().for_each(&mut tell);
    let result = haul_transfer::push(&push, interrupt, &mut tell);
    own.tell(&Answer::Ended(Box::new(ended(&result))))?;
    Ok(Ended::Served)
}

fn own_end() -> Result<Arc<OwnEnd>, Problem> {
    let output = rustix::io::dup(rustix::stdio::stdout()).map_err(|error| {
        let hint = "see ulimit -n";
        problem("cannot answer the other end of ssh", "an output", &error.to_string(), hint)
    })?;
    Ok(Arc::new(OwnEnd::new(Outgoing::new(output))))
}

/// Hears the near end, and what the target says by way of it, until ssh ends.
fn watch(own: &Arc<OwnEnd>, interrupt: &Interrupt) -> Result<(), Problem> {
    let (own, stop) = (own.clone(), interrupt.clone());
    let watch = thread::Builder::new().name("haul-ssh-watch".to_owned()).spawn(move || {
        let ended = own.channels().read_from(&mut io::BufReader::new(io::stdin()), None);
        // A push whose data went through ssh has lost its way, and says so if it is heard.
        if ended == channels::Ended::Through || !own.carries() {
            stop.store(true, Ordering::Relaxed);
        }
    });
    watch.map(drop).map_err(|error| {
        let needs = "one more thread";
        problem("cannot watch the other end of ssh", needs, &error.to_string(), "see ulimit -u")
    })
}

fn ended(result: &Result<haul_transfer::Report, TransferError>) -> PushEnded {
    let value = |problem: &Problem| serde_json::to_value(problem).unwrap_or_default();
    match result {
        Ok(report) => PushEnded::Done(serde_json::to_value(report).unwrap_or_default()),
        Err(TransferError::CouldNotStart(problem) | TransferError::Unavailable(problem)) => {
            PushEnded::NotStarted(value(problem))
        }
        Err(TransferError::Interrupted { .. }) => PushEnded::Interrupted,
        Err(error) => PushEnded::Broken(value(&error.problem())),
    }
}

fn prepare(
    (request, order): (&Request, &SendOrder),
    (serve, places): (&ServeOptions, Places<'_>),
    read_options: ReadOptions,
) -> Result<(Vec<SourceSpec>, PushOptions), TransferError> {
    let start = TransferError::start;
    let paths = request.checked_paths().map_err(start)?;
    let words: Vec<OsString> = paths.iter().cloned().map(OsString::from_vec).collect();
    let hosts = &order.target.hosts;
    let mut push = read_options(&order.options, &words, hosts).map_err(start)?;
    check_restrictions(serve, &push.options).map_err(start)?;
    if places.only.is_some() {
        check_path(&order.options).map_err(start)?;
    }
    let streams_max = serve.streams_max;
    push.options.streams = push.options.streams.map(|streams| streams.min(streams_max));
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
    Ok((sources, push))
}

/// Holds a key for one directory to the paths of packets that this machine has by itself.
fn check_path(words: &[String]) -> Result<(), Problem> {
    // With --fabric the target names an address, to which no bounds here are held.
    let names = ["--bind", "--fabric", "--proxy"];
    let mut found = words.iter().filter_map(|word| word.split('=').next());
    let Some(name) = found.find(|name| names.contains(name)) else { return Ok(()) };
    let hint = "leave that out, or use a key that is not for one directory alone";
    let needs = "connections that leave as this machine has them";
    Err(problem("haul there may not send so", needs, name, hint))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_for_one_directory_takes_no_path_of_packets_from_the_near_end() {
        let check = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            check_path(&words).map_err(|problem| problem.found)
        };
        for (word, name) in [
            ("--bind=192.0.2.1", "--bind"),
            ("--proxy=socks5://user:secret@p:9", "--proxy"),
            ("--fabric", "--fabric"),
            ("--fabric=verbs", "--fabric"),
        ] {
            assert_eq!(check(&["--streams=2", word]), Err(name.to_owned()));
        }
        assert_eq!(check(&["--streams=2", "--exclude=--fabric", "--dry-run"]), Ok(()));
    }
}
