package io.github.haul.client.internal.session;

import io.github.haul.client.internal.machine.Receiver;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.Progress;
import io.github.haul.client.internal.proto.StreamProgress;
import io.github.haul.client.internal.wire.ProtocolViolation;
import io.github.haul.client.internal.wire.SpanDigest;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** The data streams of a pull: opened, watched, replaced. */
final class ReceiveStreams {
    private static final long END_PATIENCE_MS = 2000;

    private final OpenSession session;
    private final ReceiveShared shared;
    private final Inbox inbox;
    private final Headway headway;
    private final long stallAfterNs;
    private final Consumer<String> notices;
    private final Map<Integer, Running> open = new HashMap<>();
    private final Map<Integer, Fault> failures = new ConcurrentHashMap<>();
    private long endedBytes;
    private int nextStream;
    private boolean isOpened;
    private long seenBytes = -1;
    private long seenAtNs;

    private record Running(ReceiveStream stream, Thread thread) {}

    ReceiveStreams(
            OpenSession session,
            ReceiveShared shared,
            Inbox inbox,
            Headway headway,
            long stallAfterNs,
            Consumer<String> notices) {
        this.session = session;
        this.shared = shared;
        this.inbox = inbox;
        this.headway = headway;
        this.stallAfterNs = stallAfterNs;
        this.notices = notices;
    }

    /** Opens the streams that the server granted, once there is something to receive. */
    void openAll() {
        if (!isOpened) {
            isOpened = true;
            for (int count = session.granted().opened().getStreams(); count > 0; count--) {
                start(0);
            }
        }
    }

    private void start(long delayMs) {
        int number = nextStream++;
        SpanDigest digest;
        try {
            digest = SpanDigest.of(session.digest(), session.keys());
        } catch (ProtocolViolation impossible) {
            throw new IllegalStateException("it was there when the session began", impossible);
        }
        ReceiveStream stream =
                new ReceiveStream(
                        number,
                        session,
                        shared,
                        inbox,
                        digest,
                        delayMs,
                        (file, failed) -> {
                            failures.putIfAbsent(file, failed.fault());
                            inbox.wake();
                        });
        open.put(number, new Running(stream, stream.start()));
    }

    /** Takes the files that could not be written. */
    Map<Integer, Fault> takeFailures() {
        Map<Integer, Fault> taken = new LinkedHashMap<>(failures);
        taken.keySet().forEach(failures::remove);
        return taken;
    }

    /** Handles streams that have ended; returns the end of the session, or null. */
    @Nullable SessionEnd handleEnded(long nowNs, boolean isFinishing) {
        for (Inbox.StreamEnded ended = inbox.takeEnded();
                ended != null;
                ended = inbox.takeEnded()) {
            Running running = open.remove(ended.stream());
            endedBytes += running == null ? 0 : running.stream.receivedBytes();
            int number = ended.stream();
            shared.run(machine -> machine.streamClosed(number));
            boolean isOver = isFinishing || !shared.with(Receiver::hasOpenFiles);
            if (isOver) {
                isOpened = !open.isEmpty();
                continue;
            }
            long delayMs = headway.streamCut(nowNs, shared.with(Receiver::lacksSpans));
            if (delayMs < 0) {
                return new SessionEnd.Lost(
                        "the data streams break before a span is through: " + ended.why());
            }
            start(delayMs);
        }
        return null;
    }

    /** Shuts a stream down that the sender wants closed. */
    void close(int number) {
        Running running = open.get(number);
        if (running != null) {
            running.stream.close();
        }
    }

    /** Bytes that have arrived on all streams. */
    long receivedBytes() {
        return endedBytes
                + open.values().stream().mapToLong(one -> one.stream.receivedBytes()).sum();
    }

    /** Bytes whose digests have agreed. */
    long verifiedBytes() {
        return shared.with(Receiver::verifiedBytes);
    }

    /** What this side tells the sender of its streams. */
    Progress.Builder progress() {
        Progress.Builder progress = Progress.newBuilder().setReceivedBytes(receivedBytes());
        open.forEach(
                (number, running) ->
                        progress.addStreams(
                                StreamProgress.newBuilder()
                                        .setStream(number)
                                        .setReceivedBytes(running.stream.receivedBytes())
                                        .setOnStorage(running.stream.isOnStorage())));
        return progress;
    }

    /** Replaces all streams where none of them brings anything that is due. */
    void watch(long nowNs) {
        long bytes = receivedBytes();
        boolean isOnDisk = open.values().stream().anyMatch(one -> one.stream.isOnStorage());
        boolean waits = !open.isEmpty() && shared.with(Receiver::lacksSpans) && !isOnDisk;
        if (bytes != seenBytes || !waits) {
            seenBytes = bytes;
            seenAtNs = nowNs;
        } else if (nowNs - seenAtNs > stallAfterNs) {
            seenAtNs = nowNs;
            notices.accept("nothing arrives on the data connections: others take their places");
            open.values().forEach(one -> one.stream.close());
        }
    }

    /** Ends the streams at once. No thread that writes is interrupted: its file would be closed. */
    void stop() {
        open.values().forEach(one -> one.stream.close());
        long end = System.nanoTime() + END_PATIENCE_MS * 1_000_000;
        for (Running running : open.values()) {
            long leftMs = (end - System.nanoTime()) / 1_000_000;
            if (leftMs > 0) {
                try {
                    running.thread.join(leftMs);
                } catch (InterruptedException cancelled) {
                    Thread.currentThread().interrupt();
                }
            }
        }
    }
}
