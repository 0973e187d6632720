package io.github.haul.client.internal.session;

import io.github.haul.client.internal.source.SourceWalk;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * A walk over the sources on a thread of its own: to find the holes of a large file may take
 * minutes, in which the session's thread is to answer its peer.
 */
final class WalkAhead {
    /** Entries that are found ahead at most. */
    private static final int AHEAD_MAX = 256;

    private final BlockingQueue<SourceWalk.Listed> found = new ArrayBlockingQueue<>(AHEAD_MAX);
    private final Supplier<SourceWalk.@Nullable Listed> walk;
    private final Inbox inbox;
    private final Thread thread;
    private volatile boolean isEnded;
    private volatile @Nullable RuntimeException failed;

    WalkAhead(Supplier<SourceWalk.@Nullable Listed> walk, Inbox inbox) {
        this.walk = walk;
        this.inbox = inbox;
        thread = new Thread(() -> inbox.run(this::run), "haul walk");
        thread.setDaemon(true);
    }

    void start() {
        thread.start();
    }

    private void run() {
        try {
            for (SourceWalk.Listed next = walk.get(); next != null; next = walk.get()) {
                found.put(next);
                if (found.size() == 1) {
                    inbox.wake();
                }
            }
        } catch (InterruptedException stopped) {
            return;
        } catch (RuntimeException unexpected) {
            failed = unexpected;
        }
        isEnded = true;
        inbox.wake();
    }

    /** Takes the next entry; null where none is found yet, or where {@link #isOver}. */
    SourceWalk.@Nullable Listed poll() {
        SourceWalk.Listed next = found.poll();
        RuntimeException unexpected = failed;
        if (next == null && unexpected != null) {
            throw unexpected;
        }
        return next;
    }

    /** Whether the walk has come to its end, and everything was taken. */
    boolean isOver() {
        return isEnded && found.isEmpty();
    }

    void stop() {
        thread.interrupt();
    }
}
