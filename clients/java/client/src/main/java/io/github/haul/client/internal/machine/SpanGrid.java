package io.github.haul.client.internal.machine;

import io.github.haul.client.internal.proto.Extent;
import io.github.haul.client.internal.wire.Limits;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.util.List;

/** Division of a file into spans of one size, the last one shorter. */
public final class SpanGrid {
    private final long sizeBytes;
    private final long spanBytes;

    /**
     * Divides a file.
     *
     * @param sizeBytes the file's size
     * @param spanBytes the size of its spans
     * @throws ProtocolViolation if the span size is not a power of two within the limits, or the
     *     file would have too many
     */
    public SpanGrid(long sizeBytes, long spanBytes) throws ProtocolViolation {
        ProtocolViolation.unless(
                Long.bitCount(spanBytes) == 1
                        && spanBytes >= Limits.SPAN_BYTES_MIN
                        && spanBytes <= Limits.SPAN_BYTES_MAX,
                "a span size is a power of two of 64 KiB to 1 GiB");
        boolean fits = sizeBytes >= 0 && divideUp(sizeBytes, spanBytes) <= Limits.SPANS_MAX;
        ProtocolViolation.unless(fits, "a file has more than 2^20 spans");
        this.sizeBytes = sizeBytes;
        this.spanBytes = spanBytes;
    }

    private static long divideUp(long bytes, long by) {
        return bytes / by + (bytes % by == 0 ? 0 : 1);
    }

    /** Returns the file's size, in bytes. */
    public long sizeBytes() {
        return sizeBytes;
    }

    /** Returns the size of a span that is not the last, in bytes. */
    public long spanBytes() {
        return spanBytes;
    }

    /** Returns how many spans the file has; none if it is empty. */
    public int count() {
        return (int) divideUp(sizeBytes, spanBytes);
    }

    /**
     * The place of a span in its file.
     *
     * @param span the span's number
     * @return where it begins, in bytes
     */
    public long offsetBytes(int span) {
        return span * spanBytes;
    }

    /**
     * The length of a span.
     *
     * @param span the span's number
     * @return bytes, 0 beyond the end
     */
    public long lenBytes(int span) {
        return Math.max(0, Math.min(spanBytes, sizeBytes - offsetBytes(span)));
    }

    /**
     * Finds the spans that lie within holes: nothing of them has to come.
     *
     * @param holes the holes of the file
     * @return the spans
     */
    public SpanSet spansWithin(List<Extent> holes) {
        SpanSet within = new SpanSet(count());
        for (Extent hole : holes) {
            long holeEnd = hole.getOffsetBytes() + hole.getLenBytes();
            long first = (hole.getOffsetBytes() + spanBytes - 1) / spanBytes;
            for (long span = first; span < count(); span++) {
                if (offsetBytes((int) span) + lenBytes((int) span) > holeEnd) {
                    break;
                }
                within.add((int) span);
            }
        }
        return within;
    }

    /**
     * Finds the span that has exactly this place and length.
     *
     * @param offsetBytes where it begins, unsigned
     * @param lenBytes its length
     * @return its number, or -1 if the file has none such
     */
    public int find(long offsetBytes, long lenBytes) {
        if (offsetBytes < 0 || offsetBytes >= sizeBytes || offsetBytes % spanBytes != 0) {
            return -1;
        }
        int span = (int) (offsetBytes / spanBytes);
        return lenBytes(span) == lenBytes ? span : -1;
    }
}
