package io.github.haul.client.internal.session;

import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.target.ReceivePlace;
import io.github.haul.client.internal.target.ReceivedFile;
import io.github.haul.client.internal.target.TargetEntry;
import io.github.haul.client.internal.target.TargetFault;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Queue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * The thread that makes received files durable: it puts complete ones under their names, many at a
 * time, and journals about once a second what is verified of those that are under way.
 */
final class Committer {
    /** Files whose directories are synced together. */
    private static final int BATCH_MAX = 256;

    private static final long SYNC_EVERY_NS = TimeUnit.SECONDS.toNanos(1);
    private static final long TURN_MS = 100;

    private final ReceivePlace target;
    private final ReceiveShared shared;
    private final Inbox inbox;
    private final BlockingQueue<Complete> complete = new LinkedBlockingQueue<>();
    private final Queue<Outcome> outcomes = new ConcurrentLinkedQueue<>();
    private final AtomicLong durableBytes = new AtomicLong();
    private final Thread thread;
    private volatile boolean isStopping;

    /** A file that may be committed. */
    private record Complete(int file, TargetEntry entry) {}

    /**
     * How a file came out.
     *
     * @param file the file
     * @param entry what it was received into; null where it was not complete
     * @param fault why it failed, or null
     */
    record Outcome(int file, @Nullable TargetEntry entry, @Nullable Fault fault) {}

    Committer(ReceivePlace target, ReceiveShared shared, Inbox inbox) {
        this.target = target;
        this.shared = shared;
        this.inbox = inbox;
        thread = new Thread(() -> inbox.run(this::run), "haul committer");
        thread.setDaemon(true);
    }

    void start() {
        thread.start();
    }

    /** Commits a file that is complete and confirmed. */
    void commit(int file, TargetEntry entry) {
        complete.add(new Complete(file, entry));
    }

    /** Takes the outcome of a commit, or a file that could not be synced. */
    @Nullable Outcome poll() {
        return outcomes.poll();
    }

    /** Bytes that are durable by now and were not when the session began. */
    long durableBytes() {
        return durableBytes.get();
    }

    /** Makes durable what is verified, and ends the thread. */
    void stop() {
        isStopping = true;
        boolean wasInterrupted = false;
        while (thread.isAlive()) {
            try {
                thread.join();
            } catch (InterruptedException cancelled) {
                // What is verified is to stay for the next run: this is short.
                wasInterrupted = true;
            }
        }
        if (wasInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void run() {
        long syncedAtNs = System.nanoTime();
        while (!isStopping) {
            try {
                Complete first = complete.poll(TURN_MS, TimeUnit.MILLISECONDS);
                if (first != null) {
                    commitWith(first);
                }
            } catch (InterruptedException nobodyDoes) {
                return;
            }
            if (System.nanoTime() - syncedAtNs >= SYNC_EVERY_NS) {
                sync();
                syncedAtNs = System.nanoTime();
            }
        }
        sync();
    }

    private void commitWith(Complete first) {
        List<Complete> batch = new ArrayList<>();
        batch.add(first);
        complete.drainTo(batch, BATCH_MAX - 1);
        Map<TargetEntry, Integer> numbers = new LinkedHashMap<>();
        batch.forEach(one -> numbers.put(one.entry, one.file));
        Map<TargetEntry, Long> undurable = new HashMap<>();
        for (TargetEntry entry : numbers.keySet()) {
            undurable.put(entry, entry instanceof ReceivedFile f ? f.undurableBytes() : 0L);
        }
        Map<TargetEntry, Optional<Fault>> faults = target.commit(List.copyOf(numbers.keySet()));
        faults.forEach(
                (entry, fault) -> {
                    Integer file = numbers.get(entry);
                    if (file != null) {
                        long bytes = fault.isPresent() ? 0 : undurable.getOrDefault(entry, 0L);
                        durableBytes.addAndGet(bytes);
                        outcomes.add(new Outcome(file, entry, fault.orElse(null)));
                    }
                });
        inbox.wake();
    }

    private void sync() {
        for (Map.Entry<Integer, ReceivedFile> one : shared.largeFiles().entrySet()) {
            try {
                durableBytes.addAndGet(one.getValue().sync());
            } catch (TargetFault failed) {
                outcomes.add(new Outcome(one.getKey(), null, failed.fault()));
                inbox.wake();
            }
        }
    }
}
