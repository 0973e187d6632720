//! What the user asks of a transfer, and each default, written once.

use crate::{
    selection::Selection,
    url::{HaulUrl, PORT_DEFAULT},
    wishes::Wishes,
};
use haul_protocol::message;
use std::{ffi::OsString, path::PathBuf, time::Duration};

/// How the data streams are protected, named as GridFTP names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// A digest that catches accidents; anyone on the path can read and change.
    Clear,
    /// A keyed MAC of each span: nobody on the path can change, swap or replay a byte unseen.
    #[default]
    Safe,
}

impl Protection {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Safe => "safe",
        }
    }

    pub(crate) fn to_wire(self) -> message::Protection {
        match self {
            Self::Clear => message::Protection::Clear,
            Self::Safe => message::Protection::Safe,
        }
    }
}

/// The digest of each span under [`Protection::Clear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearDigest {
    /// Nothing is verified, and the report says so.
    None,
    Crc32c,
    Xxh3,
}

impl ClearDigest {
    pub(crate) fn to_wire(self) -> message::Digest {
        match self {
            Self::None => message::Digest::None,
            Self::Crc32c => message::Digest::Crc32c,
            Self::Xxh3 => message::Digest::Xxh3128,
        }
    }
}

/// The name of a digest in reports.
#[must_use]
pub fn digest_name(digest: message::Digest) -> &'static str {
    match digest {
        message::Digest::Unknown | message::Digest::None => "none",
        message::Digest::Crc32c => "crc32c",
        message::Digest::Xxh3128 => "xxh3-128",
        message::Digest::AesGmac => "aes-gmac",
    }
}

/// The digest of `clear` when none is named: see docs/decisions/ for the bench.
pub const CLEAR_DIGEST_DEFAULT: ClearDigest = ClearDigest::Crc32c;
/// How long a client tries to get back to a server that went away.
pub const RETRY_FOR_DEFAULT: Duration = Duration::from_secs(60);
/// A stream that brought nothing for this long is stalled.
pub const STALL_AFTER_DEFAULT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct TransferOptions {
    /// Data connections; `None`: chosen from cores, RTT and sizes.
    pub streams: Option<u32>,
    /// Bytes of a span, a power of two; `None`: chosen for each file.
    pub span_bytes: Option<u64>,
    /// Rate of all streams together, in bytes a second.
    pub rate_bytes_per_s: Option<u64>,
    pub protection: Protection,
    /// Only with [`Protection::Clear`].
    pub digest: Option<ClearDigest>,
    pub send_engine: Option<String>,
    pub receive_engine: Option<String>,
    pub retry_for: Duration,
    /// A server that cannot be reached at first is waited for, for [`Self::retry_for`] too.
    pub wait: bool,
    pub stall_after: Duration,
    pub wishes: Wishes,
    /// Which files of the sources are meant.
    pub selection: Selection,
    /// Gets a line with the BLAKE3 hash of each file, on this side.
    pub manifest: Option<PathBuf>,
    /// The receiver reads each file back from its disk before it gets its name.
    pub verify_target: bool,
}

impl Default for TransferOptions {
    fn default() -> Self {
        Self {
            streams: None,
            span_bytes: None,
            rate_bytes_per_s: None,
            protection: Protection::default(),
            digest: None,
            send_engine: None,
            receive_engine: None,
            retry_for: RETRY_FOR_DEFAULT,
            wait: false,
            stall_after: STALL_AFTER_DEFAULT,
            wishes: Wishes::default(),
            selection: Selection::default(),
            manifest: None,
            verify_target: false,
        }
    }
}

impl TransferOptions {
    /// The digest that goes over the wire.
    #[must_use]
    pub fn wire_digest(&self) -> message::Digest {
        match self.protection {
            Protection::Safe => message::Digest::AesGmac,
            Protection::Clear => self.digest.unwrap_or(CLEAR_DIGEST_DEFAULT).to_wire(),
        }
    }
}

/// A source of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceSpec {
    /// A file, `dir` (the directory itself) or `dir/` (its contents).
    Path(OsString),
    /// `zero:SIZE`: that many zero bytes, made in memory.
    Zero(u64),
    /// The first bytes of a file, under another name: what a probe sends of it.
    Beginning(Beginning),
}

/// The first bytes of a regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    pub path: PathBuf,
    /// Bytes to send; of a shorter file, all of it.
    pub len_bytes: u64,
    /// Name at the target.
    pub name: String,
}

/// The target of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetSpec {
    /// An existing directory, a name that ends in `/`, or for one source the file's new name.
    Path(PathBuf),
    /// `null:`: receive and throw away.
    Null,
}

#[derive(Clone, Debug)]
pub struct PushRequest {
    pub sources: Vec<SourceSpec>,
    /// Its path is the target below the token's root: `dir/`, `name`, or `null:`.
    pub url: HaulUrl,
    pub options: TransferOptions,
}

#[derive(Clone, Debug)]
pub struct PullRequest {
    /// All with the same host, port and token; their paths are the sources (`zero:SIZE` too).
    pub urls: Vec<HaulUrl>,
    pub target: TargetSpec,
    pub options: TransferOptions,
}

/// The root of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServeRoot {
    Directory(PathBuf),
    /// `null:`: every push is received and thrown away.
    Null,
}

#[derive(Clone, Debug)]
pub struct ServeOptions {
    pub root: ServeRoot,
    /// `ADDRESS:PORT`; port 0 takes a free one.
    pub listen: String,
    /// The host name in the printed URL; `None`: the address that is listened on, or this host's
    /// name where that is the unspecified address.
    pub advertise: Option<String>,
    pub state_directory: PathBuf,
    /// End after one session.
    pub once: bool,
    /// Refuse pushes, whatever a token allows.
    pub read_only: bool,
    /// The least protection a client may ask for.
    pub protection_min: Protection,
    pub sessions_max: u32,
    /// Most probes among them; a probe takes all that the network gives.
    pub probes_max: u32,
    /// Connections that have not yet shown who they are.
    pub strangers_max: u32,
    pub handshake_timeout: Duration,
    pub streams_max: u32,
}

impl ServeOptions {
    /// The defaults for `root`, with state in `state_directory`.
    #[must_use]
    pub fn new(root: ServeRoot, state_directory: PathBuf) -> Self {
        Self {
            root,
            listen: format!("[::]:{PORT_DEFAULT}"),
            advertise: None,
            state_directory,
            once: false,
            read_only: false,
            protection_min: Protection::Clear,
            sessions_max: 64,
            probes_max: 4,
            strangers_max: 64,
            handshake_timeout: Duration::from_secs(10),
            streams_max: 16,
        }
    }
}
