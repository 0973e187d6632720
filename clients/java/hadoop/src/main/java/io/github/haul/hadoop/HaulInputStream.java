package io.github.haul.hadoop;

import io.github.haul.client.RemoteFile;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Consumer;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.ByteBufferPositionedReadable;
import org.apache.hadoop.fs.ByteBufferReadable;
import org.apache.hadoop.fs.CanUnbuffer;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.VectoredReadUtils;
import org.jspecify.annotations.Nullable;

/**
 * A file at a haul server as Hadoop reads it.
 *
 * <p>Reads at a position leave that of the stream alone and may come from any thread. Ranges of a
 * vectored read are sorted, and each completes when its bytes are there; ranges that are near each
 * other share the spans that are asked for.
 */
final class HaulInputStream extends FSInputStream
        implements ByteBufferReadable,
                ByteBufferPositionedReadable,
                CanUnbuffer,
                StreamCapabilities {
    /** Bytes of later ranges that are asked for while one is read: they fit the file's memory. */
    private static final long ASKED_AHEAD_BYTES = 8 << 20;

    private static final ExecutorService VECTORED =
            Executors.newCachedThreadPool(
                    work -> {
                        Thread thread = new Thread(work, "haul vectored read");
                        thread.setDaemon(true);
                        return thread;
                    });

    private final RemoteFile file;
    private final FileSystem.@Nullable Statistics statistics;
    private long position;
    private volatile boolean isClosed;

    HaulInputStream(RemoteFile file, FileSystem.@Nullable Statistics statistics) {
        this.file = file;
        this.statistics = statistics;
    }

    private void checkOpen() throws IOException {
        if (isClosed) {
            throw new IOException(FSExceptionMessages.STREAM_IS_CLOSED);
        }
    }

    /** Reads at a position until the buffer is full or the file over; -1 at its end. */
    private int readAt(long from, ByteBuffer target) throws IOException {
        checkOpen();
        if (from < 0) {
            throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK);
        }
        if (!target.hasRemaining()) {
            return 0;
        }
        try {
            int got = file.read(from, target);
            if (got > 0 && statistics != null) {
                statistics.incrementBytesRead(got);
            }
            return got;
        } catch (InterruptedException interrupted) {
            throw HaulFileSystem.interrupted(interrupted);
        }
    }

    @Override
    public synchronized int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : Byte.toUnsignedInt(one[0]);
    }

    @Override
    public synchronized int read(byte[] target, int offset, int length) throws IOException {
        Objects.checkFromIndexSize(offset, length, target.length);
        return read(ByteBuffer.wrap(target, offset, length));
    }

    @Override
    public synchronized int read(ByteBuffer target) throws IOException {
        int got = readAt(position, target);
        position += Math.max(0, got);
        return got;
    }

    @Override
    public int read(long from, byte[] target, int offset, int length) throws IOException {
        checkOpen();
        validatePositionedReadArgs(from, target, offset, length);
        return readAt(from, ByteBuffer.wrap(target, offset, length));
    }

    @Override
    public int read(long from, ByteBuffer target) throws IOException {
        return readAt(from, target);
    }

    @Override
    public void readFully(long from, ByteBuffer target) throws IOException {
        int length = target.remaining();
        if (length > 0 && readAt(from, target) < length) {
            throw new EOFException(FSExceptionMessages.EOF_IN_READ_FULLY);
        }
    }

    @Override
    public void readFully(long from, byte[] target, int offset, int length) throws IOException {
        checkOpen();
        validatePositionedReadArgs(from, target, offset, length);
        readFully(from, ByteBuffer.wrap(target, offset, length));
    }

    @Override
    public void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate)
            throws IOException {
        readVectored(ranges, allocate, buffer -> {});
    }

    @Override
    public void readVectored(
            List<? extends FileRange> ranges,
            IntFunction<ByteBuffer> allocate,
            Consumer<ByteBuffer> release)
            throws IOException {
        checkOpen();
        Objects.requireNonNull(allocate);
        Objects.requireNonNull(release);
        List<? extends FileRange> sorted =
                VectoredReadUtils.validateAndSortRanges(ranges, Optional.of(file.sizeBytes()));
        sorted.forEach(range -> range.setData(new CompletableFuture<>()));
        if (!sorted.isEmpty()) {
            VECTORED.execute(() -> readRanges(sorted, allocate, release));
        }
    }

    private void readRanges(
            List<? extends FileRange> ranges,
            IntFunction<ByteBuffer> allocate,
            Consumer<ByteBuffer> release) {
        int asked = 0;
        long aheadBytes = 0;
        for (int at = 0; at < ranges.size(); at++) {
            while (asked < ranges.size() && (asked <= at || aheadBytes < ASKED_AHEAD_BYTES)) {
                FileRange next = ranges.get(asked);
                file.ask(next.getOffset(), next.getLength());
                aheadBytes += next.getLength();
                asked++;
            }
            readRange(ranges.get(at), allocate, release);
            aheadBytes -= ranges.get(at).getLength();
        }
    }

    private void readRange(
            FileRange range, IntFunction<ByteBuffer> allocate, Consumer<ByteBuffer> release) {
        ByteBuffer target = null;
        try {
            target = allocate.apply(range.getLength());
            target.limit(target.position() + range.getLength());
            ByteBuffer filled = target.duplicate();
            readFully(range.getOffset(), filled);
            range.getData().complete(target);
        } catch (IOException | RuntimeException failed) {
            if (target != null) {
                release.accept(target);
            }
            range.getData().completeExceptionally(failed);
        }
    }

    @Override
    public synchronized void seek(long to) throws IOException {
        checkOpen();
        if (to < 0) {
            throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK);
        }
        if (to > file.sizeBytes()) {
            throw new EOFException(FSExceptionMessages.CANNOT_SEEK_PAST_EOF);
        }
        position = to;
    }

    @Override
    public synchronized long getPos() throws IOException {
        return position;
    }

    @Override
    public boolean seekToNewSource(long to) {
        return false;
    }

    @Override
    public synchronized int available() throws IOException {
        checkOpen();
        return (int) Math.min(Integer.MAX_VALUE, file.sizeBytes() - position);
    }

    @Override
    public synchronized long skip(long bytes) throws IOException {
        checkOpen();
        long skipped = Math.max(0, Math.min(bytes, file.sizeBytes() - position));
        position += skipped;
        return skipped;
    }

    @Override
    public void unbuffer() {
        if (!isClosed) {
            file.release();
        }
    }

    @Override
    public boolean hasCapability(String capability) {
        return switch (capability.toLowerCase(Locale.ROOT)) {
            case StreamCapabilities.VECTOREDIO,
                    StreamCapabilities.READBYTEBUFFER,
                    StreamCapabilities.PREADBYTEBUFFER,
                    StreamCapabilities.UNBUFFER ->
                    true;
            default -> false;
        };
    }

    @Override
    public void close() {
        isClosed = true;
        file.close();
    }
}
