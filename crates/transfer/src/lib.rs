//! A whole transfer as a library: serve a directory, push to it, pull from it.
//!
//! [`push`] and [`pull`] run a transfer to its end and tell [`Event`]s meanwhile; [`Server`] is the
//! other side. `examples/push.rs` is all of it in 20 lines.

pub mod client;
pub mod content;
pub mod digest;
pub mod error;
pub mod events;
pub mod manifest;
pub mod options;
mod places;
pub mod preflight;
mod reporting;
pub mod selection;
pub mod server;
pub mod session;
pub mod size;
pub mod stages;
pub mod state;
pub mod storage;
pub mod token;
pub mod transport;
pub mod url;
pub mod verify;
pub mod wishes;

pub use client::{pull, push};
pub use error::TransferError;
pub use events::{Event, Report};
pub use options::{PullRequest, PushRequest, ServeOptions, ServeRoot, TransferOptions};
pub use server::{Server, ServerEvent};
pub use token::Token;
pub use url::HaulUrl;
pub use verify::{VerifyEvent, VerifyReport, VerifyRequest, verify};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::{Arc, atomic::AtomicBool};

/// Set to true to end a transfer or a server in an orderly way: what arrived stays for a resume.
pub type Interrupt = Arc<AtomicBool>;

/// Open files up to the hard limit: a session holds two for each file under way.
pub fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Not permitted is no harm: fewer files are open at a time then.
    let _ = setrlimit(Resource::Nofile, raised);
}
