package io.github.haul.client.internal.session;

import io.github.haul.client.internal.wire.Frames;
import io.github.haul.client.internal.wire.Limits;
import java.nio.ByteBuffer;

/** Puts a pack together: short spans in one piece of a stream (SPEC.md, 6.2). */
final class PackWriter {
    private static final int PACK_BYTES_MIN = 256 << 10;

    private final ByteBuffer bytes;
    private final int packBytes;
    private int end = Frames.HEADER_BYTES;
    private int spans;

    /**
     * Makes room for one pack.
     *
     * @param shareBytes direct memory that it may take, as far as that is enough for a pack
     */
    PackWriter(long shareBytes) {
        int wanted = StreamMemory.within(shareBytes, PACK_BYTES_MIN, (int) Limits.PACK_BYTES_MAX);
        bytes =
                StreamMemory.buffer(
                        Frames.HEADER_BYTES + wanted, Frames.HEADER_BYTES + PACK_BYTES_MIN);
        packBytes = bytes.capacity() - Frames.HEADER_BYTES;
    }

    /** Whether a span of this payload finds room. */
    boolean hasRoom(int payloadBytes) {
        int spanBytes = Frames.HEADER_BYTES + payloadBytes + Frames.TRAILER_BYTES;
        return lenBytes() + spanBytes <= packBytes;
    }

    /** Begins anew. */
    void clear() {
        end = Frames.HEADER_BYTES;
        spans = 0;
    }

    int spans() {
        return spans;
    }

    /** Bytes of the spans so far, with their headers and trailers. */
    int lenBytes() {
        return end - Frames.HEADER_BYTES;
    }

    /** The place of the next span's payload, to be filled before {@link #add}. */
    ByteBuffer payload(int length) {
        return bytes.duplicate().clear().position(end + Frames.HEADER_BYTES).slice().limit(length);
    }

    /** Adds the span whose payload was filled. */
    void add(Frames.Span header, Frames.Trailer trailer) {
        ByteBuffer place = bytes.duplicate().clear().position(end);
        place.put(header.encode());
        place.position(place.position() + (int) header.lenBytes()).put(trailer.encode());
        end = place.position();
        spans++;
    }

    /** The whole pack as it goes onto the wire, whose first span has this sequence. */
    ByteBuffer finish(int stream, long firstSequence) {
        Frames.Pack header = new Frames.Pack(spans, lenBytes(), firstSequence, stream);
        ByteBuffer whole = bytes.duplicate().clear();
        whole.put(header.encode());
        return whole.position(0).limit(end);
    }
}
