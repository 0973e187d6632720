package io.github.haul.client.internal.session;

import io.github.haul.client.internal.proto.Progress;
import io.github.haul.client.internal.proto.StreamProgress;
import io.github.haul.client.internal.wire.SpanDigest;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/** The data streams of a push: opened, watched, replaced, given up. */
final class SendStreams {
    /** The longest wait for streams to say their orderly end. */
    private static final long END_PATIENCE_MS = 2000;

    private final OpenSession session;
    private final SendShared shared;
    private final Inbox inbox;
    private final Headway headway;
    private final Supplier<SpanDigest> digests;
    private final long stallAfterNs;
    private final Consumer<String> notices;
    private final Map<Integer, Running> open = new HashMap<>();

    /** Streams that were given up and have not ended yet. */
    private final Set<Integer> stalled = new HashSet<>();

    private int nextStream;
    private boolean isOpened;

    private static final class Running {
        final SendStream stream;
        final Thread thread;
        long received;
        boolean isOnStorage;
        long seen = -1;
        long seenAtNs;

        Running(SendStream stream, Thread thread) {
            this.stream = stream;
            this.thread = thread;
        }
    }

    SendStreams(
            OpenSession session,
            SendShared shared,
            Inbox inbox,
            Headway headway,
            Supplier<SpanDigest> digests,
            long stallAfterNs,
            Consumer<String> notices) {
        this.session = session;
        this.shared = shared;
        this.inbox = inbox;
        this.headway = headway;
        this.digests = digests;
        this.stallAfterNs = stallAfterNs;
        this.notices = notices;
    }

    /** Opens the streams that the server granted, once there is something to send. */
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
        SendStream stream = new SendStream(number, session, shared, inbox, digests.get(), delayMs);
        open.put(number, new Running(stream, stream.start()));
    }

    /**
     * Handles streams that have ended.
     *
     * @return the end of the session, where no span gets through, or null
     */
    @Nullable SessionEnd handleEnded(long nowNs, boolean isFinishing) {
        for (Inbox.StreamEnded ended = inbox.takeEnded();
                ended != null;
                ended = inbox.takeEnded()) {
            open.remove(ended.stream());
            int number = ended.stream();
            String why = ended.why();
            boolean atWork =
                    stalled.remove(number)
                            | shared.with(
                                    machine -> {
                                        boolean awaits = machine.awaitsAcknowledgement(number);
                                        machine.dropStream(number, why);
                                        return awaits;
                                    });
            if (isFinishing) {
                continue;
            }
            long delayMs = headway.streamCut(nowNs, atWork);
            if (delayMs < 0) {
                return new SessionEnd.Lost(
                        "the data streams break before a span is through: " + why);
            }
            start(delayMs);
        }
        return null;
    }

    /** Shuts a stream down that the receiver is done with. */
    void closed(int number) {
        Running running = open.get(number);
        if (running != null) {
            running.stream.close();
            shared.notifyStreams();
        }
    }

    /** Takes the receiver's word of what came on each stream. */
    void heard(Progress progress) {
        for (StreamProgress told : progress.getStreamsList()) {
            Running running = open.get(told.getStream());
            if (running != null) {
                running.received = told.getReceivedBytes();
                running.isOnStorage = told.getOnStorage();
            }
        }
    }

    /** Gives up streams that have something under way and get nothing through. */
    void watch(long nowNs) {
        open.forEach(
                (number, running) -> {
                    boolean waits = shared.with(machine -> machine.awaitsAcknowledgement(number));
                    long moved = running.stream.movedBytes() + running.received;
                    if (moved != running.seen || !waits) {
                        running.seen = moved;
                        running.seenAtNs = nowNs;
                    } else if (nowNs - running.seenAtNs > stallAfterNs) {
                        running.seenAtNs = nowNs;
                        stall(number, running);
                    }
                });
    }

    private void stall(int number, Running running) {
        if (running.isOnStorage) {
            notices.accept("the receiver waits for its disk");
            return;
        }
        notices.accept("nothing arrives on a data connection: another takes its place");
        stalled.add(number);
        shared.<@Nullable Void, RuntimeException>with(
                machine -> {
                    machine.dropStream(number, "stalled");
                    return null;
                });
        running.stream.close();
        shared.notifyStreams();
    }

    /** Whether any stream has something under way. */
    boolean isAnyAtWork() {
        return open.keySet().stream()
                .anyMatch(number -> shared.with(machine -> machine.awaitsAcknowledgement(number)));
    }

    /** Lets the streams say their orderly end, and waits for that. */
    void end() {
        shared.stop();
        long end = System.nanoTime() + END_PATIENCE_MS * 1_000_000;
        for (Running running : open.values()) {
            join(running.thread, (end - System.nanoTime()) / 1_000_000);
        }
    }

    /** Ends the streams at once. */
    void stop() {
        shared.stop();
        open.values().forEach(running -> running.stream.close());
        open.values().forEach(running -> running.thread.interrupt());
        open.values().forEach(running -> join(running.thread, END_PATIENCE_MS));
    }

    private static void join(Thread thread, long patienceMs) {
        if (patienceMs <= 0) {
            return;
        }
        try {
            thread.join(patienceMs);
        } catch (InterruptedException cancelled) {
            Thread.currentThread().interrupt();
        }
    }
}
