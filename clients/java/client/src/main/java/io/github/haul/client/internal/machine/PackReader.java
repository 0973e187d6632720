package io.github.haul.client.internal.machine;

import static io.github.haul.client.internal.wire.ProtocolViolation.unless;

import io.github.haul.client.internal.wire.Frames;
import io.github.haul.client.internal.wire.Limits;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.nio.ByteBuffer;
import org.jspecify.annotations.Nullable;

/** Takes a pack that arrived apart, span by span (SPEC.md, 6.2). */
public final class PackReader {
    private static final int SPAN_OVERHEAD_BYTES = Frames.HEADER_BYTES + Frames.TRAILER_BYTES;

    private final ByteBuffer body;
    private int left;

    /**
     * A span of a pack. Its buffers are parts of the pack's.
     *
     * @param header what it is
     * @param payload its bytes
     * @param trailer the bytes of its trailer, which may be damaged
     */
    public record PackedSpan(Frames.Span header, ByteBuffer payload, ByteBuffer trailer) {}

    /**
     * Begins with the first span.
     *
     * @param header the pack's header
     * @param body what follows it, from the buffer's position to its limit
     */
    public PackReader(Frames.Pack header, ByteBuffer body) {
        this.body = body.slice();
        this.left = header.spans();
    }

    /**
     * Takes the next span.
     *
     * @return the span, or null when none is left
     * @throws ProtocolViolation if the pack does not hold what its header says: the stream has lost
     *     its framing
     */
    public @Nullable PackedSpan next() throws ProtocolViolation {
        if (left == 0) {
            unless(!body.hasRemaining(), "a pack with bytes behind its last span");
            return null;
        }
        byte[] encoded = new byte[Frames.HEADER_BYTES];
        take(encoded.length).get(encoded);
        if (!(Frames.Header.decode(encoded) instanceof Frames.Span header)) {
            throw new ProtocolViolation("a pack holds something else than spans");
        }
        ByteBuffer payload = take(header.lenBytes());
        ByteBuffer trailer = take(Frames.TRAILER_BYTES);
        left--;
        return new PackedSpan(header, payload, trailer);
    }

    private ByteBuffer take(long bytes) throws ProtocolViolation {
        unless(bytes >= 0 && bytes <= body.remaining(), "a pack ends within a span");
        ByteBuffer taken = body.slice(body.position(), (int) bytes);
        body.position(body.position() + (int) bytes);
        return taken;
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
