package io.github.haul.client.internal.session;

import io.github.haul.client.internal.machine.Sender;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.source.SourceEntry;
import io.github.haul.client.internal.wire.Frames;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/** What the session's thread and its streams have in common, under one lock. */
final class SendShared {
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition spans = lock.newCondition();
    private final Map<Integer, SourceEntry> sources = new HashMap<>();
    private final Map<Integer, List<Sent>> sent = new HashMap<>();
    private final Sender machine;
    private boolean isStopping;

    /** A span that went out, and its trailer: by it a source that was touched is compared again. */
    record Sent(Frames.Span header, Frames.Trailer trailer) {}

    /** A span to be sent, and the file that it is of. */
    record Work(Sender.Assignment span, SourceEntry source) {}

    /** What is done with the machine while its lock is held. */
    interface WithMachine<T extends @Nullable Object, E extends Exception> {
        T apply(Sender machine) throws E;
    }

    SendShared(Sender machine) {
        this.machine = machine;
    }

    /** Does something with the machine. */
    <T extends @Nullable Object, E extends Exception> T with(WithMachine<T, E> work) throws E {
        lock.lock();
        try {
            return work.apply(machine);
        } finally {
            lock.unlock();
        }
    }

    /** Waits for the next span of a stream; null when it is to send no more. */
    @Nullable Work take(int stream, SendStream asking) throws InterruptedException {
        lock.lock();
        try {
            while (!isStopping && !asking.isClosed()) {
                Work work = next(stream, Long.MAX_VALUE);
                if (work != null) {
                    return work;
                }
                spans.await();
            }
            return null;
        } finally {
            lock.unlock();
        }
    }

    /** Takes the next span of a stream, if one waits now. */
    @Nullable Work takeNow(int stream) {
        return with(machine -> next(stream, Long.MAX_VALUE));
    }

    /** Takes the next span, if it is all of a file of at most so many bytes. */
    @Nullable Work takeSmall(int stream, long bytesMax) {
        return with(machine -> next(stream, bytesMax));
    }

    private @Nullable Work next(int stream, long wholeFileMax) {
        while (true) {
            Sender.Assignment span = machine.nextSpan(stream, wholeFileMax);
            if (span == null) {
                return null;
            }
            SourceEntry source = sources.get(span.file());
            if (source != null) {
                return new Work(span, source);
            }
            // A file that has just been settled.
        }
    }

    /** Wakes streams that wait for spans. */
    void notifyStreams() {
        lock.lock();
        try {
            spans.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /** Lets the streams end once they have sent what they have begun. */
    void stop() {
        lock.lock();
        try {
            isStopping = true;
            spans.signalAll();
        } finally {
            lock.unlock();
        }
    }

    boolean isStopping() {
        return with(machine -> isStopping);
    }

    /** Remembers a span that went out. */
    void keepSent(Frames.Span header, Frames.Trailer trailer) {
        with(
                machine ->
                        sent.computeIfAbsent(header.file(), file -> new ArrayList<>())
                                .add(new Sent(header, trailer)));
    }

    /** The spans of a file that went out. */
    List<Sent> sentOf(int file) {
        return with(machine -> List.copyOf(sent.getOrDefault(file, List.of())));
    }

    void put(int file, SourceEntry source) {
        with(machine -> sources.put(file, source));
    }

    @Nullable SourceEntry source(int file) {
        return this.<@Nullable SourceEntry, RuntimeException>with(machine -> sources.get(file));
    }

    /** Forgets a file that is settled. */
    @Nullable SourceEntry remove(int file) {
        return this.<@Nullable SourceEntry, RuntimeException>with(
                machine -> {
                    sent.remove(file);
                    return sources.remove(file);
                });
    }

    void sourceFailed(int file, Fault fault) {
        this.<@Nullable Void, RuntimeException>with(
                machine -> {
                    machine.sourceFailed(file, fault);
                    return null;
                });
    }
}
