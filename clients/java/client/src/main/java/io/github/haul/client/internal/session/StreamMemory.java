package io.github.haul.client.internal.session;

/**
 * Direct memory of the buffers of a session's data streams: together they take half of what the JVM
 * has of it, so that many streams have small buffers.
 */
final class StreamMemory {
    /** Part of the JVM's direct memory that a session's streams may take. */
    private static final int PARTS = 2;

    private StreamMemory() {}

    /**
     * The bytes that each stream of a session may take.
     *
     * @param streams how many the session has
     */
    static long shareBytes(int streams) {
        // The JVM's direct memory is as much as its heap, where -XX:MaxDirectMemorySize is not set.
        return Runtime.getRuntime().maxMemory() / PARTS / Math.max(1, streams);
    }

    /** A length within these bounds, the nearest to what is wanted. */
    static int within(long bytes, int bytesMin, int bytesMax) {
        return (int) Math.max(bytesMin, Math.min(bytesMax, bytes));
    }
}
