package io.github.haul.client.internal.session;

import java.util.Arrays;

/**
 * How far ahead a file is read: not at all after a jump, and twice as far with each span that
 * follows the last one. Several readers of one file may each have a run of their own.
 */
final class ReadAhead {
    private static final int RUNS_MAX = 4;

    private final int spansMax;
    private final int[] last = new int[RUNS_MAX];
    private final int[] ahead = new int[RUNS_MAX];
    private int oldest;

    /**
     * Begins with no run.
     *
     * @param spansMax as many spans are asked for ahead at most
     */
    ReadAhead(int spansMax) {
        this.spansMax = spansMax;
        Arrays.fill(last, Integer.MIN_VALUE);
    }

    /**
     * Notes that a span is read.
     *
     * @param span its number
     * @return how many of the next ones are worth asking for
     */
    int read(int span) {
        for (int run = 0; run < RUNS_MAX; run++) {
            if (last[run] == span) {
                return ahead[run];
            }
            if (last[run] == span - 1) {
                last[run] = span;
                ahead[run] = Math.min(spansMax, Math.max(1, 2 * ahead[run]));
                return ahead[run];
            }
        }
        last[oldest] = span;
        // The first span of a file is mostly the beginning of all of it.
        ahead[oldest] = span == 0 ? Math.min(1, spansMax) : 0;
        int found = ahead[oldest];
        oldest = (oldest + 1) % RUNS_MAX;
        return found;
    }
}
