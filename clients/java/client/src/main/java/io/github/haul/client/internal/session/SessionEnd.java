package io.github.haul.client.internal.session;

import io.github.haul.client.internal.proto.Fault;

/** The way in which a session ends. */
public sealed interface SessionEnd {
    /** Every file is settled, and both sides have reported. */
    record Finished() implements SessionEnd {}

    /**
     * One side ended the session with a reason.
     *
     * @param fault the reason
     * @param isOurs this side refused
     */
    record Refused(Fault fault, boolean isOurs) implements SessionEnd {}

    /**
     * The connection was lost; another may go on.
     *
     * @param why how
     */
    record Lost(String why) implements SessionEnd {}

    /** The caller wants no more of it. */
    record Cancelled() implements SessionEnd {}
}
