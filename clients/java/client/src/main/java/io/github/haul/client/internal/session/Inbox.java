package io.github.haul.client.internal.session;

import io.github.haul.client.internal.proto.Control;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/** What a session's thread waits for: messages of the peer, and events of its own streams. */
final class Inbox {
    /** Messages that wait at most: a peer that says more has to wait. */
    private static final int MESSAGES_MAX = 1024;

    private final BlockingQueue<Inbound> messages = new ArrayBlockingQueue<>(MESSAGES_MAX);
    private final ConcurrentLinkedQueue<StreamEnded> ended = new ConcurrentLinkedQueue<>();
    private volatile @Nullable OutOfMemoryError exhausted;

    /** What the thread that listens to the control connection says. */
    sealed interface Inbound {}

    /** A message of the peer. */
    record Said(Control message) implements Inbound {}

    /** The control connection is lost. */
    record Gone(String why) implements Inbound {}

    /** The peer said what it may not. */
    record Forbidden(String what) implements Inbound {}

    /** Something of this side's own has come up. */
    private record Woken() implements Inbound {}

    /** A data stream has ended. */
    record StreamEnded(int stream, String why) {}

    /** Tells that a thread of the session found no memory; the first one is kept. */
    synchronized void exhausted(OutOfMemoryError error) {
        if (exhausted == null) {
            exhausted = error;
        }
        wake();
    }

    /** Does the work of a thread beside the session's: that it found no memory ends the session. */
    void run(Runnable work) {
        try {
            work.run();
        } catch (OutOfMemoryError error) {
            exhausted(error);
        }
    }

    /** What a thread found no memory for, or null. */
    @Nullable OutOfMemoryError exhausted() {
        return exhausted;
    }

    /** Puts what was heard, and waits while there is no room. */
    void put(Inbound heard) throws InterruptedException {
        messages.put(heard);
    }

    /** Wakes the session's thread; one that has enough to do needs no waking. */
    void wake() {
        messages.offer(new Woken());
    }

    /** Tells of a data stream that has ended. */
    void streamEnded(int stream, String why) {
        ended.add(new StreamEnded(stream, why));
        wake();
    }

    @Nullable StreamEnded takeEnded() {
        return ended.poll();
    }

    /** Whether nothing waits to be handled. */
    boolean isEmpty() {
        return messages.isEmpty();
    }

    /** Waits for what is heard next, or for a wake; null when the time is over. */
    @Nullable Inbound take(long patienceMs) throws InterruptedException {
        return messages.poll(patienceMs, TimeUnit.MILLISECONDS);
    }
}
