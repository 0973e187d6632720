//! Limits of everything that a peer may send.
//!
//! A peer that passes one is told so and cut off.

/// The longest control message before the peer has shown a token, in bytes.
pub const MESSAGE_BYTES_MAX_UNKNOWN: usize = 16 << 10;
/// The longest control message of a known peer, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The most files that are offered and not yet settled.
pub const OFFERS_MAX: u32 = 65_536;
/// Memory of either side that open offers may take, in bytes, before no more are made. A function
/// of the messages, `offer_bytes`, counts it.
pub const OFFER_BYTES_MAX: u64 = 16 << 20;
/// The least limit of the open offers' memory that a receiver may set, in bytes: any one offer
/// fits.
pub const OFFER_BYTES_MIN: u64 = 16 << 10;
/// The most files of one session.
pub const FILES_MAX: u32 = u32::MAX - 1;
/// The most names that a receiver knows as taken; the last half of them for certain.
pub const TAKEN_NAMES_MAX: usize = 1 << 20;
/// The longest name below the target, in bytes (PATH_MAX of Linux, less the final zero).
pub const NAME_BYTES_MAX: usize = 4095;
/// The longest component of a name, in bytes (NAME_MAX of Linux).
pub const COMPONENT_BYTES_MAX: usize = 255;
/// The most paths in one `Open`.
pub const PATHS_MAX: usize = 1024;
/// The longest text that the peer shows to our user, in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;
/// The most capabilities in one `Hello`.
pub const CAPABILITIES_MAX: usize = 256;
/// The most runs of spans in one message.
pub const RANGES_MAX: usize = 65_536;
/// The most spans of one file: with larger files the spans grow.
pub const SPANS_MAX: u64 = 1 << 20;
/// The most spans of all files that a receiver asked for and that are not settled: of 64 files of
/// many spans, and of [`OFFERS_MAX`] of one.
pub const SPANS_OPEN_MAX: u64 = 65 << 20;
/// The smallest and the largest span, in bytes; a span size is a power of two.
pub const SPAN_BYTES_MIN: u64 = 64 << 10;
pub const SPAN_BYTES_MAX: u64 = 1 << 30;
/// The largest file: 2^20 spans of the largest size.
pub const FILE_BYTES_MAX: u64 = SPANS_MAX * SPAN_BYTES_MAX;
/// The most bytes that one key of a private stream protects: half of the 2^24 full records that
/// AES-GCM is good for (RFC 8446, 5.5), as frames end records before they are full.
pub const PRIVATE_KEY_BYTES_MAX: u64 = 128 << 30;
/// The longest pack, headers and trailers of its spans included, in bytes.
pub const PACK_BYTES_MAX: u64 = 1 << 20;
/// The most holes of one file that an offer may name.
pub const HOLES_MAX: usize = 4096;
/// The most extended attributes of one file; names and values together have a limit in bytes,
/// [`XATTR_BYTES_MAX`].
pub const XATTRS_MAX: usize = 1024;
pub const XATTR_BYTES_MAX: usize = 256 << 10;
/// The longest name of an extended attribute, a user or a group, in bytes.
pub const SHORT_NAME_BYTES_MAX: usize = 255;
/// The most rules of a selection: all of them are compiled into one automaton.
pub const RULES_MAX: usize = 4096;
/// The most bytes of the patterns of a selection's rules: the automaton that looks for them takes
/// about a hundred times that.
pub const RULES_BYTES_MAX: usize = 64 << 10;
/// The most rules and names of all parts of a selection; in bytes they have a limit too,
/// [`SELECTION_BYTES_MAX`].
pub const SELECTION_ITEMS_MAX: usize = 1 << 20;
pub const SELECTION_BYTES_MAX: usize = 16 << 20;
/// The most names in one `removed`.
pub const REMOVED_MAX: usize = 4096;
/// The most facts, and the most engines, in one `explained`.
pub const EXPLAINED_MAX: usize = 64;
/// Length of a BLAKE3 of a file's content, in bytes.
pub const CONTENT_BYTES: usize = 32;
/// Length of a digest of what is durable of a file, in bytes.
pub const DURABLE_DIGEST_BYTES: usize = 16;
/// Length of the keys of a session's data streams, exported or told, in bytes.
pub const DATA_KEYS_BYTES: usize = 96;
/// The most data streams open at a time; over the life of a session, reconnections included, it is
/// [`STREAMS_EVER_MAX`].
pub const STREAMS_MAX: u32 = 64;
pub const STREAMS_EVER_MAX: u32 = 1 << 16;
/// The most times a span that arrived damaged is sent again before the file is given up.
pub const SPAN_RETRIES_MAX: u32 = 8;
/// The most stages in one side's report, or in its figures.
pub const STAGES_MAX: usize = 64;
/// The most frames of one stream: the nonce has 40 bits for their number.
pub const FRAMES_MAX: u64 = 1 << 40;
/// The most rounds of one probe.
pub const PROBE_ROUNDS_MAX: u32 = 4096;
/// The longest time of one round of a probe, omitted time included, in milliseconds.
pub const PROBE_MS_MAX: u32 = 600_000;
/// The shortest interval of a probe's figures, in milliseconds.
pub const PROBE_INTERVAL_MS_MIN: u32 = 50;
/// The fewest bytes that one call of a probe moves.
pub const PROBE_BLOCK_BYTES_MIN: u32 = 64;
pub const PROBE_BLOCK_BYTES_MAX: u32 = 16 << 20;
/// The largest datagram of a probe, in bytes: what IPv4 carries, less the headers.
pub const PROBE_DATAGRAM_BYTES_MAX: u32 = 65_507;
/// The most streams in one message of a probe, both ways together.
pub const PROBE_STREAMS_MAX: usize = 2 * STREAMS_MAX as usize;
/// The most findings in one part of an audit.
pub const AUDIT_FINDINGS_MAX: usize = 16;
