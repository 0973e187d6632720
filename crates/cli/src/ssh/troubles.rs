//! Words for a start over ssh that failed, with what to do about it.

use super::{
    frame::FrameError,
    login::Login,
    messages::Refusal,
    problem,
    program::{FarHaul, SshProgram},
};
use haul_report::printable::printable;
use haul_transfer::{Problem, TransferError};
use std::{io, net::SocketAddr, os::unix::process::ExitStatusExt, process::ExitStatus};

/// Exit status of ssh(1) for its own failures.
const OF_SSH: i32 = 255;
/// Exit statuses of a shell for a program that is not there, or cannot be run (POSIX).
const NOT_THERE: i32 = 127;
const NOT_RUNNABLE: i32 = 126;
/// Most characters of another program's output in an error.
const SHOWN_CHARS_MAX: usize = 1000;

/// Words of ssh(1) for a host key that it does not know, or another one.
const HOST_KEY: [&str; 2] = ["Host key verification failed", "REMOTE HOST IDENT"];
/// Words of ssh(1) for a user who is not let in.
const DENIED: [&str; 2] = ["Permission denied", "Too many authentication failures"];
const NO_HOST: &str = "Could not resolve hostname";
const NO_SUBSYSTEM: &str = "subsystem request failed";
/// Words of ssh(1) for what does not pass by itself. A name that cannot be looked up just now is
/// told in other words than one that is not there (getaddrinfo(3)).
const LASTING: [&str; 9] = [
    HOST_KEY[0],
    HOST_KEY[1],
    DENIED[0],
    DENIED[1],
    NO_SUBSYSTEM,
    "Name or service not known",
    "Bad configuration option",
    "Bad owner or permissions",
    "no matching",
];

/// An ssh that ended, or was ended, before it brought an answer.
#[derive(Debug)]
pub struct NoAnswer<'a> {
    pub program: &'a SshProgram,
    pub login: &'a Login,
    /// The exit status; `None` where it was ended by haul.
    pub status: Option<ExitStatus>,
    pub why: FrameError,
    /// Bytes that came on standard output.
    pub noise: &'a [u8],
    /// Bytes that came on standard error, of ssh and of the other side.
    pub said: &'a [u8],
}

impl NoAnswer<'_> {
    /// The problem in words.
    #[must_use]
    pub fn problem(&self) -> Problem {
        let (login, said) = (self.login, last_lines(self.said));
        let code = self.status.and_then(|status| status.code());
        match code {
            Some(OF_SSH) => self.of_ssh(&said),
            Some(NOT_THERE) => problem(
                &format!("{login} has no {}", self.far_name()),
                "haul where a shell looks for it that is not a login shell",
                &self.found(&said),
                "say where it is there (--remote-haul /path/to/haul), or let this one be copied \
                 there: --install-remote",
            ),
            Some(NOT_RUNNABLE) => problem(
                &format!("{} at {login} cannot be run", self.far_name()),
                "a haul that was built for that machine, and the right to run it",
                &self.found(&said),
                "see `file` of it there; --remote-haul /path/to/haul takes another",
            ),
            _ => problem(
                &format!("haul at {login} did not answer over ssh"),
                "a haul there that knows `serve --over-ssh`, and no other forced command",
                &self.found(&said),
                "see what `ssh` to it prints with the words `haul --version` behind the host",
            ),
        }
    }

    /// The error that it is: what lies between both hosts may pass, and a scheduler tries it again.
    #[must_use]
    pub fn error(&self) -> TransferError {
        // A signal ended it, as where memory is short.
        let is_killed = self.status.is_some_and(|status| status.code().is_none());
        let of_ssh = self.status.and_then(|status| status.code()) == Some(OF_SSH);
        if (of_ssh || is_killed) && !LASTING.iter().any(|words| self.has_said(words)) {
            return TransferError::Unavailable(Box::new(self.problem()));
        }
        TransferError::start(self.problem())
    }

    fn has_said(&self, words: &str) -> bool {
        String::from_utf8_lossy(self.said).contains(words)
    }

    fn of_ssh(&self, said: &str) -> Problem {
        let login = self.login;
        let has = |words: &[&str]| words.iter().any(|words| self.has_said(words));
        let (needs, hint) = if has(&HOST_KEY) {
            let needs = "a host key that ssh knows and that is still the same";
            (needs, format!("look at the key once with `ssh {}` at a terminal", login.word()))
        } else if has(&DENIED) {
            let needs = "a key, an agent or a password that the other side takes";
            (needs, format!("`ssh -v {}` shows which keys were offered", login.word()))
        } else if has(&[NO_HOST]) {
            ("a host name that leads somewhere", "a local file is written ./NAME".to_owned())
        } else if has(&[NO_SUBSYSTEM]) {
            let needs = "a line `Subsystem NAME /path/to/haul serve --over-ssh` in its sshd_config";
            (needs, "add it there, or leave out --remote-haul".to_owned())
        } else {
            let needs = "an sshd there that lets this user in";
            (needs, format!("`ssh {}` says more; --ssh takes options for it", login.word()))
        };
        problem(&format!("ssh to {login} failed"), needs, &self.found(said), &hint)
    }

    fn far_name(&self) -> &str {
        match &self.program.far_haul {
            FarHaul::Command(command) => command,
            FarHaul::Subsystem(name) => name,
        }
    }

    fn found(&self, said: &str) -> String {
        let mut parts = Vec::new();
        if !said.is_empty() {
            parts.push(said.to_owned());
        }
        match (self.status, &self.why) {
            (Some(status), FrameError::Ended) => parts.push(ended(status)),
            (_, why) => parts.push(why.to_string()),
        }
        let noise = shown(self.noise);
        if !noise.is_empty() {
            parts.push(format!("before an answer it printed {noise:?}"));
        }
        parts.join("; ")
    }
}

/// The problem of an ssh program that could not be started.
#[must_use]
pub fn not_started(program: &SshProgram, error: &io::Error) -> Problem {
    problem(
        &format!("cannot run {}", program.name()),
        "ssh, from the package openssh-client",
        &error.to_string(),
        "install it, or name another program: --ssh 'PROGRAM OPTIONS'",
    )
}

/// The problem of a far end that said itself why it could not begin.
#[must_use]
pub fn refused(login: &Login, refusal: Refusal) -> Problem {
    let Refusal { what, needs, found, hint, .. } = refusal;
    let what = if what.is_empty() { "haul could not begin".to_owned() } else { what };
    problem(&format!("{login}: {}", printable(&what)), &needs, &found, &hint)
}

/// Words on a machine that has told no address that counts.
pub const NO_ADDRESS: &str = "it told no address that haul may use from here (docs/ssh.md), or a \
                              port below 1024 without --port-range";
/// Words on what to do about it.
pub const NO_ADDRESS_HINT: &str =
    "name its address by HostName in ~/.ssh/config, or its ports by --port-range FIRST-LAST";

/// The problem of a server whose port cannot be reached, though ssh reached its host.
#[must_use]
pub fn unreachable(login: &Login, addresses: &[SocketAddr], error: &io::Error) -> Problem {
    let what = format!("ssh reaches {login}, and haul's connections do not");
    let needs = "a way for TCP to a free port of that machine";
    let Some(port) = addresses.first().map(SocketAddr::port) else {
        return problem(&what, needs, NO_ADDRESS, NO_ADDRESS_HINT);
    };
    let tried: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
    problem(
        &what,
        needs,
        &format!("{error} (tried {}, port {port})", tried.join(", ")),
        "if a firewall is between that lets some ports through, name them by --port-range \
         FIRST-LAST",
    )
}

/// The problem of a haul there that knows connections to it and no other way.
#[must_use]
pub fn no_other_way(login: &Login, software: &str) -> Problem {
    let what = format!("haul at {login} has no other way for the data");
    let needs = "a haul there that knows --reverse and --through-ssh";
    problem(&what, needs, software, "install the newer haul there, too")
}

/// Words for how a process ended.
#[must_use]
pub fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}

/// The last lines of an output, as one line.
fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let from = lines.len().saturating_sub(3);
    shown(lines[from..].join(" / ").as_bytes())
}

/// The end of an output, printable.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    let skipped = text.chars().count().saturating_sub(SHOWN_CHARS_MAX);
    let rest: String = text.chars().skip(skipped).collect();
    let text = if skipped > 0 { format!("...{rest}") } else { rest };
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    fn words(status: Option<i32>, why: FrameError, noise: &str, said: &str) -> String {
        let error = error(status, why, noise, said);
        error.problem().to_string()
    }

    fn error(status: Option<i32>, why: FrameError, noise: &str, said: &str) -> TransferError {
        let place = crate::ssh::login::parse(OsStr::new("ann@dtn1:x")).unwrap().unwrap();
        let program = SshProgram::new("ssh", "haul").unwrap();
        let no_answer = NoAnswer {
            program: &program,
            login: &place.login,
            // A negative one is a signal, as in Python's subprocess.
            status: status
                .map(|code| ExitStatus::from_raw(if code < 0 { -code } else { code << 8 })),
            why,
            noise: noise.as_bytes(),
            said: said.as_bytes(),
        };
        no_answer.error()
    }

    #[test]
    fn what_lies_between_both_hosts_may_pass_and_what_ssh_refuses_does_not() {
        let refused = "ssh: connect to host dtn1 port 22: Connection refused\n";
        let dropped = "kex_exchange_identification: Connection closed by remote host\n";
        let looked_up =
            "ssh: Could not resolve hostname dtn1: Temporary failure in name resolution";
        let none = "ssh: Could not resolve hostname dtn1: Name or service not known\n";
        for (status, said, may_pass) in [
            (255, refused, true),
            (255, dropped, true),
            (255, looked_up, true),
            (255, none, false),
            (255, "ann@dtn1: Permission denied (publickey).\n", false),
            (255, "Host key verification failed.\n", false),
            (255, "subsystem request failed on channel 0\n", false),
            (127, "bash: line 1: haul: command not found\n", false),
            (2, refused, false),
            (-9, "", true),
        ] {
            let error = error(Some(status), FrameError::Ended, "", said);
            let is = matches!(error, TransferError::Unavailable(_));
            assert_eq!(is, may_pass, "{status} {said}");
        }
    }

    #[test]
    fn each_failure_of_a_start_says_what_to_do_about_it() {
        let denied = "ann@dtn1: Permission denied (publickey).\n";
        for (status, noise, said, all) in [
            (
                127,
                "",
                "bash: line 1: haul: command not found\n",
                &["has no haul", "--remote-haul"][..],
            ),
            (126, "", "", &["cannot be run", "exit status 126"]),
            (255, "", denied, &["ssh to ann@dtn1 failed", "Permission denied", "ssh -v ann@dtn1"]),
            (255, "", "Host key verification failed.\n", &["a host key", "`ssh ann@dtn1`"]),
            (255, "", "ssh: Could not resolve hostname dtn1: x\n", &["a host name", "./NAME"]),
            (255, "", "ssh: connect to host dtn1 port 22: Connection refused\n", &["refused"]),
            (255, "", "subsystem request failed on channel 0\n", &["Subsystem NAME"]),
            (
                0,
                "Welcome!\nThis account is closed.\n",
                "",
                &["did not answer", "Welcome!", "closed"],
            ),
            (2, "", "error: unexpected argument '--over-ssh' found\n", &["unexpected argument"]),
        ] {
            let words = words(Some(status), FrameError::Ended, noise, said);
            assert!(all.iter().all(|part| words.contains(part)), "{words}");
        }
        let words = words(None, FrameError::Noise, &"x\x1b[2J".repeat(5000), "");
        assert!(words.contains("64 KiB") && words.len() < 3000, "{words}");
        assert!(!words.contains('\x1b'), "{words}");
    }

    #[test]
    fn what_the_other_side_says_reaches_no_terminal_as_control_characters() {
        let place = crate::ssh::login::parse(OsStr::new("dtn1:x")).unwrap().unwrap();
        let refusal =
            Refusal { what: "no\x1b[2J".into(), found: "\x07".into(), ..Refusal::default() };
        let words = refused(&place.login, refusal).to_string();
        assert!(words.starts_with("dtn1: no") && !words.contains(['\x1b', '\x07']), "{words}");
    }

    #[test]
    fn a_machine_without_an_address_that_counts_has_no_port_and_no_firewall_in_its_problem() {
        let error = io::Error::other("the name has no address");
        let place = crate::ssh::login::parse(OsStr::new("ann@dtn1:x")).unwrap().unwrap();
        let login = place.login;
        let none = unreachable(&login, &[], &error).to_string();
        assert!(none.contains("it told no address that haul may use from here"), "{none}");
        assert!(none.contains("--port-range") && none.contains("docs/ssh.md"), "{none}");
        assert!(!none.contains("port 0") && !none.contains("firewall"), "{none}");
        let one = unreachable(&login, &["192.0.2.7:5000".parse().unwrap()], &error).to_string();
        assert!(one.contains("tried 192.0.2.7, port 5000") && one.contains("firewall"), "{one}");
    }
}
