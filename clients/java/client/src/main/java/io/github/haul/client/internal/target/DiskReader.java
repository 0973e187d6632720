package io.github.haul.client.internal.target;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.jspecify.annotations.Nullable;

/**
 * Reads a file from its disk, not from the page cache: what is there now, and not what was written.
 *
 * <p>It reads by O_DIRECT, which the JDK has on Linux, macOS and Windows (ExtendedOpenOption, whose
 * very name newer compilers warn of, and so it is looked up). Where the file system has none, the
 * bytes come through the page cache, which Java cannot have forget them. An object serves one
 * thread.
 */
final class DiskReader implements Closeable {
    private static final int BLOCK_BYTES = 1 << 20;
    private static final int ALIGN_BYTES_MAX = 1 << 16;
    private static final String OPTIONS = "com.sun.nio.file.ExtendedOpenOption";

    private final FileChannel written;
    private final @Nullable FileChannel direct;

    /**
     * One a thread, however many files it holds open: these wait for their turn to be published.
     */
    private static final ThreadLocal<ByteBuffer> BUFFER =
            ThreadLocal.withInitial(
                    () ->
                            ByteBuffer.allocateDirect(BLOCK_BYTES + ALIGN_BYTES_MAX)
                                    .alignedSlice(ALIGN_BYTES_MAX));

    /** Whether the file system let it be opened so, and then refused to read so. */
    private boolean isRefused;

    private DiskReader(FileChannel written, @Nullable FileChannel direct) {
        this.written = written;
        this.direct = direct;
    }

    /** What takes the bytes that were read: a buffer from its position to its limit. */
    interface Taker {
        void take(ByteBuffer bytes) throws IOException;
    }

    /**
     * Opens a file, which is open for writing already.
     *
     * @param path the file
     * @param written its channel, by which it is read where there is no other way
     */
    static DiskReader open(Path path, FileChannel written) throws IOException {
        long align = blockBytes(path);
        OpenOption option = direct();
        if (option == null || Long.bitCount(align) != 1 || align > ALIGN_BYTES_MAX) {
            return new DiskReader(written, null);
        }
        try {
            FileChannel direct =
                    FileChannel.open(
                            path, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS, option);
            return new DiskReader(written, direct);
        } catch (UnsupportedOperationException | IOException hasNone) {
            return new DiskReader(written, null);
        }
    }

    /** Length of a block of its file system; 0 where that is not told, as without /proc. */
    private static long blockBytes(Path path) {
        try {
            return Files.getFileStore(path).getBlockSize();
        } catch (IOException notTold) {
            return 0;
        }
    }

    private static @Nullable OpenOption direct() {
        try {
            Object[] options = Class.forName(OPTIONS).getEnumConstants();
            for (Object one : options == null ? new Object[0] : options) {
                if (one instanceof OpenOption option && String.valueOf(one).equals("DIRECT")) {
                    return option;
                }
            }
        } catch (ClassNotFoundException hasNone) {
            return null;
        }
        return null;
    }

    /** Whether it reads from the disk; through the page cache otherwise. */
    boolean isDirect() {
        return direct != null && !isRefused;
    }

    /**
     * Reads a part that begins at a multiple of 64 KiB.
     *
     * @throws EOFException if the file ends within it
     */
    void read(long offsetBytes, long lenBytes, Taker taker) throws IOException {
        ByteBuffer buffer = BUFFER.get();
        long at = offsetBytes;
        long end = offsetBytes + lenBytes;
        while (at < end) {
            // Whole blocks are asked for, and what is behind the part is not looked at.
            int got = read(buffer, at);
            if (got <= 0) {
                throw new EOFException("the file ends at " + at + " bytes");
            }
            buffer.flip().limit((int) Math.min(got, end - at));
            at += buffer.remaining();
            taker.take(buffer);
        }
    }

    private int read(ByteBuffer buffer, long at) throws IOException {
        if (direct != null && !isRefused) {
            try {
                return direct.read(buffer.clear(), at);
            } catch (IOException refused) {
                isRefused = true;
            }
        }
        return written.read(buffer.clear(), at);
    }

    @Override
    public void close() throws IOException {
        if (direct != null) {
            direct.close();
        }
    }
}
