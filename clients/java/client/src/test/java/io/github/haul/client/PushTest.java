package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Pushes to the real server. */
final class PushTest {
    @TempDir Path folder;
    private Path root = Path.of("");
    private Path sources = Path.of("");

    @BeforeEach
    void makeFolders() throws IOException {
        root = Files.createDirectories(folder.resolve("root"));
        sources = Files.createDirectories(folder.resolve("sources"));
    }

    private static TransferOptions with(TransferOptions.Protection protection) {
        return TransferOptions.builder().protection(protection).build();
    }

    @ParameterizedTest
    @EnumSource(TransferOptions.Protection.class)
    void aFileOfSeveralSpansArrivesWhole(TransferOptions.Protection protection) throws Exception {
        Path file = Trees.file(sources.resolve("large"), 70_000_001, 1);
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url("copy"))) {
            TransferResult result = client.push(List.of(file), with(protection));
            assertEquals(1, result.filesDone());
            assertEquals(70_000_001, result.bytes());
            assertEquals(Trees.hash(file), Trees.hash(root.resolve("copy")));
        }
    }

    @Test
    void aListenerHearsOfEachFileOnceAndFailuresAreToldAtTheEndToo() throws Exception {
        Path tree = Files.createDirectories(sources.resolve("tree"));
        for (String name : List.of("new", "same", "other")) {
            Trees.file(tree.resolve(name), 1000, name.length());
        }
        Path there = Files.createDirectories(root.resolve("tree"));
        Files.writeString(there.resolve("other"), "it is to stay");
        List<FileResult> heard = new CopyOnWriteArrayList<>();
        TransferOptions.Builder options =
                TransferOptions.builder().onConflict(TransferOptions.OnConflict.FAIL);
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""));
                HaulClient below = HaulClient.connect(server.url("tree/"))) {
            below.push(tree.resolve("same"));
            TransferListener listener =
                    new TransferListener() {
                        @Override
                        public void onFile(FileResult file) {
                            heard.add(file);
                        }
                    };
            TransferOptions told = options.listener(listener).build();
            HaulException.FilesFailed failed =
                    assertThrows(
                            HaulException.FilesFailed.class,
                            () -> client.push(List.of(tree), told));
            TransferResult result = failed.result();
            assertEquals(1, result.filesDone());
            assertEquals(1, result.filesSkipped());
            assertEquals(1, result.filesFailed());
            FileResult failure = result.failures().get(0);
            assertEquals(List.of(failure), result.failures());
            assertEquals("tree/other", failure.name());
            assertEquals("EXISTS", Objects.requireNonNull(failure.problem()).code());
            assertTrue(heard.contains(failure), heard.toString());
        }
        List<String> files =
                heard.stream()
                        .filter(file -> !file.isDirectory())
                        .map(file -> file.name() + " " + file.status())
                        .sorted()
                        .toList();
        assertEquals(List.of("tree/new DONE", "tree/other FAILED", "tree/same SKIPPED"), files);
        assertEquals("it is to stay", Files.readString(there.resolve("other")));
    }

    /** Case of a file below /proc, which arrived empty and was told as complete. */
    @Test
    void aFileThatTheKernelMakesUpWhileItIsReadIsRefused() throws Exception {
        Path made = Path.of("/proc/version");
        assumeTrue(Files.exists(made));
        Path empty = Files.createFile(sources.resolve("empty"));
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""))) {
            HaulException.FilesFailed failed =
                    assertThrows(HaulException.FilesFailed.class, () -> client.push(made, empty));
            assertTrue(failed.problem().found().contains("makes files up"), failed.toString());
            assertEquals(1, failed.result().filesDone());
        }
        assertEquals(0, Files.size(root.resolve("empty")));
        assertFalse(Files.exists(root.resolve("version")));
    }

    @ParameterizedTest
    @EnumSource(TransferOptions.Protection.class)
    void aTreeArrivesWithNamesModesTimesAndLinks(TransferOptions.Protection protection)
            throws Exception {
        Path tree = Trees.make(sources.resolve("tree"));
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""))) {
            TransferResult result = client.push(List.of(tree), with(protection));
            assertEquals(Trees.describe(sources), Trees.describe(root));
            assertEquals(1, result.connections());
            assertEquals(0, result.filesFailed() + result.filesSkipped());
            assertEquals(Trees.FILES, result.filesDone() + result.directoriesDone());
            Object inode = Files.getAttribute(root.resolve("tree/large"), "unix:ino");
            assertEquals(inode, Files.getAttribute(root.resolve("tree/other name"), "unix:ino"));
            // The other name is told as a link, which has no bytes to be the same.
            TransferResult again = client.push(List.of(tree), with(protection));
            assertEquals(0, again.filesDone() + again.filesFailed());
            assertEquals(Trees.FILES, again.filesSkipped() + again.directoriesSkipped());
        }
    }

    @Test
    void theContentsOfADirectoryComeWithoutItsName() throws Exception {
        Path tree = Trees.make(sources.resolve("tree"));
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url("new"))) {
            client.push(tree.resolve("."));
            assertEquals(Trees.describe(tree), Trees.describe(root.resolve("new")));
        }
    }

    @Test
    void whatCannotBeReadFailsAndTheRestArrives() throws Exception {
        Path good = Trees.file(sources.resolve("good"), 5, 1);
        Path missing = sources.resolve("missing");
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""))) {
            HaulException.FilesFailed failed =
                    assertThrows(HaulException.FilesFailed.class, () -> client.push(good, missing));
            assertEquals(1, failed.result().filesDone());
            assertEquals("NOT_FOUND", failed.problem().code());
            assertTrue(Files.exists(root.resolve("good")));
        }
    }
}
