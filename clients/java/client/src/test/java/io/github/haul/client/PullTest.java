package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Pulls from the real server. */
final class PullTest {
    @TempDir Path folder;
    private Path root = Path.of("");
    private Path target = Path.of("");

    @BeforeEach
    void makeFolders() throws IOException {
        root = Files.createDirectories(folder.resolve("root"));
        target = folder.resolve("target");
    }

    @ParameterizedTest
    @EnumSource(TransferOptions.Protection.class)
    void aFileOfSeveralSpansArrivesUnderItsNewName(TransferOptions.Protection protection)
            throws Exception {
        Path file = Trees.file(root.resolve("large"), 70_000_001, 1);
        TransferOptions options = TransferOptions.builder().protection(protection).build();
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url("large"))) {
            TransferResult result = client.pull(target, options);
            assertEquals(1, result.filesDone());
            assertEquals(70_000_001, result.bytes());
            assertEquals(Trees.hash(file), Trees.hash(target));
            assertEquals(1, client.pull(target, options).filesSkipped());
        }
    }

    @ParameterizedTest
    @EnumSource(TransferOptions.Protection.class)
    void aTreeArrivesWithNamesModesTimesAndLinks(TransferOptions.Protection protection)
            throws Exception {
        Path tree = Trees.make(root.resolve("tree"));
        Files.createDirectory(target);
        TransferOptions options = TransferOptions.builder().protection(protection).build();
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url("tree"))) {
            TransferResult result = client.pull(target, options);
            assertEquals(Trees.describe(root), Trees.describe(target));
            assertEquals(Trees.FILES, result.filesDone() + result.directoriesDone());
            assertEquals(1, result.connections());
            Object inode = Files.getAttribute(target.resolve("tree/large"), "unix:ino");
            assertEquals(inode, Files.getAttribute(target.resolve("tree/other name"), "unix:ino"));
            TransferResult again = client.pull(target, options);
            assertEquals(Trees.FILES, again.filesSkipped() + again.directoriesSkipped());
            assertEquals(Trees.describe(tree), Trees.describe(target.resolve("tree")));
        }
    }

    @Test
    void theContentsOfADirectoryComeWithoutItsName() throws Exception {
        Path tree = Trees.make(root.resolve("tree"));
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url("tree/"))) {
            client.pull(target);
            assertEquals(Trees.describe(tree), Trees.describe(target));
            assertEquals(
                    Files.getPosixFilePermissions(tree), Files.getPosixFilePermissions(target));
        }
    }

    @Test
    void whatIsNotThereIsSaidToBeMissing() throws Exception {
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url("missing"))) {
            HaulException.FilesFailed failed =
                    assertThrows(HaulException.FilesFailed.class, () -> client.pull(target));
            assertEquals("NOT_FOUND", failed.problem().code());
            assertFalse(Files.exists(target));
        }
    }

    @Test
    void aDryRunTellsAndWritesNothing() throws Exception {
        Trees.make(root.resolve("tree"));
        TransferOptions options = TransferOptions.builder().dryRun(true).build();
        Files.createDirectory(target);
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url("tree"))) {
            TransferResult result = client.pull(target, options);
            assertEquals(Trees.FILES, result.filesPlanned() + result.directoriesPlanned());
            assertEquals(0, Trees.describe(target).size());
        }
    }
}
