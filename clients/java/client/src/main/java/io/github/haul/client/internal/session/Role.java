package io.github.haul.client.internal.session;

import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.wire.ProtocolViolation;
import org.jspecify.annotations.Nullable;

/** One direction of a transfer, on this side of it. All calls come from the session's thread. */
interface Role {
    /**
     * Handles a message of the server.
     *
     * @param message the message
     * @throws ProtocolViolation if the server broke the protocol
     */
    void handle(Control message) throws ProtocolViolation;

    /**
     * Does what has come up.
     *
     * @param nowNs the time, by {@link System#nanoTime}
     * @return the end of the session, or null while it goes on
     */
    @Nullable SessionEnd pump(long nowNs);

    /** Takes the next message for the server, or null. */
    @Nullable Control pollMessage();

    /** Whether spans are on their way, which are lost with the session. */
    boolean isAtWork();

    /** Ends the role's streams and threads. */
    void stop();
}
