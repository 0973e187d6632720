package io.github.haul.client.internal.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HexFormat;

/**
 * XXH3-128 with seed 0 and the default secret, by the specification of XXH3
 * (github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
 *
 * <p>It holds against accidents, not against a person who means harm. An object serves one thread,
 * and may be begun anew as often as wanted.
 */
public final class Xxh3 {
    /** Bytes of a digest. */
    public static final int DIGEST_BYTES = 16;

    private static final int SHORT_BYTES_MAX = 240;
    private static final int STRIPE_BYTES = 64;
    private static final int BUFFER_BYTES = 4 * STRIPE_BYTES;
    private static final int SECRET_BYTES = 192;
    private static final int STRIPES_A_BLOCK = (SECRET_BYTES - STRIPE_BYTES) / Long.BYTES;
    private static final int LAST_SECRET_AT = SECRET_BYTES - STRIPE_BYTES - 7;
    private static final int LOW_SECRET_AT = 11;
    private static final int HIGH_SECRET_AT = SECRET_BYTES - STRIPE_BYTES - 11;

    private static final long PRIME32_1 = 0x9E3779B1L;
    private static final long PRIME32_2 = 0x85EBCA77L;
    private static final long PRIME32_3 = 0xC2B2AE3DL;
    private static final long PRIME64_1 = 0x9E3779B185EBCA87L;
    private static final long PRIME64_2 = 0xC2B2AE3D27D4EB4FL;
    private static final long PRIME64_3 = 0x165667B19E3779F9L;
    private static final long PRIME64_4 = 0x85EBCA77C2B2AE63L;
    private static final long PRIME64_5 = 0x27D4EB2F165667C5L;
    private static final long PRIME_MX1 = 0x165667919E3779F9L;
    private static final long PRIME_MX2 = 0x9FB21C651E98DF25L;
    private static final long LOW_32 = 0xFFFF_FFFFL;

    /** The default secret, in hexadecimal. */
    private static final String SECRET_HEX =
            ""
                    + "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
                    + "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
                    + "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
                    + "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
                    + "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
                    + "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e";

    private static final ByteBuffer SECRET =
            ByteBuffer.wrap(HexFormat.of().parseHex(SECRET_HEX)).order(ByteOrder.LITTLE_ENDIAN);

    /** Words of the secret, eight for each stripe of a block, each block beginning anew. */
    private static final long[] STRIPE_SECRETS = stripeSecrets();

    private final long[] sums = new long[STRIPE_BYTES / Long.BYTES];

    /**
     * Bytes that are not summed up: always one at least where there are any, as the last stripe is
     * another one. Behind them stand those that were summed up last.
     */
    private final ByteBuffer kept =
            ByteBuffer.allocate(BUFFER_BYTES).order(ByteOrder.LITTLE_ENDIAN);

    private int stripes;
    private long bytes;

    /** Begins with no byte. */
    public Xxh3() {
        begin();
    }

    private static long[] stripeSecrets() {
        int words = STRIPE_BYTES / Long.BYTES;
        long[] secrets = new long[STRIPES_A_BLOCK * words];
        for (int at = 0; at < secrets.length; at++) {
            secrets[at] = SECRET.getLong((at / words + at % words) * Long.BYTES);
        }
        return secrets;
    }

    /**
     * The digest of one piece.
     *
     * @param piece the bytes; its position stays
     * @return 16 bytes, the low half first, each little-endian
     */
    public static byte[] of(ByteBuffer piece) {
        Xxh3 digest = new Xxh3();
        digest.update(piece.duplicate());
        return digest.end();
    }

    /** Begins anew. */
    public void begin() {
        sums[0] = PRIME32_3;
        sums[1] = PRIME64_1;
        sums[2] = PRIME64_2;
        sums[3] = PRIME64_3;
        sums[4] = PRIME64_4;
        sums[5] = PRIME32_2;
        sums[6] = PRIME64_5;
        sums[7] = PRIME32_1;
        kept.clear();
        stripes = 0;
        bytes = 0;
    }

    /**
     * Takes the bytes that remain in a buffer, and moves its position behind them.
     *
     * @param piece the bytes
     */
    public void update(ByteBuffer piece) {
        bytes += piece.remaining();
        if (piece.remaining() <= kept.remaining()) {
            kept.put(piece);
            return;
        }
        ByteBuffer input = piece.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        int at = input.position();
        int end = input.limit();
        piece.position(end);
        if (kept.position() > 0) {
            int missing = kept.remaining();
            kept.put(input.slice(at, missing));
            at += missing;
            sumUp(kept, 0, BUFFER_BYTES / STRIPE_BYTES);
            kept.clear();
        }
        int whole = (end - at - 1) / STRIPE_BYTES;
        if (whole > 0) {
            sumUp(input, at, whole);
            at += whole * STRIPE_BYTES;
            kept.put(BUFFER_BYTES - STRIPE_BYTES, input, at - STRIPE_BYTES, STRIPE_BYTES);
        }
        kept.put(input.slice(at, end - at));
    }

    /**
     * Ends, and tells the digest of all that came since the begin.
     *
     * @return 16 bytes, the low half first, each little-endian
     */
    public byte[] end() {
        if (bytes <= SHORT_BYTES_MAX) {
            return ofShort(kept, (int) bytes);
        }
        int left = kept.position();
        if (left >= STRIPE_BYTES) {
            int whole = (left - 1) / STRIPE_BYTES;
            sumUp(kept, 0, whole);
            sumUpLast(kept, left - STRIPE_BYTES);
        } else {
            ByteBuffer last = ByteBuffer.allocate(STRIPE_BYTES).order(ByteOrder.LITTLE_ENDIAN);
            last.put(kept.slice(BUFFER_BYTES - STRIPE_BYTES + left, STRIPE_BYTES - left));
            last.put(kept.slice(0, left));
            sumUpLast(last, 0);
        }
        long low = merge(bytes * PRIME64_1, LOW_SECRET_AT);
        long high = merge(~(bytes * PRIME64_2), HIGH_SECRET_AT);
        return digest(low, high);
    }

    private static byte[] digest(long low, long high) {
        ByteBuffer digest = ByteBuffer.allocate(DIGEST_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        return digest.putLong(low).putLong(high).array();
    }

    /** Sums up whole stripes, with their places in the blocks of the input. */
    private void sumUp(ByteBuffer input, int from, int count) {
        int at = from;
        int left = count;
        while (left > 0) {
            int now = Math.min(left, STRIPES_A_BLOCK - stripes);
            sumUp(input, at, now, stripes);
            stripes += now;
            at += now * STRIPE_BYTES;
            left -= now;
            if (stripes == STRIPES_A_BLOCK) {
                scramble();
                stripes = 0;
            }
        }
    }

    private void sumUp(ByteBuffer input, int from, int count, int firstStripe) {
        long sum0 = sums[0];
        long sum1 = sums[1];
        long sum2 = sums[2];
        long sum3 = sums[3];
        long sum4 = sums[4];
        long sum5 = sums[5];
        long sum6 = sums[6];
        long sum7 = sums[7];
        int at = from;
        int secretsEnd = 8 * (firstStripe + count);
        for (int secret = 8 * firstStripe; secret < secretsEnd; secret += 8) {
            long word0 = input.getLong(at);
            long word1 = input.getLong(at + 8);
            sum0 += word1 + product(word0 ^ STRIPE_SECRETS[secret]);
            sum1 += word0 + product(word1 ^ STRIPE_SECRETS[secret + 1]);
            long word2 = input.getLong(at + 16);
            long word3 = input.getLong(at + 24);
            sum2 += word3 + product(word2 ^ STRIPE_SECRETS[secret + 2]);
            sum3 += word2 + product(word3 ^ STRIPE_SECRETS[secret + 3]);
            long word4 = input.getLong(at + 32);
            long word5 = input.getLong(at + 40);
            sum4 += word5 + product(word4 ^ STRIPE_SECRETS[secret + 4]);
            sum5 += word4 + product(word5 ^ STRIPE_SECRETS[secret + 5]);
            long word6 = input.getLong(at + 48);
            long word7 = input.getLong(at + 56);
            sum6 += word7 + product(word6 ^ STRIPE_SECRETS[secret + 6]);
            sum7 += word6 + product(word7 ^ STRIPE_SECRETS[secret + 7]);
            at += STRIPE_BYTES;
        }
        sums[0] = sum0;
        sums[1] = sum1;
        sums[2] = sum2;
        sums[3] = sum3;
        sums[4] = sum4;
        sums[5] = sum5;
        sums[6] = sum6;
        sums[7] = sum7;
    }

    /** The product of the two halves of a word. */
    private static long product(long word) {
        return (word & LOW_32) * (word >>> Integer.SIZE);
    }

    private void sumUpLast(ByteBuffer input, int at) {
        for (int lane = 0; lane < sums.length; lane++) {
            long word = input.getLong(at + lane * Long.BYTES);
            sums[lane ^ 1] += word;
            sums[lane] += product(word ^ SECRET.getLong(LAST_SECRET_AT + lane * Long.BYTES));
        }
    }

    private void scramble() {
        for (int lane = 0; lane < sums.length; lane++) {
            long sum = sums[lane];
            sum ^= sum >>> 47;
            sum ^= SECRET.getLong(SECRET_BYTES - STRIPE_BYTES + lane * Long.BYTES);
            sums[lane] = sum * PRIME32_1;
        }
    }

    private long merge(long begin, int secretAt) {
        long merged = begin;
        for (int lane = 0; lane < sums.length; lane += 2) {
            int at = secretAt + lane * Long.BYTES;
            merged +=
                    fold(
                            sums[lane] ^ SECRET.getLong(at),
                            sums[lane + 1] ^ SECRET.getLong(at + Long.BYTES));
        }
        return avalanche(merged);
    }

    private static byte[] ofShort(ByteBuffer input, int length) {
        if (length == 0) {
            return digest(avalanche64(secret(64, 72)), avalanche64(secret(80, 88)));
        }
        if (length <= 3) {
            return ofThree(input, length);
        }
        if (length <= 8) {
            return ofEight(input, length);
        }
        if (length <= 16) {
            return ofSixteen(input, length);
        }
        return length <= 128 ? ofHundred(input, length) : ofTwoHundred(input, length);
    }

    private static long secret(int at, int other) {
        return SECRET.getLong(at) ^ SECRET.getLong(other);
    }

    private static byte[] ofThree(ByteBuffer input, int length) {
        int joined =
                input.get(length - 1) & 0xFF
                        | length << 8
                        | (input.get(0) & 0xFF) << 16
                        | (input.get(length >> 1) & 0xFF) << 24;
        int turned = Integer.rotateLeft(Integer.reverseBytes(joined), 13);
        int low = SECRET.getInt(0) ^ SECRET.getInt(4) ^ joined;
        int high = SECRET.getInt(8) ^ SECRET.getInt(12) ^ turned;
        return digest(
                avalanche64(Integer.toUnsignedLong(low)),
                avalanche64(Integer.toUnsignedLong(high)));
    }

    private static byte[] ofEight(ByteBuffer input, int length) {
        long joined = input.getInt(0) & LOW_32 | (long) input.getInt(length - 4) << Integer.SIZE;
        long value = secret(16, 24) ^ joined;
        long factor = PRIME64_1 + (length << 2);
        long low = value * factor;
        long high = multiplyHigh(value, factor) + (low << 1);
        low ^= high >>> 3;
        low ^= low >>> 35;
        low *= PRIME_MX2;
        low ^= low >>> 28;
        return digest(low, avalanche(high));
    }

    private static byte[] ofSixteen(ByteBuffer input, int length) {
        long first = input.getLong(0);
        long last = input.getLong(length - 8);
        long one = secret(32, 40) ^ first ^ last;
        long other = secret(48, 56) ^ last;
        long low = one * PRIME64_1 + ((long) (length - 1) << 54);
        long high = multiplyHigh(one, PRIME64_1);
        high += (other & ~LOW_32) + (other & LOW_32) * PRIME32_2;
        low ^= Long.reverseBytes(high);
        long highest = multiplyHigh(low, PRIME64_2) + high * PRIME64_2;
        return digest(avalanche(low * PRIME64_2), avalanche(highest));
    }

    private static byte[] ofHundred(ByteBuffer input, int length) {
        long[] pair = {length * PRIME64_1, 0};
        for (int round = (length - 1) / 32; round >= 0; round--) {
            mix(pair, input, 16 * round, length - 16 * round - 16, 32 * round);
        }
        return ofPair(pair, length);
    }

    private static byte[] ofTwoHundred(ByteBuffer input, int length) {
        long[] pair = {length * PRIME64_1, 0};
        for (int round = 0; round < length / 32; round++) {
            int secretAt = round < 4 ? 32 * round : 32 * (round - 4) + 3;
            mix(pair, input, 32 * round, 32 * round + 16, secretAt);
            if (round == 3) {
                pair[0] = avalanche(pair[0]);
                pair[1] = avalanche(pair[1]);
            }
        }
        mix(pair, input, length - 16, length - 32, 103);
        return ofPair(pair, length);
    }

    private static void mix(long[] pair, ByteBuffer input, int at, int otherAt, int secretAt) {
        pair[0] += mixed(input, at, secretAt);
        pair[0] ^= input.getLong(otherAt) + input.getLong(otherAt + 8);
        pair[1] += mixed(input, otherAt, secretAt + 16);
        pair[1] ^= input.getLong(at) + input.getLong(at + 8);
    }

    private static long mixed(ByteBuffer input, int at, int secretAt) {
        return fold(
                input.getLong(at) ^ SECRET.getLong(secretAt),
                input.getLong(at + 8) ^ SECRET.getLong(secretAt + 8));
    }

    private static byte[] ofPair(long[] pair, int length) {
        long high = pair[0] * PRIME64_1 + pair[1] * PRIME64_4 + length * PRIME64_2;
        return digest(avalanche(pair[0] + pair[1]), -avalanche(high));
    }

    /** Both halves of the product of two unsigned words, joined. */
    private static long fold(long one, long other) {
        return one * other ^ multiplyHigh(one, other);
    }

    /** The high half of a product of unsigned words, which Java 17 has for signed ones only. */
    private static long multiplyHigh(long one, long other) {
        return Math.multiplyHigh(one, other) + (one >> 63 & other) + (other >> 63 & one);
    }

    private static long avalanche(long word) {
        long mixed = (word ^ word >>> 37) * PRIME_MX1;
        return mixed ^ mixed >>> 32;
    }

    private static long avalanche64(long word) {
        long mixed = (word ^ word >>> 33) * PRIME64_2;
        mixed = (mixed ^ mixed >>> 29) * PRIME64_3;
        return mixed ^ mixed >>> 32;
    }
}
