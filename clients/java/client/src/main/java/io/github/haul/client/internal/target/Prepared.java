package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.machine.SpanSet;
import io.github.haul.client.internal.proto.Fault;
import org.jspecify.annotations.Nullable;

/** An offer that was looked at. */
public sealed interface Prepared {
    /**
     * Spans are to come, or, of what has no bytes, the commit.
     *
     * @param entry what is received
     * @param spanBytes size of its spans, in bytes
     * @param durable spans that need not come: those of an earlier run, and those within holes
     * @param resumedBytes bytes of an earlier run among them
     * @param storedAs the name that it gets, where that is not the one offered; else empty
     * @param ctimeS ctime of the source when the first of the durable spans came; zeros: not known
     * @param ctimeNs its nanoseconds
     * @param digest what the durable spans hold (SPEC.md, 7.6); empty where that is not known
     * @param recheck what is to be read back of them meanwhile; null where they are believed
     */
    record Need(
            TargetEntry entry,
            long spanBytes,
            SpanSet durable,
            long resumedBytes,
            ByteString storedAs,
            long ctimeS,
            int ctimeNs,
            ByteString digest,
            @Nullable Recheck recheck)
            implements Prepared {}

    /** The same is there already. */
    record Skip() implements Prepared {}

    /**
     * A dry run would take it.
     *
     * @param replaces whether something else is there
     * @param storedAs as in {@link Need}
     */
    record Planned(boolean replaces, ByteString storedAs) implements Prepared {}

    /**
     * It cannot be taken.
     *
     * @param fault why
     */
    record Refused(Fault fault) implements Prepared {}
}
