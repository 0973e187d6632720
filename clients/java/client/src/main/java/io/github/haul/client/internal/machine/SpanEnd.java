package io.github.haul.client.internal.machine;

/** The way in which a payload that was to be written ends. */
public enum SpanEnd {
    /** It is written, and its digest agreed. */
    VERIFIED,
    /** As verified, and its trailer confirms the file that it is all of. */
    CONFIRMED,
    /** Its digest or its trailer did not agree. */
    DAMAGED,
    /** The sender could not read all of it, or it could not be written. */
    ABANDONED
}
