package io.github.haul.client.internal.session;

import io.github.haul.client.TransferOptions;
import io.github.haul.client.internal.machine.Receiver;
import org.jspecify.annotations.Nullable;

/**
 * The data streams of a session that receives, which are watched together.
 *
 * @param <S> the streams' kind
 */
abstract class InboundStreams<S extends InboundStream> extends DataStreams<S> {
    private final SharedMachine<Receiver> shared;
    private long endedBytes;
    private long seenBytes = -1;
    private long seenAtNs;

    InboundStreams(
            OpenSession session,
            SharedMachine<Receiver> shared,
            Inbox inbox,
            Headway headway,
            TransferOptions options) {
        super(session, inbox, headway, options);
        this.shared = shared;
    }

    @Override
    final Sequel ended(int number, @Nullable S stream, String why, boolean isFinishing) {
        endedBytes += stream == null ? 0 : stream.movedBytes();
        shared.run(machine -> machine.streamClosed(number));
        if (isFinishing || !shared.with(Receiver::hasOpenFiles)) {
            return Sequel.NONE;
        }
        return shared.with(Receiver::lacksSpans) ? Sequel.NEXT_FOR_WORK : Sequel.NEXT;
    }

    /** Shuts a stream down that the sender wants closed. */
    final void close(int number) {
        S stream = get(number);
        if (stream != null) {
            stream.close();
        }
    }

    /** Bytes that have arrived on all streams. */
    final long receivedBytes() {
        return endedBytes + open().stream().mapToLong(InboundStream::movedBytes).sum();
    }

    /** Replaces all streams where none of them brings anything that is due. */
    final void watch(long nowNs) {
        long bytes = receivedBytes();
        boolean isOnDisk = open().stream().anyMatch(InboundStream::isOnStorage);
        boolean waits = !open().isEmpty() && shared.with(Receiver::lacksSpans) && !isOnDisk;
        if (bytes != seenBytes || !waits) {
            seenBytes = bytes;
            seenAtNs = nowNs;
        } else if (nowNs - seenAtNs > stallAfterNs()) {
            seenAtNs = nowNs;
            tellStall("nothing arrives on the data connections: others take their places");
            closeAll();
        }
    }

    /** Ends the streams at once. No thread that writes is interrupted: its file would be closed. */
    final void stop() {
        closeAll();
        joinAll();
    }
}
