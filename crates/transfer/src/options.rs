//! Options of a transfer, and each default, written once.

use crate::{
    connecting::ConnectOptions,
    engine::{Engine, UnknownName, find_by_name},
    file_options::FileOptions,
    marks::Dscp,
    selection::Selection,
    url::{HaulUrl, PORT_DEFAULT},
};
use haul_fabric::Provider;
use haul_protocol::{limits, message};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

/// Protection of the data streams, named as GridFTP names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Protection {
    /// A digest that catches accidents; anyone on the path can read and change.
    Clear,
    /// A keyed MAC of each span: nobody on the path can change, swap or replay a byte unseen.
    #[default]
    Safe,
    /// TLS 1.3 on the data streams: nobody on the path can read a byte either. Each span has a
    /// digest beside that, for what happens on its way to the disk.
    Private,
}

impl Protection {
    /// Name of the protection, as options and reports have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Safe => "safe",
            Self::Private => "private",
        }
    }

    pub(crate) fn to_message(self) -> message::Protection {
        match self {
            Self::Clear => message::Protection::Clear,
            Self::Safe => message::Protection::Safe,
            Self::Private => message::Protection::Private,
        }
    }
}

impl std::str::FromStr for Protection {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        find_by_name([Self::Clear, Self::Safe, Self::Private], Self::name, "protection", name)
    }
}

impl std::fmt::Display for Protection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Most bytes after which a private stream is replaced by another: what a key may protect, less the
/// span that is under way by then and the one that was taken for the time after it.
pub const REKEY_AFTER_BYTES_MAX: u64 = limits::PRIVATE_KEY_BYTES_MAX - 2 * limits::SPAN_BYTES_MAX;

/// The digest of each span under [`Protection::Clear`] and [`Protection::Private`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClearDigest {
    /// No digest: nothing is verified, and the report says so.
    None,
    /// CRC-32C: 32 bits.
    Crc32c,
    /// XXH3 of 128 bits.
    Xxh3,
}

impl ClearDigest {
    /// Name of the digest, as options and reports have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        digest_name(self.to_message())
    }

    pub(crate) fn to_message(self) -> message::Digest {
        match self {
            Self::None => message::Digest::None,
            Self::Crc32c => message::Digest::Crc32c,
            Self::Xxh3 => message::Digest::Xxh3128,
        }
    }
}

impl std::str::FromStr for ClearDigest {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        find_by_name([Self::None, Self::Crc32c, Self::Xxh3], Self::name, "digest", name)
    }
}

impl std::fmt::Display for ClearDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// The name of a digest in reports.
#[must_use]
pub(crate) fn digest_name(digest: message::Digest) -> &'static str {
    match digest {
        message::Digest::Unknown | message::Digest::None => "none",
        message::Digest::Crc32c => "crc32c",
        message::Digest::Xxh3128 => "xxh3-128",
        message::Digest::AesGmac => "aes-gmac",
    }
}

/// Digest of `clear` when none is named: see docs/decisions/ for the bench.
pub const CLEAR_DIGEST_DEFAULT: ClearDigest = ClearDigest::Crc32c;
/// Time for which a client tries to get back to a server that went away, by default.
pub const RETRY_FOR_DEFAULT: Duration = Duration::from_secs(60);
/// Time without anything after which a stream counts as stalled, by default.
pub const STALL_AFTER_DEFAULT: Duration = Duration::from_secs(10);

/// RDMA providers that data streams may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rdma {
    /// The best that both sides have: a card, else memory that both share on one host. Without
    /// either, data streams stay TCP.
    Auto,
    /// This one and nothing else.
    Only(Provider),
}

impl Rdma {
    /// All values, as options have them.
    #[must_use]
    pub fn all() -> Vec<Self> {
        std::iter::once(Self::Auto).chain(Provider::ALL.map(Self::Only)).collect()
    }

    /// Name of the value, as options have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Only(provider) => provider.name(),
        }
    }
}

impl std::str::FromStr for Rdma {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        find_by_name(Self::all(), Self::name, "RDMA provider", name)
    }
}

/// Options of a push or a pull, all of them optional.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TransferOptions {
    /// Choices for the connections.
    pub connect: ConnectOptions,
    /// Data connections; `None` lets them be chosen from cores, RTT and sizes.
    pub streams: Option<u32>,
    /// Bytes of a span, a power of two; `None` lets them be chosen for each file.
    pub span_bytes: Option<u64>,
    /// Most bytes a second of all streams together; `None` for no limit. A pull is held by the
    /// receiver, which takes no more.
    pub rate_bytes_per_s: Option<u64>,
    /// Protection of the data streams.
    pub protection: Protection,
    /// Bytes after which a private stream that this side sends is replaced by another, with
    /// another key; at most [`REKEY_AFTER_BYTES_MAX`].
    pub rekey_after_bytes: u64,
    /// Digest of each span with [`Protection::Clear`] and [`Protection::Private`]; `None` is
    /// CRC-32C. Under [`Protection::Safe`] each span has a MAC in its place.
    pub digest: Option<ClearDigest>,
    /// Engine of the sending side; `None` lets it be chosen from the hosts.
    pub send_engine: Option<Engine>,
    /// Engine of the receiving side; `None` lets it be chosen from the hosts.
    pub receive_engine: Option<Engine>,
    /// RDMA endpoints for the data streams; `None` for TCP.
    pub rdma: Option<Rdma>,
    /// Time for which a lost connection is tried again, while nothing gets on.
    pub retry_for: Duration,
    /// Whether a server that cannot be reached at first is waited for, for [`Self::retry_for`] too.
    pub wait: bool,
    /// Time after which a stream that brought nothing is replaced.
    pub stall_after: Duration,
    /// Options beyond the bytes of the files.
    pub file_options: FileOptions,
    /// Selection of the files of the sources that are meant.
    pub selection: Selection,
    /// Path of the manifest, which gets a line with the BLAKE3 hash of each file, on this side.
    pub manifest: Option<PathBuf>,
    /// Whether the receiver reads each file back from its disk before it gets its name.
    pub verify_target: bool,
}

impl Default for TransferOptions {
    fn default() -> Self {
        Self {
            connect: ConnectOptions::default(),
            streams: None,
            span_bytes: None,
            rate_bytes_per_s: None,
            protection: Protection::default(),
            rekey_after_bytes: REKEY_AFTER_BYTES_MAX,
            digest: None,
            send_engine: None,
            receive_engine: None,
            rdma: None,
            retry_for: RETRY_FOR_DEFAULT,
            wait: false,
            stall_after: STALL_AFTER_DEFAULT,
            file_options: FileOptions::default(),
            selection: Selection::default(),
            manifest: None,
            verify_target: false,
        }
    }
}

impl TransferOptions {
    /// Name of the digest that verifies each span, as reports have it; `none` where nothing does.
    #[must_use]
    pub fn digest_name(&self) -> &'static str {
        digest_name(self.chosen_digest())
    }

    /// Digest as it goes over the wire.
    #[must_use]
    pub(crate) fn chosen_digest(&self) -> message::Digest {
        match self.protection {
            Protection::Safe => message::Digest::AesGmac,
            Protection::Clear | Protection::Private => {
                self.digest.unwrap_or(CLEAR_DIGEST_DEFAULT).to_message()
            }
        }
    }
}

/// A source of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceSpec {
    /// A file, `dir` (the directory itself) or `dir/` (its contents).
    Path(OsString),
    /// A number of zero bytes, made in memory (`zero:SIZE`).
    Zero(u64),
    /// The first bytes of a file, under another name: what a probe sends of it.
    Beginning(Beginning),
    /// A file, `dir` or `dir/` below a directory that no name and no link leads out of, as a server
    /// has what it serves.
    Beneath(Beneath),
}

/// A path below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beneath {
    /// The directory.
    pub root: PathBuf,
    /// The path below it, as that of a URL.
    pub path: Vec<u8>,
}

/// The first bytes of a regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// Path of the file.
    pub path: PathBuf,
    /// Bytes to send; a shorter file is sent whole.
    pub len_bytes: u64,
    /// Name at the target.
    pub name: String,
}

/// The target of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetSpec {
    /// An existing directory, a name that ends in `/`, or for one source the file's new name.
    Path(PathBuf),
    /// The target `null:`, where what is received is thrown away.
    Null,
}

impl From<&str> for SourceSpec {
    fn from(path: &str) -> Self {
        Self::Path(path.into())
    }
}

impl From<OsString> for SourceSpec {
    fn from(path: OsString) -> Self {
        Self::Path(path)
    }
}

impl From<PathBuf> for SourceSpec {
    fn from(path: PathBuf) -> Self {
        Self::Path(path.into())
    }
}

impl From<&Path> for SourceSpec {
    fn from(path: &Path) -> Self {
        Self::Path(path.into())
    }
}

impl From<&str> for TargetSpec {
    fn from(path: &str) -> Self {
        Self::Path(path.into())
    }
}

impl From<PathBuf> for TargetSpec {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl From<&Path> for TargetSpec {
    fn from(path: &Path) -> Self {
        Self::Path(path.into())
    }
}

/// Files to send to a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PushRequest {
    /// Files and directories to send.
    pub sources: Vec<SourceSpec>,
    /// URL whose path is the target below the token's root: `dir/`, `name`, or `null:`.
    pub url: HaulUrl,
    /// Options of the transfer.
    pub options: TransferOptions,
}

impl PushRequest {
    /// Sends these sources to a URL, with the default options.
    #[must_use]
    pub fn new(sources: impl IntoIterator<Item: Into<SourceSpec>>, url: HaulUrl) -> Self {
        let sources = sources.into_iter().map(Into::into).collect();
        Self { sources, url, options: TransferOptions::default() }
    }
}

/// Files to fetch from a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PullRequest {
    /// URLs of the sources, all with the same host, port and token; their paths are the sources
    /// (`zero:SIZE` too).
    pub urls: Vec<HaulUrl>,
    /// Place that the files go to.
    pub target: TargetSpec,
    /// Options of the transfer.
    pub options: TransferOptions,
}

impl PullRequest {
    /// Fetches what is at these URLs to a target, with the default options.
    #[must_use]
    pub fn new(urls: impl IntoIterator<Item = HaulUrl>, target: impl Into<TargetSpec>) -> Self {
        let (urls, target) = (urls.into_iter().collect(), target.into());
        Self { urls, target, options: TransferOptions::default() }
    }
}

/// The root of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServeRoot {
    /// A directory, and everything below it.
    Directory(PathBuf),
    /// The target `null:`, where every push is received and thrown away.
    Null,
}

/// Settings of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServeOptions {
    /// The directory that is served, or `null:`.
    pub root: ServeRoot,
    /// Address to listen on, as `ADDRESS:PORT`; port 0 takes a free one.
    pub listen: String,
    /// Host name in the printed URL; `None` for the address that is listened on, or this host's
    /// name where that is the unspecified address.
    pub advertise: Option<String>,
    /// Directory of the server's key and tokens; made when it is missing.
    pub state_directory: PathBuf,
    /// Whether the server ends after one session.
    pub once: bool,
    /// Whether pushes are refused, whatever a token allows.
    pub read_only: bool,
    /// RDMA endpoints are used for data streams where a client offers them.
    pub rdma: bool,
    /// Least protection that a client may ask for.
    pub protection_min: Protection,
    /// Bytes after which a private stream that this side sends is replaced by another, with
    /// another key.
    pub rekey_after_bytes: u64,
    /// Most sessions at a time.
    pub sessions_max: u32,
    /// Most probes among them; a probe takes all that the network gives.
    pub probes_max: u32,
    /// Most connections that have not yet shown who they are.
    pub strangers_max: u32,
    /// Time that a connection has to show who it is.
    pub handshake_timeout: Duration,
    /// Most data streams of a session.
    pub streams_max: u32,
    /// The class that the packets of this side ask for; `None` for the system's.
    pub dscp: Option<Dscp>,
    /// Whether connections of IPv6 send the flow label that their client's packets have.
    pub reflects_flow_label: bool,
}

impl ServeOptions {
    /// Defaults for `root`, with state in `state_directory`.
    #[must_use]
    pub fn new(root: ServeRoot, state_directory: PathBuf) -> Self {
        Self {
            root,
            listen: format!("[::]:{PORT_DEFAULT}"),
            advertise: None,
            state_directory,
            once: false,
            read_only: false,
            rdma: false,
            protection_min: Protection::Clear,
            rekey_after_bytes: REKEY_AFTER_BYTES_MAX,
            sessions_max: 64,
            probes_max: 4,
            strangers_max: 64,
            handshake_timeout: Duration::from_secs(10),
            streams_max: 16,
            dscp: None,
            reflects_flow_label: false,
        }
    }
}
