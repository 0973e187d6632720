package io.github.haul.client.internal.wire;

import java.security.GeneralSecurityException;
import java.util.Arrays;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Keys of the data streams of one session, as the server told them (SPEC.md, 3.1). */
public final class DataKeys {
    private static final int KEY_BYTES = 32;

    private final SecretKeySpec preface;
    private final SecretKeySpec chunk;
    private final SecretKeySpec span;

    /**
     * Cuts the keys out of what the server told.
     *
     * @param told 96 bytes
     */
    public DataKeys(byte[] told) {
        if (told.length != Limits.DATA_KEYS_BYTES) {
            throw new IllegalArgumentException("data keys of " + told.length + " bytes");
        }
        preface = new SecretKeySpec(told, 0, KEY_BYTES, "HmacSHA256");
        chunk = new SecretKeySpec(told, KEY_BYTES, KEY_BYTES, "AES");
        span = new SecretKeySpec(told, 2 * KEY_BYTES, KEY_BYTES, "AES");
    }

    /**
     * Signs the preface of a data stream.
     *
     * @param stream the stream's number, unsigned
     * @param session 16 bytes
     * @return the preface
     */
    public Frames.Preface preface(int stream, byte[] session) {
        try {
            Mac mac = Mac.getInstance(preface.getAlgorithm());
            mac.init(preface);
            byte[] signature = mac.doFinal(Frames.Preface.signedBytes(stream, session));
            return new Frames.Preface(stream, session, signature);
        } catch (GeneralSecurityException missing) {
            throw new IllegalStateException("every Java platform has HmacSHA256", missing);
        }
    }

    SecretKeySpec chunk() {
        return chunk;
    }

    SecretKeySpec span() {
        return span;
    }

    /** Shows nothing of the keys. */
    @Override
    public String toString() {
        return "DataKeys(..)";
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof DataKeys keys
                && Arrays.equals(preface.getEncoded(), keys.preface.getEncoded())
                && chunk.equals(keys.chunk)
                && span.equals(keys.span);
    }

    @Override
    public int hashCode() {
        return preface.hashCode();
    }
}
