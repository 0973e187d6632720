package io.github.haul.client.internal.session;

import io.github.haul.client.internal.machine.SenderEvent;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.source.FileFacts;
import io.github.haul.client.internal.source.SourceEntry;
import io.github.haul.client.internal.source.SourceFaults;
import io.github.haul.client.internal.wire.SpanDigest;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * Looks at sources whose spans are all verified: whether they are still what was offered.
 *
 * <p>A program may write to a file and set its time back, but not the ctime of its inode. So where
 * that differs the source is read again and compared by the digests that went out (SPEC.md, 7.6),
 * on a thread of its own.
 */
final class SourceChecks {
    private static final int REREADS_MAX = 3;
    private static final int READ_BYTES = 256 << 10;

    private final SendShared shared;
    private final Inbox inbox;
    private final Supplier<SpanDigest> digests;
    private final Map<Integer, SenderEvent.Resumed> earlier = new HashMap<>();
    private final Set<Integer> reading = new HashSet<>();

    /** Files that are to be looked at once more, whatever their reading brings. */
    private final Set<Integer> isVoid = new HashSet<>();

    private final Queue<Result> results = new ConcurrentLinkedQueue<>();
    private @Nullable ExecutorService reader;
    private volatile boolean isStopped;

    private record Result(int file, @Nullable Fault fault) {}

    SourceChecks(SendShared shared, Inbox inbox, Supplier<SpanDigest> digests) {
        this.shared = shared;
        this.inbox = inbox;
        this.digests = digests;
    }

    /** Remembers what an earlier session left of a file. */
    void keepEarlier(SenderEvent.Resumed resumed) {
        earlier.put(resumed.file(), resumed);
    }

    /** Notes that some of that is not there any more. */
    void lost(int file) {
        if (reading.contains(file)) {
            isVoid.add(file);
        }
    }

    void forget(int file) {
        earlier.remove(file);
    }

    /** Looks at a source, and says so to the machine: now, or once it was read again. */
    void check(int file) {
        SourceEntry source = shared.source(file);
        if (source == null) {
            found(file, null);
            return;
        }
        Fault fault;
        boolean isTouched = false;
        try {
            FileFacts now = source.look();
            fault = source.compare(now);
            isTouched = source.isTouched(now);
        } catch (IOException error) {
            fault = SourceFaults.of(source.name(), "cannot be looked at again", error);
        }
        if (fault == null && source.offer().getKind() == FileKind.REGULAR) {
            fault = compareEarlier(source, earlier.get(file), isTouched);
            if (fault == null && isTouched) {
                readAgain(file, source);
                return;
            }
        }
        found(file, fault);
    }

    /** Judges what an earlier session left: this client has no XXH3-128 to compare it by. */
    private static @Nullable Fault compareEarlier(
            SourceEntry source, SenderEvent.@Nullable Resumed resumed, boolean isTouched) {
        if (resumed == null) {
            return null;
        }
        boolean isOlder =
                FileFacts.ctimeDiffers(
                        resumed.ctimeSeconds(),
                        resumed.ctimeNanos(),
                        source.offer().getCtimeS(),
                        source.offer().getCtimeNs());
        return isTouched || isOlder
                ? SourceFaults.changed(
                        source.name(),
                        "its inode has changed since an earlier run sent some of it, which this"
                                + " client cannot compare; run it again, all of it is sent then")
                : null;
    }

    private void readAgain(int file, SourceEntry source) {
        ExecutorService executor = reader;
        if (executor == null) {
            executor =
                    Executors.newSingleThreadExecutor(
                            work -> {
                                Thread thread = new Thread(work, "haul source reader");
                                thread.setDaemon(true);
                                return thread;
                            });
            reader = executor;
        }
        reading.add(file);
        executor.execute(
                () -> {
                    results.add(new Result(file, compareAgain(file, source)));
                    inbox.wake();
                });
    }

    /** Takes up what was read since. */
    void tick() {
        for (Result result = results.poll(); result != null; result = results.poll()) {
            reading.remove(result.file);
            // What was lost since goes out once more, and is looked at once more.
            if (!isVoid.remove(result.file)) {
                found(result.file, result.fault);
            }
        }
    }

    private void found(int file, @Nullable Fault fault) {
        shared.<@Nullable Void, RuntimeException>with(
                machine -> {
                    machine.sourceChecked(file, fault);
                    return null;
                });
    }

    void stop() {
        isStopped = true;
        if (reader != null) {
            reader.shutdownNow();
        }
    }

    private @Nullable Fault compareAgain(int file, SourceEntry source) {
        try {
            for (int time = 0; time < REREADS_MAX; time++) {
                FileFacts before = source.look();
                Fault fault = source.compare(before);
                if (fault == null) {
                    fault = compareSent(file, source);
                }
                if (fault != null) {
                    return fault;
                }
                FileFacts after = source.look();
                if (after.equals(before)) {
                    return null;
                }
            }
            return SourceFaults.changed(
                    source.name(),
                    "its inode changed while it was read again, " + REREADS_MAX + " times");
        } catch (IOException error) {
            return SourceFaults.of(source.name(), "cannot be read again", error);
        }
    }

    private @Nullable Fault compareSent(int file, SourceEntry source) throws IOException {
        SpanDigest digest = digests.get();
        ByteBuffer buffer = ByteBuffer.allocateDirect(READ_BYTES);
        try (FileChannel content = source.open()) {
            for (SendShared.Sent sent : shared.sentOf(file)) {
                digest.begin(sent.header());
                long at = sent.header().offsetBytes();
                long end = at + sent.header().lenBytes();
                while (at < end) {
                    if (isStopped) {
                        throw new IOException("the session is over");
                    }
                    buffer.clear().limit((int) Math.min(READ_BYTES, end - at));
                    int got = content.read(buffer, at);
                    if (got < 0) {
                        return SourceFaults.changed(source.name(), "it became shorter");
                    }
                    digest.update(buffer.flip());
                    at += got;
                }
                byte[] now = digest.end(sent.trailer().status());
                if (!Arrays.equals(now, sent.trailer().digest())) {
                    return SourceFaults.changed(
                            source.name(),
                            "other bytes than were sent, though the time was set back");
                }
            }
        }
        return null;
    }
}
