package io.github.haul.client;

import io.github.haul.client.internal.session.PartReader;
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A file at a server, of which any parts are read, in any order. Nothing is kept on disk.
 *
 * <p>Each part is verified by its digest or MAC before it is given out, and after the server has
 * said that its file is still the one that was opened: a file that is changed or replaced meanwhile
 * fails with {@link HaulException.SourceChanged}, and no read mixes two versions. A read that goes
 * on where the last one ended asks ahead. Less than 40 MiB of the heap are used, but for files of
 * more than 4 TiB, whose pieces are larger.
 *
 * <p>A lost connection comes back as in a pull ({@link TransferOptions#retryFor}). Any number of
 * threads may read one file.
 */
public final class RemoteFile implements AutoCloseable {
    private final PartReader reader;
    private final Runnable whenClosed;
    private final RemoteEntry entry;
    private final AtomicBoolean isClosed = new AtomicBoolean();

    RemoteFile(PartReader reader, Runnable whenClosed) {
        this.reader = reader;
        this.whenClosed = whenClosed;
        entry = reader.entry();
    }

    /**
     * What the file was when it was opened.
     *
     * @return its entry, under an empty name
     */
    public RemoteEntry entry() {
        return entry;
    }

    /**
     * The file's length.
     *
     * @return bytes
     */
    public long sizeBytes() {
        return entry.sizeBytes();
    }

    /**
     * Reads from a place of the file until the buffer is full or the file is over.
     *
     * @param position the place, 0 or more
     * @param target gets the bytes; where the read fails, as many as came before
     * @return how many bytes were read; -1 at or behind the end of the file
     * @throws HaulException if the file cannot be read, has changed, or was closed
     * @throws InterruptedException if the calling thread was interrupted
     */
    public int read(long position, ByteBuffer target) throws HaulException, InterruptedException {
        if (position < 0) {
            throw new IllegalArgumentException("a place before the file: " + position);
        }
        return target.hasRemaining() ? reader.read(position, target) : 0;
    }

    /**
     * Asks for a part that is read soon, and does not wait for it. More than 16 MiB that were asked
     * for and not read yet may be gone again before they are.
     *
     * @param position its place, 0 or more
     * @param length its bytes
     */
    public void ask(long position, long length) {
        if (position < 0 || length < 0) {
            throw new IllegalArgumentException("a place before the file: " + position);
        }
        reader.ask(position, length);
    }

    /**
     * How many sessions with the server reading took so far: one more whenever a part is wanted
     * again that is not in memory any more, and after a lost connection.
     *
     * @return the number
     */
    public int sessions() {
        return reader.sessions();
    }

    /**
     * The memory that parts of the file take now, beside those on their way.
     *
     * @return bytes
     */
    public long keptBytes() {
        return reader.keptBytes();
    }

    /** Ends the session with the server and frees memory; the next read opens another one. */
    public void release() {
        reader.release();
    }

    /** Ends the session with the server. */
    @Override
    public void close() {
        if (isClosed.compareAndSet(false, true)) {
            reader.close();
            whenClosed.run();
        }
    }
}
