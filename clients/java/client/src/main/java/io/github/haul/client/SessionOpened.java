package io.github.haul.client;

import java.time.Duration;

/**
 * A session that is open, as both sides agreed on it.
 *
 * @param session its number in hexadecimal; the server's log shows the same
 * @param server host and port of the server
 * @param serverSoftware the server's name and version
 * @param protection {@code clear} or {@code safe}
 * @param digest what verifies each span: {@code crc32c} or {@code aes-gmac}
 * @param gmacProvider the provider of the JVM that computes the MAC; empty for {@code clear}
 * @param streams how many data connections were granted
 * @param spanBytes the size of spans that was asked for, in bytes; 0 where it is chosen for each
 *     file
 * @param roundTrip how long the TCP connection took to be made: one round trip
 */
public record SessionOpened(
        String session,
        String server,
        String serverSoftware,
        String protection,
        String digest,
        String gmacProvider,
        int streams,
        long spanBytes,
        Duration roundTrip) {}
