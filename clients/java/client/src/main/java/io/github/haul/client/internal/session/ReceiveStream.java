package io.github.haul.client.internal.session;

import io.github.haul.client.internal.machine.SpanEnd;
import io.github.haul.client.internal.target.ReceivedFile;
import io.github.haul.client.internal.target.TargetFault;
import io.github.haul.client.internal.wire.Frames;
import io.github.haul.client.internal.wire.SpanDigest;
import io.github.haul.client.internal.wire.Xxh3;
import java.nio.ByteBuffer;
import java.util.function.BiConsumer;
import org.jspecify.annotations.Nullable;

/** A data stream whose spans go into the files of a target. */
final class ReceiveStream extends InboundStream {
    private static final int BUFFER_BYTES_MAX = 1 << 20;

    private final ReceiveShared shared;

    /** What a span holds, for the journal of a file of several. */
    private final Xxh3 content = new Xxh3();

    private final BiConsumer<Integer, TargetFault> failures;

    /** File of the span under way; null where it is given up, or cannot be written. */
    private @Nullable ReceivedFile file;

    private boolean keepsDigests;
    private volatile boolean isOnStorage;

    ReceiveStream(
            int number,
            OpenSession session,
            ReceiveShared shared,
            Inbox inbox,
            SpanDigest digest,
            long delayMs,
            BiConsumer<Integer, TargetFault> failures) {
        super(number, session, shared, inbox, digest, delayMs, bufferBytes(session));
        this.shared = shared;
        this.failures = failures;
    }

    private static int bufferBytes(OpenSession session) {
        long share = StreamMemory.shareBytes(session.granted().opened().getStreams());
        return StreamMemory.within(share, BUFFER_BYTES_MIN, BUFFER_BYTES_MAX);
    }

    @Override
    boolean isOnStorage() {
        return isOnStorage;
    }

    @Override
    void begin(Frames.Span header) {
        file = shared.file(header.file());
        keepsDigests = file != null && file.keepsDigests();
        content.begin();
    }

    @Override
    void take(Frames.Span header, ByteBuffer piece, long at) throws InterruptedException {
        if (keepsDigests) {
            content.update(piece.duplicate());
        }
        ReceivedFile partial = file;
        if (partial != null && !write(header.file(), partial, piece, header.offsetBytes() + at)) {
            file = null;
        }
    }

    /** Writes a piece; false where the target cannot take it, which is told. */
    private boolean write(int number, ReceivedFile file, ByteBuffer payload, long offset)
            throws InterruptedException {
        shared.takePlace(number, file);
        isOnStorage = true;
        try {
            file.write(payload, offset);
            return true;
        } catch (TargetFault fault) {
            failures.accept(number, fault);
            return false;
        } finally {
            isOnStorage = false;
        }
    }

    @Override
    void end(Frames.Span header, int span, SpanEnd end) {
        ReceivedFile partial = file;
        boolean isKept = partial != null || end == SpanEnd.DAMAGED;
        SpanEnd ended = isKept ? end : SpanEnd.ABANDONED;
        if (partial != null && (ended == SpanEnd.VERIFIED || ended == SpanEnd.CONFIRMED)) {
            partial.verified(span, keepsDigests ? content.end() : new byte[0]);
        }
        boolean isUrgent =
                shared.with(
                        machine -> {
                            machine.spanEnded(number(), header.file(), span, ended);
                            return machine.isUrgent();
                        });
        if (isUrgent) {
            wakeSession();
        }
    }
}
