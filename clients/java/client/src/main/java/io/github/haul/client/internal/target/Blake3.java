package io.github.haul.client.internal.target;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * BLAKE3 of bytes in memory, by its specification, section 2 (O'Connor and others, 2020): the
 * program haul knows the files of a hidden directory by it, and the JDK has none.
 */
final class Blake3 {
    private static final int CHUNK_BYTES = 1024;
    private static final int BLOCK_BYTES = 64;
    private static final int HASH_BYTES = 32;
    private static final int WORDS = 8;
    private static final int ROUNDS = 7;

    private static final int CHUNK_START = 1;
    private static final int CHUNK_END = 2;
    private static final int PARENT = 4;
    private static final int ROOT = 8;

    private static final int[] IV = {
        0x6A09E667,
        0xBB67AE85,
        0x3C6EF372,
        0xA54FF53A,
        0x510E527F,
        0x9B05688C,
        0x1F83D9AB,
        0x5BE0CD19,
    };
    private static final int[] PERMUTATION = {
        2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8,
    };

    private Blake3() {}

    /**
     * The hash of bytes.
     *
     * @param bytes the bytes
     * @param offset where they begin
     * @param length their number
     * @return 32 bytes
     */
    static byte[] of(byte[] bytes, int offset, int length) {
        ByteBuffer hash = ByteBuffer.allocate(HASH_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        for (int word : node(bytes, offset, length, 0, ROOT)) {
            hash.putInt(word);
        }
        return hash.array();
    }

    /** The chaining value of a subtree that begins with a chunk of this number. */
    private static int[] node(byte[] bytes, int offset, int length, int chunk, int flags) {
        if (length <= CHUNK_BYTES) {
            return chunk(bytes, offset, length, chunk, flags);
        }
        // The left one is the largest whole tree that leaves something to the right one.
        int leftChunks = Integer.highestOneBit((length - 1) / CHUNK_BYTES);
        int left = leftChunks * CHUNK_BYTES;
        int[] block = new int[2 * WORDS];
        System.arraycopy(node(bytes, offset, left, chunk, 0), 0, block, 0, WORDS);
        int[] right = node(bytes, offset + left, length - left, chunk + leftChunks, 0);
        System.arraycopy(right, 0, block, WORDS, WORDS);
        return compress(IV, block, 0, BLOCK_BYTES, PARENT | flags);
    }

    private static int[] chunk(byte[] bytes, int offset, int length, int chunk, int flags) {
        int[] chaining = IV;
        int at = 0;
        do {
            int size = Math.min(BLOCK_BYTES, length - at);
            ByteBuffer block = ByteBuffer.allocate(BLOCK_BYTES).order(ByteOrder.LITTLE_ENDIAN);
            block.put(bytes, offset + at, size);
            int[] words = new int[2 * WORDS];
            block.clear().asIntBuffer().get(words);
            int own = at == 0 ? CHUNK_START : 0;
            at += size;
            own |= at == length ? CHUNK_END | flags : 0;
            chaining = compress(chaining, words, chunk, size, own);
        } while (at < length);
        return chaining;
    }

    private static int[] compress(int[] chaining, int[] block, int counter, int size, int flags) {
        int[] state = new int[2 * WORDS];
        System.arraycopy(chaining, 0, state, 0, WORDS);
        System.arraycopy(IV, 0, state, WORDS, WORDS / 2);
        state[12] = counter;
        state[14] = size;
        state[15] = flags;
        int[] words = block;
        for (int round = 0; round < ROUNDS; round++) {
            for (int column = 0; column < 4; column++) {
                mix(state, column, column + 4, column + 8, column + 12, words, 2 * column);
            }
            for (int diagonal = 0; diagonal < 4; diagonal++) {
                int second = 4 + (diagonal + 1) % 4;
                int third = 8 + (diagonal + 2) % 4;
                int fourth = 12 + (diagonal + 3) % 4;
                mix(state, diagonal, second, third, fourth, words, 8 + 2 * diagonal);
            }
            int[] permuted = new int[words.length];
            for (int at = 0; at < permuted.length; at++) {
                permuted[at] = words[PERMUTATION[at]];
            }
            words = permuted;
        }
        int[] result = new int[WORDS];
        for (int at = 0; at < WORDS; at++) {
            result[at] = state[at] ^ state[at + WORDS];
        }
        return result;
    }

    private static void mix(int[] state, int a, int b, int c, int d, int[] words, int word) {
        state[a] += state[b] + words[word];
        state[d] = Integer.rotateRight(state[d] ^ state[a], 16);
        state[c] += state[d];
        state[b] = Integer.rotateRight(state[b] ^ state[c], 12);
        state[a] += state[b] + words[word + 1];
        state[d] = Integer.rotateRight(state[d] ^ state[a], 8);
        state[c] += state[d];
        state[b] = Integer.rotateRight(state[b] ^ state[c], 7);
    }
}
