//! Why a transfer could not start or had to stop.

use crate::{
    name::Name,
    problem::{Problem, Side},
};
use haul_protocol::message;
use rustix::process::{Resource, getrlimit};

/// The whole transfer ended. Single files that failed are events, not this.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TransferError {
    /// Nothing could start: a wrong token, no such source, no connection. Exit status 2.
    #[error("{0}")]
    CouldNotStart(Box<Problem>),
    /// It had started and cannot go on; the same command resumes it. Exit status 1.
    #[error("{0}")]
    Broken(Box<Problem>),
    /// Ctrl-C; the same command resumes it. Exit status 1.
    #[error("interrupted; run the same command again to go on")]
    Interrupted,
}

impl TransferError {
    /// The error in parts, for `--json`.
    #[must_use]
    pub fn problem(&self) -> Problem {
        match self {
            Self::CouldNotStart(problem) | Self::Broken(problem) => (**problem).clone(),
            Self::Interrupted => problem("interrupted", "", "", "run the same command to go on"),
        }
    }

    /// An error before anything was moved.
    #[must_use]
    pub fn start(problem: Problem) -> Self {
        Self::CouldNotStart(Box::new(problem))
    }

    /// An error midway.
    #[must_use]
    pub fn broken(problem: Problem) -> Self {
        Self::Broken(Box::new(problem))
    }
}

/// A problem of the session as a whole.
pub(crate) fn problem(what: &str, needs: &str, found: &str, hint: &str) -> Problem {
    Problem {
        path: Name::default(),
        side: Side::Session,
        what: what.into(),
        needs: needs.into(),
        found: found.into(),
        hint: hint.into(),
    }
}

/// A fault of this side's file system, with the code that fits the error.
pub(crate) fn io_fault(
    side: message::Side,
    path: &[u8],
    what: impl Into<String>,
    error: &std::io::Error,
) -> message::Fault {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let (code, hint) = match errno {
        Some(Errno::NOENT | Errno::NOTDIR) => (message::FaultCode::NotFound, "check the name"),
        Some(Errno::ACCESS | Errno::PERM) => (
            message::FaultCode::NotPermitted,
            "check owner and mode, or run that side as a user who may",
        ),
        Some(Errno::NOSPC | Errno::DQUOT) => (
            message::FaultCode::NoSpace,
            "free space there, then run the same command again: it goes on where it stopped",
        ),
        Some(Errno::ROFS) => {
            (message::FaultCode::ReadOnly, "remount it writable or choose another")
        }
        Some(Errno::XDEV) => (
            message::FaultCode::NameRefused,
            "a symbolic link on the way leads out of the root; name the real place",
        ),
        Some(Errno::LOOP) => (
            message::FaultCode::NameRefused,
            "a symbolic link is on the way, and none is followed; name the real place",
        ),
        Some(Errno::MFILE) => {
            (message::FaultCode::IoFailed, "let that side have more open files (ulimit -n)")
        }
        Some(Errno::FBIG) => (
            message::FaultCode::IoFailed,
            "raise the limit on file sizes of that side (ulimit -f), or choose a file system that \
             holds files of this size",
        ),
        None if error.kind() == std::io::ErrorKind::PermissionDenied => {
            (message::FaultCode::NotPermitted, "choose another name")
        }
        // Our own words, which say what it is: the kernel knows nothing of it.
        None => (message::FaultCode::IoFailed, "run the same command again"),
        _ => (message::FaultCode::IoFailed, "see the kernel's log of that host"),
    };
    let mut found = error.to_string();
    if errno == Some(Errno::FBIG)
        && let Some(limit_bytes) = getrlimit(Resource::Fsize).current
    {
        found = format!("{found}; its limit on file sizes is {limit_bytes} bytes");
    }
    message::Fault::new(code, side, what).at(path).found(found).hint(hint)
}

/// A fault of a directory or file system that no single file is to blame for.
pub(crate) fn io_problem_fault(
    side: message::Side,
    what: &str,
    error: &std::io::Error,
) -> message::Fault {
    io_fault(side, b"", what, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_larger_than_the_user_may_write_says_which_limit_to_raise() {
        let error = std::io::Error::from_raw_os_error(rustix::io::Errno::FBIG.raw_os_error());
        let fault = io_fault(message::Side::Target, b"a", "cannot be written", &error);
        assert_eq!(fault.code(), message::FaultCode::IoFailed);
        assert!(fault.hint.contains("ulimit -f"), "{fault:?}");
    }
}
