//! Errors by which a transfer could not start or had to stop.

use crate::{
    events::Report,
    name::Name,
    problem::{Problem, Side},
};
use haul_protocol::message;
use rustix::process::{Resource, getrlimit};

/// Error that ended the whole transfer. Single files that failed are events, not this.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The transfer could not start: a wrong token, a source that may not be read. Exit status 2.
    #[error("{0}")]
    CouldNotStart(Box<Problem>),
    /// The transfer could not start, and the same request may start later: no connection, no free
    /// session, no such source, a full disk. Exit status 2.
    #[error("{0}")]
    Unavailable(Box<Problem>),
    /// The transfer had started and cannot go on; the same request resumes it. Exit status 1.
    #[error("{problem}")]
    #[non_exhaustive]
    Broken {
        /// Reason why the transfer cannot go on.
        problem: Box<Problem>,
        /// Report of how far the transfer came; `None` where nothing is moved, as in a listing.
        report: Option<Box<Report>>,
    },
    /// The [`Interrupt`](crate::Interrupt) was set; the same request resumes it. Exit status 1.
    #[error("interrupted; run the same command again to go on")]
    #[non_exhaustive]
    Interrupted {
        /// Report of how far the transfer came; `None` before the first session, and where nothing
        /// is moved.
        report: Option<Box<Report>>,
    },
}

impl TransferError {
    /// The error in parts, for `--json`.
    #[must_use]
    pub fn problem(&self) -> Problem {
        match self {
            Self::CouldNotStart(problem)
            | Self::Unavailable(problem)
            | Self::Broken { problem, .. } => (**problem).clone(),
            Self::Interrupted { .. } => {
                problem("interrupted", "", "", "run the same command to go on")
            }
        }
    }

    /// Report of how far a push or a pull came before it ended: its `ok` is false, and
    /// `unfinished_bytes` says what is kept of files that are not complete.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::CouldNotStart(_) | Self::Unavailable(_) => None,
            Self::Broken { report, .. } | Self::Interrupted { report } => report.as_deref(),
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
        Self::Broken { problem: Box::new(problem), report: None }
    }

    /// An end that the user asked for.
    #[must_use]
    pub fn interrupted() -> Self {
        Self::Interrupted { report: None }
    }

    /// This error with its report changed, or with another one.
    #[must_use]
    pub(crate) fn map_report(self, change: impl FnOnce(Option<Report>) -> Option<Report>) -> Self {
        let changed = |old: Option<Box<Report>>| change(old.map(|old| *old)).map(Box::new);
        match self {
            Self::CouldNotStart(_) | Self::Unavailable(_) => self,
            Self::Broken { problem, report } => Self::Broken { problem, report: changed(report) },
            Self::Interrupted { report } => Self::Interrupted { report: changed(report) },
        }
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
        assert_eq!(fault.code, message::FaultCode::IoFailed);
        assert!(fault.hint.contains("ulimit -f"), "{fault:?}");
    }
}
