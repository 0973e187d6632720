package io.github.haul.client.internal.session;

import com.google.protobuf.ByteString;
import io.github.haul.client.TransferListener;
import io.github.haul.client.TransferNotice;
import io.github.haul.client.internal.machine.SenderEvent;
import io.github.haul.client.internal.machine.SpanGrid;
import io.github.haul.client.internal.machine.SpanSet;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.source.FileFacts;
import io.github.haul.client.internal.source.SourceEntry;
import io.github.haul.client.internal.source.SourceFaults;
import io.github.haul.client.internal.wire.DurableDigest;
import io.github.haul.client.internal.wire.ProtocolViolation;
import io.github.haul.client.internal.wire.SpanDigest;
import io.github.haul.client.internal.wire.Xxh3;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * Looks at sources whose spans are all verified: whether they are still what was offered.
 *
 * <p>A program may write to a file and set its time back, but not the ctime of its inode. So where
 * that differs the source is read again and compared by the digests that went out, and by that of
 * what an earlier session left at the receiver (SPEC.md, 7.6), on a thread of its own.
 */
final class SourceChecks {
    private static final int REREADS_MAX = 3;
    private static final int READ_BYTES = 256 << 10;

    private final SendShared shared;
    private final Inbox inbox;
    private final Supplier<SpanDigest> digests;
    private final TransferListener listener;
    private final Map<Integer, Earlier> earlier = new HashMap<>();
    private final Set<Integer> reading = new HashSet<>();

    /** Files that are to be looked at once more, whatever their reading brings. */
    private final Set<Integer> isVoid = new HashSet<>();

    /** What the reading thread reads into. */
    private final ByteBuffer buffer = ByteBuffer.allocateDirect(READ_BYTES);

    private final Queue<Result> results = new ConcurrentLinkedQueue<>();
    private @Nullable ExecutorService reader;
    private volatile boolean isStopped;

    private record Result(int file, @Nullable Fault fault) {}

    /** Spans that an earlier session left at the receiver, outside of holes. */
    private record Earlier(SpanSet spans, SpanGrid grid, SenderEvent.Resumed told) {
        boolean isOlderThan(FileOffer offer) {
            return FileFacts.ctimeDiffers(
                    told.ctimeSeconds(), told.ctimeNanos(), offer.getCtimeS(), offer.getCtimeNs());
        }
    }

    SourceChecks(
            SendShared shared,
            Inbox inbox,
            Supplier<SpanDigest> digests,
            TransferListener listener) {
        this.listener = listener;
        this.shared = shared;
        this.inbox = inbox;
        this.digests = digests;
    }

    /** Remembers what an earlier session left of a file; tells how much, but for holes. */
    long keepEarlier(SenderEvent.Resumed resumed) {
        SourceEntry source = shared.source(resumed.file());
        if (source == null) {
            return 0;
        }
        SpanGrid grid;
        try {
            grid = new SpanGrid(source.offer().getSizeBytes(), resumed.spanBytes());
        } catch (ProtocolViolation impossible) {
            throw new IllegalStateException("the machine has divided the file so", impossible);
        }
        SpanSet spans = resumed.durable().copy();
        spans.removeAll(grid.spansWithin(source.offer().getHolesList()));
        if (!spans.isEmpty()) {
            earlier.put(resumed.file(), new Earlier(spans, grid, resumed));
        }
        return spans.bytes(grid);
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
            Earlier left = earlier.get(file);
            boolean isOlder = left != null && left.isOlderThan(source.offer());
            if (isTouched || isOlder) {
                readAgain(file, source, left, isTouched);
                return;
            }
        }
        found(file, fault);
    }

    private void readAgain(
            int file, SourceEntry source, @Nullable Earlier left, boolean isTouched) {
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
        String since = isTouched ? "it was offered" : "an earlier run";
        listener.onNotice(
                new TransferNotice.Rereading(
                        Words.name(source.name()),
                        Words.encoded(source.name()),
                        "its inode has changed since " + since + " (a mode, a link, or bytes)"));
        reading.add(file);
        List<SendShared.Sent> sent = isTouched ? shared.sentOf(file) : List.of();
        executor.execute(
                () ->
                        inbox.run(
                                () -> {
                                    Fault fault = compareAgain(source, left, sent);
                                    results.add(new Result(file, fault));
                                    inbox.wake();
                                }));
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
        shared.run(machine -> machine.sourceChecked(file, fault));
    }

    void stop() {
        isStopped = true;
        if (reader != null) {
            reader.shutdownNow();
        }
    }

    private @Nullable Fault compareAgain(
            SourceEntry source, @Nullable Earlier left, List<SendShared.Sent> sent) {
        try {
            for (int time = 0; time < REREADS_MAX; time++) {
                FileFacts before = source.look();
                Fault fault = source.compare(before);
                if (fault == null) {
                    fault = compare(source, left, sent);
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

    private @Nullable Fault compare(
            SourceEntry source, @Nullable Earlier left, List<SendShared.Sent> sent)
            throws IOException {
        try (FileChannel content = source.open()) {
            if (left != null && left.told.digest().isEmpty()) {
                return SourceFaults.changed(
                        source.name(),
                        "its inode changed, and nothing tells what an earlier run left");
            }
            if (left != null && !digestOf(left, content).equals(left.told.digest())) {
                return SourceFaults.changed(
                        source.name(),
                        "other bytes than an earlier run sent, though the time was set back");
            }
            SpanDigest digest = digests.get();
            for (SendShared.Sent one : sent) {
                digest.begin(one.header());
                read(content, one.header().offsetBytes(), one.header().lenBytes(), digest::update);
                byte[] now = digest.end(one.trailer().status());
                if (!Arrays.equals(now, one.trailer().digest())) {
                    return SourceFaults.changed(
                            source.name(),
                            "other bytes than were sent, though the time was set back");
                }
            }
        } catch (EOFException shorter) {
            return SourceFaults.changed(source.name(), "it became shorter");
        }
        return null;
    }

    private ByteString digestOf(Earlier left, FileChannel content) throws IOException {
        DurableDigest all = new DurableDigest();
        Xxh3 digest = new Xxh3();
        SpanSet spans = left.spans;
        for (int span = spans.firstFrom(0); span >= 0; span = spans.firstFrom(span + 1)) {
            digest.begin();
            read(content, left.grid.offsetBytes(span), left.grid.lenBytes(span), digest::update);
            all.add(span, digest.end());
        }
        return all.end();
    }

    private void read(FileChannel content, long offset, long length, Consumer<ByteBuffer> taker)
            throws IOException {
        long at = offset;
        long end = offset + length;
        while (at < end) {
            if (isStopped) {
                throw new IOException("the session is over");
            }
            buffer.clear().limit((int) Math.min(READ_BYTES, end - at));
            int got = content.read(buffer, at);
            if (got < 0) {
                throw new EOFException();
            }
            taker.accept(buffer.flip());
            at += got;
        }
    }
}
