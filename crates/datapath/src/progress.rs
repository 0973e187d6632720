//! Progress of a span, and errors that say how far it came.
//!
//! All errors about spans are built here, so that each names engine, call, span and position.

use std::io;

use rustix::io::Errno;

use crate::{EngineError, FileSpan, Remedy, SpanDone};

/// A span on its way through one `submit`.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'span> {
    engine: &'static str,
    pub span: &'span FileSpan,
    /// Bytes of this span that were moved, on the wire (sent) or off it (received).
    pub moved_bytes: u64,
}

/// A run of bytes that can be moved in one call: it does not cross the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub offset_bytes: u64,
    pub len_bytes: u64,
}

impl<'span> Progress<'span> {
    #[must_use]
    pub fn new(engine: &'static str, span: &'span FileSpan) -> Self {
        Self { engine, span, moved_bytes: 0 }
    }

    #[must_use]
    pub fn left_bytes(&self) -> u64 {
        self.span.len_bytes - self.moved_bytes
    }

    /// The place of the next bytes in the file; at most `bytes_max` of them.
    #[must_use]
    pub fn run(&self, bytes_max: u64) -> Run {
        let (offset_bytes, len_bytes) = self
            .span
            .file
            .run_at(self.span.offset_bytes + self.moved_bytes, self.left_bytes().min(bytes_max));
        Run { offset_bytes, len_bytes }
    }

    /// The span's completion. `copied_bytes` is all of it or nothing.
    #[must_use]
    pub fn done(&self, copied: Copied) -> SpanDone {
        let copied_bytes = match copied {
            Copied::All => self.moved_bytes,
            Copied::Nothing => 0,
        };
        SpanDone { id: self.span.id, moved_bytes: self.moved_bytes, copied_bytes }
    }

    /// The error of a wire that failed.
    #[must_use]
    pub fn wire(&self, call: &'static str, source: impl Into<io::Error>) -> EngineError {
        self.error(call, Remedy::Reconnect, source.into())
    }

    /// The error of a file that failed.
    #[must_use]
    pub fn file(&self, call: &'static str, source: impl Into<io::Error>) -> EngineError {
        self.error(call, Remedy::SkipFile, source.into())
    }

    /// The error of a file that is shorter than the span.
    #[must_use]
    pub fn truncated(&self, call: &'static str) -> EngineError {
        let source = io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!(
                "the file ends {} bytes before the end of the span: it was truncated meanwhile",
                self.left_bytes()
            ),
        );
        self.file(call, source)
    }

    /// The error of an engine that cannot go on here, where another can.
    #[must_use]
    pub fn unsupported(&self, call: &'static str, source: impl Into<io::Error>) -> EngineError {
        self.error(call, Remedy::UseAnotherEngine, source.into())
    }

    /// The error of a system call, by whose fault it is.
    #[must_use]
    pub fn failure(&self, failure: Failure) -> EngineError {
        let Failure { call, side, source } = failure;
        let of_the_wire = || Errno::from_io_error(&source).is_some_and(is_of_the_wire);
        if side != Side::Target && is_unsupported_error(&source) {
            self.unsupported(call, source)
        } else if side == Side::Wire || (side == Side::Either && of_the_wire()) {
            self.wire(call, source)
        } else {
            self.file(call, source)
        }
    }

    fn error(&self, call: &'static str, remedy: Remedy, source: io::Error) -> EngineError {
        EngineError {
            engine: self.engine,
            call,
            span: Some(self.span.id),
            offset_bytes: self.span.offset_bytes + self.moved_bytes,
            moved_bytes: self.moved_bytes,
            remedy,
            source,
        }
    }
}

/// A system call that failed.
#[derive(Debug)]
pub struct Failure {
    pub call: &'static str,
    pub side: Side,
    pub source: io::Error,
}

impl Failure {
    #[must_use]
    pub fn new(call: &'static str, side: Side, source: impl Into<io::Error>) -> Self {
        Self { call, side, source: source.into() }
    }
}

/// The object that a system call works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    File,
    /// The file, where the plainest call has failed too: no other engine would do better.
    Target,
    Wire,
    /// File or wire: the error number must tell which one failed.
    Either,
}

/// Whether a span's bytes passed through user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    All,
    Nothing,
}

/// Whether an error number says that the file system, the kind of file or the kernel cannot do what
/// was asked.
#[must_use]
pub fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::SPIPE | Errno::NODEV)
}

/// Says whether an [`io::Error`] means that the call is not supported: of a read, a write or an
/// open.
#[must_use]
pub fn is_unsupported_error(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
        || Errno::from_io_error(error).is_some_and(is_unsupported)
}

/// The error of a file that cannot be moved past the page cache.
#[must_use]
pub fn without_direct(error: &io::Error) -> io::Error {
    let why =
        format!("needs a file that can be opened with O_DIRECT, found that it cannot: {error}");
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// Whether an error number says that the connection has failed.
#[must_use]
pub fn is_of_the_wire(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PIPE
            | Errno::CONNRESET
            | Errno::CONNABORTED
            | Errno::NOTCONN
            | Errno::TIMEDOUT
            | Errno::SHUTDOWN
            | Errno::HOSTUNREACH
            | Errno::HOSTDOWN
            | Errno::NETUNREACH
            | Errno::NETDOWN
            | Errno::NETRESET
            | Errno::AGAIN
            | Errno::BADMSG
            | Errno::NOBUFS
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SpanFile, SpanId};
    use std::sync::Arc;

    #[test]
    fn an_error_says_where_it_is_and_what_helps_by_whose_fault_it_is() {
        let file = Arc::new(SpanFile::sink().unwrap());
        let span = FileSpan { id: SpanId(7), file, offset_bytes: 5000, len_bytes: 1000 };
        let progress = Progress { moved_bytes: 300, ..Progress::new("test", &span) };
        let other_words = || io::Error::new(io::ErrorKind::Unsupported, "no such call");
        for (side, source, remedy) in [
            (Side::File, Errno::INVAL.into(), Remedy::UseAnotherEngine),
            (Side::File, other_words(), Remedy::UseAnotherEngine),
            (Side::File, Errno::IO.into(), Remedy::SkipFile),
            (Side::File, Errno::PIPE.into(), Remedy::SkipFile),
            // The plainest call has failed too: another engine would fail as well.
            (Side::Target, Errno::INVAL.into(), Remedy::SkipFile),
            (Side::Target, Errno::NOSPC.into(), Remedy::SkipFile),
            (Side::Wire, Errno::OPNOTSUPP.into(), Remedy::UseAnotherEngine),
            (Side::Wire, Errno::IO.into(), Remedy::Reconnect),
            (Side::Either, Errno::NOSYS.into(), Remedy::UseAnotherEngine),
            (Side::Either, Errno::CONNRESET.into(), Remedy::Reconnect),
            (Side::Either, Errno::IO.into(), Remedy::SkipFile),
        ] {
            let error = progress.failure(Failure::new("call", side, source));
            assert_eq!(error.remedy, remedy, "{side:?}: {error}");
            assert_eq!((error.engine, error.call, error.span), ("test", "call", Some(span.id)));
            assert_eq!((error.offset_bytes, error.moved_bytes), (5300, 300));
        }
    }
}
