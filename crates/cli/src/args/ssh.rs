//! Options for what ssh reaches, and the other side of a transfer as its words name it.

use super::{transfer::parse_url, usage_problem};
use crate::ssh::{
    Ports,
    by_proxy::ProxyRule,
    login::{self, Login},
    program::SshProgram,
    ways::Way,
};
use clap::Args;
use haul_transfer::{HaulUrl, Problem};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

/// Options for a `user@host:path`.
#[derive(Debug, Args)]
pub struct LowSsh {
    /// The program that reaches user@host:path, with its options, such as "ssh -p 2222"
    #[arg(long = "ssh", value_name = "COMMAND", default_value = "ssh")]
    pub program: String,
    /// haul on the machine of user@host:path; subsystem:NAME for a Subsystem of its sshd
    #[arg(long, value_name = "COMMAND", default_value = "haul")]
    pub remote_haul: String,
    /// Copy this haul to the machine of user@host:path where it has none
    ///
    /// Over the same ssh, to a cache of yours there, for the next copies too. It must have the
    /// system and architecture of this machine.
    #[arg(long)]
    pub install_remote: bool,
    /// Ports of which the side that listens takes one, such as 50000-50100
    ///
    /// That is the machine of user@host:path, in a copy between two others the target; with
    /// --reverse it is the other end. For a firewall that lets these through. Without it any free
    /// port is taken.
    #[arg(long, value_name = "FIRST-LAST")]
    pub port_range: Option<Ports>,
    /// Have the machine of user@host:path make the connections
    ///
    /// For a machine that lets ssh in and nothing else, while it may go out; in a copy between two
    /// others that is the target. Without it this is done where no connection to it can be made.
    #[arg(long, conflicts_with = "through_ssh")]
    pub reverse: bool,
    /// Send the data through ssh itself, which is slow
    ///
    /// Without it this is done where no connection can be made either way.
    #[arg(long)]
    pub through_ssh: bool,
}

impl LowSsh {
    fn checked(&self) -> Result<SshProgram, Problem> {
        let program = SshProgram::new(&self.program, &self.remote_haul)?;
        if self.install_remote { program.installing() } else { Ok(program) }
    }

    /// Checks that nothing was asked for that only a copy over ssh has.
    fn check_is_not_meant(&self) -> Result<(), Problem> {
        let named = [
            ("--port-range", self.port_range.is_some()),
            ("--reverse", self.reverse),
            ("--through-ssh", self.through_ssh),
            ("--install-remote", self.install_remote),
        ];
        let Some((option, _)) = named.into_iter().find(|(_, is_named)| *is_named) else {
            return Ok(());
        };
        let needs = "[USER@]HOST:PATH, which ssh leads to";
        let hint = "leave it out: a server that runs has its port, and ssh no part in it";
        Err(usage_problem(&format!("cannot take {option}"), needs, "a haul:// URL", hint))
    }

    fn way(&self) -> Way {
        match (self.reverse, self.through_ssh) {
            (true, _) => Way::Reverse,
            (false, true) => Way::ThroughSsh,
            (false, false) => Way::Any,
        }
    }
}

/// The other side of a push, a pull or a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherSide {
    /// A server, by URLs that may lack their token.
    Server(Vec<HaulUrl>),
    /// A machine that ssh reaches, and paths there.
    BySsh {
        program: SshProgram,
        login: Login,
        paths: Vec<Vec<u8>>,
        ports: Option<Ports>,
        /// Proxy by which the server there is connected to.
        proxy: ProxyRule,
        /// Way of the data that the user has named.
        way: Way,
    },
}

impl OtherSide {
    /// Whether a word names another machine.
    #[must_use]
    pub fn is_named_by(word: &OsStr) -> bool {
        word.as_bytes().starts_with(b"haul://") || login::is_remote(word)
    }

    /// Reads words that name one other machine, at least one.
    ///
    /// # Errors
    /// If one is no URL and no user@host:path, or they are of several machines.
    pub fn named_by(
        words: &[impl AsRef<OsStr>],
        ssh: &LowSsh,
        token_file: Option<&Path>,
    ) -> Result<Self, Problem> {
        let mut urls = Vec::new();
        let mut places = Vec::new();
        for word in words {
            match login::parse(word.as_ref()) {
                Some(place) => places.push(place?),
                None => urls.push(parse_url(word.as_ref())?),
            }
        }
        let Some(first) = places.first() else {
            ssh.check_is_not_meant()?;
            return Ok(Self::Server(urls));
        };
        let other = places.iter().find(|place| place.login != first.login).map(ToString::to_string);
        let other = other.or_else(|| urls.first().map(ToString::to_string));
        if let Some(other) = other {
            let what = "cannot take two machines at once";
            let needs = format!("paths of {} alone", first.login);
            return Err(usage_problem(what, &needs, &other, "run haul once for each machine"));
        }
        if token_file.is_some() {
            let found = format!("{}, where ssh lets in", first.login);
            let hint = "leave it out: a copy over ssh has a token of its own";
            return Err(usage_problem("cannot take --token-file", "a haul:// URL", &found, hint));
        }
        let (program, login) = (ssh.checked()?, first.login.clone());
        let paths = places.into_iter().map(|place| place.path).collect();
        Ok(Self::BySsh {
            program,
            login,
            paths,
            ports: ssh.port_range,
            way: ssh.way(),
            proxy: ProxyRule::default(),
        })
    }
}

/// Reads a target as a plan keeps it; `hint` is for a word that is none.
///
/// # Errors
/// If it names no other machine.
pub(super) fn planned_target(word: &OsStr, hint: &str) -> Result<String, Problem> {
    if !OtherSide::is_named_by(word) {
        let what = format!("cannot take {} as a target", word.to_string_lossy());
        let needs = "a URL that `haul serve` printed, or user@host:path";
        return Err(usage_problem(&what, needs, "none", hint));
    }
    let text = word.to_str().ok_or_else(|| {
        let hint = "in a URL %FF stands for such a byte";
        usage_problem("cannot take this target", "UTF-8", "other bytes", hint)
    })?;
    if text.starts_with("haul://") {
        parse_url(word)?;
    }
    Ok(text.to_owned())
}

impl OtherSide {
    /// Way of the data that the user has named.
    #[must_use]
    pub fn way(&self) -> Way {
        match self {
            Self::Server(_) => Way::Any,
            Self::BySsh { way, .. } => *way,
        }
    }

    /// Whether it is reached by a proxy.
    #[must_use]
    pub fn has_proxy(&self) -> bool {
        match self {
            Self::Server(urls) => urls.iter().any(|url| url.proxy.is_some()),
            Self::BySsh { proxy, .. } => proxy.proxy.is_some(),
        }
    }
}

/// Refuses a word that names another machine where only this one can be meant.
///
/// # Errors
/// If it does.
pub(super) fn check_is_here(word: &OsStr, what: &str, hint: &str) -> Result<(), Problem> {
    let Some(place) = login::parse(word) else { return Ok(()) };
    let found = format!("{}, on another machine", place?);
    let hint = format!("{hint}; a path of this machine that has a colon is written ./NAME");
    Err(usage_problem(what, "a file or directory of this machine", &found, &hint))
}
