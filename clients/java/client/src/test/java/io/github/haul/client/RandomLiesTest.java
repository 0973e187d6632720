package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Servers that lie in ways that are drawn by a seed, each of which a failure names. */
final class RandomLiesTest {
    /** Seeds of each direction. */
    private static final int SEEDS = Integer.getInteger("haul.lies", 60);

    /** Transfers at a time: most of their time they wait for a server that is silent. */
    private static final int AT_A_TIME = 8;

    /** More than a server that is silent is given, and one that answers pings. */
    private static final long PATIENCE_S = 120;

    @TempDir Path folder;
    private Path root = Path.of("");
    private Path source = Path.of("");

    @BeforeEach
    void makeFolders() throws IOException {
        root = Files.createDirectories(folder.resolve("root"));
        source = Files.createDirectories(folder.resolve("tree"));
        Files.createDirectories(source.resolve("deep"));
        Trees.file(source.resolve("large"), 700_000, 1);
        Trees.file(source.resolve("deep/middle"), 200_000, 2);
        for (int number = 0; number < 5; number++) {
            Trees.file(source.resolve("small" + number), 1000 * number, number);
        }
        Files.createSymbolicLink(source.resolve("link"), Path.of("nowhere"));
    }

    private static TransferOptions options(long seed) {
        return TransferOptions.builder()
                .protection(
                        seed % 2 == 0
                                ? TransferOptions.Protection.SAFE
                                : TransferOptions.Protection.CLEAR)
                .streams(seed % 3 == 0 ? 2 : 1)
                .spanBytes(LiesTold.SPAN_BYTES)
                .retryFor(Duration.ofMillis(500))
                .stallAfter(Duration.ofMillis(100))
                .build();
    }

    /** One transfer, and what is looked at behind it. */
    private interface Trial {
        RandomLie run(HaulServer server, long seed) throws Exception;
    }

    private void all(Trial trial) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(AT_A_TIME);
        try (HaulServer server = HaulServer.start(folder, root)) {
            List<Future<Boolean>> running = new ArrayList<>();
            for (long seed = 0; seed < SEEDS; seed++) {
                long drawn = seed;
                running.add(threads.submit(() -> trial.run(server, drawn).isTold()));
            }
            int told = 0;
            for (Future<Boolean> one : running) {
                told += one.get() ? 1 : 0;
            }
            assertTrue(told > SEEDS / 2, told + " lies were told");
        } finally {
            threads.shutdownNow();
        }
    }

    /** Waits for a transfer's end: it may do what it is for, or say in words why it did not. */
    private static boolean ends(CompletableFuture<TransferResult> transfer, RandomLie lie)
            throws Exception {
        try {
            transfer.get(PATIENCE_S, TimeUnit.SECONDS);
            return true;
        } catch (ExecutionException failed) {
            boolean isTyped = failed.getCause() instanceof HaulException;
            if (!isTyped || ((HaulException) failed.getCause()).problem().what().isEmpty()) {
                throw new AssertionError(lie.toString(), failed.getCause());
            }
            return false;
        } catch (java.util.concurrent.TimeoutException hangs) {
            throw new AssertionError("it hangs: " + lie, hangs);
        }
    }

    /** Sees that each file under a name of the source's is whole, and returns whether all are. */
    private static boolean areWhole(Path from, Path to, RandomLie lie) throws Exception {
        boolean isAll = true;
        try (Stream<Path> sources = Files.walk(from)) {
            for (Path path : (Iterable<Path>) sources::iterator) {
                Path copy = to.resolve(from.relativize(path));
                boolean isThere = Files.isRegularFile(copy, LinkOption.NOFOLLOW_LINKS);
                if (!Files.isRegularFile(path, LinkOption.NOFOLLOW_LINKS)) {
                    continue;
                }
                isAll &= isThere;
                if (isThere && !lie.changesFiles()) {
                    assertEquals(-1, Files.mismatch(path, copy), path + ": " + lie);
                }
            }
        }
        return isAll;
    }

    @Test
    void noPullFromALyingServerHangsOrTakesAWrongByte() throws Exception {
        Files.move(source, root.resolve("tree"));
        all(
                (server, seed) -> {
                    RandomLie lie = new RandomLie(seed, true);
                    Path around = Files.createDirectories(folder.resolve("around" + seed));
                    Path target = Files.createDirectories(around.resolve("target"));
                    try (LyingServer lying = new LyingServer(folder, server, lie);
                            HaulClient client = HaulClient.connect(lying.url("tree"))) {
                        boolean isDone = ends(client.pullAsync(target, options(seed)), lie);
                        boolean isWhole =
                                areWhole(root.resolve("tree"), target.resolve("tree"), lie);
                        assertTrue(!isDone || isWhole || lie.changesFiles(), lie.toString());
                        assertEquals(List.of("target"), names(around), lie.toString());
                    }
                    return lie;
                });
    }

    private static List<String> names(Path folder) throws IOException {
        try (Stream<Path> names = Files.list(folder)) {
            return names.map(path -> path.getFileName().toString()).toList();
        }
    }

    @Test
    void noPushToALyingServerHangsOrLeavesAWrongByte() throws Exception {
        all(
                (server, seed) -> {
                    RandomLie lie = new RandomLie(seed, false);
                    try (LyingServer lying = new LyingServer(folder, server, lie);
                            HaulClient client = HaulClient.connect(lying.url("to" + seed + "/"))) {
                        ends(client.pushAsync(List.of(source), options(seed)), lie);
                        areWhole(source, root.resolve("to" + seed + "/tree"), lie);
                        assertFalse(Files.exists(folder.resolve("x")), lie.toString());
                    }
                    return lie;
                });
    }
}
