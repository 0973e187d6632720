package io.github.haul.command;

import io.github.haul.client.TransferProgress;
import org.jspecify.annotations.Nullable;

/** Intervals of a second, of progress that is told more often. */
final class Interval {
    private static final double NS_PER_S = 1e9;

    private final long begunNs;
    private long lastNs;
    private long lastBytes;

    Interval(long nowNs) {
        begunNs = nowNs;
        lastNs = nowNs;
    }

    /**
     * An interval that is over.
     *
     * @param seconds time since the transfer began
     * @param lengthSeconds length of the interval
     * @param bytes bytes that came in it
     */
    record Ended(double seconds, double lengthSeconds, long bytes) {
        double gbitPerS() {
            return Amounts.gbitPerS(bytes, lengthSeconds);
        }
    }

    /** Ends the interval; null where it is not a second old. */
    @Nullable Ended end(TransferProgress progress, long nowNs) {
        double length = (nowNs - lastNs) / NS_PER_S;
        if (length < 1) {
            return null;
        }
        long moved = progress.bytesVerified() - progress.bytesThereBefore();
        // A session that begins anew counts from 0.
        long bytes = moved < lastBytes ? moved : moved - lastBytes;
        lastNs = nowNs;
        lastBytes = moved;
        return new Ended((nowNs - begunNs) / NS_PER_S, length, bytes);
    }
}
