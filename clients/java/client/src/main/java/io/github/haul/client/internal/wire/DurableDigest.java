package io.github.haul.client.internal.wire;

import com.google.protobuf.ByteString;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Digest of what durable spans hold, each bound to its place (SPEC.md, 7.6). */
public final class DurableDigest {
    private final Xxh3 all = new Xxh3();
    private final ByteBuffer entry =
            ByteBuffer.allocate(Integer.BYTES + Xxh3.DIGEST_BYTES).order(ByteOrder.LITTLE_ENDIAN);

    /**
     * Takes the next span, in rising order.
     *
     * @param span its number
     * @param digest XXH3-128 of its bytes
     */
    public void add(int span, byte[] digest) {
        all.update(entry.clear().putInt(span).put(digest).flip());
    }

    /**
     * Ends, and tells the digest of all of them.
     *
     * @return 16 bytes
     */
    public ByteString end() {
        return ByteString.copyFrom(all.end());
    }
}
