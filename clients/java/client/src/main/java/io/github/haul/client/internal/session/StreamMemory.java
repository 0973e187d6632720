package io.github.haul.client.internal.session;

import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Locale;
import java.util.function.IntFunction;

/**
 * Direct memory of the buffers of a session's data streams: together they take half of what the JVM
 * has of it, so that many streams have small buffers.
 */
final class StreamMemory {
    /** Part of the JVM's direct memory that a session's streams may take. */
    private static final int PARTS = 2;

    private static final String OPTION = "-XX:MaxDirectMemorySize=";
    private static final String UNITS = "kmgt";
    private static final int UNIT_BITS = 10;

    private static final long DIRECT_BYTES =
            directBytes(
                    ManagementFactory.getRuntimeMXBean().getInputArguments(),
                    Runtime.getRuntime().maxMemory());

    private StreamMemory() {}

    /**
     * The bytes that each stream of a session may take.
     *
     * @param streams how many the session has
     */
    static long shareBytes(int streams) {
        return DIRECT_BYTES / PARTS / Math.max(1, streams);
    }

    /**
     * The direct memory of a JVM: what its options say, else as much as its heap.
     *
     * @param options the options that the JVM was started with
     * @param heapBytes the most that its heap takes
     */
    static long directBytes(List<String> options, long heapBytes) {
        long said = 0;
        for (String option : options) {
            if (option.startsWith(OPTION)) {
                said = bytes(option.substring(OPTION.length()).toLowerCase(Locale.ROOT));
            }
        }
        return said > 0 ? said : heapBytes;
    }

    /** A number as the JVM's options have it, or 0: the JVM has looked at it before. */
    private static long bytes(String text) {
        int unit = text.isEmpty() ? -1 : UNITS.indexOf(text.charAt(text.length() - 1));
        String digits = unit < 0 ? text : text.substring(0, text.length() - 1);
        try {
            return Long.parseLong(digits) << UNIT_BITS * (unit + 1);
        } catch (NumberFormatException other) {
            return 0;
        }
    }

    /** A length within these bounds, the nearest to what is wanted. */
    static int within(long bytes, int bytesMin, int bytesMax) {
        return (int) Math.max(bytesMin, Math.min(bytesMax, bytes));
    }

    /**
     * Makes a buffer, a small one where the program has taken the direct memory for other things.
     *
     * @param bytes the length that is wanted
     * @param bytesMin the length that is enough
     */
    static ByteBuffer buffer(int bytes, int bytesMin) {
        return buffer(bytes, bytesMin, ByteBuffer::allocateDirect);
    }

    static ByteBuffer buffer(int bytes, int bytesMin, IntFunction<ByteBuffer> memory) {
        try {
            return memory.apply(bytes);
        } catch (OutOfMemoryError error) {
            if (bytes <= bytesMin) {
                throw error;
            }
            return memory.apply(bytesMin);
        }
    }
}
