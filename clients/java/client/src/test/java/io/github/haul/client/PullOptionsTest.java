package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Instant;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** Pulls of several sources, to nowhere, with fewer attributes, read back at the end. */
final class PullOptionsTest extends TwoFolders {
    private static HaulUrl url(HaulServer server, String path) {
        return HaulUrl.parse(server.url(path));
    }

    private List<String> localNames() throws IOException {
        try (Stream<Path> all = Files.walk(local)) {
            return all.filter(path -> !path.equals(local))
                    .map(path -> local.relativize(path).toString())
                    .sorted()
                    .toList();
        }
    }

    @Test
    void severalSourcesComeAtOnceAndTwoOfOneNameAreRefused() throws Exception {
        Files.createDirectories(root.resolve("deep"));
        Files.writeString(root.resolve("a"), "1");
        Files.writeString(root.resolve("deep/b"), "2");
        Files.writeString(root.resolve("deep/a"), "3");
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url("a"))) {
            List<HaulUrl> both = List.of(url(server, "a"), url(server, "deep/b"));
            assertEquals(2, client.pull(both, local, TransferOptions.DEFAULT).filesDone());
            assertEquals(List.of("a", "b"), localNames());
            HaulException.Unsupported twice =
                    assertThrows(
                            HaulException.Unsupported.class,
                            () ->
                                    client.pull(
                                            List.of(url(server, "a"), url(server, "deep/a")),
                                            local,
                                            TransferOptions.DEFAULT));
            assertTrue(twice.problem().what().contains("two sources are called a"));
            HaulUrl stranger = HaulUrl.parse("haul://other/a");
            assertThrows(
                    IllegalArgumentException.class,
                    () -> client.pull(List.of(stranger), local, TransferOptions.DEFAULT));
            assertThrows(
                    IllegalArgumentException.class,
                    () -> client.pull(List.of(), local, TransferOptions.DEFAULT));
        }
    }

    @Test
    void whatIsPulledToNowhereIsVerifiedAndNothingIsWritten() throws Exception {
        Trees.make(root);
        Files.writeString(root.resolve("tail"), "x");
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""))) {
            TransferOptions small = TransferOptions.builder().spanBytes(1 << 20).build();
            TransferResult result = client.pull(List.of(url(server, "")), null, small);
            // The top itself is not among its contents, and the tail is.
            assertEquals(Trees.FILES, result.filesDone() + result.directoriesDone());
            assertTrue(result.bytes() > 9_000_000, result.toString());
            assertEquals(List.of(), localNames());
            TransferOptions verify = TransferOptions.builder().verifyTarget(true).build();
            HaulException.Unsupported refused =
                    assertThrows(
                            HaulException.Unsupported.class,
                            () -> client.pull(List.of(url(server, "")), null, verify));
            assertEquals("cannot read the target back", refused.problem().what());
        }
    }

    @Test
    void aDamageOnTheWayToNowhereIsSeen() throws Exception {
        Trees.file(root.resolve("file"), 20_000_003, 3);
        try (HaulServer server = HaulServer.start(folder, root);
                FaultyPath path = new FaultyPath(server.url());
                HaulClient client = HaulClient.connect(path.through(server.url("file")))) {
            path.flipAfter = 10_000_000;
            HaulUrl url = HaulUrl.parse(path.through(server.url("file")));
            TransferResult result = client.pull(List.of(url), null, TransferOptions.DEFAULT);
            assertEquals(1, result.filesDone());
            assertEquals(1, path.damaged());
        }
    }

    @Test
    void modesAndTimesAreLeftOutWhereNobodyWantsThem() throws Exception {
        Path source = Files.createDirectories(root.resolve("tree")).resolve("file");
        Files.writeString(source, "content");
        Files.setPosixFilePermissions(source, PosixFilePermissions.fromString("rwxrwxrwx"));
        FileTime then = FileTime.from(Instant.ofEpochSecond(77));
        Files.setLastModifiedTime(source, then);
        Files.setLastModifiedTime(root.resolve("tree"), then);
        Path umasked = Files.createFile(folder.resolve("umasked"));
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url("tree"))) {
            client.pull(local, TransferOptions.builder().preserve(false, false).build());
            Path copy = local.resolve("tree/file");
            assertTrue(Files.getLastModifiedTime(copy).compareTo(then) > 0);
            assertTrue(Files.getLastModifiedTime(local.resolve("tree")).compareTo(then) > 0);
            // Bits that the umask takes from a new file, this one has neither.
            String mode = PosixFilePermissions.toString(Files.getPosixFilePermissions(copy));
            String usual = PosixFilePermissions.toString(Files.getPosixFilePermissions(umasked));
            assertEquals(usual.replace("-", ""), mode.replace("x", "").replace("-", ""));
            client.pull(
                    local,
                    TransferOptions.builder()
                            .preserve(true, true)
                            .onConflict(TransferOptions.OnConflict.REPLACE)
                            .build());
            assertEquals(then, Files.getLastModifiedTime(copy));
            assertEquals(
                    "rwxrwxrwx",
                    PosixFilePermissions.toString(Files.getPosixFilePermissions(copy)));
        }
    }

    @Test
    void whatIsReadBackGetsItsNameWithHolesAndSmallFilesToo() throws Exception {
        Trees.make(root);
        try (RandomAccessFile sparse =
                new RandomAccessFile(root.resolve("sparse").toFile(), "rw")) {
            sparse.setLength(40 << 20);
            sparse.seek(20 << 20);
            sparse.write(new byte[] {1, 2, 3});
        }
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""))) {
            TransferOptions verify =
                    TransferOptions.builder().verifyTarget(true).spanBytes(1 << 20).build();
            client.pull(local, verify);
            assertEquals(Trees.describe(root), Trees.describe(local));
        }
    }
}
