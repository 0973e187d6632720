package io.github.haul.client.internal.session;

import io.github.haul.client.internal.machine.SpanSet;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.target.Recheck;
import io.github.haul.client.internal.target.TargetFault;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import org.jspecify.annotations.Nullable;

/**
 * Reads back what earlier runs left, where their journals alone are not enough, on a thread of its
 * own while the rest is received.
 */
final class Rechecks {
    private static final long END_S = 60;

    private final Inbox inbox;
    private final BiConsumer<Integer, SpanSet> whenRead;
    private final BiConsumer<Integer, Fault> whenFailed;
    private final Queue<Result> results = new ConcurrentLinkedQueue<>();
    private @Nullable ExecutorService reader;
    private volatile boolean isStopped;

    private record Result(int file, @Nullable SpanSet lost, @Nullable Fault fault) {}

    Rechecks(
            Inbox inbox,
            BiConsumer<Integer, SpanSet> whenRead,
            BiConsumer<Integer, Fault> whenFailed) {
        this.inbox = inbox;
        this.whenRead = whenRead;
        this.whenFailed = whenFailed;
    }

    /** Reads a file back. */
    void begin(int file, Recheck recheck) {
        ExecutorService executor = reader;
        if (executor == null) {
            executor =
                    Executors.newSingleThreadExecutor(
                            work -> {
                                Thread thread = new Thread(work, "haul target reader");
                                thread.setDaemon(true);
                                return thread;
                            });
            reader = executor;
        }
        executor.execute(() -> inbox.run(() -> run(file, recheck)));
    }

    private void run(int file, Recheck recheck) {
        if (isStopped) {
            return;
        }
        try {
            SpanSet lost = recheck.file().readBack(recheck.spans(), () -> !isStopped);
            results.add(new Result(file, lost, null));
        } catch (TargetFault failed) {
            results.add(new Result(file, null, failed.fault()));
        }
        inbox.wake();
    }

    /** Takes the files that were read back. */
    void tick() {
        for (Result result = results.poll(); result != null; result = results.poll()) {
            if (result.lost != null) {
                whenRead.accept(result.file, result.lost);
            } else if (result.fault != null) {
                whenFailed.accept(result.file, result.fault);
            }
        }
    }

    /** Ends, when what is being read has been let go of: no thread may be interrupted in it. */
    void stop() {
        isStopped = true;
        ExecutorService executor = reader;
        if (executor != null) {
            executor.shutdown();
            try {
                executor.awaitTermination(END_S, TimeUnit.SECONDS);
            } catch (InterruptedException cancelled) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
