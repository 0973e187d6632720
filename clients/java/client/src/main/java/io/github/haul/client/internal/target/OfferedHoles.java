package io.github.haul.client.internal.target;

import io.github.haul.client.internal.machine.SpanGrid;
import io.github.haul.client.internal.machine.SpanSet;
import io.github.haul.client.internal.proto.Extent;
import io.github.haul.client.internal.proto.FileOffer;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.Arrays;
import java.util.List;

/**
 * Holes of an offered file: runs that read as zeros and take no space.
 *
 * <p>Java can make a hole only by never writing there. So zeros that come for one are not written
 * as long as nothing else was written there before.
 */
final class OfferedHoles {
    private static final ByteBuffer ZEROS = ByteBuffer.allocateDirect(1 << 16).asReadOnlyBuffer();

    /** The most bytes of holes that are looked through for what an earlier run may have written. */
    private static final long LOOKED_THROUGH_MAX = 4L << 30;

    private final List<Extent> holes;
    private final long sizeBytes;

    /** Holes in which there may be other bytes than zeros. */
    private final boolean[] written;

    OfferedHoles(FileOffer offer) {
        holes = offer.getHolesList();
        sizeBytes = offer.getSizeBytes();
        written = new boolean[holes.size()];
    }

    private static long end(Extent hole) {
        return hole.getOffsetBytes() + hole.getLenBytes();
    }

    boolean isEmpty() {
        return holes.isEmpty();
    }

    /** Bytes that are in no hole. */
    long dataBytes() {
        return sizeBytes - holes.stream().mapToLong(Extent::getLenBytes).sum();
    }

    /** Whether the last byte of the file is in a hole. */
    boolean holdsLastByte() {
        return !holes.isEmpty() && end(holes.get(holes.size() - 1)) >= sizeBytes;
    }

    /** Spans that lie within a hole: nothing of them has to come. */
    SpanSet spansWithin(SpanGrid grid) {
        return grid.spansWithin(holes);
    }

    /**
     * Writes bytes of the file, without the zeros of holes that nothing was written to.
     *
     * @param file where to
     * @param bytes what; its position is its limit afterwards
     * @param offsetBytes the place in the file
     */
    void write(FileChannel file, ByteBuffer bytes, long offsetBytes) throws IOException {
        int limit = bytes.limit();
        long at = offsetBytes;
        while (bytes.hasRemaining()) {
            int hole = firstBehind(at);
            long begin = hole < 0 ? Long.MAX_VALUE : holes.get(hole).getOffsetBytes();
            boolean isIn = at >= begin;
            long runEnd = isIn ? end(holes.get(hole)) : begin;
            int length = (int) Math.min(bytes.remaining(), runEnd - at);
            bytes.limit(bytes.position() + length);
            if (isIn && staysHole(hole, bytes)) {
                bytes.position(bytes.limit());
            } else {
                writeAll(file, bytes, at);
            }
            at += length;
            bytes.limit(limit);
        }
    }

    /** The first hole that ends behind a place, or -1. */
    private int firstBehind(long at) {
        int low = 0;
        int high = holes.size();
        while (low < high) {
            int middle = (low + high) >>> 1;
            if (end(holes.get(middle)) > at) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        return low < holes.size() ? low : -1;
    }

    private boolean staysHole(int hole, ByteBuffer bytes) {
        boolean zeros = areZeros(bytes);
        synchronized (written) {
            // Before the bytes are there, for another thread may ask next.
            written[hole] |= !zeros;
            return !written[hole];
        }
    }

    private static boolean areZeros(ByteBuffer bytes) {
        ByteBuffer rest = bytes.duplicate();
        while (rest.hasRemaining()) {
            int length = Math.min(rest.remaining(), ZEROS.capacity());
            ByteBuffer part = rest.slice(rest.position(), length);
            if (part.mismatch(ZEROS.duplicate().limit(length)) >= 0) {
                return false;
            }
            rest.position(rest.position() + length);
        }
        return true;
    }

    /**
     * Looks at what an earlier run may have written where holes are to be, and writes zeros over
     * it: Java has no call that makes a hole of it again (fallocate(2)), so that it takes its
     * space.
     *
     * @return whether the spans within holes are zeros now; false where the holes are too long to
     *     be looked through: their spans come as any others
     */
    boolean clear(FileChannel file) throws IOException {
        long bytes = sizeBytes - dataBytes();
        if (bytes > LOOKED_THROUGH_MAX) {
            synchronized (written) {
                Arrays.fill(written, true);
            }
            return false;
        }
        ByteBuffer block = ByteBuffer.allocateDirect(ZEROS.capacity());
        for (int hole = 0; hole < holes.size(); hole++) {
            long at = holes.get(hole).getOffsetBytes();
            while (at < end(holes.get(hole))) {
                block.clear().limit((int) Math.min(block.capacity(), end(holes.get(hole)) - at));
                int read = file.read(block, at);
                if (read <= 0) {
                    throw new IOException("the file ends early");
                }
                if (!areZeros(block.flip())) {
                    synchronized (written) {
                        written[hole] = true;
                    }
                    writeAll(file, ZEROS.duplicate().limit(read), at);
                }
                at += read;
            }
        }
        return true;
    }

    static void writeAll(FileChannel file, ByteBuffer bytes, long offsetBytes) throws IOException {
        long at = offsetBytes;
        while (bytes.hasRemaining()) {
            at += file.write(bytes, at);
        }
    }
}
