package io.github.haul.client.internal.machine;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Compare;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.Plan;

/** A receiver's answer to an offer. */
public sealed interface OfferAnswer {
    /**
     * The file is to be sent, but for the spans that are durable.
     *
     * @param spanBytes the size of its spans
     * @param durable the spans that an earlier session left
     * @param storedAs the file's name here, where it is not the one offered; else empty
     * @param earlier what is known of the durable spans
     */
    record Needed(long spanBytes, SpanSet durable, ByteString storedAs, Earlier earlier)
            implements OfferAnswer {}

    /** The file that is there is the same. */
    record Skipped() implements OfferAnswer {}

    /**
     * The file is not taken.
     *
     * @param fault why
     */
    record Failed(Fault fault) implements OfferAnswer {}

    /**
     * The sender is to say by another offer whether the file that is there is the same.
     *
     * @param compare what that file holds
     */
    record ToCompare(Compare compare) implements OfferAnswer {}

    /**
     * A dry run: this would be done.
     *
     * @param plan what would be done
     */
    record Planned(Plan plan) implements OfferAnswer {}

    /**
     * Knowledge about the durable spans that an earlier session left.
     *
     * @param ctimeSeconds ctime of the source's inode when the first of them came; with {@code
     *     ctimeNanos} 0 where nobody knows
     * @param ctimeNanos the part of it below a second
     * @param digest digest of what they hold (SPEC.md, 7.6); empty where nobody knows
     * @param isReadBack they are being read back: the file is committed only after {@link
     *     Receiver#readBack}
     */
    record Earlier(long ctimeSeconds, int ctimeNanos, ByteString digest, boolean isReadBack) {
        /** Nothing is known, or nothing is durable. */
        public static final Earlier NOTHING = new Earlier(0, 0, ByteString.EMPTY, false);
    }
}
