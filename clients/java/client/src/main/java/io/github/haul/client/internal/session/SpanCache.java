package io.github.haul.client.internal.session;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Spans in memory, of which those go first that were not read for the longest time. */
final class SpanCache {
    private final long bytesMax;
    private final Map<Integer, byte[]> spans = new LinkedHashMap<>(16, 0.75f, true);
    private long bytes;

    /**
     * An empty cache.
     *
     * @param bytesMax as much is kept; and one span, however large it is
     */
    SpanCache(long bytesMax) {
        this.bytesMax = bytesMax;
    }

    boolean contains(int span) {
        return spans.containsKey(span);
    }

    byte @Nullable [] get(int span) {
        return spans.get(span);
    }

    void put(int span, byte[] content) {
        byte[] earlier = spans.put(span, content);
        bytes += content.length - (earlier == null ? 0 : earlier.length);
        Iterator<byte[]> oldest = spans.values().iterator();
        while (bytes > bytesMax && spans.size() > 1) {
            bytes -= oldest.next().length;
            oldest.remove();
        }
    }

    /** The bytes that it holds. */
    long bytes() {
        return bytes;
    }

    void clear() {
        spans.clear();
        bytes = 0;
    }
}
