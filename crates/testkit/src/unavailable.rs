//! Reasons why this host does not give a test what it needs: the test says so and is skipped.

use haul_host::control_group::ControlGroupError;
use std::{ffi::OsString, io};

/// A place, limit or fault that a test cannot have on this host.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// A file of the place cannot be made or asked.
    #[error(transparent)]
    File(#[from] io::Error),
    /// The program is not installed.
    #[error("{0}: {1}")]
    NotStarted(&'static str, io::Error),
    /// The program refused.
    #[error("{program}: {said}")]
    Refused {
        /// Name of the program.
        program: &'static str,
        /// Words of the program.
        said: String,
    },
    /// No control group takes the limit.
    #[error(transparent)]
    NoLimit(#[from] ControlGroupError),
    /// The file system has no disk that could fail.
    #[error("there is no disk")]
    NoDisk,
    /// The file system lies in memory: nothing of it would be there after the power is back.
    #[error("without a device nothing of it stays")]
    NoDevice,
    /// Neither the file system nor its disk can be cut off.
    #[error("shutdown: {0}; {1}")]
    PowerStays(io::Error, Box<Self>),
    /// A mount namespace that was made meanwhile keeps the file system.
    #[error("{0:?} is mounted in another mount namespace")]
    MountedElsewhere(OsString),
    /// A loop device does not take another size.
    #[error("the size of {0}: {1}")]
    SizeStays(String, io::Error),
    /// Tracing was refused, in strace's words.
    #[error("{0}")]
    NotTraced(String),
    /// The page cache keeps what it was to forget.
    #[error("{left_bytes} of {len_bytes} bytes stay in the page cache")]
    StillCached {
        /// Bytes that stay.
        left_bytes: u64,
        /// Bytes that were to go.
        len_bytes: u64,
    },
}
