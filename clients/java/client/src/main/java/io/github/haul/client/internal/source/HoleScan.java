package io.github.haul.client.internal.source;

import io.github.haul.client.internal.proto.Extent;
import io.github.haul.client.internal.wire.Limits;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/**
 * Finds runs of zeros in large files, which are offered as holes: they take no space at the
 * receiver, and are not sent.
 *
 * <p>Java cannot ask a file system for holes. So a large file is sampled, and read through only
 * where a fair part of the samples is zeros; a real hole costs no disk. Zeros that take space at
 * the source take none at the receiver then, and read the same. An object serves one thread.
 */
public final class HoleScan {
    /** Files that are smaller are sent as they are. */
    private static final long FILE_BYTES_MIN = 16L << 20;

    private static final int SAMPLES = 32;

    /** Samples of zeros from which on a file is read through. */
    private static final int ZERO_SAMPLES_MIN = 4;

    private static final int SAMPLE_BYTES = 4 << 10;

    /** Unit of a hole: the smallest span is as long. */
    private static final int UNIT_BYTES = 64 << 10;

    private static final int READ_BYTES = 1 << 20;

    private final ByteBuffer buffer = ByteBuffer.allocateDirect(READ_BYTES);

    /**
     * Finds the holes of a file.
     *
     * @param path the file
     * @param sizeBytes its size
     * @return runs of zeros, in order and not touching, at most as many as an offer may have
     * @throws IOException if it cannot be read
     */
    public List<Extent> of(Path path, long sizeBytes) throws IOException {
        if (sizeBytes < FILE_BYTES_MIN) {
            return List.of();
        }
        try (FileChannel file = FileChannel.open(path, StandardOpenOption.READ)) {
            return isSparse(file, sizeBytes) ? scan(file, sizeBytes) : List.of();
        }
    }

    private boolean isSparse(FileChannel file, long sizeBytes) throws IOException {
        int zeros = 0;
        long step = sizeBytes / SAMPLES;
        for (int sample = 0; sample < SAMPLES; sample++) {
            buffer.clear().limit(SAMPLE_BYTES);
            // In the middle of its part: the first bytes of a file are seldom zeros.
            file.read(buffer, sample * step + step / 2);
            zeros += isZero(0, buffer.position()) ? 1 : 0;
        }
        return zeros >= ZERO_SAMPLES_MIN;
    }

    private List<Extent> scan(FileChannel file, long sizeBytes) throws IOException {
        List<Extent> holes = new ArrayList<>();
        long begin = -1;
        for (long at = 0; at < sizeBytes; at += READ_BYTES) {
            int length = readFully(file, at, (int) Math.min(READ_BYTES, sizeBytes - at));
            for (int unit = 0; unit < length; unit += UNIT_BYTES) {
                boolean isZero = isZero(unit, Math.min(unit + UNIT_BYTES, length));
                if (isZero && begin < 0) {
                    begin = at + unit;
                } else if (!isZero && begin >= 0) {
                    add(holes, begin, at + unit);
                    begin = -1;
                }
            }
        }
        if (begin >= 0) {
            add(holes, begin, sizeBytes);
        }
        return fewest(holes);
    }

    private static void add(List<Extent> holes, long begin, long end) {
        holes.add(Extent.newBuilder().setOffsetBytes(begin).setLenBytes(end - begin).build());
    }

    /** The longest of the holes, where there are more than an offer may have. */
    private static List<Extent> fewest(List<Extent> holes) {
        if (holes.size() <= Limits.HOLES_MAX) {
            return holes;
        }
        return holes.stream()
                .sorted(Comparator.comparingLong(Extent::getLenBytes).reversed())
                .limit(Limits.HOLES_MAX)
                .sorted(Comparator.comparingLong(Extent::getOffsetBytes))
                .toList();
    }

    /** Reads this many bytes; returns how many there are, and sees to it that the rest is none. */
    private int readFully(FileChannel file, long at, int length) throws IOException {
        buffer.clear().limit(length);
        while (buffer.hasRemaining() && file.read(buffer, at + buffer.position()) >= 0) {
            // Until it is full, or the file ends.
        }
        return buffer.position();
    }

    private boolean isZero(int begin, int end) {
        int at = begin;
        for (; at + Long.BYTES <= end; at += Long.BYTES) {
            if (buffer.getLong(at) != 0) {
                return false;
            }
        }
        for (; at < end; at++) {
            if (buffer.get(at) != 0) {
                return false;
            }
        }
        return true;
    }
}
