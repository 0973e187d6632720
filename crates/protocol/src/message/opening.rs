//! Messages that open a session: who the client is, what it wants, and what the server grants.

use super::edge::{DataKeys, Edge, Secret, enumeration, message};
use crate::{ProtocolError, wire};
use alloc::{string::String, vec::Vec};

message! {
    /// The client's first message to a server: its versions and capabilities. A server that
    /// supports none of the versions refuses.
    pub struct Hello {
        pub version_min: u32,
        pub version_max: u32,
        pub capabilities: Vec<u32>,
        pub software: String,
    }
}

message! {
    /// The answer to [`Hello`].
    pub struct HelloReply {
        pub version: u32,
        pub capabilities: Vec<u32>,
        pub software: String,
    }
}

enumeration! {
    /// Direction of a session: which side sends.
    pub enum Direction, else Unknown {
        Unknown,
        /// A push: the client sends.
        Push,
        /// A pull: the client receives.
        Pull,
        /// The path is measured and no file moves, where both sides have
        /// [`CAPABILITY_PROBE`](crate::CAPABILITY_PROBE).
        Probe,
    }
}

enumeration! {
    /// Protection of the data streams.
    pub enum Protection, else Unknown {
        Unknown,
        Clear,
        Safe,
        Private,
    }
}

enumeration! {
    /// A check of a span's bytes.
    pub enum Digest, else Unknown {
        Unknown,
        None,
        Crc32c,
        Xxh3128,
        AesGmac,
    }
}

message! {
    /// The client's second message to a server: who it is and what it wants.
    pub struct Open {
        pub token_secret: Secret => "a token secret that is not 16 bytes",
        /// Number of the transfer: the same after a reconnection, so that the old session yields.
        pub transfer: [u8; 16] => "a transfer id that is not 16 bytes",
        pub direction: Direction,
        /// The one target of a push, or the sources of a pull, below the token's root.
        pub paths: Vec<Vec<u8>>,
        /// The target of a push is a directory, made when missing.
        pub into_directory: bool,
        pub protection: Protection,
        pub digest: Digest,
        /// Streams that the client wants; 0: the server's choice.
        pub streams: u32,
        /// Size of a span; 0: the receiver's choice for each file.
        pub span_bytes: u64,
        /// Rate of all streams; 0: no limit.
        pub rate_bytes_per_s: u64,
        /// The server's engine, when the user names one.
        pub peer_engine: String,
        pub file_options: Option<FileOptions>,
        /// Each file of a push is read back from its disk before it is settled.
        pub verify_target: bool,
        /// The path of a push is a name, as an earlier session of this transfer was told.
        pub target_is_name: bool,
        /// The server says [`Figures`](super::Figures) about twice a second.
        pub wants_figures: bool,
        /// `st_mode` of the directory whose contents are pushed; 0: not known.
        pub contents_mode: u32,
        /// RDMA providers of libfabric that data streams may use, the preferred one first.
        pub fabrics: Vec<String>,
    }
}

enumeration! {
    /// The treatment of a file that is there already.
    pub enum OnConflict, first SkipSame, refused as "on_conflict" {
        /// A file that is the same stays, one that differs is replaced.
        SkipSame,
        /// A file is replaced even if it is the same.
        Replace,
        /// A file that differs stays, and the offer fails.
        Fail,
        /// A file that differs stays, and the offered one gets another name.
        KeepBoth,
    }
}

message! {
    /// Options of a transfer beyond the bytes, of whichever side the server is.
    #[derive(Copy)]
    pub struct FileOptions {
        pub on_conflict: OnConflict,
        /// A file of the same size is the same when its bytes are.
        pub compare_content: bool,
        /// Files that were not offered are removed from the target, after the rest.
        pub remove_extra: bool,
        /// Removals allowed: if there are more, nothing is removed; 0: any number.
        pub removals_max: u64,
        /// Every offer is answered, nothing is written.
        pub dry_run: bool,
        /// The sender removes what is durable at the receiver.
        pub move_sources: bool,
        /// Attributes as bits: 1 mode, 2 mtime, 4 owner, 8 group, 16 xattrs, 32 ACLs.
        pub preserve: u32,
        /// [`Selection`] is the client's next message.
        pub selection_follows: bool,
        /// The target directory itself is mirrored too, with `remove_extra`.
        pub mirrors_base: bool,
        /// Files are sent while they are written, in rounds.
        pub follow: bool,
        /// Time after which an unwritten file is complete, with `follow` or `watch`.
        pub idle_ms: u64,
        /// Written bytes never change, with `follow`, so none is read again.
        pub append_only: bool,
        /// Files that appear in the source directories are sent too.
        pub watch: bool,
        /// The server says [`HostFacts`](super::HostFacts) first, with `dry_run`.
        pub preflight: bool,
        /// Time without anything new after which a `watch` ends; 0: never.
        pub watch_for_ms: u64,
        /// The server says [`Explained`](super::Explained) when it has chosen its engine.
        pub explain: bool,
        /// Spans that an earlier session left are read back before they are believed.
        pub recheck: bool,
        /// Some offers of a push are ranges of files, where both have
        /// [`CAPABILITY_RANGES`](crate::CAPABILITY_RANGES).
        pub ranges: bool,
        /// A pushed file is made durable, gets no name and is gone then.
        pub discard: bool,
    }
}

message! {
    /// A rule that takes files in or leaves them out.
    pub struct FilterRule {
        pub include: bool,
        pub pattern: Vec<u8>,
    }
}

message! {
    /// The client's selection of files of a tree, behind [`Opened`], once or in several parts.
    pub struct Selection {
        /// Rules of which the first that fits decides.
        pub rules: Vec<FilterRule>,
        /// Names below the one source; without `names_given` all are meant.
        pub names: Vec<Vec<u8>>,
        pub names_given: bool,
        pub size_min: Option<u64>,
        pub size_max: Option<u64>,
        /// Earliest time of modification, in seconds since 1970.
        pub modified_from: Option<i64>,
        pub modified_until: Option<i64>,
        pub more_follows: bool,
    }
}

message! {
    /// The session that a server grants to the client.
    pub struct Opened {
        pub session: [u8; 16] => "a session id that is not 16 bytes",
        pub protection: Protection,
        pub digest: Digest,
        /// Data connections that the client is to open.
        pub streams: u32,
        /// Offered files without an answer or unsettled, at most.
        pub offers_max: u32,
        /// Round trip time as the server's kernel measured it.
        pub rtt_us: u64,
        /// No more offers are made once those that are open take this much memory.
        pub offer_bytes_max: u64,
        /// Each file is read back, as the client asked.
        pub verify_target: bool,
        /// The path of a push is the new name of the one source, no directory.
        pub target_is_name: bool,
        /// `st_mode` of the directory whose contents are pulled; 0: not known.
        pub contents_mode: u32,
        /// A file gets no name, as the client asked.
        pub discard: bool,
        /// The RDMA provider that data streams use behind their preface; empty: they stay TCP.
        pub fabric: String,
        /// The reason in words why none of the client's providers is used.
        pub fabric_refused: String,
        /// Keys of the data streams in place of exported ones, where both have
        /// [`CAPABILITY_TOLD_KEYS`](crate::CAPABILITY_TOLD_KEYS), and only there.
        pub data_keys: Option<DataKeys> => "data keys that are not 96 bytes",
    }
}
