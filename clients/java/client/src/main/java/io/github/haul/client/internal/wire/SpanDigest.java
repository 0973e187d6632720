package io.github.haul.client.internal.wire;

import io.github.haul.client.internal.proto.Digest;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.GeneralSecurityException;
import java.util.zip.CRC32C;
import javax.crypto.Cipher;
import javax.crypto.spec.GCMParameterSpec;

/**
 * Digest or MAC of one span after the other, bound to its header and status (SPEC.md, 6.3).
 *
 * <p>Payload comes in pieces of any size between {@link #begin} and {@link #end}. An object serves
 * one thread.
 */
public abstract sealed class SpanDigest {
    private static final int CHUNK_BYTES = 256 << 10;
    private static final int NONCE_BYTES = 12;

    private SpanDigest() {}

    /**
     * A digest of the kind that a session uses.
     *
     * @param kind the kind
     * @param keys the session's keys
     * @return the digest
     * @throws ProtocolViolation if this client does not have the kind
     */
    public static SpanDigest of(Digest kind, DataKeys keys) throws ProtocolViolation {
        return switch (kind) {
            case NONE -> new None();
            case CRC32C -> new Crc();
            case XXH3_128 -> new Xxh();
            case AES_GMAC -> new Gmac(keys);
            default -> throw new ProtocolViolation("a digest that was not asked for: " + kind);
        };
    }

    /** Begins a span. */
    public abstract void begin(Frames.Span header);

    /** Takes the bytes that remain in a buffer, and moves its position behind them. */
    public abstract void update(ByteBuffer payload);

    /** Ends the span, and returns the 16 bytes of its trailer. */
    public abstract byte[] end(Frames.Status status);

    private static final class None extends SpanDigest {
        @Override
        public void begin(Frames.Span header) {}

        @Override
        public void update(ByteBuffer payload) {
            payload.position(payload.limit());
        }

        @Override
        public byte[] end(Frames.Status status) {
            return new byte[Frames.DIGEST_BYTES];
        }
    }

    private static final class Crc extends SpanDigest {
        private final CRC32C crc = new CRC32C();

        @Override
        public void begin(Frames.Span header) {
            crc.reset();
            crc.update(header.encode(), 0, Frames.BOUND_HEADER_BYTES);
        }

        @Override
        public void update(ByteBuffer payload) {
            crc.update(payload);
        }

        @Override
        public byte[] end(Frames.Status status) {
            crc.update(status.toByte());
            ByteBuffer digest =
                    ByteBuffer.allocate(Frames.DIGEST_BYTES).order(ByteOrder.LITTLE_ENDIAN);
            return digest.putInt((int) crc.getValue()).array();
        }
    }

    private static final class Xxh extends SpanDigest {
        private final Xxh3 digest = new Xxh3();

        @Override
        public void begin(Frames.Span header) {
            digest.begin();
            digest.update(ByteBuffer.wrap(header.encode(), 0, Frames.BOUND_HEADER_BYTES));
        }

        @Override
        public void update(ByteBuffer payload) {
            digest.update(payload);
        }

        @Override
        public byte[] end(Frames.Status status) {
            digest.update(ByteBuffer.wrap(new byte[] {status.toByte()}));
            return digest.end();
        }
    }

    /** Tags of chunks under one key, and a tag over them under another. */
    private static final class Gmac extends SpanDigest {
        private final DataKeys keys;
        private final Cipher chunk;
        private final Cipher span;
        private final ByteBuffer tags;

        /**
         * The chunk so far. The JDK keeps all associated data until the tag is computed, and out of
         * a direct buffer it copies once more, into an array that is made for that: one copy of
         * ours and one call a chunk take 0.8 of that time.
         */
        private final ByteBuffer gathered = ByteBuffer.allocate(CHUNK_BYTES);

        private Frames.Span header = new Frames.Span(0, 0, 1, 0, 0);
        private int chunks;

        Gmac(DataKeys keys) {
            this.keys = keys;
            chunk = GmacProvider.cipher();
            span = GmacProvider.cipher();
            tags =
                    ByteBuffer.allocate(
                            (int) (Limits.SPAN_BYTES_MAX / CHUNK_BYTES) * Frames.DIGEST_BYTES);
        }

        @Override
        public void begin(Frames.Span header) {
            this.header = header;
            tags.clear();
            gathered.clear();
            chunks = 0;
        }

        @Override
        public void update(ByteBuffer payload) {
            while (payload.hasRemaining()) {
                int take = Math.min(payload.remaining(), gathered.remaining());
                gathered.put(payload.slice(payload.position(), take));
                payload.position(payload.position() + take);
                if (!gathered.hasRemaining()) {
                    endChunk();
                }
            }
        }

        @Override
        public byte[] end(Frames.Status status) {
            if (gathered.position() > 0) {
                endChunk();
            }
            start(span, false, 0);
            span.updateAAD(header.encode(), 0, Frames.BOUND_HEADER_BYTES);
            span.updateAAD(new byte[] {status.toByte()});
            span.updateAAD(tags.array(), 0, tags.position());
            return tag(span);
        }

        private void endChunk() {
            chunks++;
            start(chunk, true, chunks);
            chunk.updateAAD(gathered.array(), 0, gathered.position());
            tags.put(tag(chunk));
            gathered.clear();
        }

        private void start(Cipher cipher, boolean isChunk, int number) {
            ByteBuffer nonce = ByteBuffer.allocate(NONCE_BYTES).order(ByteOrder.LITTLE_ENDIAN);
            nonce.putInt(header.stream()).putLong(header.sequence() << 24 | number);
            GCMParameterSpec parameters =
                    new GCMParameterSpec(8 * Frames.DIGEST_BYTES, nonce.array());
            try {
                cipher.init(Cipher.ENCRYPT_MODE, isChunk ? keys.chunk() : keys.span(), parameters);
            } catch (GeneralSecurityException refused) {
                // A nonce that was used is a frame that went out twice: nothing may be sent then.
                throw new IllegalStateException("a MAC cannot begin", refused);
            }
        }

        private static byte[] tag(Cipher cipher) {
            try {
                return cipher.doFinal();
            } catch (GeneralSecurityException refused) {
                throw new IllegalStateException("a MAC cannot end", refused);
            }
        }
    }
}
