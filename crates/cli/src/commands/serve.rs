//! `haul serve`: prints a URL, then serves a directory until it is told to end.

use super::serve_log::{self, Lines, Log};
use crate::{
    args::{relayed::read_relayed, serve::LowServe, usage_problem},
    failure::{ExitStatus, Failure},
    interrupt,
    ssh::far_end::{self, Ended},
    ui,
};
use haul_transfer::{HaulUrl, Hosts, Interrupt, ServeOptions, ServeRoot, Server, ServerEvent};
use signal_hook::{consts::SIGHUP, flag, iterator::Signals};
use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    thread,
};

/// Serves until it is told to end.
///
/// # Errors
/// If the address, the root or the state directory cannot be used.
pub fn run(low: LowServe) -> Result<ExitStatus, Failure> {
    if low.over_ssh {
        return over_ssh(low);
    }
    let lines = match (low.json, low.verbose) {
        (true, _) => Lines::Json,
        (false, true) => Lines::WithFiles,
        (false, false) => Lines::OfSessions,
    };
    let options = low.checked()?;
    let mut welcome = Welcome::of(&options);
    let interrupt = interrupt::on_signals()?;
    let hangups = Hangups::expect(&interrupt).map_err(|error| {
        usage_problem("cannot set a handler for signals", "", &error.to_string(), "")
    })?;
    haul_transfer::raise_open_files_limit();
    let server = Server::bind(options)?;
    welcome.not_served = server.not_served().to_vec();
    if lines == Lines::Json {
        let urls: Vec<String> = server.urls().iter().map(HaulUrl::reveal).collect();
        ui::json::print(&serde_json::json!({
            "event": "listening",
            "url": urls[0],
            "urls": urls,
            "for_others": server.hosts().for_others,
            "not_served": welcome.not_served.iter().map(|path| path.display().to_string())
                .collect::<Vec<_>>(),
            "time": serve_log::now(),
        }));
    } else {
        let address = server.local_addr();
        let url = server.url().reveal();
        ui::print_to_stdout(&welcome.text(&url, server.hosts(), &address.to_string()));
    }
    let log = Log::start(lines).map_err(|error| {
        usage_problem("cannot start a thread for the log", "", &error.to_string(), "")
    })?;
    hangups.told_while(&log, || server.run(&interrupt, &|event| log.tell(&event)))?;
    log.end();
    Ok(ExitStatus::AllDone)
}

/// Serves one copy, which came over ssh.
fn over_ssh(low: LowServe) -> Result<ExitStatus, Failure> {
    let only = low.root.clone();
    let options = low.checked()?;
    let interrupt = interrupt::on_signals()?;
    // sshd may send it when its connection ends: the copy may go on without.
    flag::register(SIGHUP, Interrupt::default()).map_err(|error| {
        usage_problem("cannot set a handler for signals", "", &error.to_string(), "")
    })?;
    match far_end::run(options, only, read_relayed, &mut ui::output::Output::new(), &interrupt)? {
        Ended::Served => Ok(ExitStatus::AllDone),
        Ended::Refused => Ok(ExitStatus::CouldNotStart),
    }
}

/// The meaning of a hangup. It says that the terminal was closed, and a server that was started
/// there ends in order. Others, such as logrotate(8), send it to any server.
enum Hangups {
    End,
    AreTold(Signals),
}

impl Hangups {
    fn expect(interrupt: &Interrupt) -> io::Result<Self> {
        // Asked now: a terminal that is closed is none.
        if io::stdin().is_terminal() {
            flag::register(SIGHUP, interrupt.clone())?;
            return Ok(Self::End);
        }
        Ok(Self::AreTold(Signals::new([SIGHUP])?))
    }

    fn told_while<T>(self, log: &Log, run: impl FnOnce() -> T) -> T {
        let Self::AreTold(mut signals) = self else { return run() };
        let handle = signals.handle();
        thread::scope(|scope| {
            scope.spawn(move || signals.forever().for_each(|_| log.tell(&ServerEvent::Hangup)));
            let ran = run();
            handle.close();
            ran
        })
    }
}

/// The first message that a user reads: the URL, who may do what with it, and the commands to copy.
#[derive(Debug)]
pub struct Welcome {
    pub root: ServeRoot,
    pub read_only: bool,
    /// Directories within the root that are served to nobody.
    pub not_served: Vec<PathBuf>,
}

impl Welcome {
    fn of(options: &ServeOptions) -> Self {
        let root = match &options.root {
            // As it was typed it says nothing to who reads the log later.
            ServeRoot::Directory(path) => {
                ServeRoot::Directory(path.canonicalize().unwrap_or_else(|_| path.clone()))
            }
            ServeRoot::Null => ServeRoot::Null,
        };
        Self { root, read_only: options.read_only, not_served: Vec::new() }
    }

    /// The lines for a server that listens on `address` and is reached by `url`, or other hosts.
    #[must_use]
    pub fn text(&self, url: &str, hosts: &Hosts, address: &str) -> String {
        let (served, may) = match (&self.root, self.read_only) {
            (ServeRoot::Null, _) => {
                ("null:".to_owned(), "send bytes here, to be thrown away".to_owned())
            }
            (ServeRoot::Directory(path), read_only) => (
                path.display().to_string(),
                if read_only { "read" } else { "read, write and delete" }.to_owned()
                    + " all files there",
            ),
        };
        let null = self.root == ServeRoot::Null;
        let on = if hosts.for_others { "On the other machine" } else { "With it" };
        let mut lines = vec![
            format!("haul serves {served} on {address}"),
            String::new(),
            format!("    {url}"),
            String::new(),
        ];
        lines.extend(other_hosts(hosts));
        for state in &self.not_served {
            lines.push(format!("Not served, for haul keeps its keys there: {}", state.display()));
        }
        if !self.not_served.is_empty() {
            lines.push(String::new());
        }
        lines.extend([
            format!("Whoever has this URL may {may}; it is a password. {on}:"),
            String::new(),
        ]);
        if !self.read_only {
            lines.push(format!("    haul push FILE... {url}"));
        }
        if !null {
            lines.push(format!("    haul pull {url}NAME ."));
        }
        lines.push(String::new());
        lines.push("Ctrl-C ends it; transfers go on when it is started again.".to_owned());
        lines.join("\n")
    }
}

/// Lines that say where others reach the server too, or that they do not.
fn other_hosts(hosts: &Hosts) -> Vec<String> {
    let words = match hosts.names.as_slice() {
        _ if !hosts.for_others => {
            "Only this machine reaches that: no address of its own leads there from others.\n\
             --listen :PORT takes all addresses; --advertise NAME puts in a name that leads here."
                .to_owned()
        }
        [_] | [] => return Vec::new(),
        [first, others @ ..] => {
            let others: Vec<String> = others.iter().map(|host| bracketed(host)).collect();
            let first = bracketed(first);
            format!("This machine is also, in place of {first}: {}", others.join(", "))
        }
    };
    vec![words, String::new()]
}

/// A host as it stands in a URL.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}
