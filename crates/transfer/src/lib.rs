//! A whole transfer as a library: serve a directory, push to it, pull from it.
//!
//! [`push`] and [`pull`] run a transfer to its end and tell [`Event`]s meanwhile; [`Server`] is the
//! other side. `examples/push.rs` is all of it in 20 lines.

pub mod bytes;
pub mod client;
pub mod clocks;
pub mod constants;
pub mod content;
pub mod digest;
pub mod error;
pub mod events;
pub mod explain;
pub mod file_status;
pub mod locks;
pub mod manifest;
pub mod name;
pub mod options;
pub mod packed_names;
mod patterns;
mod places;
pub mod preflight;
pub mod probe;
pub mod problem;
pub mod rights;
pub mod selection;
pub mod served_root;
pub mod server;
pub mod session;
pub mod size;
mod source_name;
pub mod state;
pub mod storage;
pub mod token;
pub mod transport;
pub mod url;
pub mod verdict;
pub mod verify;
pub mod wishes;
pub(crate) mod words;

pub use client::{globs::expand, listing::list, pull, push};
pub use error::TransferError;
pub use events::{Event, Report};
pub use options::{PullRequest, PushRequest, ServeOptions, ServeRoot, TransferOptions};
pub use server::{Server, event::ServerEvent};
pub use token::Token;
pub use url::HaulUrl;
pub use verify::{VerifyEvent, VerifyReport, VerifyRequest, verify};

use rustix::{
    io::fcntl_dupfd_cloexec,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use std::sync::{Arc, atomic::AtomicBool};

/// Set to true to end a transfer or a server in an orderly way: what arrived stays for a resume.
pub type Interrupt = Arc<AtomicBool>;

/// Descriptors, 8 bytes each in the kernel.
const DESCRIPTOR_TABLE: u64 = 8192;

/// Open files up to the hard limit: a session holds two for each file under way.
pub fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Not permitted is no harm: fewer files are open at a time then.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Makes the table of descriptors large, in a process that has no second thread yet: with one, each
/// step of its growth waits for all processors (synchronize_rcu in the kernel's fs/file.c), 20 ms.
/// The limit on open files is afterwards what it was.
///
/// # Panics
/// Where debug assertions are on, if there is a second thread.
pub fn grow_descriptor_table() {
    debug_assert_eq!(threads().unwrap_or(1), 1, "the table of descriptors grows before threads");
    let limit = getrlimit(Resource::Nofile);
    raise_open_files_limit();
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).min(DESCRIPTOR_TABLE);
    let highest = i32::try_from(most.saturating_sub(1)).unwrap_or(0);
    // Without it everything works too.
    let _ = fcntl_dupfd_cloexec(std::io::stderr(), highest);
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Of this process, where /proc tells.
fn threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}
