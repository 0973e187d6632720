package io.github.haul.client.internal.session;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Transfers for which the JVM has too little memory, or too few threads. */
final class OutOfMemoryTest {
    private static final long HEAP = 64L << 20;

    private static long direct(String... options) {
        return StreamMemory.directBytes(List.of(options), HEAP);
    }

    @Test
    void theJvmsOptionsSayHowMuchDirectMemoryThereIs() {
        assertEquals(HEAP, direct());
        assertEquals(HEAP, direct("-Xmx64m", "-XX:MaxDirectMemorySize=0"));
        assertEquals(20L << 20, direct("-XX:MaxDirectMemorySize=20m", "-Xmx64m"));
        assertEquals(3L << 40, direct("-XX:MaxDirectMemorySize=3T"));
        assertEquals(4096, direct("-XX:MaxDirectMemorySize=4K"));
        assertEquals(5000, direct("-XX:MaxDirectMemorySize=1g", "-XX:MaxDirectMemorySize=5000"));
        assertEquals(HEAP, direct("-XX:MaxDirectMemorySize=", "-XX:MaxDirectMemorySize=x"));
    }

    private static ByteBuffer scarce(int bytes) {
        if (bytes > 100) {
            throw new OutOfMemoryError("Cannot reserve " + bytes + " bytes of direct memory");
        }
        return ByteBuffer.allocate(bytes);
    }

    /** The length of a buffer, or -1 where there is no memory, which would end JUnit itself. */
    private static int buffer(int bytes, int bytesMin) {
        try {
            return StreamMemory.buffer(bytes, bytesMin, OutOfMemoryTest::scarce).capacity();
        } catch (OutOfMemoryError none) {
            return -1;
        }
    }

    @Test
    void aBufferThatFindsNoMemoryIsASmallOneOrNone() {
        assertEquals(100, buffer(500, 100));
        assertEquals(90, buffer(90, 10));
        assertEquals(-1, buffer(300, 200));
        assertEquals(-1, buffer(200, 200));
    }

    @Test
    void threadsThatCannotBeStartedAreNoMatterOfTheHeap() {
        OutOfMemoryError threads =
                new OutOfMemoryError(
                        "unable to create native thread: possibly out of memory or"
                                + " process/resource limits reached");
        String said = String.valueOf(Words.outOfMemory(threads).getMessage());
        assertTrue(said.contains("start no more threads"), said);
        assertTrue(said.contains("ulimit -u"), said);
        assertFalse(said.contains("-Xmx"), said);
        OutOfMemoryError heap = new OutOfMemoryError("Java heap space");
        assertSame(heap, Words.outOfMemory(heap).getCause());
        assertTrue(String.valueOf(Words.outOfMemory(heap).getMessage()).contains("-Xmx"));
    }
}
