package io.github.haul.client.internal.wire;

/** Limits of everything that a peer may send (SPEC.md, 9). */
public final class Limits {
    /** Bytes of a message before the token was accepted. */
    public static final int MESSAGE_BYTES_MAX_UNKNOWN = 16 << 10;

    /** Bytes of a message. */
    public static final int MESSAGE_BYTES_MAX = 1 << 20;

    /** Files offered and not settled. */
    public static final int OFFERS_MAX = 65_536;

    /** Bytes of memory that open offers take at most. */
    public static final long OFFER_BYTES_MAX = 16L << 20;

    /** Bytes of memory that a receiver allows open offers at least. */
    public static final long OFFER_BYTES_MIN = 16L << 10;

    /** Files of a session, unsigned. */
    public static final int FILES_MAX = 0xffff_fffe;

    /** Names that a receiver knows as taken. */
    public static final int TAKEN_NAMES_MAX = 1 << 20;

    /** Spans of all files that a receiver has asked for and not settled. */
    public static final long SPANS_OPEN_MAX = 68_157_440;

    /** Bytes of a name, a path, a link's target. */
    public static final int NAME_BYTES_MAX = 4095;

    /** Bytes of a name's component. */
    public static final int COMPONENT_BYTES_MAX = 255;

    /** Paths of an {@code open}. */
    public static final int PATHS_MAX = 1024;

    /** Bytes of a text for the user. */
    public static final int TEXT_BYTES_MAX = 4096;

    /** Capabilities of a hello or its reply. */
    public static final int CAPABILITIES_MAX = 256;

    /** Runs of spans of a message. */
    public static final int RANGES_MAX = 65_536;

    /** Spans of a file. */
    public static final long SPANS_MAX = 1L << 20;

    /** The smallest span size, in bytes. */
    public static final long SPAN_BYTES_MIN = 64L << 10;

    /** The largest span size, in bytes. */
    public static final long SPAN_BYTES_MAX = 1L << 30;

    /** Bytes of a file. */
    public static final long FILE_BYTES_MAX = SPANS_MAX * SPAN_BYTES_MAX;

    /** Bytes of the spans of a pack, with their headers and trailers. */
    public static final long PACK_BYTES_MAX = 1L << 20;

    /** Holes of an offer. */
    public static final int HOLES_MAX = 4096;

    /** Extended attributes of an offer. */
    public static final int XATTRS_MAX = 1024;

    /** Bytes of the names and values of an offer's extended attributes. */
    public static final int XATTR_BYTES_MAX = 256 << 10;

    /** Bytes of the name of an extended attribute, a user, a group. */
    public static final int SHORT_NAME_BYTES_MAX = 255;

    /** Rules and names of a selection. */
    public static final int SELECTION_ITEMS_MAX = 1 << 20;

    /** Names of a {@code removed}. */
    public static final int REMOVED_MAX = 4096;

    /** Facts, and candidates, of an {@code explained}. */
    public static final int EXPLAINED_MAX = 64;

    /** Streams at a time. */
    public static final int STREAMS_MAX = 64;

    /** Streams of a session. */
    public static final int STREAMS_EVER_MAX = 1 << 16;

    /** Times that a damaged span is sent again. */
    public static final int SPAN_RETRIES_MAX = 8;

    /** Stages of a report, or of {@code figures}. */
    public static final int STAGES_MAX = 64;

    /** Frames of a stream. */
    public static final long FRAMES_MAX = 1L << 40;

    /** Streams in one message of a probe. */
    public static final int PROBE_STREAMS_MAX = 128;

    /** Findings in one part of an audit. */
    public static final int AUDIT_FINDINGS_MAX = 16;

    /** Bytes of the keys of a session's data streams. */
    public static final int DATA_KEYS_BYTES = 96;

    private Limits() {}
}
