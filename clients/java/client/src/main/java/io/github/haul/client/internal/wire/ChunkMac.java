package io.github.haul.client.internal.wire;

import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.util.Arrays;
import javax.crypto.Cipher;
import javax.crypto.SecretKey;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.IvParameterSpec;

/**
 * GMAC (NIST SP 800-38D) of one chunk after the other, under one key.
 *
 * <p>A chunk comes in pieces of any size between {@link #begin} and {@link #end}. An object serves
 * one thread.
 */
abstract sealed class ChunkMac {
    /** Bytes of each chunk of a span but for its last (SPEC.md, 6.3). */
    static final int CHUNK_BYTES = 256 << 10;

    private static final int NONCE_BYTES = 12;
    private static final int TAG_BYTES = Frames.DIGEST_BYTES;

    /**
     * The provider whose ciphers end each piece as they get it. Others hold bytes of a piece back,
     * or all until the last one.
     */
    private static final String PROMPT_PROVIDER = "SunJCE";

    private final SecretKey key;
    private final Cipher cipher;

    private ChunkMac(SecretKey key, Cipher cipher) {
        this.key = key;
        this.cipher = cipher;
    }

    /**
     * A MAC in the way that is the faster one with the provider that computes GMAC here.
     *
     * @param key the key
     * @param bytesMax the most bytes of a chunk
     * @return the MAC
     */
    static ChunkMac of(SecretKey key, int bytesMax) {
        Cipher cipher = GmacProvider.cipher();
        return cipher.getProvider().getName().equals(PROMPT_PROVIDER)
                ? new Encrypted(key, cipher)
                : new Associated(key, cipher, bytesMax);
    }

    /**
     * Begins a chunk.
     *
     * @param nonce 12 bytes, which no other chunk had under this key
     */
    void begin(byte[] nonce) {
        try {
            cipher.init(
                    Cipher.ENCRYPT_MODE, key, new GCMParameterSpec(Byte.SIZE * TAG_BYTES, nonce));
        } catch (GeneralSecurityException refused) {
            // A nonce that was used is a frame that went out twice: nothing may be sent then.
            throw new IllegalStateException("a MAC cannot begin", refused);
        }
    }

    /** Takes the bytes that remain in a buffer, and moves its position behind them. */
    abstract void update(ByteBuffer payload);

    /** Ends the chunk, and returns the 16 bytes of its tag. */
    abstract byte[] end();

    /** The chunk as associated data, as every provider takes it. */
    static final class Associated extends ChunkMac {
        private final ByteBuffer gathered;

        Associated(SecretKey key, Cipher cipher, int bytesMax) {
            super(key, cipher);
            gathered = ByteBuffer.allocate(bytesMax);
        }

        @Override
        void begin(byte[] nonce) {
            super.begin(nonce);
            gathered.clear();
        }

        @Override
        void update(ByteBuffer payload) {
            gathered.put(payload);
        }

        @Override
        byte[] end() {
            super.cipher.updateAAD(gathered.array(), 0, gathered.position());
            try {
                return super.cipher.doFinal();
            } catch (GeneralSecurityException refused) {
                throw new IllegalStateException("a MAC cannot end", refused);
            }
        }
    }

    /**
     * The chunk as what AES-GCM encrypts to, out of which the tag of associated data follows.
     *
     * <p>The JDK gathers associated data in an array that grows, copies it into another, and has no
     * instruction for many blocks at once; for what it encrypts it does neither. AES-CTR with the
     * key stream of GCM makes the plaintext whose ciphertext is the chunk. GCM encrypts that, and
     * its tag differs in the last block of GHASH alone: there the lengths of associated data and of
     * ciphertext, 64 bits each, have changed places. GHASH is linear, so that the two tags differ
     * by both lengths together times the hash subkey.
     */
    static final class Encrypted extends ChunkMac {
        /** Plaintext and ciphertext of so many bytes stay in a processor's nearest cache. */
        static final int PIECE_BYTES = 16 << 10;

        private static final String STREAM_CIPHER = "AES/CTR/NoPadding";

        private static final String BLOCK_CIPHER = "AES/ECB/NoPadding";

        /** The counter of the first block that GCM encrypts, behind a nonce of 12 bytes. */
        private static final byte FIRST_COUNTER = 2;

        /** The upper half of the field's polynomial but for its highest term. */
        private static final long REDUCTION = 0xe1L << Long.SIZE - Byte.SIZE;

        private final Cipher stream;
        private final byte[] subkey;

        /** Bytes of the chunk that wait, and later what GCM makes of their plaintext. */
        private final byte[] piece = new byte[PIECE_BYTES + TAG_BYTES];

        private final byte[] plaintext = new byte[PIECE_BYTES];
        private int waiting;
        private long bytes;

        /** Of chunks with {@link #CHUNK_BYTES}. */
        private final byte[] differenceOfFull;

        Encrypted(SecretKey key, Cipher cipher) {
            super(key, cipher);
            try {
                stream = Cipher.getInstance(STREAM_CIPHER, cipher.getProvider());
                Cipher block = Cipher.getInstance(BLOCK_CIPHER, cipher.getProvider());
                block.init(Cipher.ENCRYPT_MODE, key);
                subkey = block.doFinal(new byte[TAG_BYTES]);
            } catch (GeneralSecurityException missing) {
                throw new IllegalStateException("every Java platform has AES", missing);
            }
            differenceOfFull = difference(CHUNK_BYTES);
        }

        @Override
        void begin(byte[] nonce) {
            super.begin(nonce);
            byte[] counter = Arrays.copyOf(nonce, TAG_BYTES);
            counter[TAG_BYTES - 1] = FIRST_COUNTER;
            try {
                stream.init(Cipher.ENCRYPT_MODE, super.key, new IvParameterSpec(counter));
            } catch (GeneralSecurityException refused) {
                throw new IllegalStateException("a MAC cannot begin", refused);
            }
            waiting = 0;
            bytes = 0;
        }

        @Override
        void update(ByteBuffer payload) {
            while (payload.hasRemaining()) {
                int taken = Math.min(payload.remaining(), PIECE_BYTES - waiting);
                payload.get(piece, waiting, taken);
                waiting += taken;
                bytes += taken;
                if (waiting == PIECE_BYTES) {
                    encrypt(false);
                }
            }
        }

        @Override
        byte[] end() {
            int made = encrypt(true);
            byte[] tag = Arrays.copyOfRange(piece, made - TAG_BYTES, made);
            byte[] difference = bytes == CHUNK_BYTES ? differenceOfFull : difference(bytes);
            for (int at = 0; at < TAG_BYTES; at++) {
                tag[at] ^= difference[at];
            }
            return tag;
        }

        private int encrypt(boolean isLast) {
            try {
                int ready = stream.update(piece, 0, waiting, plaintext, 0);
                waiting = 0;
                return isLast
                        ? super.cipher.doFinal(plaintext, 0, ready, piece, 0)
                        : super.cipher.update(plaintext, 0, ready, piece, 0);
            } catch (GeneralSecurityException refused) {
                throw new IllegalStateException("a MAC cannot go on", refused);
            }
        }

        /**
         * Returns what the tags of so many bytes as ciphertext and as associated data differ by.
         */
        private byte[] difference(long bytes) {
            long bits = bytes * Byte.SIZE;
            return product(
                    ByteBuffer.allocate(TAG_BYTES).putLong(bits).putLong(bits).array(), subkey);
        }

        /**
         * Returns the product of two blocks in GCM's field (SP 800-38D, algorithm 1), by the same
         * steps whatever the blocks are: the subkey is a secret.
         */
        private static byte[] product(byte[] one, byte[] other) {
            long high = ByteBuffer.wrap(other).getLong();
            long low = ByteBuffer.wrap(other).getLong(Long.BYTES);
            long productHigh = 0;
            long productLow = 0;
            for (int bit = 0; bit < Byte.SIZE * TAG_BYTES; bit++) {
                long ifSet = -(one[bit / Byte.SIZE] >> Byte.SIZE - 1 - bit % Byte.SIZE & 1L);
                productHigh ^= high & ifSet;
                productLow ^= low & ifSet;
                long ifOdd = -(low & 1);
                low = low >>> 1 | high << Long.SIZE - 1;
                high = high >>> 1 ^ ifOdd & REDUCTION;
            }
            return ByteBuffer.allocate(TAG_BYTES).putLong(productHigh).putLong(productLow).array();
        }
    }
}
