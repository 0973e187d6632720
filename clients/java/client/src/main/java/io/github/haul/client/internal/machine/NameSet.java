package io.github.haul.client.internal.machine;

import java.util.Arrays;

/**
 * A set of hashes at little more than their own eight bytes each: the first bits of a hash choose a
 * sorted list, which grows by an eighth at a time.
 */
public final class NameSet {
    /** Bits of a hash that choose its list. */
    private static final int LIST_BITS = 10;

    /** Hashes that a list makes room for at least when it grows. */
    private static final int GROWTH_MIN = 4;

    private static final long[] EMPTY = {};

    private final long[][] lists = new long[1 << LIST_BITS][];
    private final int[] counts = new int[1 << LIST_BITS];
    private int count;

    /** Makes an empty set. */
    public NameSet() {
        Arrays.fill(lists, EMPTY);
    }

    int size() {
        return count;
    }

    /**
     * Whether a name is in the set.
     *
     * @param hash the name's hash, as good as a random number
     * @return whether it is
     */
    public boolean contains(long hash) {
        return place(hash) >= 0;
    }

    /**
     * Adds a name.
     *
     * @param hash the name's hash, as good as a random number
     */
    public void add(long hash) {
        int place = -place(hash) - 1;
        if (place < 0) {
            return;
        }
        int list = listOf(hash);
        int length = counts[list];
        if (length == lists[list].length) {
            lists[list] = Arrays.copyOf(lists[list], length + Math.max(length / 8, GROWTH_MIN));
        }
        System.arraycopy(lists[list], place, lists[list], place + 1, length - place);
        lists[list][place] = hash;
        counts[list]++;
        count++;
    }

    void remove(long hash) {
        int place = place(hash);
        if (place >= 0) {
            int list = listOf(hash);
            counts[list]--;
            System.arraycopy(lists[list], place + 1, lists[list], place, counts[list] - place);
            count--;
        }
    }

    /** Places that the lists have, taken or free. */
    int room() {
        return Arrays.stream(lists).mapToInt(list -> list.length).sum();
    }

    /** Where a hash stands in its list, or -1 less the place where it belongs. */
    private int place(long hash) {
        int list = listOf(hash);
        return Arrays.binarySearch(lists[list], 0, counts[list], hash);
    }

    private static int listOf(long hash) {
        return (int) (hash >>> Long.SIZE - LIST_BITS);
    }
}
