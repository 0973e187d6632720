//! Errors of benches: the reasons why one came to nothing.

use haul_host::control_group::ControlGroupError;
use haul_transfer::Problem;
use std::io;

/// An error of a bench.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The bench could not start, so that nothing was measured.
    #[error("{0}")]
    CouldNotStart(Problem),
    /// The bench was interrupted, or something failed midway.
    #[error("{0}")]
    BrokeOff(Problem),
}

impl BenchError {
    /// The error of a bench that broke off.
    pub(crate) fn broke_off(bench: &str, error: &anyhow::Error) -> Self {
        let what = format!("haul bench {bench} broke off");
        Self::BrokeOff(Problem::in_general(&what, "", &format!("{error:#}"), ""))
    }
}

impl From<Problem> for BenchError {
    fn from(problem: Problem) -> Self {
        Self::CouldNotStart(problem)
    }
}

/// A need that this host does not meet: a part of a bench is left out for it, and says so.
#[derive(Debug, thiserror::Error)]
pub enum Lack {
    /// A file cannot be made.
    #[error(transparent)]
    File(#[from] io::Error),
    /// A directory cannot be worked in.
    #[error(transparent)]
    Directory(#[from] Problem),
    /// A figure of the host cannot be had.
    #[error("{0:#}")]
    Figure(anyhow::Error),
    /// No control group takes the limit.
    #[error(transparent)]
    Limit(#[from] ControlGroupError),
    /// Only root mounts.
    #[error("needs root to mount it, found another user")]
    Root,
    /// The program is not installed.
    #[error("needs {0}, found no such program")]
    Program(String),
    /// The program does not start.
    #[error("{0}: {1}")]
    NotStarted(String, io::Error),
    /// The program says what is wrong.
    #[error("{program} failed: {said}")]
    Failed {
        /// Name of the program.
        program: String,
        /// First words of the program.
        said: String,
    },
    /// The disk has no room for an image of a file system.
    #[error("needs {needs_mib} MiB for its image, found {free_mib} MiB free")]
    ImageRoom {
        /// Space that the image and its surroundings take, in MiB.
        needs_mib: u64,
        /// Space that is left, in MiB.
        free_mib: u64,
    },
    /// The file system has no room for source and target.
    #[error("needs {needs_mib} MiB free, found {free_mib} MiB")]
    Room {
        /// Space that both take, in MiB.
        needs_mib: u64,
        /// Space that is left, in MiB.
        free_mib: u64,
    },
    /// Neither way to a file that is larger than memory is open.
    #[error("{0}; or {1}")]
    Either(Box<Self>, Box<Self>),
    /// The file system lies in memory.
    #[error("a tmpfs is memory: no file on it is larger")]
    InMemory,
}
