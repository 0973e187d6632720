package io.github.haul.hadoop;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.haul.client.HaulException;
import io.github.haul.client.HaulServer;
import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.security.AccessControlException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What the contract tests of Hadoop do not ask. */
final class HaulFileSystemTest {
    @TempDir java.nio.file.Path folder;

    private static byte[] content(long seed, int bytes) {
        byte[] content = new byte[bytes];
        new Random(seed).nextBytes(content);
        return content;
    }

    private static FileSystem open(Served served) throws IOException {
        return FileSystem.newInstance(URI.create(served.uri()), served.configuration());
    }

    @Test
    void theSchemeIsFoundAndTheTokenIsShownNowhere() throws Exception {
        Served served = Served.shared();
        Files.writeString(served.root().resolve("greeting"), "hello");
        Configuration conf = new Configuration();
        String uri = served.server().url("");
        try (FileSystem fs = FileSystem.newInstance(URI.create(uri), conf)) {
            assertEquals(HaulFileSystem.class, fs.getClass());
            Path path = new Path(uri + "greeting");
            FileStatus status = fs.getFileStatus(path);
            assertEquals(new Path(served.uri() + "/greeting"), status.getPath());
            assertFalse((status + fs.getUri().toString()).contains(served.token()));
            Path missing = new Path(uri + "missing");
            IOException none =
                    assertThrows(FileNotFoundException.class, () -> fs.getFileStatus(missing));
            assertFalse(none.getMessage().contains(served.token()), none.getMessage());
            try (FSDataInputStream stream = fs.open(path)) {
                assertEquals("hello", new String(stream.readAllBytes()));
            }
        }
    }

    @Test
    void withoutATokenOrTheRightNothingIsRead() throws Exception {
        Served served = Served.shared();
        Files.writeString(served.root().resolve("secret"), "hello");
        URI uri = URI.create(served.uri());
        Configuration none = new Configuration();
        if (System.getenv("HAUL_TOKEN") == null) {
            assertThrows(
                    AccessControlException.class, () -> FileSystem.newInstance(uri, none).close());
        }
        Configuration wrong = served.configuration();
        wrong.set(HaulFileSystem.TOKEN, "x");
        assertThrows(IOException.class, () -> FileSystem.newInstance(uri, wrong).close());
        Configuration other = served.configuration();
        String token = served.token();
        String first = token.substring(0, 3) + (token.charAt(3) == 'a' ? 'b' : 'a');
        other.set(HaulFileSystem.TOKEN, first + token.substring(4));
        try (FileSystem fs = FileSystem.newInstance(uri, other)) {
            assertThrows(AccessControlException.class, () -> fs.getFileStatus(new Path("/secret")));
        }
        Configuration lister = served.configuration();
        lister.set(
                HaulFileSystem.TOKEN + ".127.0.0.1",
                Served.tokenOf(served.server().urlWith("--list")));
        try (FileSystem fs = FileSystem.newInstance(uri, lister)) {
            assertEquals(5, fs.getFileStatus(new Path("/secret")).getLen());
            assertThrows(AccessControlException.class, () -> fs.open(new Path("/secret")));
        }
    }

    @Test
    void whatWouldWriteIsRefused() throws Exception {
        Served served = Served.shared();
        Files.writeString(served.root().resolve("kept"), "hello");
        try (FileSystem fs = open(served)) {
            Path path = new Path("/kept");
            Path other = new Path("/other");
            Class<UnsupportedOperationException> no = UnsupportedOperationException.class;
            assertThrows(no, () -> fs.create(other).close());
            assertThrows(no, () -> fs.append(path).close());
            assertThrows(no, () -> fs.rename(path, other));
            assertThrows(no, () -> fs.delete(path, true));
            assertThrows(no, () -> fs.mkdirs(other));
            assertEquals("hello", Files.readString(served.root().resolve("kept")));
            assertTrue(fs.hasPathCapability(path, CommonPathCapabilities.FS_READ_ONLY_CONNECTOR));
            assertFalse(fs.hasPathCapability(path, CommonPathCapabilities.FS_APPEND));
            assertNull(fs.getFileChecksum(path));
        }
    }

    @Test
    void namesAndLinksAreListedAsTheyAre() throws Exception {
        Served served = Served.shared();
        java.nio.file.Path odd = Files.createDirectories(served.root().resolve("odd/in ner"));
        List<String> names = List.of("a:b", "100%", "W\u00e4hrung \u20ac", "#1", "x?y", "in ner");
        for (String name : names.subList(0, 5)) {
            Files.writeString(odd.resolveSibling(name), name);
        }
        Files.createSymbolicLink(odd.resolveSibling("link"), java.nio.file.Path.of("#1"));
        Files.createSymbolicLink(odd.resolveSibling("nowhere"), java.nio.file.Path.of("gone"));
        Files.createSymbolicLink(odd.resolveSibling("out"), java.nio.file.Path.of("../../state"));
        try (FileSystem fs = open(served)) {
            FileStatus[] found = fs.listStatus(new Path("/odd"));
            List<String> expected =
                    List.of("#1", "100%", "W\u00e4hrung \u20ac", "a:b", "in ner", "link", "x?y");
            assertEquals(
                    expected,
                    Arrays.stream(found).map(one -> one.getPath().getName()).sorted().toList());
            for (FileStatus status : found) {
                String name = status.getPath().getName();
                if (status.isFile()) {
                    try (FSDataInputStream stream = fs.open(status.getPath())) {
                        String text = new String(stream.readAllBytes(), "UTF-8");
                        assertEquals(name.equals("link") ? "#1" : name, text);
                    }
                }
            }
            assertThrows(IOException.class, () -> fs.open(new Path("/odd/out")));
        }
    }

    @Test
    void randomPlacesAndRangesAreThoseOfTheFile() throws Exception {
        Served served = Served.shared();
        byte[] content = content(1, 12_000_001);
        Files.write(served.root().resolve("random"), content);
        Random random = new Random(2);
        try (FileSystem fs = open(served);
                FSDataInputStream stream = fs.open(new Path("/random"))) {
            assertTrue(stream.hasCapability(StreamCapabilities.VECTOREDIO));
            for (int round = 0; round < 100; round++) {
                int at = random.nextInt(content.length);
                byte[] some = new byte[1 + random.nextInt(200_000)];
                stream.seek(at);
                int got = stream.read(some);
                assertArrayEquals(
                        Arrays.copyOfRange(content, at, at + got), Arrays.copyOf(some, got));
                assertEquals(at + got, stream.getPos());
            }
            List<FileRange> ranges = new ArrayList<>();
            for (int at = 11_000_000; at > 0; at -= 300_000) {
                ranges.add(FileRange.createFileRange(at, 1 + random.nextInt(250_000)));
            }
            stream.readVectored(ranges, ByteBuffer::allocateDirect);
            for (FileRange range : ranges) {
                byte[] bytes = new byte[range.getLength()];
                range.getData().get(60, TimeUnit.SECONDS).get(bytes);
                int at = (int) range.getOffset();
                assertArrayEquals(Arrays.copyOfRange(content, at, at + bytes.length), bytes);
            }
            List<FileRange> overlapping =
                    List.of(FileRange.createFileRange(0, 10), FileRange.createFileRange(9, 5));
            assertThrows(
                    IllegalArgumentException.class,
                    () -> stream.readVectored(overlapping, ByteBuffer::allocate));
            assertThrows(EOFException.class, () -> stream.seek(content.length + 1L));
        }
    }

    @Test
    void aFileThatIsReplacedAndAServerThatIsGoneAreSaid() throws Exception {
        java.nio.file.Path root = Files.createDirectory(folder.resolve("root"));
        byte[] content = content(3, 2_000_000);
        Files.write(root.resolve("file"), content);
        try (HaulServer server = HaulServer.start(folder, root)) {
            Configuration conf = new Configuration();
            conf.set(HaulFileSystem.RETRY_FOR, "200ms");
            conf.set(HaulFileSystem.SPAN_SIZE, "64K");
            try (FileSystem fs = FileSystem.newInstance(URI.create(server.url("")), conf)) {
                Path path = new Path("/file");
                try (FSDataInputStream stream = fs.open(path)) {
                    assertEquals(content[0], (byte) stream.read());
                    Files.write(root.resolve("file"), content(4, 2_000_000));
                    IOException changed =
                            assertThrows(
                                    IOException.class,
                                    () -> stream.readFully(1_000_000, new byte[9]));
                    assertTrue(changed instanceof HaulException.SourceChanged, changed.toString());
                }
                try (FSDataInputStream stream = fs.open(path)) {
                    stream.read();
                    server.process().destroyForcibly().waitFor();
                    assertThrows(
                            HaulException.ConnectionLost.class,
                            () -> stream.readFully(1_000_000, new byte[9]));
                    List<FileRange> ranges = List.of(FileRange.createFileRange(1_500_000, 5));
                    stream.readVectored(ranges, ByteBuffer::allocate);
                    assertThrows(
                            ExecutionException.class,
                            () -> ranges.get(0).getData().get(60, TimeUnit.SECONDS));
                }
            }
        }
    }
}
