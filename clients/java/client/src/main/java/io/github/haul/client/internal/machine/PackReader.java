package io.github.haul.client.internal.machine;

import static io.github.haul.client.internal.wire.ProtocolViolation.unless;

import io.github.haul.client.internal.wire.Frames;
import io.github.haul.client.internal.wire.Limits;
import io.github.haul.client.internal.wire.ProtocolViolation;

/** Says where the spans of a pack are, as its bytes arrive (SPEC.md, 6.2). */
public final class PackReader {
    private static final int SPAN_OVERHEAD_BYTES = Frames.HEADER_BYTES + Frames.TRAILER_BYTES;

    private long leftBytes;
    private int leftSpans;

    /**
     * Begins before the first span.
     *
     * @param spans how many the pack holds
     * @param lenBytes bytes behind the pack's header
     */
    public PackReader(int spans, long lenBytes) {
        leftSpans = spans;
        leftBytes = lenBytes;
    }

    /**
     * Whether the header of another span follows.
     *
     * @return false where the pack is over
     * @throws ProtocolViolation if the pack does not hold what its header says: the stream has lost
     *     its framing
     */
    public boolean hasNext() throws ProtocolViolation {
        if (leftSpans == 0) {
            unless(leftBytes == 0, "a pack with bytes behind its last span");
            return false;
        }
        unless(leftBytes >= Frames.HEADER_BYTES, "a pack ends within a span");
        return true;
    }

    /**
     * Takes the header of the next span, whose payload and trailer follow.
     *
     * @param encoded the header's bytes
     * @return the span
     * @throws ProtocolViolation if that is no span, or a longer one than the pack
     */
    public Frames.Span next(byte[] encoded) throws ProtocolViolation {
        if (!(Frames.Header.decode(encoded) instanceof Frames.Span header)) {
            throw new ProtocolViolation("a pack holds something else than spans");
        }
        long roomBytes = leftBytes - SPAN_OVERHEAD_BYTES;
        unless(
                header.lenBytes() >= 0 && header.lenBytes() <= roomBytes,
                "a pack ends within a span");
        leftBytes = roomBytes - header.lenBytes();
        leftSpans--;
        return header;
    }

    /**
     * Checks a pack's header against its place in the stream and the limits.
     *
     * @param pack the header
     * @param stream the stream that it came on
     * @param sequence the number of the stream's next frame
     * @throws ProtocolViolation if it is not that of this frame, or says what no pack can hold
     */
    static void check(Frames.Pack pack, int stream, long sequence) throws ProtocolViolation {
        unless(
                pack.stream() == stream && pack.sequence() == sequence,
                "a pack of another stream or out of its order");
        // Every span has a byte of payload at least.
        long least = Integer.toUnsignedLong(pack.spans()) * (SPAN_OVERHEAD_BYTES + 1);
        unless(
                pack.spans() != 0
                        && pack.lenBytes() >= least
                        && pack.lenBytes() <= Limits.PACK_BYTES_MAX,
                "a pack whose length cannot be");
    }
}
