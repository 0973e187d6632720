package io.github.haul.client.internal.machine;

import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.Side;
import io.github.haul.client.internal.proto.SpanRange;
import io.github.haul.client.internal.wire.Limits;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.stream.LongStream;
import org.jspecify.annotations.Nullable;

/**
 * Random numbers from a seed, the same as in Rust (SplitMix64, as in {@code seeded.rs}), and what
 * bytes stand for in sessions with bad peers (as in {@code numbers.rs}).
 */
final class Seeded {
    /** No file of these tests has more spans. */
    private static final long SPANS_LISTED = 1 << 21;

    private long state;

    Seeded(long seed) {
        state = seed;
    }

    private long next() {
        state += 0x9e37_79b9_7f4a_7c15L;
        long mixed = (state ^ state >>> 30) * 0xbf58_476d_1ce4_e5b9L;
        mixed = (mixed ^ mixed >>> 27) * 0x94d0_49bb_1331_11ebL;
        return mixed ^ mixed >>> 31;
    }

    int below(int end) {
        return (int) Long.remainderUnsigned(next(), end);
    }

    int anyByte() {
        return below(256);
    }

    boolean flag() {
        return below(2) == 1;
    }

    /** Picks the number of a kind by the kinds' shares. */
    int kind(int... shares) {
        int at = below(java.util.Arrays.stream(shares).sum());
        int kind = 0;
        while (at >= shares[kind]) {
            at -= shares[kind];
            kind++;
        }
        return kind;
    }

    /** Runs of spans, most of them of none that a file has. */
    List<SpanRange> ranges() {
        List<SpanRange> ranges = new ArrayList<>();
        for (int left = below(3); left > 0; left--) {
            int first = number(anyByte());
            ranges.add(run(first, number(anyByte())));
        }
        return ranges;
    }

    static SpanRange run(int first, int count) {
        return SpanRange.newBuilder().setFirst(first).setCount(count).build();
    }

    /** A number that mostly names what exists, and now and then is far out. */
    static int number(int byteValue) {
        return switch (byteValue) {
            case 255 -> -1;
            case 254 -> -2;
            case 253 -> 1 << 20;
            case 252 -> (1 << 20) - 1;
            default -> byteValue % 6;
        };
    }

    static long spanBytes(int byteValue) {
        return switch (byteValue) {
            case 255 -> 0;
            case 254 -> Limits.SPAN_BYTES_MAX * 2;
            case 253 -> Limits.SPAN_BYTES_MIN + 1;
            case 252 -> -1;
            case 251 -> Limits.SPAN_BYTES_MAX;
            case 250 -> Limits.SPAN_BYTES_MIN * 2;
            default -> Limits.SPAN_BYTES_MIN;
        };
    }

    /** The size of a file; that of 254 is the largest number that there is. */
    static long sizeBytes(int byteValue) {
        return switch (byteValue) {
            case 255 -> Limits.FILE_BYTES_MAX;
            case 254 -> -1;
            default -> byteValue % 16 * Limits.SPAN_BYTES_MIN / 2;
        };
    }

    /** The first spans of a file by the bits of a byte. */
    static SpanSet set(int fileSpans, int bits) {
        SpanSet set = new SpanSet(fileSpans);
        for (int bit = 0; bit < Math.min(fileSpans, 8); bit++) {
            if ((bits >> bit & 1) == 1) {
                set.add(bit);
            }
        }
        return set;
    }

    static LongStream spansOf(Collection<SpanRange> ranges) {
        return ranges.stream()
                .flatMapToLong(
                        range -> {
                            long first = Integer.toUnsignedLong(range.getFirst());
                            long end = first + Integer.toUnsignedLong(range.getCount());
                            return LongStream.range(first, Math.min(end, SPANS_LISTED));
                        });
    }

    static Fault fault(int text) {
        String what = List.of("", "broken", "no space").get(text % 3);
        return Fault.newBuilder()
                .setCode(FaultCode.IO_FAILED)
                .setSide(Side.SOURCE)
                .setWhat(what)
                .build();
    }

    static <T> @Nullable T nthOf(Collection<T> all, int nth) {
        return all.stream().skip(nth % Math.max(1, all.size())).findFirst().orElse(null);
    }
}
