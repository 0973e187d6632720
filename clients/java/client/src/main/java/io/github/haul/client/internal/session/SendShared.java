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
import org.jspecify.annotations.Nullable;

/** What the session's thread and its streams have in common, under one lock. */
final class SendShared extends SharedMachine<Sender> {
    private final Condition spans = condition();
    private final Map<Integer, SourceEntry> sources = new HashMap<>();
    private final Map<Integer, List<Sent>> sent = new HashMap<>();
    private boolean isStopping;

    /** A span that went out, and its trailer: by it a source that was touched is compared again. */
    record Sent(Frames.Span header, Frames.Trailer trailer) {}

    /** A span to be sent, and the file that it is of. */
    record Work(Sender.Assignment span, SourceEntry source) {}

    SendShared(Sender machine) {
        super(machine);
    }

    /** Waits for the next span of a stream; null when it is to send no more. */
    @Nullable Work take(int stream, SendStream asking) throws InterruptedException {
        return find(
                machine -> {
                    while (!isStopping && !asking.isClosed()) {
                        Work work = next(machine, stream, Long.MAX_VALUE);
                        if (work != null) {
                            return work;
                        }
                        spans.await();
                    }
                    return null;
                });
    }

    /** Takes the next span of a stream, if one waits now. */
    @Nullable Work takeNow(int stream) {
        return find(machine -> next(machine, stream, Long.MAX_VALUE));
    }

    /** Takes the next span, if it is all of a file of at most so many bytes. */
    @Nullable Work takeSmall(int stream, long bytesMax) {
        return find(machine -> next(machine, stream, bytesMax));
    }

    private @Nullable Work next(Sender machine, int stream, long wholeFileMax) {
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
        run(machine -> spans.signalAll());
    }

    /** Lets the streams end once they have sent what they have begun. */
    void stop() {
        run(
                machine -> {
                    isStopping = true;
                    spans.signalAll();
                });
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
        run(machine -> sources.put(file, source));
    }

    @Nullable SourceEntry source(int file) {
        return find(machine -> sources.get(file));
    }

    /** Forgets a file that is settled. */
    @Nullable SourceEntry remove(int file) {
        return find(
                machine -> {
                    sent.remove(file);
                    return sources.remove(file);
                });
    }

    void sourceFailed(int file, Fault fault) {
        run(machine -> machine.sourceFailed(file, fault));
    }
}
