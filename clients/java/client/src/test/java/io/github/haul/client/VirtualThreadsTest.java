package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Blocking calls on virtual threads; on a JDK that has none yet, on others. */
final class VirtualThreadsTest {
    /** More than there are carriers, so that a call that held one for good would hold others up. */
    private static final int AT_A_TIME = 16;

    private static final long PATIENCE_S = 240;

    @TempDir Path folder;

    private static ExecutorService threads() throws ReflectiveOperationException {
        if (Runtime.version().feature() < 21) {
            return Executors.newCachedThreadPool();
        }
        Method virtual = Executors.class.getMethod("newVirtualThreadPerTaskExecutor");
        return (ExecutorService) virtual.invoke(null);
    }

    @Test
    void manyTransfersBlockAtATimeAndAllEnd() throws Exception {
        Path root = Files.createDirectories(folder.resolve("root"));
        Path source = Trees.file(folder.resolve("source"), 3_000_001, 5);
        ExecutorService threads = threads();
        try (HaulServer server = HaulServer.start(folder, root)) {
            List<Future<String>> running = new ArrayList<>();
            for (int number = 0; number < AT_A_TIME; number++) {
                String name = "copy" + number;
                running.add(threads.submit(() -> thereAndBack(server, source, name)));
            }
            String hash = Trees.hash(source);
            for (Future<String> one : running) {
                assertEquals(hash, one.get(PATIENCE_S, TimeUnit.SECONDS));
            }
        } finally {
            threads.shutdownNow();
        }
        assertTrue(threads.awaitTermination(PATIENCE_S, TimeUnit.SECONDS));
    }

    private String thereAndBack(HaulServer server, Path source, String name) throws Exception {
        try (HaulClient client = HaulClient.connect(server.url(name))) {
            client.push(source);
            assertEquals(Files.size(source), client.status("").orElseThrow().sizeBytes());
            Path back = folder.resolve("back-" + name);
            client.pull(back);
            return Trees.hash(back);
        }
    }
}
