package io.github.haul.client.internal.wire;

import io.github.haul.client.internal.proto.Digest;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32C;

/**
 * Digest or MAC of one span after the other, bound to its header and status (SPEC.md, 6.3).
 *
 * <p>Payload comes in pieces of any size between {@link #begin} and {@link #end}. An object serves
 * one thread.
 */
public abstract sealed class SpanDigest {
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
        private final ChunkMac chunk;
        private final ChunkMac span;
        private final ByteBuffer tags;

        private Frames.Span header = new Frames.Span(0, 0, 1, 0, 0);
        private int chunks;

        /** Bytes of the chunk so far; none if no chunk has begun. */
        private int chunkBytes;

        Gmac(DataKeys keys) {
            int chunksMax = (int) (Limits.SPAN_BYTES_MAX / ChunkMac.CHUNK_BYTES);
            tags = ByteBuffer.allocate(chunksMax * Frames.DIGEST_BYTES);
            chunk = ChunkMac.of(keys.chunk(), ChunkMac.CHUNK_BYTES);
            span = ChunkMac.of(keys.span(), Frames.BOUND_HEADER_BYTES + 1 + tags.capacity());
        }

        @Override
        public void begin(Frames.Span header) {
            this.header = header;
            tags.clear();
            chunks = 0;
            chunkBytes = 0;
        }

        @Override
        public void update(ByteBuffer payload) {
            int limit = payload.limit();
            while (payload.hasRemaining()) {
                if (chunkBytes == 0) {
                    chunks++;
                    chunk.begin(nonce(chunks));
                }
                int taken = Math.min(payload.remaining(), ChunkMac.CHUNK_BYTES - chunkBytes);
                chunk.update(payload.limit(payload.position() + taken));
                payload.limit(limit);
                chunkBytes += taken;
                if (chunkBytes == ChunkMac.CHUNK_BYTES) {
                    endChunk();
                }
            }
        }

        @Override
        public byte[] end(Frames.Status status) {
            if (chunkBytes > 0) {
                endChunk();
            }
            span.begin(nonce(0));
            span.update(ByteBuffer.wrap(header.encode(), 0, Frames.BOUND_HEADER_BYTES));
            span.update(ByteBuffer.wrap(new byte[] {status.toByte()}));
            span.update(tags.flip());
            return span.end();
        }

        private void endChunk() {
            tags.put(chunk.end());
            chunkBytes = 0;
        }

        private byte[] nonce(int number) {
            ByteBuffer nonce = ByteBuffer.allocate(NONCE_BYTES).order(ByteOrder.LITTLE_ENDIAN);
            return nonce.putInt(header.stream()).putLong(header.sequence() << 24 | number).array();
        }
    }
}
