package io.github.haul.client.internal.session;

import io.github.haul.client.internal.net.ControlConnection;
import io.github.haul.client.internal.proto.Digest;
import io.github.haul.client.internal.wire.ClientHandshake;
import io.github.haul.client.internal.wire.DataKeys;
import java.net.InetSocketAddress;

/**
 * A session that a server has granted.
 *
 * @param control its control connection
 * @param server the address that its data streams go to
 * @param granted what the server granted
 * @param id the session's 16 bytes
 * @param digest what verifies each span
 * @param keys keys of the data streams
 */
record OpenSession(
        ControlConnection control,
        InetSocketAddress server,
        ClientHandshake.Granted granted,
        byte[] id,
        Digest digest,
        DataKeys keys) {
    /** Shows nothing of the session's keys. */
    @Override
    public String toString() {
        return "OpenSession[" + server + "]";
    }
}
