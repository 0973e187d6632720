package io.github.haul.client.internal.session;

import com.google.protobuf.ByteString;
import io.github.haul.client.HaulException;
import io.github.haul.client.HaulToken;
import io.github.haul.client.HaulUrl;
import io.github.haul.client.Problem;
import io.github.haul.client.RemoteEntry;
import io.github.haul.client.TransferOptions;
import io.github.haul.client.internal.machine.SpanGrid;
import io.github.haul.client.internal.machine.SpanSet;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.wire.Limits;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * A file at a server that is read in parts, by any number of threads, over as many sessions as it
 * takes: one goes on until a span is wanted that it brought before and that is not kept any more.
 *
 * <p>All of it is of one version of the file: a session that offers another one ends the reading.
 */
public final class PartReader {
    /** Bytes of spans that are kept. */
    private static final long CACHE_BYTES = 24 << 20;

    /** Bytes that are asked for at once, and ahead of a reader. */
    private static final long BATCH_BYTES = 4 << 20;

    /** The size of spans of a file that has not too many of them. */
    private static final long SPAN_BYTES = 256 << 10;

    private static final long PAUSE_MIN_MS = 100;
    private static final long PAUSE_MAX_MS = 3000;
    private static final long END_MS = 4000;

    private final HaulUrl url;
    private final HaulToken token;
    private final ByteString path;
    private final TransferOptions options;
    private final AtomicBoolean isCancelled;
    private final Headway headway;
    private final Thread thread;
    private final CompletableFuture<FileOffer> opened = new CompletableFuture<>();

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final SpanCache cache = new SpanCache(CACHE_BYTES);
    private final Map<Integer, CompletableFuture<byte[]>> wanted = new LinkedHashMap<>();
    private final Set<Integer> ahead = new LinkedHashSet<>();
    private @Nullable FileOffer first;
    private @Nullable SpanGrid grid;
    private @Nullable ReadAhead runs;
    private @Nullable Inbox inbox;
    private @Nullable HaulException failure;
    private boolean isReleased;
    private boolean isClosed;
    private long lostAtNs;
    private boolean isLost;
    private int sessions;

    /**
     * What is to be asked for next.
     *
     * @param spans the spans
     * @param isOfAnotherSession a span is wanted that this session has brought before
     */
    record Batch(List<Integer> spans, boolean isOfAnotherSession) {}

    private PartReader(
            HaulUrl url,
            HaulToken token,
            ByteString path,
            TransferOptions options,
            AtomicBoolean isCancelled) {
        this.url = url;
        this.token = token;
        this.path = Listing.trimmed(path);
        this.options = options;
        this.isCancelled = isCancelled;
        headway = new Headway(options.retryFor());
        thread = new Thread(this::run, "haul reader");
        thread.setDaemon(true);
    }

    /**
     * Opens a file.
     *
     * @param url the server
     * @param token opens it
     * @param path the file, below the token's root
     * @param options protection, streams, span size, times and listener
     * @param isCancelled ends it once it is true
     * @return the reader
     * @throws HaulException if nothing is there, it is no file, or the server cannot be asked
     * @throws InterruptedException if the calling thread was interrupted
     */
    public static PartReader open(
            HaulUrl url,
            HaulToken token,
            ByteString path,
            TransferOptions options,
            AtomicBoolean isCancelled)
            throws HaulException, InterruptedException {
        PartReader reader = new PartReader(url, token, path, options, isCancelled);
        reader.thread.start();
        try {
            await(reader.opened);
            return reader;
        } catch (HaulException | InterruptedException failed) {
            reader.close();
            throw failed;
        }
    }

    private static <T> T await(CompletableFuture<T> future)
            throws HaulException, InterruptedException {
        try {
            return future.get();
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof HaulException problem) {
                throw problem;
            }
            throw new IllegalStateException("a file cannot be read in an unknown way", failed);
        }
    }

    /** What the file is. */
    public RemoteEntry entry() {
        return Listing.entry(opened.join(), true);
    }

    /** How many sessions it took so far. */
    public int sessions() {
        lock.lock();
        try {
            return sessions;
        } finally {
            lock.unlock();
        }
    }

    /** Bytes of the file that are held in memory. */
    public long keptBytes() {
        lock.lock();
        try {
            return cache.bytes();
        } finally {
            lock.unlock();
        }
    }

    /**
     * Reads from a place of the file until the buffer is full or the file over.
     *
     * @param position the place
     * @param target gets the bytes
     * @return how many bytes were read; -1 at or behind the end
     * @throws HaulException if the file cannot be read
     * @throws InterruptedException if the calling thread was interrupted
     */
    public int read(long position, ByteBuffer target) throws HaulException, InterruptedException {
        SpanGrid spans = grid();
        long size = spans.sizeBytes();
        check();
        if (position >= size) {
            return -1;
        }
        long end = position + Math.min(target.remaining(), size - position);
        int lastSpan = (int) (Math.max(position, end - 1) / spans.spanBytes());
        for (long at = position; at < end; ) {
            int span = (int) (at / spans.spanBytes());
            byte[] content = fetch(span, lastSpan);
            int from = (int) (at - spans.offsetBytes(span));
            int length = (int) Math.min(end - at, content.length - from);
            target.put(content, from, length);
            at += length;
        }
        return (int) (end - position);
    }

    private void check() throws HaulException {
        lock.lock();
        try {
            checkLocked();
        } finally {
            lock.unlock();
        }
    }

    private void checkLocked() throws HaulException {
        if (failure != null) {
            throw failure;
        }
        if (isClosed || isCancelled.get()) {
            throw new HaulException.Refused(closedProblem());
        }
    }

    private Problem closedProblem() {
        return new Problem("", "", Words.name(path), "was closed and cannot be read", "", "", "");
    }

    private byte[] fetch(int span, int lastSpan) throws HaulException, InterruptedException {
        CompletableFuture<byte[]> future = null;
        byte[] kept;
        lock.lock();
        try {
            checkLocked();
            kept = cache.get(span);
            if (kept == null) {
                future = wanted.computeIfAbsent(span, key -> new CompletableFuture<>());
            }
            boolean hasMore = wantAhead(span, lastSpan);
            if (future != null || hasMore) {
                isReleased = false;
                changed.signalAll();
                if (inbox != null) {
                    inbox.wake();
                }
            }
        } finally {
            lock.unlock();
        }
        return kept != null ? kept : await(Objects.requireNonNull(future));
    }

    /**
     * Asks for a part that is read soon.
     *
     * @param position its place
     * @param length its bytes
     */
    public void ask(long position, long length) {
        lock.lock();
        try {
            SpanGrid spans = grid();
            long end = Math.min(position + length, spans.sizeBytes());
            for (long at = position; at < end; at += spans.spanBytes() - at % spans.spanBytes()) {
                int span = (int) (at / spans.spanBytes());
                if (!cache.contains(span) && !wanted.containsKey(span)) {
                    ahead.add(span);
                }
            }
            wake();
        } finally {
            lock.unlock();
        }
    }

    /** Wants what is likely to be read next, many spans at a time. */
    private boolean wantAhead(int span, int lastSpan) {
        int most = (int) Math.max(0, BATCH_BYTES / grid().spanBytes());
        int reach = runs == null ? 0 : runs.read(span);
        int end =
                Math.min(
                        grid().count() - 1,
                        Math.max(span + reach, Math.min(lastSpan, span + most)));
        List<Integer> missing = new ArrayList<>();
        for (int next = span + 1; next <= end; next++) {
            if (!cache.contains(next) && !wanted.containsKey(next) && !ahead.contains(next)) {
                missing.add(next);
            }
        }
        boolean isWorthwhile = 2 * missing.size() >= end - span && !missing.isEmpty();
        if (isWorthwhile) {
            ahead.addAll(missing);
        }
        return isWorthwhile;
    }

    /** Division of the file into spans. */
    SpanGrid grid() {
        lock.lock();
        try {
            if (grid == null) {
                throw new IllegalStateException("the file is not open");
            }
            return grid;
        } finally {
            lock.unlock();
        }
    }

    /** Takes the offer of a session; false where the file is not what it was. */
    boolean offered(FileOffer offer) {
        lock.lock();
        try {
            isLost = false;
            FileOffer before = first;
            if (before == null) {
                first = offer;
                grid = gridOf(offer.getSizeBytes());
                runs = new ReadAhead((int) (BATCH_BYTES / grid.spanBytes()));
                opened.complete(offer);
                return true;
            }
            boolean isSame =
                    before.getSizeBytes() == offer.getSizeBytes()
                            && before.getMtimeS() == offer.getMtimeS()
                            && before.getMtimeNs() == offer.getMtimeNs()
                            && before.getCtimeS() == offer.getCtimeS()
                            && before.getCtimeNs() == offer.getCtimeNs()
                            && before.getInode() == offer.getInode()
                            && before.getDevice() == offer.getDevice();
            if (!isSame) {
                failed(
                        new HaulException.SourceChanged(
                                new Problem(
                                        "SOURCE_CHANGED",
                                        "source",
                                        Words.name(path),
                                        "was changed or replaced while it was read",
                                        "the file that was opened",
                                        "another size, time or inode",
                                        "open it again")));
            }
            return isSame;
        } finally {
            lock.unlock();
        }
    }

    private SpanGrid gridOf(long sizeBytes) {
        long spanBytes = options.spanBytes() > 0 ? options.spanBytes() : SPAN_BYTES;
        while (sizeBytes / spanBytes >= Limits.SPANS_MAX && spanBytes < Limits.SPAN_BYTES_MAX) {
            spanBytes *= 2;
        }
        try {
            return new SpanGrid(sizeBytes, spanBytes);
        } catch (ProtocolViolation tooLarge) {
            throw new IllegalStateException("a file beyond the protocol's limit", tooLarge);
        }
    }

    /** Whether a session has nothing more to do here. */
    boolean isEnough() {
        lock.lock();
        try {
            return isClosed || failure != null || isReleased && wanted.isEmpty();
        } finally {
            lock.unlock();
        }
    }

    /** Takes what is to be asked for, of a session that has asked for these spans before. */
    Batch nextBatch(SpanSet asked) {
        lock.lock();
        try {
            List<Integer> spans = new ArrayList<>();
            long bytes = 0;
            for (int span : wanted.keySet()) {
                if (asked.contains(span)) {
                    return new Batch(List.of(), true);
                }
                if (spans.isEmpty() || bytes + grid().lenBytes(span) <= BATCH_BYTES) {
                    spans.add(span);
                    bytes += grid().lenBytes(span);
                }
            }
            Iterator<Integer> next = ahead.iterator();
            while (next.hasNext() && bytes < BATCH_BYTES) {
                int span = next.next();
                next.remove();
                boolean isNew = !asked.contains(span) && !cache.contains(span);
                if (isNew && !wanted.containsKey(span)) {
                    spans.add(span);
                    bytes += grid().lenBytes(span);
                }
            }
            return new Batch(spans, false);
        } finally {
            lock.unlock();
        }
    }

    /** Gives out what has arrived, verified, of the file that was offered. */
    void arrived(Map<Integer, byte[]> spans) {
        lock.lock();
        try {
            spans.forEach(
                    (span, content) -> {
                        cache.put(span, content);
                        CompletableFuture<byte[]> future = wanted.remove(span);
                        if (future != null) {
                            future.complete(content);
                        }
                    });
        } finally {
            lock.unlock();
        }
    }

    /** Ends the reading for good. */
    void failed(HaulException problem) {
        lock.lock();
        try {
            failure = failure == null ? problem : failure;
            failWaiting(problem);
        } finally {
            lock.unlock();
        }
    }

    private void failWaiting(HaulException problem) {
        opened.completeExceptionally(problem);
        wanted.values().forEach(future -> future.completeExceptionally(problem));
        wanted.clear();
        ahead.clear();
    }

    /** Lets go of the session and of what is kept, until something is read again. */
    public void release() {
        lock.lock();
        try {
            isReleased = true;
            cache.clear();
            ahead.clear();
            wake();
        } finally {
            lock.unlock();
        }
    }

    private void wake() {
        changed.signalAll();
        if (inbox != null) {
            inbox.wake();
        }
    }

    /** Ends the reading; what waits for a part fails. */
    public void close() {
        lock.lock();
        try {
            isClosed = true;
            failWaiting(new HaulException.Refused(closedProblem()));
            cache.clear();
            wake();
        } finally {
            lock.unlock();
        }
        boolean wasInterrupted = Thread.interrupted();
        try {
            thread.join(END_MS);
        } catch (InterruptedException again) {
            wasInterrupted = true;
        }
        if (wasInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void run() {
        try {
            long pauseMs = PAUSE_MIN_MS;
            while (awaitWork(pauseMs)) {
                boolean hasGotOn = session();
                pauseMs = hasGotOn ? PAUSE_MIN_MS : Math.min(2 * pauseMs, PAUSE_MAX_MS);
            }
        } catch (InterruptedException nobodyDoes) {
            failed(new HaulException.Refused(closedProblem()));
        } catch (OutOfMemoryError exhausted) {
            failed(Words.outOfMemory(exhausted));
        } catch (RuntimeException | Error broken) {
            failed(new HaulException.Refused(closedProblem()));
            throw broken;
        }
    }

    /** Waits until a session is needed; false where none is any more. */
    private boolean awaitWork(long pauseMs) throws InterruptedException {
        lock.lock();
        try {
            long pauseEndNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(pauseMs);
            while (isLost && !isClosed && System.nanoTime() < pauseEndNs) {
                changed.awaitNanos(pauseEndNs - System.nanoTime());
            }
            while (!isClosed && failure == null && opened.isDone() && wanted.isEmpty()) {
                changed.await();
            }
            return !isClosed && failure == null;
        } finally {
            lock.unlock();
        }
    }

    /** Runs one session to its end; whether it got on. */
    private boolean session() throws InterruptedException {
        OpenSession session;
        try {
            session = Transfer.openOne(url, token, Listing.open(path), options, isCancelled);
        } catch (HaulException refused) {
            if (isPassing(refused) && opened.isDone()) {
                lost(refused.problem().toString());
            } else {
                failOnce(refused);
            }
            return false;
        }
        Inbox messages = new Inbox();
        headway.beginSession();
        PartRole role = new PartRole(session, path, this, options, messages, headway);
        lock.lock();
        try {
            inbox = messages;
            sessions++;
        } finally {
            lock.unlock();
        }
        SessionEnd end;
        try {
            end = new SessionLoop(session.control(), messages, isCancelled).run(role);
        } catch (HaulException exhausted) {
            failOnce(exhausted);
            return false;
        } finally {
            lock.lock();
            try {
                inbox = null;
            } finally {
                lock.unlock();
            }
        }
        ended(end);
        return end instanceof SessionEnd.Finished;
    }

    private void ended(SessionEnd end) {
        if (end instanceof SessionEnd.Lost cut) {
            lost(Words.printable(cut.why()));
        } else if (end instanceof SessionEnd.Refused refused) {
            HaulException problem = Listing.failure(refused.fault(), path);
            boolean isIdle = "STALLED".equals(problem.problem().code());
            if (isPassing(problem) || isIdle) {
                lost(problem.problem().toString());
            } else {
                failOnce(problem);
            }
        } else if (end instanceof SessionEnd.Cancelled) {
            failed(new HaulException.Refused(closedProblem()));
        }
    }

    private static boolean isPassing(HaulException problem) {
        return problem instanceof HaulException.Unreachable
                || Set.of("SHUTTING_DOWN", "TOO_MANY_SESSIONS", "LOCKED")
                        .contains(problem.problem().code());
    }

    /** Fails what waits now; what is read later is tried again. */
    private void failOnce(HaulException problem) {
        lock.lock();
        try {
            failWaiting(problem);
        } finally {
            lock.unlock();
        }
    }

    /** Notes a lost session: another is tried, until the time for that is over. */
    private void lost(String why) {
        lock.lock();
        try {
            if (opened.isDone() && wanted.isEmpty()) {
                // Nobody waits: the time to get back begins with the next read that finds none.
                isLost = false;
                return;
            }
            long nowNs = System.nanoTime();
            if (!isLost) {
                isLost = true;
                lostAtNs = nowNs;
                // There is one more try, however little time there is.
                if (opened.isDone()) {
                    return;
                }
            }
            if (nowNs - lostAtNs >= options.retryFor().toNanos() || !opened.isDone()) {
                isLost = false;
                failWaiting(
                        new HaulException.ConnectionLost(
                                new Problem(
                                        "",
                                        "path",
                                        Words.name(path),
                                        "the connection was lost while it was read",
                                        "the server within "
                                                + options.retryFor().toSeconds()
                                                + " s (retryFor)",
                                        why,
                                        "read again when it is reachable")));
            }
        } finally {
            lock.unlock();
        }
    }
}
