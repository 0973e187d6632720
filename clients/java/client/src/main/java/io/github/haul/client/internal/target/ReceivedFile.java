package io.github.haul.client.internal.target;

import io.github.haul.client.internal.machine.SpanGrid;
import java.nio.ByteBuffer;

/** A regular file whose spans are received. */
public sealed interface ReceivedFile extends TargetEntry permits PartialFile, DiscardedFile {
    /** Returns the division of the file into spans. */
    SpanGrid grid();

    /** Returns whether {@link #verified} wants the digest of each span. */
    boolean keepsDigests();

    /**
     * Writes bytes of a span, direct ones without a copy.
     *
     * @param bytes what; its position is its limit afterwards
     * @param offsetBytes the place in the file
     * @throws TargetFault if they cannot be written
     */
    void write(ByteBuffer bytes, long offsetBytes) throws TargetFault;

    /**
     * Takes a span whose bytes are written and verified: the next {@link #sync} makes it durable.
     *
     * @param span its number
     * @param digest XXH3-128 of its bytes; empty where {@link #keepsDigests} says so
     */
    void verified(int span, byte[] digest);

    /**
     * Forces out what was written so far, and journals the spans that were verified before.
     *
     * @return bytes that are durable now and were not before
     * @throws TargetFault if that fails: then the file is given up, as of what was written nothing
     *     is known
     */
    long sync() throws TargetFault;

    /** Returns the bytes that are verified, and that no {@link #sync} has made durable yet. */
    long undurableBytes();
}
