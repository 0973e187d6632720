//! A whole transfer as a library: serve a directory, push to it, pull from it.
//!
//! [`push`] and [`pull`] run a transfer to its end and tell [`Event`]s meanwhile; [`Server`] is the
//! other side. `examples/push.rs` is all of it in 20 lines.

#![deny(missing_docs)]

mod bytes;
mod client;
mod clocks;
mod constants;
mod content;
mod descriptors;
mod digest;
mod engine;
mod error;
mod events;
mod explain;
mod file_status;
#[doc(hidden)]
pub mod internals;
mod locks;
mod manifest;
mod name;
mod options;
mod packed_names;
mod patterns;
mod policies;
mod preflight;
mod probe;
mod problem;
mod rights;
mod selection;
mod served_root;
mod server;
mod session;
mod size;
mod source_name;
mod state;
mod storage;
mod target_names;
mod token;
mod transport;
mod url;
mod verdict;
mod verify;
mod words;

// Requests and their options.
pub use client::{
    globs::expand,
    listing::{Depth, Entry, EntryKind, list},
    pull, push,
};
pub use descriptors::raise_open_files_limit;
pub use engine::{Engine, UnknownName};
pub use options::{
    Beginning, ClearDigest, Protection, PullRequest, PushRequest, RETRY_FOR_DEFAULT,
    STALL_AFTER_DEFAULT, SourceSpec, TargetSpec, TransferOptions,
};
pub use packed_names::PackedNames;
pub use policies::{IDLE_DEFAULT, OnConflict, Preserve, Recording, Removal, Wishes};
pub use selection::{Effect, Rule, Selection};

// Events and the report.
pub use events::{
    Bottleneck, Candidate, Check, CheckVerdict, Connection, ConnectionState, Event, Explained,
    FileCounts, FileEnded, Lag, Limiting, ManifestReport, Progress, RecheckReport, Report,
    SessionOpened, SideCosts, TargetRoom,
};
pub use file_status::FileStatus;
pub use name::Name;

// Errors.
pub use error::TransferError;
pub use problem::{Problem, Side};

// The other side.
pub use options::{ServeOptions, ServeRoot};
pub use server::{Server, event::ServerEvent, reachable::Hosts};

// Reading again.
pub use verify::{
    UnfinishedReport, VerifiedFile, VerifyEvent, VerifyProgress, VerifyReport, VerifyRequest,
    VerifyStatus, verify,
};

// Tokens and URLs.
pub use rights::Rights;
pub use served_root::{InodeIdentity, ServedRoot};
pub use state::{NewToken, StateDirectory, TokenRecord, default_state_directory};
pub use token::{TOKEN_VARIABLE, Token, TokenError};
pub use url::{HaulUrl, PORT_DEFAULT, UrlError};

use std::sync::{Arc, atomic::AtomicBool};

/// Set to true to end a transfer or a server in an orderly way: what arrived stays for a resume.
pub type Interrupt = Arc<AtomicBool>;
