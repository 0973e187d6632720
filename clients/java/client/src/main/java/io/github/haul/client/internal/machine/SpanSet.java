package io.github.haul.client.internal.machine;

import io.github.haul.client.internal.proto.SpanRange;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** A set of spans of one file, with a bit for each. */
public final class SpanSet {
    private final long[] bits;
    private final int fileSpans;
    private int count;

    /**
     * Makes an empty set.
     *
     * @param fileSpans how many spans the file has
     */
    public SpanSet(int fileSpans) {
        this.bits = new long[(fileSpans + Long.SIZE - 1) / Long.SIZE];
        this.fileSpans = fileSpans;
    }

    private SpanSet(SpanSet other) {
        bits = other.bits.clone();
        fileSpans = other.fileSpans;
        count = other.count;
    }

    /**
     * Makes the set of all spans.
     *
     * @param fileSpans how many spans the file has
     * @return the set
     */
    public static SpanSet full(int fileSpans) {
        SpanSet set = new SpanSet(fileSpans);
        Arrays.fill(set.bits, -1);
        if (fileSpans % Long.SIZE != 0) {
            set.bits[set.bits.length - 1] = (1L << fileSpans) - 1;
        }
        set.count = fileSpans;
        return set;
    }

    /**
     * Makes a set out of runs of spans.
     *
     * @param fileSpans how many spans the file has
     * @param ranges the runs
     * @return the set
     * @throws ProtocolViolation if a run leaves the file or overlaps an earlier one
     */
    public static SpanSet of(int fileSpans, List<SpanRange> ranges) throws ProtocolViolation {
        SpanSet set = new SpanSet(fileSpans);
        for (SpanRange range : ranges) {
            long first = Integer.toUnsignedLong(range.getFirst());
            long end = first + Integer.toUnsignedLong(range.getCount());
            ProtocolViolation.unless(end <= fileSpans, "a range of spans leaves the file");
            for (long span = first; span < end; span++) {
                ProtocolViolation.unless(set.add((int) span), "ranges of spans overlap");
            }
        }
        return set;
    }

    /** Returns a set of the same spans, which changes by itself. */
    public SpanSet copy() {
        return new SpanSet(this);
    }

    /**
     * Whether a span is in the set.
     *
     * @param span its number; one that the file does not have is in no set
     * @return whether it is
     */
    public boolean contains(int span) {
        return span >= 0
                && span < fileSpans
                && (bits[span / Long.SIZE] >>> span % Long.SIZE & 1) == 1;
    }

    /**
     * Adds a span.
     *
     * @param span one that the file has
     * @return true when it was not in the set before
     */
    public boolean add(int span) {
        if (span < 0 || span >= fileSpans) {
            throw new IndexOutOfBoundsException("span " + span + " of " + fileSpans);
        }
        boolean isNew = !contains(span);
        bits[span / Long.SIZE] |= 1L << span % Long.SIZE;
        count += isNew ? 1 : 0;
        return isNew;
    }

    /**
     * Takes a span out.
     *
     * @param span its number
     * @return true when it was in the set
     */
    public boolean remove(int span) {
        boolean had = contains(span);
        if (had) {
            bits[span / Long.SIZE] &= ~(1L << span % Long.SIZE);
            count--;
        }
        return had;
    }

    /**
     * Takes the spans of another set of the same file out.
     *
     * @param other the set
     */
    public void removeAll(SpanSet other) {
        count = 0;
        for (int word = 0; word < bits.length; word++) {
            bits[word] &= ~(word < other.bits.length ? other.bits[word] : 0);
            count += Long.bitCount(bits[word]);
        }
    }

    /** Returns how many spans the file has. */
    public int fileSpans() {
        return fileSpans;
    }

    /** Returns how many spans are in the set. */
    public int count() {
        return count;
    }

    /** Returns whether no span is in the set. */
    public boolean isEmpty() {
        return count == 0;
    }

    /** Returns whether all spans of the file are in the set. */
    public boolean isFull() {
        return count == fileSpans;
    }

    /**
     * Finds the first span of the set at or behind another.
     *
     * @param from where the search begins
     * @return the span's number, or -1 if there is none
     */
    public int firstFrom(int from) {
        long mask = -1L << from % Long.SIZE;
        for (int word = from / Long.SIZE; word < bits.length; word++) {
            long found = bits[word] & mask;
            if (found != 0) {
                return word * Long.SIZE + Long.numberOfTrailingZeros(found);
            }
            mask = -1;
        }
        return -1;
    }

    /** Lists the set as runs, lowest first. */
    public List<SpanRange> toRanges() {
        List<SpanRange> ranges = new ArrayList<>();
        int first = firstFrom(0);
        while (first >= 0) {
            int end = first + 1;
            while (contains(end)) {
                end++;
            }
            ranges.add(SpanRange.newBuilder().setFirst(first).setCount(end - first).build());
            first = firstFrom(end);
        }
        return ranges;
    }

    /**
     * The length of the spans in the set.
     *
     * @param grid the division of their file
     * @return bytes
     */
    public long bytes(SpanGrid grid) {
        int last = fileSpans - 1;
        long bytes = count * grid.spanBytes();
        return contains(last) ? bytes - grid.spanBytes() + grid.lenBytes(last) : bytes;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof SpanSet set
                && fileSpans == set.fileSpans
                && Arrays.equals(bits, set.bits);
    }

    @Override
    public int hashCode() {
        return 31 * fileSpans + Arrays.hashCode(bits);
    }

    @Override
    public String toString() {
        return count + " of " + fileSpans + " spans";
    }
}
