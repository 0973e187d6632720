package io.github.haul.client.internal.machine;

/** Whether a name that was settled may come again in a session. */
public enum Repeats {
    /** A name comes once. */
    REFUSED,
    /** Sources are watched: a file that was written to again is sent again. */
    ONCE_SETTLED
}
