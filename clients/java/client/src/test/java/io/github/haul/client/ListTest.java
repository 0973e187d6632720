package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.wire.NameText;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.time.Instant;
import java.util.List;
import java.util.Random;
import java.util.TreeSet;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Listings of the real server. */
final class ListTest {
    @TempDir Path folder;
    private Path root = Path.of("");

    @BeforeEach
    void makeFolders() throws IOException {
        root = Files.createDirectories(folder.resolve("root"));
    }

    private static List<String> names(List<RemoteEntry> entries) {
        return entries.stream().map(RemoteEntry::name).sorted().toList();
    }

    @Test
    void aDirectoryIsListedOneLevelDeep() throws Exception {
        Path tree = Trees.make(root.resolve("tree"));
        Instant time = Instant.ofEpochSecond(981_173_106, 123_456_789);
        Files.setLastModifiedTime(tree.resolve("middle"), FileTime.from(time));
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.urlWith("--list"))) {
            List<RemoteEntry> entries = client.list("tree");
            assertEquals("", entries.get(0).name());
            assertEquals(RemoteEntry.Kind.DIRECTORY, entries.get(0).kind());
            List<String> expected =
                    List.of(
                            "",
                            "W\u00e4hrung \u20ac",
                            "deep",
                            "empty",
                            "large",
                            "link",
                            "middle",
                            "o\udcff\n",
                            "other name");
            assertEquals(new TreeSet<>(expected), new TreeSet<>(names(entries)));
            assertEquals(expected.size(), entries.size());
            RemoteEntry middle = find(entries, "middle");
            int mode = (int) Files.getAttribute(tree.resolve("middle"), "unix:mode") & 07777;
            assertEquals(
                    new RemoteEntry("middle", RemoteEntry.Kind.FILE, 300_000, time, mode, null),
                    middle);
            assertEquals(9_000_000, find(entries, "other name").sizeBytes());
            RemoteEntry link = find(entries, "link");
            assertEquals(RemoteEntry.Kind.SYMLINK, link.kind());
            assertEquals("deep/../nowhere", link.linkTarget());
            assertEquals(names(entries), names(client.list("tree/")));
        }
    }

    private static RemoteEntry find(List<RemoteEntry> entries, String name) {
        return entries.stream().filter(one -> one.name().equals(name)).findFirst().orElseThrow();
    }

    @Test
    void theRootAndEmptyDirectoriesAreListed() throws Exception {
        Files.createDirectories(root.resolve("a/b"));
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""))) {
            assertEquals(List.of("", "a"), names(client.list("")));
            assertEquals(List.of("", "b"), names(client.list("a")));
            assertEquals(List.of(""), names(client.list("a/b")));
            assertEquals(RemoteEntry.Kind.DIRECTORY, client.status("").orElseThrow().kind());
            try (HaulClient below = HaulClient.connect(server.url("a"))) {
                assertEquals(List.of("", "b"), names(below.list("")));
                assertEquals("", below.status("b").orElseThrow().name());
            }
        }
    }

    @Test
    void whatAPathIsIsToldByName() throws Exception {
        Path tree = Trees.make(root.resolve("tree"));
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""))) {
            assertEquals(3, client.status("tree/o\udcff\n").orElseThrow().sizeBytes());
            assertEquals(9_000_000, client.status("tree/large").orElseThrow().sizeBytes());
            assertEquals(List.of(""), names(client.list("tree/large")));
            // A link that is named is followed, as by a pull; this one leads nowhere.
            assertTrue(client.status("tree/link").isEmpty());
            Files.createSymbolicLink(root.resolve("good"), Path.of("tree/large"));
            RemoteEntry good = client.status("good").orElseThrow();
            assertEquals(RemoteEntry.Kind.FILE, good.kind());
            assertEquals(9_000_000, good.sizeBytes());
            assertTrue(client.status("tree/missing").isEmpty());
            assertTrue(client.status("missing/too").isEmpty());
            assertTrue(client.status("tree/large/below").isEmpty());
            HaulException.NotFound missing =
                    assertThrows(HaulException.NotFound.class, () -> client.list("tree/missing"));
            assertEquals("NOT_FOUND", missing.problem().code());
            assertThrows(HaulException.class, () -> client.list("../state"));
            assertEquals(Trees.describe(tree), Trees.describe(root.resolve("tree")));
        }
    }

    @Test
    void withoutTheRightToListNothingIsTold() throws Exception {
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.urlWith("--write"))) {
            HaulException.Refused refused =
                    assertThrows(HaulException.Refused.class, () -> client.list(""));
            assertEquals("RIGHT_MISSING", refused.problem().code());
        }
    }

    @Test
    void anyBytesOfANameComeBackFromItsText() {
        Random random = new Random(5);
        for (int round = 0; round < 2000; round++) {
            byte[] bytes = new byte[random.nextInt(12)];
            random.nextBytes(bytes);
            ByteString name = ByteString.copyFrom(bytes);
            assertEquals(name, NameText.bytes(NameText.of(name)));
        }
        String text = "\ud83d\ude00\u20aca\u00e4";
        assertEquals(text, NameText.of(NameText.bytes(text)));
        assertThrows(IllegalArgumentException.class, () -> NameText.bytes("\ud83d"));
    }
}
