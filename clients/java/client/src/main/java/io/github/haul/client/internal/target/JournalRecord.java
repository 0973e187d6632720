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
 * A record of a journal: a run of spans, which became durable or are lost, with the digest of each
 * behind it. BLAKE3 values that the program haul may have written there too are passed over.
 *
 * @param first the run's first span
 * @param count how many spans it has
 * @param isLost whether they are not durable after all
 * @param digests the spans' digests one after the other; empty where there are none
 * @param bytes bytes of the whole record
 */
record JournalRecord(int first, int count, boolean isLost, byte[] digests, long bytes) {
    static final int HEAD_BYTES = 16;

    /** Bytes of a record's head that its sum covers. */
    private static final int COVERED_BYTES = 12;

    private static final int DIGEST_BYTES = 16;
    private static final int VALUE_BYTES = 32;
    private static final int WITH_VALUES = 1 << 31;
    private static final int WITH_DIGESTS = 1 << 30;
    private static final int LOST = 1 << 29;
    private static final int COUNT = LOST - 1;

    /** Makes a record of a run of spans, with their digests, or with none. */
    static byte[] encode(SpanRange range, boolean isLost, byte[] digests, int number) {
        ByteBuffer record =
                ByteBuffer.allocate(HEAD_BYTES + digests.length).order(ByteOrder.LITTLE_ENDIAN);
        int flags = (isLost ? LOST : 0) | (digests.length > 0 ? WITH_DIGESTS : 0);
        record.putInt(range.getFirst()).putInt(range.getCount() | flags).putInt(number);
        CRC32C sum = new CRC32C();
        sum.update(record.array(), 0, COVERED_BYTES);
        sum.update(digests);
        return record.putInt((int) sum.getValue()).put(digests).array();
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
        long digestBytes = (word & WITH_DIGESTS) == 0 ? 0 : (long) count * DIGEST_BYTES;
        long valueBytes = (word & WITH_VALUES) == 0 ? 0 : (long) count * VALUE_BYTES;
        boolean hasFlags = (word & (WITH_DIGESTS | WITH_VALUES)) != 0;
        if (hasFlags && (count == 0 || count > fileSpans) || said.getInt() != number) {
            return null;
        }
        byte[] digests = journal.readNBytes((int) digestBytes);
        CRC32C sum = new CRC32C();
        sum.update(head, 0, COVERED_BYTES);
        sum.update(digests);
        try {
            cover(journal, digestBytes - digests.length + valueBytes, sum);
        } catch (EOFException torn) {
            return null;
        }
        long bytes = HEAD_BYTES + digestBytes + valueBytes;
        boolean isWhole = said.getInt() == (int) sum.getValue();
        return isWhole ? new JournalRecord(first, count, (word & LOST) != 0, digests, bytes) : null;
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
