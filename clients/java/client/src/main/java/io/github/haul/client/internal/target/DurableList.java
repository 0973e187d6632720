package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * The list of the files that are durable in a directory which the program haul keeps hidden ({@code
 * .NAME.haul-durable}).
 *
 * <p>A line names the layout. A batch follows for each sync: a count (u32), so many hashes of paths
 * below the directory (16 bytes each, of BLAKE3), and 8 bytes of a BLAKE3 over both. Numbers are
 * little-endian. A batch that a crash cut off, or that is not what its sum says, is the end.
 *
 * <p>A list of many files is believed in parts, so that none takes more than a few MiB of memory:
 * {@link #parts} tells how many, and {@link #part} reads one.
 */
final class DurableList {
    private static final byte[] LAYOUT = "haul durable 1\n\0".getBytes(StandardCharsets.US_ASCII);
    private static final int HASH_BYTES = 16;
    private static final int SUM_BYTES = 8;

    /** The most hashes of a batch, as the program writes them. */
    private static final int BATCH_MAX = 1 << 16;

    /** Hashes of a part, about. */
    private static final int PART_HASHES = 1 << 18;

    private final FileChannel list;
    private final int partBits;

    /** What is done with each hash of a list. */
    private interface Each {
        void take(long first, long second);
    }

    /** A list in an open file. */
    DurableList(FileChannel list) throws IOException {
        this.list = list;
        long hashes = list.size() / HASH_BYTES;
        int bits = 0;
        while (hashes >> bits > PART_HASHES) {
            bits++;
        }
        partBits = bits;
    }

    /** The number of parts. */
    int parts() {
        return 1 << partBits;
    }

    /** Hashes of a list, or of one part of it. */
    final class Part {
        private final int number;

        /** Pairs of words by the first one; zeros where there is none. */
        private final long[] slots;

        private boolean hasZeros;

        private Part(int number, int count) {
            this.number = number;
            slots = new long[2 * Integer.highestOneBit(4 * Math.max(1, count) - 1)];
        }

        private int find(long first, long second) {
            int at = (int) first & slots.length / 2 - 1;
            while (slots[2 * at] != 0 || slots[2 * at + 1] != 0) {
                if (slots[2 * at] == first && slots[2 * at + 1] == second) {
                    break;
                }
                at = at + 1 & slots.length / 2 - 1;
            }
            return 2 * at;
        }

        private void add(long first, long second) {
            hasZeros |= first == 0 && second == 0;
            int at = find(first, second);
            slots[at] = first;
            slots[at + 1] = second;
        }

        /**
         * Whether this part is the one to ask for a path, and the list does not tell of it.
         *
         * @param path the path below the hidden directory
         */
        boolean lacks(ByteString path) {
            ByteBuffer hash = hash(path.toByteArray(), path.size());
            long first = hash.getLong();
            long second = hash.getLong();
            if (partOf(first) != number) {
                return false;
            }
            boolean isZero = first == 0 && second == 0;
            return isZero ? !hasZeros : slots[find(first, second)] != first;
        }
    }

    /** Reads the hashes of a part. */
    Part part(int number) throws IOException {
        int[] count = new int[1];
        each((first, second) -> count[0] += partOf(first) == number ? 1 : 0);
        Part part = new Part(number, count[0]);
        each(
                (first, second) -> {
                    if (partOf(first) == number) {
                        part.add(first, second);
                    }
                });
        return part;
    }

    private int partOf(long first) {
        return partBits == 0 ? 0 : (int) (first >>> Long.SIZE - partBits);
    }

    private static ByteBuffer hash(byte[] bytes, int length) {
        return ByteBuffer.wrap(Blake3.of(bytes, 0, length)).order(ByteOrder.LITTLE_ENDIAN);
    }

    private void each(Each each) throws IOException {
        byte[] layout = new byte[LAYOUT.length];
        long at = layout.length;
        if (!fill(layout, 0) || !Arrays.equals(layout, LAYOUT)) {
            return;
        }
        byte[] head = new byte[Integer.BYTES];
        while (fill(head, at)) {
            int count = ByteBuffer.wrap(head).order(ByteOrder.LITTLE_ENDIAN).getInt();
            if (count <= 0 || count > BATCH_MAX) {
                return;
            }
            int summed = Integer.BYTES + count * HASH_BYTES;
            byte[] batch = new byte[summed + SUM_BYTES];
            if (!fill(batch, at)) {
                return;
            }
            ByteBuffer words = ByteBuffer.wrap(batch).order(ByteOrder.LITTLE_ENDIAN);
            if (hash(batch, summed).getLong() != words.getLong(summed)) {
                return;
            }
            words.position(Integer.BYTES);
            for (int hash = 0; hash < count; hash++) {
                each.take(words.getLong(), words.getLong());
            }
            at += batch.length;
        }
    }

    /** Fills bytes from a place of the list; false where it ends before. */
    private boolean fill(byte[] bytes, long at) throws IOException {
        ByteBuffer rest = ByteBuffer.wrap(bytes);
        for (long place = at; rest.hasRemaining(); ) {
            int read = list.read(rest, place);
            if (read < 0) {
                return false;
            }
            place += read;
        }
        return true;
    }
}
