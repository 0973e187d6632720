package io.github.haul.client.internal.target;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.FaultCode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Hidden directories of receivers that died, laid out as the program haul leaves them. */
final class LeftHiddenTest {
    private static final String TREE = "tree";

    @TempDir Path place;
    private Path staged = Path.of("");
    private Path list = Path.of("");

    @BeforeEach
    void nameThem() {
        staged = place.resolve(".tree.haul-staged");
        list = place.resolve(".tree.haul-durable");
    }

    private void files(Path below, String... names) throws IOException {
        for (String name : names) {
            Path path = below.resolve(name);
            Files.createDirectories(path.getParent());
            Files.writeString(path, below.getFileName().toString());
        }
    }

    private static byte[] batch(List<String> names) {
        ByteBuffer batch =
                ByteBuffer.allocate(12 + 16 * names.size()).order(ByteOrder.LITTLE_ENDIAN);
        batch.putInt(names.size());
        for (String name : names) {
            byte[] bytes = Offers.name(name).toByteArray();
            batch.put(Blake3.of(bytes, 0, bytes.length), 0, 16);
        }
        return batch.put(Blake3.of(batch.array(), 0, batch.position()), 0, 8).array();
    }

    @SafeVarargs
    private static byte[] listOf(List<String>... batches) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        bytes.writeBytes("haul durable 1\n\0".getBytes());
        for (List<String> one : batches) {
            bytes.writeBytes(batch(one));
        }
        return bytes.toByteArray();
    }

    private Set<String> there(Path below) throws IOException {
        try (Stream<Path> all = Files.walk(below)) {
            return all.filter(path -> !Files.isDirectory(path))
                    .map(path -> below.relativize(path).toString())
                    .collect(Collectors.toCollection(TreeSet::new));
        }
    }

    private boolean takeUp() throws IOException {
        try (TargetRoot root = TargetRoot.open(place)) {
            return LeftHidden.takeUp(root, Offers.name(TREE));
        }
    }

    @Test
    void whatTheListTellsOfIsShownAndTheRestIsGoneButTemporaries() throws IOException {
        files(staged, "a", "b", "d/c", "d/e", "d/.x.haul-part", "d/.x.haul-journal");
        Files.write(list, listOf(List.of("a"), List.of("d/e", "gone")));
        assertTrue(takeUp());
        Set<String> stays = Set.of("a", "d/e", "d/.x.haul-part", "d/.x.haul-journal");
        assertEquals(new TreeSet<>(stays), there(place.resolve(TREE)));
        assertFalse(Files.exists(staged));
        assertFalse(Files.exists(list));
        assertFalse(takeUp(), "nothing is left");
    }

    @Test
    void aDirectoryThatIsThereTakesAllInAndKeepsItsOwnFiles() throws IOException {
        Path tree = place.resolve(TREE);
        files(tree, "both", "d/both", "own");
        files(staged, "both", "d/both", "d/new/x", "y", "half");
        Files.setPosixFilePermissions(
                staged.resolve("d/new"), PosixFilePermissions.fromString("rwxr-x---"));
        Files.write(list, listOf(List.of("both", "d/both", "d/new/x", "y")));
        assertTrue(takeUp());
        Set<String> all = Set.of("both", "d/both", "d/new/x", "own", "y");
        assertEquals(new TreeSet<>(all), there(tree));
        assertEquals(TREE, Files.readString(tree.resolve("both")));
        assertEquals(TREE, Files.readString(tree.resolve("d/both")));
        assertEquals(1, (int) Files.getAttribute(tree.resolve("y"), "unix:nlink"));
        assertEquals(
                "rwxr-x---",
                PosixFilePermissions.toString(
                        Files.getPosixFilePermissions(tree.resolve("d/new"))));
        assertFalse(Files.exists(staged));
        assertFalse(Files.exists(list));
    }

    @Test
    void aListIsBelievedUpToABatchThatWasCutOffOrDamaged() throws IOException {
        byte[] whole = listOf(List.of("a", "b/c"), List.of("d"));
        int first = 16 + batch(List.of("a", "b/c")).length;
        for (int kept = 0; kept <= whole.length; kept++) {
            String told = tells(java.util.Arrays.copyOf(whole, kept));
            String wanted = kept < first ? "" : kept < whole.length ? "a b/c " : "a b/c d ";
            assertEquals(wanted, told, kept + " bytes");
        }
        for (int at = 0; at < first; at++) {
            byte[] damaged = whole.clone();
            damaged[at] ^= 1;
            assertEquals("", tells(damaged), "byte " + at);
        }
    }

    private String tells(byte[] bytes) throws IOException {
        Path file = Files.write(place.resolve("list"), bytes);
        StringBuilder told = new StringBuilder();
        try (FileChannel channel = FileChannel.open(file)) {
            DurableList of = new DurableList(channel);
            assertEquals(1, of.parts());
            DurableList.Part part = of.part(0);
            for (String name : List.of("a", "b/c", "d", "e")) {
                told.append(part.lacks(Offers.name(name)) ? "" : name + " ");
            }
        }
        return told.toString();
    }

    /** Each path is asked of one part alone, which knows all of its own. */
    @Test
    void aListOfManyFilesIsReadInParts() throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        bytes.writeBytes(listOf());
        int names = 300_000;
        for (int begin = 0; begin < names; begin += 50_000) {
            List<String> batch = new java.util.ArrayList<>();
            for (int number = begin; number < begin + 50_000; number++) {
                batch.add("f" + number);
            }
            bytes.writeBytes(batch(batch));
        }
        Files.write(list, bytes.toByteArray());
        try (FileChannel channel = FileChannel.open(list)) {
            DurableList of = new DurableList(channel);
            assertEquals(2, of.parts());
            int[] lacking = new int[2];
            for (int number = 0; number < of.parts(); number++) {
                DurableList.Part part = of.part(number);
                for (int name = 0; name < names; name += 100) {
                    ByteString path = Offers.name("f" + name);
                    assertFalse(part.lacks(path), "f" + name);
                    lacking[number] += part.lacks(Offers.name("g" + name)) ? 1 : 0;
                }
            }
            assertEquals(names / 100, lacking[0] + lacking[1]);
            assertTrue(lacking[0] > 1000 && lacking[1] > 1000);
        }
    }

    @Test
    void whatALiveReceiverHoldsIsLeftToIt() throws IOException {
        files(staged, "a");
        Files.write(list, listOf());
        // This process's own lock is the same to a second pull of the same JVM.
        try (FileChannel held = FileChannel.open(list, java.nio.file.StandardOpenOption.WRITE);
                FileLock lock = held.lock()) {
            assertTrue(lock.isValid());
            assertFalse(takeUp());
        }
        assertTrue(Files.exists(staged.resolve("a")) && Files.exists(list));
    }

    @Test
    void aLinkInTheTreeIsANameAndNoWay() throws IOException {
        Path outside = place.resolve("outside");
        files(outside, "kept");
        Files.createDirectories(staged);
        Files.createSymbolicLink(staged.resolve("link"), outside);
        Files.write(list, listOf());
        assertTrue(takeUp());
        assertEquals(Set.of(), there(place.resolve(TREE)));
        assertTrue(Files.exists(outside.resolve("kept")));
    }

    @Test
    void whatHasTheNamesOfTheTwoAndIsSomethingElseStays() throws IOException {
        Files.createDirectory(list);
        files(staged, "a");
        assertFalse(takeUp());
        assertTrue(Files.exists(staged.resolve("a")));
        Files.delete(list);
        assertFalse(takeUp(), "without a list nobody knows what is whole");
        Files.write(list, listOf(List.of("a")));
        Files.writeString(place.resolve(TREE), "a file");
        TargetFault fault = assertThrows(TargetFault.class, this::takeUp);
        assertTrue(fault.fault().getWhat().contains("earlier run"), fault.fault().toString());
        assertTrue(fault.fault().getCode() != FaultCode.LOCKED);
        assertTrue(Files.exists(staged.resolve("a")) && Files.exists(list));
    }
}
