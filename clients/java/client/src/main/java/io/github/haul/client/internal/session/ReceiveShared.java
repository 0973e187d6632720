package io.github.haul.client.internal.session;

import io.github.haul.client.internal.machine.Receiver;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.target.ReceivedFile;
import io.github.haul.client.internal.target.TargetEntry;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Semaphore;
import org.jspecify.annotations.Nullable;

/** What the session's thread, its streams and its committer have in common, under one lock. */
final class ReceiveShared extends SharedMachine<Receiver> {
    /** Small files that are written and not in place: each has a descriptor. */
    private static final int SMALL_FILES_MAX = 256;

    /** More than threads ever wait for a place. */
    private static final int WAITING_MAX = 1 << 16;

    private final Map<Integer, TargetEntry> entries = new HashMap<>();
    private final Semaphore smallFiles = new Semaphore(SMALL_FILES_MAX);

    /** Small files that hold one of the places. */
    private final Set<Integer> holding = new HashSet<>();

    ReceiveShared(Receiver machine) {
        super(machine);
    }

    void put(int file, TargetEntry entry) {
        run(machine -> entries.put(file, entry));
    }

    @Nullable TargetEntry entry(int file) {
        return find(machine -> entries.get(file));
    }

    /** The file that a span is written to; null where it is given up by now. */
    @Nullable ReceivedFile file(int file) {
        return entry(file) instanceof ReceivedFile partial ? partial : null;
    }

    /** Forgets a file that is settled. */
    @Nullable TargetEntry remove(int file) {
        return find(
                machine -> {
                    if (holding.remove(file)) {
                        smallFiles.release();
                    }
                    return entries.remove(file);
                });
    }

    /** Takes the files that are not settled, to let go of them. */
    Map<Integer, TargetEntry> removeAll() {
        return with(
                machine -> {
                    Map<Integer, TargetEntry> all = new HashMap<>(entries);
                    entries.clear();
                    return all;
                });
    }

    /** The files of several spans that are under way, whose verified spans are to be synced. */
    Map<Integer, ReceivedFile> largeFiles() {
        return with(
                machine -> {
                    Map<Integer, ReceivedFile> large = new HashMap<>();
                    entries.forEach(
                            (file, entry) -> {
                                if (entry instanceof ReceivedFile partial
                                        && partial.grid().count() > 1) {
                                    large.put(file, partial);
                                }
                            });
                    return large;
                });
    }

    /** Waits for a place for a small file, before its first byte is written. */
    void takePlace(int file, ReceivedFile partial) throws InterruptedException {
        if (partial.grid().count() > 1) {
            return;
        }
        boolean isHeld = with(machine -> holding.contains(file));
        if (!isHeld) {
            smallFiles.acquire();
            boolean isUsed = with(machine -> entries.containsKey(file) && holding.add(file));
            if (!isUsed) {
                smallFiles.release();
            }
        }
    }

    /** Lets nobody wait for a place any more: the session is over. */
    void stop() {
        smallFiles.release(WAITING_MAX);
    }

    /** Settles a file that cannot be written. */
    void failed(int file, Fault fault) {
        run(machine -> machine.fileFailed(file, fault));
    }
}
