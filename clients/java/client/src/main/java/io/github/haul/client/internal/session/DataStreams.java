package io.github.haul.client.internal.session;

import io.github.haul.client.TransferOptions;
import io.github.haul.client.internal.wire.ProtocolViolation;
import io.github.haul.client.internal.wire.SpanDigest;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * The data streams of a session: opened, replaced, ended. Only the session's thread calls.
 *
 * @param <S> the streams' kind
 */
abstract class DataStreams<S extends DataStream> {
    /** The longest wait for threads that were told to end. */
    static final long END_PATIENCE_NS = TimeUnit.SECONDS.toNanos(2);

    private final OpenSession session;
    private final Inbox inbox;
    private final Headway headway;
    private final TransferOptions options;
    private final Map<Integer, S> open = new HashMap<>();
    private int nextNumber;
    private boolean isOpened;

    DataStreams(OpenSession session, Inbox inbox, Headway headway, TransferOptions options) {
        this.session = session;
        this.inbox = inbox;
        this.headway = headway;
        this.options = options;
    }

    /** Makes a stream that is not started. */
    abstract S make(int number, SpanDigest digest, long delayMs);

    /** What the end of a stream asks for. */
    enum Sequel {
        /** Nothing: the session ends. */
        NONE,
        /** Another stream, as spans are to be moved. */
        NEXT,
        /** Another stream in the place of one that was at work. */
        NEXT_FOR_WORK,
    }

    /** Takes leave of a stream, and says what follows. */
    abstract Sequel ended(int number, @Nullable S stream, String why, boolean isFinishing);

    /** Opens the streams that the server granted, once there is something to move. */
    final void openAll() {
        if (!isOpened) {
            isOpened = true;
            for (int count = session.granted().opened().getStreams(); count > 0; count--) {
                start(0);
            }
        }
    }

    private void start(long delayMs) {
        int number = nextNumber++;
        S stream = make(number, digestOf(session), delayMs);
        open.put(number, stream);
        stream.start();
    }

    /** Makes the digest that a session has agreed on. */
    static SpanDigest digestOf(OpenSession session) {
        try {
            return SpanDigest.of(session.digest(), session.keys());
        } catch (ProtocolViolation impossible) {
            throw new IllegalStateException("it was there when the session began", impossible);
        }
    }

    /**
     * Handles streams that have ended.
     *
     * @param isFinishing whether this side has said its goodbye
     * @return the end of the session, where no span gets through, or null
     */
    final @Nullable SessionEnd handleEnded(long nowNs, boolean isFinishing) {
        for (Inbox.StreamEnded ended = inbox.takeEnded();
                ended != null;
                ended = inbox.takeEnded()) {
            S stream = open.remove(ended.stream());
            Sequel sequel = ended(ended.stream(), stream, ended.why(), isFinishing);
            if (sequel == Sequel.NONE) {
                isOpened = !open.isEmpty();
                continue;
            }
            long delayMs = headway.streamCut(nowNs, sequel == Sequel.NEXT_FOR_WORK);
            if (delayMs < 0) {
                return new SessionEnd.Lost(
                        "the data streams break before a span is through: " + ended.why());
            }
            start(delayMs);
        }
        return null;
    }

    final Collection<S> open() {
        return open.values();
    }

    final @Nullable S get(int number) {
        return open.get(number);
    }

    final OpenSession session() {
        return session;
    }

    final Inbox inbox() {
        return inbox;
    }

    /** The time after which a stream that brings nothing has stalled. */
    final long stallAfterNs() {
        return options.stallAfter().toNanos();
    }

    /** Tells the user of streams that have stalled. */
    final void tellStall(String what) {
        options.listener().onNotice(Words.stall(what, options.stallAfter()));
    }

    /** Ends the connections of all streams, and their threads soon after. */
    final void closeAll() {
        open.values().forEach(DataStream::close);
    }

    /** Waits for the end of all streams, for a while. */
    final void joinAll() {
        long endNs = System.nanoTime() + END_PATIENCE_NS;
        open.values().forEach(stream -> stream.join(endNs));
    }
}
