package io.github.haul.client.internal.session;

import io.github.haul.client.internal.machine.SpanEnd;
import io.github.haul.client.internal.wire.Frames;
import io.github.haul.client.internal.wire.SpanDigest;
import java.nio.ByteBuffer;

/** A data stream whose spans stay in memory, for a file that is read in parts. */
final class PartStream extends InboundStream {
    private static final int BUFFER_BYTES = 256 << 10;

    private final PartShared shared;

    /** Bytes of the span under way. */
    private byte[] bytes = {};

    PartStream(
            int number,
            OpenSession session,
            PartShared shared,
            Inbox inbox,
            SpanDigest digest,
            long delayMs) {
        super(number, session, shared, inbox, digest, delayMs, BUFFER_BYTES);
        this.shared = shared;
    }

    @Override
    void begin(Frames.Span header) {
        bytes = new byte[(int) header.lenBytes()];
    }

    @Override
    void take(Frames.Span header, ByteBuffer piece, long at) {
        piece.get(bytes, (int) at, piece.remaining());
    }

    @Override
    void end(Frames.Span header, int span, SpanEnd end) {
        if (end == SpanEnd.VERIFIED || end == SpanEnd.CONFIRMED) {
            shared.arrived(number(), header.file(), span, bytes, end);
        } else {
            shared.run(machine -> machine.spanEnded(number(), header.file(), span, end));
        }
        bytes = new byte[0];
        wakeSession();
    }
}
