package io.github.haul.command;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.github.haul.client.TransferProgress;
import org.junit.jupiter.api.Test;

/** Intervals of progress. */
final class IntervalTest {
    private static final long S = 1_000_000_000;

    private static TransferProgress progress(long verified, long before) {
        return new TransferProgress(1, 0, 0, 1000, verified, before, 0, 0, 1, true);
    }

    private static long bytes(Interval interval, TransferProgress progress, long nowNs) {
        Interval.Ended ended = interval.end(progress, nowNs);
        assertNotNull(ended);
        return ended.bytes();
    }

    @Test
    void whatWasThereBeforeHasNotComeInAnInterval() {
        Interval interval = new Interval(0);
        assertNull(interval.end(progress(700, 700), S / 2));
        assertEquals(20, bytes(interval, progress(720, 700), S));
        assertEquals(30, bytes(interval, progress(750, 700), 2 * S));
        // The next session finds all that there.
        assertEquals(10, bytes(interval, progress(760, 750), 3 * S));
        assertEquals(0, bytes(interval, progress(760, 750), 4 * S));
    }
}
