package io.github.haul.client;

import java.util.Arrays;

/**
 * A token, whose bearer a server lets in and who knows the server by it (SPEC.md, 2).
 *
 * <p>The text of a token never comes out of {@link #toString}, so that no log holds it.
 */
public final class HaulToken {
    private static final String ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";
    private static final int TEXT_CHARS = 53;
    private static final int BYTES = 33;
    private static final byte FORMAT = 1;
    private static final int SECRET_END = 17;

    private final byte[] bytes;

    private HaulToken(byte[] bytes) {
        this.bytes = bytes;
    }

    /**
     * Reads a token as {@code haul serve} prints it: 53 characters of lower-case base32.
     *
     * @param text the token
     * @return the token
     * @throws IllegalArgumentException if the text is none; the text is not repeated
     */
    public static HaulToken parse(String text) {
        byte[] bytes = decode(text);
        if (bytes == null || bytes[0] != FORMAT) {
            throw new IllegalArgumentException(
                    "the token is damaged: a whole one has 53 letters and digits,"
                            + " as `haul serve` printed it");
        }
        return new HaulToken(bytes);
    }

    private static byte @org.jspecify.annotations.Nullable [] decode(String text) {
        if (text.length() != TEXT_CHARS) {
            return null;
        }
        byte[] bytes = new byte[BYTES];
        int bits = 0;
        int held = 0;
        int at = 0;
        for (int i = 0; i < TEXT_CHARS; i++) {
            int value = ALPHABET.indexOf(text.charAt(i));
            if (value < 0) {
                return null;
            }
            bits = bits << 5 | value;
            held += 5;
            if (held >= 8) {
                held -= 8;
                bytes[at++] = (byte) (bits >> held);
                bits &= (1 << held) - 1;
            }
        }
        // The last character has one bit that no byte takes.
        return bits == 0 ? bytes : null;
    }

    /**
     * The text that lets its bearer in: for files and environments that only its owner reads.
     *
     * @return 53 characters
     */
    public String reveal() {
        StringBuilder text = new StringBuilder(TEXT_CHARS);
        int bits = 0;
        int held = 0;
        for (byte one : bytes) {
            bits = bits << 8 | one & 0xff;
            held += 8;
            while (held >= 5) {
                held -= 5;
                text.append(ALPHABET.charAt(bits >> held & 31));
            }
            bits &= (1 << held) - 1;
        }
        return text.append(ALPHABET.charAt(bits << 5 - held & 31)).toString();
    }

    /**
     * The part that only bearers know.
     *
     * @return 16 bytes
     */
    public byte[] secret() {
        return Arrays.copyOfRange(bytes, 1, SECRET_END);
    }

    /**
     * The first half of the SHA-256 of the server's certificate.
     *
     * @return 16 bytes
     */
    public byte[] fingerprint() {
        return Arrays.copyOfRange(bytes, SECRET_END, BYTES);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof HaulToken token && Arrays.equals(bytes, token.bytes);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(bytes);
    }

    @Override
    public String toString() {
        return "...";
    }
}
