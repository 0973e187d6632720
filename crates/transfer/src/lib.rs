//! A whole transfer as a library: serve a directory, push to it, pull from it.
//!
//! [`push`] and [`pull`] run a transfer to its end, on the thread that calls them, and tell
//! [`Event`]s meanwhile. [`Server`] is the other side. The examples `push.rs` and `serve.rs` are
//! both sides in 20 lines each. Options, reports and events will get more fields: they are made by
//! `new` or `default`, and fields are set afterwards.
//!
//! # Push
//!
//! Setting the [`Interrupt`] ends the transfer in an orderly way. What is durable by then stays at
//! the target, and the same request goes on from there.
//!
//! ```no_run
//! use haul_transfer::{Event, HaulUrl, Interrupt, PushRequest, TransferError, push};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let url: HaulUrl = std::env::var("HAUL_URL")?.parse()?;
//! let mut request = PushRequest::new(["run7/", "notes.txt"], url);
//! request.options.streams = Some(4);
//! request.options.send_engine = Some("sendfile".parse()?);
//! let interrupt = Interrupt::default();
//! let pushed = push(&request, &interrupt, &mut |event| match event {
//!     Event::Progress(now) => println!("{} of {} bytes", now.bytes_durable, now.bytes_total),
//!     Event::Error(problem) => eprintln!("{problem}"),
//!     _ => {}
//! });
//! match pushed {
//!     Ok(report) if report.ok => println!("{} at {} Gbit/s", report.to, report.gbit_per_s),
//!     Ok(report) => println!("{} files failed", report.files.failed),
//!     Err(error @ TransferError::Interrupted { .. }) => {
//!         let kept = error.report().map_or(0, |report| report.unfinished_bytes);
//!         println!("{error}: {kept} bytes of files that are not complete are kept");
//!     }
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Serve
//!
//! A server keeps its key and its tokens in a directory of its own. Its URL, which holds a token,
//! is all that a client needs.
//!
//! ```no_run
//! use haul_transfer::{Interrupt, ServeOptions, ServeRoot, Server};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let root = ServeRoot::Directory("/data".into());
//! let mut options = ServeOptions::new(root, "/var/lib/haul".into());
//! options.read_only = true;
//! let server = Server::bind(options)?;
//! println!("{}", server.url().reveal());
//! let interrupt = Interrupt::default();
//! server.run(&interrupt, &|event| println!("{event}"))?;
//! # Ok(())
//! # }
//! ```
//!
//! # Where to find what
//!
//! - Requests and their options: [`PushRequest`], [`PullRequest`] and [`TransferOptions`], with
//!   [`FileOptions`] for what happens beyond the bytes, [`Selection`] for which files are meant,
//!   [`Protection`], [`ClearDigest`] and [`Engine`]. [`expand`] finds what patterns in URLs fit;
//!   [`list`] tells what a server has.
//! - Events and the report: [`Event`], [`Progress`], [`FileEnded`] and [`Report`]. Their names are
//!   those of `--json`.
//! - Errors: [`TransferError`] for the whole transfer, [`Problem`] for one thing in words.
//! - Serving: [`Server`], [`ServeOptions`] and [`ServerEvent`].
//! - Reading again: [`verify`], [`VerifyRequest`] and [`VerifyReport`].
//! - Tokens: [`Token`], and [`StateDirectory`] where a server keeps them, with [`NewToken`],
//!   [`Rights`] and [`ServedRoot`].
//! - URLs: [`HaulUrl`].

#![deny(missing_docs)]

mod bytes;
mod client;
mod clocks;
mod connecting;
mod constants;
mod content;
mod descriptors;
mod digest;
mod engine;
mod error;
mod events;
mod explain;
mod file_options;
mod file_ranges;
mod file_status;
mod fleet;
#[doc(hidden)]
pub mod internals;
mod locks;
mod manifest;
mod marks;
mod name;
mod option_conflicts;
mod options;
mod packed_names;
mod part;
mod patterns;
mod plan;
mod preflight;
mod probe;
mod problem;
mod proxy;
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
    globs::{expand, expand_beneath},
    listing::{Depth, Entry, EntryKind, list},
    pull, push,
};
pub use constants::SOFTWARE;
pub use descriptors::raise_open_files_limit;
pub use engine::{Engine, UnknownName};
pub use file_options::{FileOptions, IDLE_DEFAULT, OnConflict, Preserve, Recording, Removal};
pub use file_ranges::FileRanges;
pub use options::{
    Beginning, Beneath, ClearDigest, Protection, PullRequest, PushRequest, REKEY_AFTER_BYTES_MAX,
    RETRY_FOR_DEFAULT, Rdma, STALL_AFTER_DEFAULT, SourceSpec, TargetSpec, TransferOptions,
};
pub use packed_names::PackedNames;
pub use part::{PARTS_MAX, Part};
pub use plan::{
    EarlierPlan, Entries, Growth, LargeFiles, Made, Plan, PlanRequest, SHARDS_MAX,
    STRIPE_UNIT_BYTES, Shard, ShardLoad, ShardSize, Shards, make as make_plan,
};
pub use selection::{Effect, Rule, Selection};

// Events and the report.
pub use events::{
    Bottleneck, Candidate, Check, CheckVerdict, Connection, ConnectionState, Event, Explained,
    FileCounts, FileEnded, Lag, Limiting, LocalEndReport, ManifestReport, Progress, RdmaReport,
    RdmaSource, RdmaTarget, RecheckReport, Report, SessionOpened, SideCosts, SshReport, TargetRoom,
};
pub use file_status::FileStatus;
pub use fleet::{
    Cause, Change, Changed, Fleet, NodeFailures, NodeReport, Prediction, Rates, Resource,
    ResourceRates, ResourceUse, RunLog, SIMULATED_MAX, ShardReport, ShardState, SimulatedFleet,
    simulate,
};
pub use name::Name;

// Errors.
pub use error::TransferError;
pub use problem::{Problem, Side};

// The other side.
pub use options::{ServeOptions, ServeRoot};
pub use server::{Inlet, Server, event::ServerEvent, reachable::Hosts};

// Reading again.
pub use verify::{
    UnfinishedReport, VerifiedFile, VerifyEvent, VerifyProgress, VerifyReport, VerifyRequest,
    VerifyStatus, verify,
};

// Tokens and URLs.
pub use connecting::{ConnectOptions, Connector, LocalEnd, NoLocalEnd};
pub use marks::{Dscp, NoDscp, NoSciTag, SciTag};
pub use proxy::{Proxy, ProxyError, ProxyKind};
pub use rights::Rights;
pub use served_root::{InodeIdentity, ServedRoot};
pub use state::{NewToken, StateDirectory, TokenRecord, default_state_directory};
pub use token::{TOKEN_VARIABLE, Token, TokenError};
pub use url::{HaulUrl, PORT_DEFAULT, UrlError};

use std::sync::{Arc, atomic::AtomicBool};

/// Switch that ends a transfer or a server in an orderly way once it is true: what arrived stays
/// for a resume.
pub type Interrupt = Arc<AtomicBool>;
