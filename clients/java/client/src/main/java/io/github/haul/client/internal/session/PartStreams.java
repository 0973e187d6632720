package io.github.haul.client.internal.session;

import io.github.haul.client.internal.machine.Receiver;
import io.github.haul.client.internal.wire.SpanDigest;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** The data streams of a file that is read in parts. */
final class PartStreams extends DataStreams<PartStream> {
    private final OpenSession session;
    private final PartShared shared;
    private final Inbox inbox;
    private final long stallAfterNs;
    private long endedBytes;
    private long seenBytes = -1;
    private long seenAtNs;

    PartStreams(
            OpenSession session,
            PartShared shared,
            Inbox inbox,
            Headway headway,
            long stallAfterNs,
            Consumer<String> notices) {
        super(session, inbox, headway, notices);
        this.session = session;
        this.shared = shared;
        this.inbox = inbox;
        this.stallAfterNs = stallAfterNs;
    }

    @Override
    PartStream make(int number, SpanDigest digest, long delayMs) {
        return new PartStream(number, session, shared, inbox, digest, delayMs);
    }

    @Override
    Sequel ended(int number, @Nullable PartStream stream, String why, boolean isFinishing) {
        endedBytes += stream == null ? 0 : stream.movedBytes();
        shared.run(machine -> machine.streamClosed(number));
        if (isFinishing || !shared.with(Receiver::hasOpenFiles)) {
            return Sequel.NONE;
        }
        return shared.with(Receiver::lacksSpans) ? Sequel.NEXT_FOR_WORK : Sequel.NEXT;
    }

    /** Shuts a stream down that the sender wants closed. */
    void close(int number) {
        PartStream stream = get(number);
        if (stream != null) {
            stream.close();
        }
    }

    /** Bytes that have arrived on all streams. */
    long receivedBytes() {
        return endedBytes + open().stream().mapToLong(PartStream::movedBytes).sum();
    }

    /** Replaces all streams where none of them brings anything that is due. */
    void watch(long nowNs) {
        long bytes = receivedBytes();
        boolean waits = !open().isEmpty() && shared.with(Receiver::lacksSpans);
        if (bytes != seenBytes || !waits) {
            seenBytes = bytes;
            seenAtNs = nowNs;
        } else if (nowNs - seenAtNs > stallAfterNs) {
            seenAtNs = nowNs;
            tell("nothing arrives on the data connections: others take their places");
            closeAll();
        }
    }

    /** Ends the streams at once. */
    void stop() {
        closeAll();
        joinAll();
    }
}
