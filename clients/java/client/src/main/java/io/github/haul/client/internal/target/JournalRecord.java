package io.github.haul.client.internal.target;

import io.github.haul.client.internal.proto.SpanRange;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32C;
import org.jspecify.annotations.Nullable;

/**
 * A record of a journal: a run of spans, which became durable or are lost, with what the program
 * haul may have written of each behind it.
 *
 * @param first the run's first span
 * @param count how many spans it has
 * @param isLost whether they are not durable after all
 * @param bytes bytes of the whole record
 */
record JournalRecord(int first, int count, boolean isLost, long bytes) {
    static final int HEAD_BYTES = 16;

    /** Bytes of a record's head that its sum covers. */
    private static final int COVERED_BYTES = 12;

    private static final int DIGEST_BYTES = 16;
    private static final int VALUE_BYTES = 32;
    private static final int WITH_VALUES = 1 << 31;
    private static final int WITH_DIGESTS = 1 << 30;
    private static final int LOST = 1 << 29;
    private static final int COUNT = LOST - 1;

    /** Appends a record without digests: XXH3-128 and BLAKE3 are none of the JDK's. */
    static void encode(ByteBuffer into, SpanRange range, boolean isLost, int number) {
        ByteBuffer head = ByteBuffer.allocate(HEAD_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        head.putInt(range.getFirst());
        head.putInt(range.getCount() | (isLost ? LOST : 0));
        head.putInt(number);
        CRC32C sum = new CRC32C();
        sum.update(head.array(), 0, COVERED_BYTES);
        head.putInt((int) sum.getValue());
        into.put(head.flip());
    }

    /** Reads the next record; null behind the last one that is whole. */
    static @Nullable JournalRecord read(InputStream journal, int number, int fileSpans)
            throws IOException {
        byte[] head = new byte[HEAD_BYTES];
        if (journal.readNBytes(head, 0, HEAD_BYTES) < HEAD_BYTES) {
            return null;
        }
        ByteBuffer said = ByteBuffer.wrap(head).order(ByteOrder.LITTLE_ENDIAN);
        int first = said.getInt();
        int word = said.getInt();
        int count = word & COUNT;
        long content =
                ((word & WITH_DIGESTS) == 0 ? 0 : (long) count * DIGEST_BYTES)
                        + ((word & WITH_VALUES) == 0 ? 0 : (long) count * VALUE_BYTES);
        boolean hasFlags = (word & (WITH_DIGESTS | WITH_VALUES)) != 0;
        if (hasFlags && (count == 0 || count > fileSpans) || said.getInt() != number) {
            return null;
        }
        CRC32C sum = new CRC32C();
        sum.update(head, 0, COVERED_BYTES);
        try {
            cover(journal, content, sum);
        } catch (EOFException torn) {
            return null;
        }
        boolean isWhole = said.getInt() == (int) sum.getValue();
        return isWhole
                ? new JournalRecord(first, count, (word & LOST) != 0, HEAD_BYTES + content)
                : null;
    }

    private static void cover(InputStream journal, long bytes, CRC32C sum) throws IOException {
        byte[] block = new byte[1 << 13];
        long left = bytes;
        while (left > 0) {
            int read = journal.read(block, 0, (int) Math.min(left, block.length));
            if (read < 0) {
                throw new EOFException();
            }
            sum.update(block, 0, read);
            left -= read;
        }
    }
}
