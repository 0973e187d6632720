package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Transfers by as many streams as there may be, in a JVM of little memory. */
final class MemoryTest {
    private static final String STREAMS = "64";
    private static final int SMALL_FILES = 1200;

    @TempDir Path folder;
    private Path root = Path.of("");
    private Path tree = Path.of("");

    /** A child JVM's work: pushes or pulls a tree. */
    static final class Child {
        private Child() {}

        /** Prints how many sessions it took, or the exception's kind and words. */
        public static void main(String[] words) throws Exception {
            boolean isReadBack = words[0].equals("pull-and-verify");
            TransferOptions options =
                    TransferOptions.builder()
                            .streams(isReadBack ? 1 : Integer.parseInt(STREAMS))
                            .verifyTarget(isReadBack)
                            .build();
            Path here = Path.of(words[2]);
            try (HaulClient client = HaulClient.connect(words[1])) {
                TransferResult result =
                        words[0].equals("push")
                                ? client.push(List.of(here), options)
                                : client.pull(here, options);
                System.out.print("connections " + result.connections());
            } catch (HaulException failed) {
                System.out.print(failed.getClass().getSimpleName() + ": " + failed.getMessage());
            }
        }
    }

    /** A tree with a large file, and enough small ones for a pack on each stream. */
    @BeforeEach
    void makeTree() throws IOException {
        root = Files.createDirectories(folder.resolve("root"));
        tree = Files.createDirectories(folder.resolve("here/tree"));
        for (int number = 0; number < SMALL_FILES; number++) {
            Trees.file(tree.resolve("small" + number), 100_000, number);
        }
        Trees.file(tree.resolve("large"), 100_000_000, 1);
    }

    private String child(List<String> memory, String... words) throws Exception {
        return ChildJvm.run(folder, ChildJvm.command(memory, Child.class, List.of(words)));
    }

    /** By 1 MiB for what arrives, and as much for a pack, 64 streams had found too little. */
    @Test
    void manyStreamsFindRoomInASmallHeap() throws Exception {
        List<String> memory = List.of("-Xmx64m");
        try (HaulServer server = HaulServer.start(folder, root, "--max-streams", STREAMS)) {
            String pushed = child(memory, "push", server.url(""), tree.toString());
            assertEquals("connections 1", pushed);
            assertEquals(Trees.describe(tree), Trees.describe(root.resolve("tree")));
            Path back = Files.createDirectories(folder.resolve("back"));
            String pulled = child(memory, "pull", server.url("tree"), back.toString());
            assertEquals("connections 1", pulled);
            assertEquals(Trees.describe(tree), Trees.describe(back.resolve("tree")));
        }
    }

    /** A large heap with little direct memory had buffers by the heap, and a push found none. */
    @Test
    void manyStreamsFindRoomInLittleDirectMemory() throws Exception {
        List<String> memory = List.of("-Xmx1g", "-XX:MaxDirectMemorySize=40m");
        try (HaulServer server = HaulServer.start(folder, root, "--max-streams", STREAMS)) {
            String pushed = child(memory, "push", server.url(""), tree.toString());
            assertEquals("connections 1", pushed);
            assertEquals(Trees.describe(tree), Trees.describe(root.resolve("tree")));
        }
    }

    /** Each file that waited for its name had a buffer of 1 MiB, and the transfer hung. */
    @Test
    void filesThatAreReadBackShareABuffer() throws Exception {
        List<String> memory = List.of("-Xmx64m");
        Path many = Files.createDirectories(root.resolve("many"));
        for (int number = 0; number < SMALL_FILES; number++) {
            Trees.file(many.resolve("small" + number), number % 3, number);
        }
        Path back = Files.createDirectories(folder.resolve("back"));
        try (HaulServer server = HaulServer.start(folder, root)) {
            String pulled = child(memory, "pull-and-verify", server.url("many"), back.toString());
            assertEquals("connections 1", pulled);
            assertEquals(Trees.describe(many), Trees.describe(back.resolve("many")));
        }
    }

    /** A thread of the session that found no memory had left the transfer waiting. */
    @Test
    void tooLittleMemoryForReadingBackEndsATransferInWords() throws Exception {
        List<String> memory = List.of("-Xmx64m", "-XX:MaxDirectMemorySize=2m");
        Files.createDirectories(root.resolve("some"));
        Trees.file(root.resolve("some/small"), 1000, 1);
        Path back = Files.createDirectories(folder.resolve("back"));
        try (HaulServer server = HaulServer.start(folder, root)) {
            String pulled = child(memory, "pull-and-verify", server.url("some"), back.toString());
            assertTrue(pulled.startsWith("OutOfMemory: the JVM's memory is not"), pulled);
        }
    }

    /** A stream that found no memory was replaced by another, again and again. */
    @Test
    void tooLittleMemoryEndsATransferInWords() throws Exception {
        List<String> memory = List.of("-Xmx64m", "-XX:MaxDirectMemorySize=20m");
        try (HaulServer server = HaulServer.start(folder, root, "--max-streams", STREAMS)) {
            String pushed = child(memory, "push", server.url(""), tree.toString());
            assertTrue(pushed.startsWith("OutOfMemory: the JVM's memory is not"), pushed);
            assertTrue(pushed.contains("fewer streams"), pushed);
            Path source = root.resolve("again");
            Files.createDirectories(source);
            Trees.file(source.resolve("large"), 100_000_000, 1);
            Path back = Files.createDirectories(folder.resolve("back"));
            List<String> less = List.of("-Xmx64m", "-XX:MaxDirectMemorySize=12m");
            String pulled = child(less, "pull", server.url("again"), back.toString());
            assertTrue(pulled.startsWith("OutOfMemory: the JVM's memory is not"), pulled);
            assertTrue(pulled.contains("fewer streams"), pulled);
        }
    }
}
