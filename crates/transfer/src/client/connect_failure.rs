//! Reasons why a client could not open a session, and whether trying again may help.

use crate::{
    error::{TransferError, problem},
    problem::Problem,
    transport::{control::ControlError, tls::WrongKey},
};
use haul_protocol::message::{Fault, FaultCode};

/// The reason why no session could be opened.
pub(crate) enum ConnectFailure {
    Unreachable {
        server: String,
        error: String,
    },
    /// The maker of the connections makes none any more.
    NoWay {
        server: String,
        error: String,
    },
    /// A connection was made, and nothing came on it.
    Silent {
        server: String,
    },
    /// The connection ended within the handshake.
    Cut {
        server: String,
        error: String,
    },
    /// The server's answer was no handshake of haul's.
    Broken {
        server: String,
        error: String,
    },
    WrongKey {
        server: String,
    },
    Refused(Fault),
    Interrupted,
}

impl ConnectFailure {
    /// The failure of a handshake over `control` with `server`.
    pub(crate) fn of_handshake(server: &str, error: ControlError) -> Self {
        let server = server.to_owned();
        match error {
            ControlError::Tls(error) if WrongKey::is(&error) => Self::WrongKey { server },
            error @ (ControlError::Closed | ControlError::Io(_)) => {
                Self::Cut { server, error: error.to_string() }
            }
            error => Self::Broken { server, error: error.to_string() },
        }
    }

    pub(crate) fn problem(&self) -> Problem {
        match self {
            Self::Unreachable { server, error } => problem(
                &format!("cannot connect to {server}"),
                "a running `haul serve` that this host can reach",
                error,
                "check host, port and firewall",
            ),
            Self::NoWay { server, error } => problem(
                &format!("there is no way to {server}"),
                "",
                error,
                "run the same command again",
            ),
            Self::Cut { server, error } => problem(
                &format!("{server} does not open a session"),
                "a `haul serve` on that port that has room for another",
                error,
                "try again if it may be busy; if not, check that the port is haul's, and the \
                 server's messages",
            ),
            Self::Broken { server, error } => problem(
                &format!("{server} does not open a session"),
                "a `haul serve` on that port",
                error,
                "check that the port is haul's, and the server's messages",
            ),
            Self::Silent { server } => problem(
                &format!("{server} does not open a session"),
                "a `haul serve` on that port, and a path that takes packets of 576 bytes",
                "no answer to the handshake",
                "check that the port is haul's, the server's messages, and firewalls on the way",
            ),
            Self::WrongKey { server } => problem(
                &format!("{server} is not the server of this token"),
                "the server whose key the token names",
                "another key",
                "use the URL that this server prints now; if you did, somebody is in between",
            ),
            Self::Refused(fault) => Problem::of(fault),
            Self::Interrupted => problem("interrupted", "", "", ""),
        }
    }

    /// Whether trying to open a session again may help.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Cut { .. }
            | Self::Broken { .. }
            | Self::Silent { .. } => true,
            Self::NoWay { .. } | Self::WrongKey { .. } | Self::Interrupted => false,
            Self::Refused(fault) => is_passing(fault),
        }
    }

    /// Whether the connection was cut, maybe by a network that lets the next handshake through.
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self, Self::Cut { .. })
    }

    pub(crate) fn into_start(self) -> TransferError {
        if matches!(self, Self::Interrupted) {
            return TransferError::interrupted();
        }
        let problem = self.problem();
        let may_pass = || matches!(&self, Self::Refused(fault) if may_pass_later(fault));
        if self.is_passing() || may_pass() {
            return TransferError::Unavailable(Box::new(problem));
        }
        TransferError::start(problem)
    }
}

/// Whether the same request may be taken later, though it is not tried again at once: a mount that
/// is not there, a full disk, too many open files.
pub(crate) fn may_pass_later(fault: &Fault) -> bool {
    is_passing(fault)
        || matches!(fault.code, FaultCode::IoFailed | FaultCode::NoSpace | FaultCode::Stalled)
}

/// Whether trying again may help after this fault of the server's.
pub(crate) fn is_passing(fault: &Fault) -> bool {
    matches!(fault.code, FaultCode::ShuttingDown | FaultCode::TooManySessions | FaultCode::Locked)
}
