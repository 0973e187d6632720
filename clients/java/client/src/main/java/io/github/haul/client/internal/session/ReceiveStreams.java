package io.github.haul.client.internal.session;

import io.github.haul.client.internal.machine.Receiver;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.Progress;
import io.github.haul.client.internal.proto.StreamProgress;
import io.github.haul.client.internal.target.TargetFault;
import io.github.haul.client.internal.wire.SpanDigest;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** The data streams of a pull, which are watched together. */
final class ReceiveStreams extends DataStreams<ReceiveStream> {
    private final OpenSession session;
    private final ReceiveShared shared;
    private final Inbox inbox;
    private final long stallAfterNs;
    private final Map<Integer, Fault> failures = new ConcurrentHashMap<>();
    private long endedBytes;
    private long seenBytes = -1;
    private long seenAtNs;

    ReceiveStreams(
            OpenSession session,
            ReceiveShared shared,
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
    ReceiveStream make(int number, SpanDigest digest, long delayMs) {
        return new ReceiveStream(number, session, shared, inbox, digest, delayMs, this::failed);
    }

    private void failed(int file, TargetFault failed) {
        failures.putIfAbsent(file, failed.fault());
        inbox.wake();
    }

    /** Takes the files that could not be written. */
    Map<Integer, Fault> takeFailures() {
        Map<Integer, Fault> taken = new LinkedHashMap<>(failures);
        taken.keySet().forEach(failures::remove);
        return taken;
    }

    @Override
    Sequel ended(int number, @Nullable ReceiveStream stream, String why, boolean isFinishing) {
        endedBytes += stream == null ? 0 : stream.movedBytes();
        shared.run(machine -> machine.streamClosed(number));
        if (isFinishing || !shared.with(Receiver::hasOpenFiles)) {
            return Sequel.NONE;
        }
        return shared.with(Receiver::lacksSpans) ? Sequel.NEXT_FOR_WORK : Sequel.NEXT;
    }

    /** Shuts a stream down that the sender wants closed. */
    void close(int number) {
        ReceiveStream stream = get(number);
        if (stream != null) {
            stream.close();
        }
    }

    /** Bytes that have arrived on all streams. */
    long receivedBytes() {
        return endedBytes + open().stream().mapToLong(ReceiveStream::movedBytes).sum();
    }

    /** Bytes whose digests have agreed. */
    long verifiedBytes() {
        return shared.with(Receiver::verifiedBytes);
    }

    /** What this side tells the sender of its streams. */
    Progress.Builder progress() {
        Progress.Builder progress = Progress.newBuilder().setReceivedBytes(receivedBytes());
        for (ReceiveStream stream : open()) {
            progress.addStreams(
                    StreamProgress.newBuilder()
                            .setStream(stream.number())
                            .setReceivedBytes(stream.movedBytes())
                            .setOnStorage(stream.isOnStorage()));
        }
        return progress;
    }

    /** Replaces all streams where none of them brings anything that is due. */
    void watch(long nowNs) {
        long bytes = receivedBytes();
        boolean isOnDisk = open().stream().anyMatch(ReceiveStream::isOnStorage);
        boolean waits = !open().isEmpty() && shared.with(Receiver::lacksSpans) && !isOnDisk;
        if (bytes != seenBytes || !waits) {
            seenBytes = bytes;
            seenAtNs = nowNs;
        } else if (nowNs - seenAtNs > stallAfterNs) {
            seenAtNs = nowNs;
            tell("nothing arrives on the data connections: others take their places");
            closeAll();
        }
    }

    /** Ends the streams at once. No thread that writes is interrupted: its file would be closed. */
    void stop() {
        closeAll();
        joinAll();
    }
}
