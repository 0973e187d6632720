package io.github.haul.client;

import java.time.Duration;
import java.time.Instant;

/**
 * A change of the connection to the server. It is told again with each try while the server is
 * away.
 *
 * @param state the connection now
 * @param server host and port of the server
 * @param why the reason
 * @param since when the server was last there
 * @param away how long it has been away
 * @param left how long it is still waited for, until the transfer ends
 */
public record ConnectionChange(
        State state, String server, String why, Instant since, Duration away, Duration left) {
    /** States of the connection. */
    public enum State {
        /** It is lost, and another one is tried. */
        LOST,
        /** The server answers again. */
        BACK
    }
}
