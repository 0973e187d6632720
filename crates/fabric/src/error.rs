//! Errors of endpoints: what was tried, and what it needs.

use std::io;

use crate::Provider;

/// An error of an endpoint or of what it stands on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "RDMA needs a haul that was built with libfabric, found one without; install \
         libfabric-dev, then `cargo install --path crates/cli --features fabric`"
    )]
    NotBuilt,
    #[error(
        "RDMA needs the library libfabric 1.17 or newer, found {0}; install it: Debian's package \
         is libfabric1"
    )]
    NoLibrary(String),
    #[error("no {provider} endpoint here: needs {needs}, found {found}")]
    NoProvider { provider: Provider, needs: &'static str, found: String },
    #[error("{call}: {words}")]
    Call { call: &'static str, code: i32, words: String },
    #[error(
        "memory could not be registered: needs {len_bytes} bytes that may be locked \
         (RLIMIT_MEMLOCK), found {words}; raise it: `ulimit -l unlimited`, or LimitMEMLOCK= of the \
         service"
    )]
    NoMemory { len_bytes: usize, words: String },
    #[error("the peer has left")]
    PeerGone,
    #[error("waited {seconds} s for {what}")]
    TimedOut { what: &'static str, seconds: u64 },
    #[error("a file was cut short while its pages were sent: all of the stream is sent again")]
    LostPages,
    #[error("the peer sent {0}")]
    BadMessage(&'static str),
}

impl Error {
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::NotBuilt | Self::NoLibrary(_) | Self::NoProvider { .. } => {
                io::ErrorKind::Unsupported
            }
            Self::Call { code, .. } => io::Error::from_raw_os_error(*code).kind(),
            Self::NoMemory { .. } => io::ErrorKind::OutOfMemory,
            Self::PeerGone => io::ErrorKind::UnexpectedEof,
            Self::TimedOut { .. } => io::ErrorKind::TimedOut,
            Self::LostPages | Self::BadMessage(_) => io::ErrorKind::InvalidData,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

#[cfg(feature = "libfabric")]
impl From<haul_fabric_sys::Error> for Error {
    fn from(error: haul_fabric_sys::Error) -> Self {
        Self::Call { call: error.call, code: error.code, words: error.words() }
    }
}
