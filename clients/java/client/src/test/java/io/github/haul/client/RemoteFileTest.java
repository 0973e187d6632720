package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileTime;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Parts of files, read from the real server. */
@Timeout(value = 120, unit = TimeUnit.SECONDS)
final class RemoteFileTest {
    private static final int SIZE = 5_000_003;
    private static final int SPAN = 64 << 10;

    private static final TransferOptions SMALL_SPANS =
            TransferOptions.builder()
                    .streams(1)
                    .spanBytes(SPAN)
                    .retryFor(Duration.ofSeconds(20))
                    .build();

    @TempDir Path folder;
    private Path root = Path.of("");

    @BeforeEach
    void makeFolders() throws IOException {
        root = Files.createDirectories(folder.resolve("root"));
    }

    private static byte[] read(RemoteFile file, long position, int length) throws Exception {
        ByteBuffer target = ByteBuffer.allocate(length);
        int got = file.read(position, target);
        assertEquals(Math.max(0, got), target.position());
        return Arrays.copyOf(target.array(), target.position());
    }

    @ParameterizedTest
    @EnumSource(TransferOptions.Protection.class)
    void partsAreThoseOfTheFile(TransferOptions.Protection protection) throws Exception {
        byte[] content = Files.readAllBytes(Trees.file(root.resolve("file"), SIZE, 1));
        TransferOptions options =
                TransferOptions.builder().streams(2).protection(protection).build();
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.urlWith("--read"));
                RemoteFile file = client.open("file", options)) {
            assertEquals(SIZE, file.sizeBytes());
            assertArrayEquals(content, read(file, 0, SIZE));
            Random random = new Random(4);
            for (int round = 0; round < 200; round++) {
                int at = random.nextInt(SIZE);
                int length = 1 + random.nextInt(300_000);
                byte[] expected = Arrays.copyOfRange(content, at, Math.min(SIZE, at + length));
                assertArrayEquals(expected, read(file, at, length), "at " + at);
            }
            assertEquals(-1, file.read(SIZE, ByteBuffer.allocate(1)));
            assertEquals(-1, file.read(Long.MAX_VALUE, ByteBuffer.allocate(1)));
            assertEquals(0, file.read(SIZE, ByteBuffer.allocate(0)));
            assertThrows(
                    IllegalArgumentException.class, () -> file.read(-1, ByteBuffer.allocate(1)));
            assertEquals(1, file.sessions());
        }
    }

    @Test
    void onlyWhatIsReadComesOverTheWire() throws Exception {
        int size = 64 << 20;
        Trees.file(root.resolve("file"), size, 1);
        try (HaulServer server = HaulServer.start(folder, root);
                FaultyPath path = new FaultyPath(server.url());
                HaulClient client = HaulClient.connect(path.through(server.url("")));
                RemoteFile file = client.open("file", SMALL_SPANS)) {
            for (long at = size - 10; at > 0; at -= 9L << 20) {
                read(file, at, 10);
            }
            assertTrue(path.dataBytes() < 10L * SPAN, () -> path.dataBytes() + " bytes came");
            assertEquals(1, file.sessions());
        }
    }

    @Test
    void whatLeftTheMemoryIsFetchedAgain() throws Exception {
        byte[] content = Files.readAllBytes(Trees.file(root.resolve("file"), 70_000_001, 2));
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""));
                RemoteFile file = client.open("file")) {
            for (int round = 0; round < 2; round++) {
                for (int at = 0; at < content.length; at += 1 << 20) {
                    byte[] expected =
                            Arrays.copyOfRange(
                                    content, at, Math.min(content.length, at + (1 << 20)));
                    assertArrayEquals(expected, read(file, at, 1 << 20));
                    assertTrue(file.keptBytes() <= 24 << 20);
                }
            }
            assertEquals(2, file.sessions());
            file.release();
            assertEquals(content[17], read(file, 17, 1)[0]);
        }
    }

    @Test
    void manyThreadsReadOneFile() throws Exception {
        byte[] content = Files.readAllBytes(Trees.file(root.resolve("file"), 40_000_000, 3));
        ExecutorService threads = Executors.newFixedThreadPool(6);
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""));
                RemoteFile file = client.open("file")) {
            List<Future<?>> reads = new ArrayList<>();
            for (int thread = 0; thread < 6; thread++) {
                Random random = new Random(thread);
                reads.add(
                        threads.submit(
                                () -> {
                                    for (int round = 0; round < 60; round++) {
                                        int at = random.nextInt(content.length - 100_000);
                                        byte[] expected =
                                                Arrays.copyOfRange(content, at, at + 100_000);
                                        assertArrayEquals(expected, read(file, at, 100_000));
                                    }
                                    return null;
                                }));
            }
            for (Future<?> read : reads) {
                read.get(100, TimeUnit.SECONDS);
            }
            assertTrue(file.keptBytes() <= 24 << 20);
        } finally {
            threads.shutdownNow();
        }
    }

    @Test
    void emptyAndSmallFilesAndWhatIsNone() throws Exception {
        Files.createFile(root.resolve("empty"));
        Files.writeString(root.resolve("small"), "hello");
        Files.createDirectory(root.resolve("directory"));
        Files.createSymbolicLink(root.resolve("link"), Path.of("small"));
        Files.createSymbolicLink(root.resolve("out"), Path.of("../state"));
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""))) {
            try (RemoteFile file = client.open("empty")) {
                assertEquals(0, file.sizeBytes());
                assertEquals(-1, file.read(0, ByteBuffer.allocate(1)));
            }
            for (String name : List.of("small", "link")) {
                try (RemoteFile file = client.open(name)) {
                    assertEquals("hello", new String(read(file, 0, 10)));
                    assertEquals("lo", new String(read(file, 3, 10)));
                }
            }
            assertThrows(HaulException.NotFound.class, () -> client.open("missing"));
            for (String name : List.of("directory", "")) {
                HaulException.Refused refused =
                        assertThrows(HaulException.Refused.class, () -> client.open(name));
                assertEquals("KIND_UNSUPPORTED", refused.problem().code());
            }
            assertThrows(HaulException.class, () -> client.open("out"));
            RemoteFile closed = client.open("small");
            closed.close();
            closed.close();
            assertThrows(HaulException.class, () -> read(closed, 0, 1));
            try (HaulClient lister = HaulClient.connect(server.urlWith("--list"))) {
                HaulException.Refused refused =
                        assertThrows(HaulException.Refused.class, () -> lister.open("small"));
                assertEquals("RIGHT_MISSING", refused.problem().code());
            }
        }
    }

    @Test
    void aReaderThatIsDoneIsNoFailureOfTheServer() throws Exception {
        Trees.file(root.resolve("file"), SIZE, 1);
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""))) {
            for (int length : List.of(0, 10, SIZE / 2, SIZE)) {
                try (RemoteFile file = client.open("file", SMALL_SPANS)) {
                    read(file, 0, length);
                }
            }
            String said = server.saidUntil("finished: ", 4);
            assertFalse(said.contains("ended: "), said);
            assertFalse(said.contains("was read in parts"), said);
        }
    }

    @Test
    void aFileThatIsReplacedIsReadNoMore() throws Exception {
        byte[] content = Files.readAllBytes(Trees.file(root.resolve("file"), SIZE, 1));
        Path other = Trees.file(folder.resolve("other"), SIZE, 2);
        Files.setLastModifiedTime(other, Files.getLastModifiedTime(root.resolve("file")));
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""));
                RemoteFile file = client.open("file", SMALL_SPANS)) {
            assertArrayEquals(Arrays.copyOf(content, 10), read(file, 0, 10));
            Files.move(other, root.resolve("file"), StandardCopyOption.REPLACE_EXISTING);
            HaulException.SourceChanged changed =
                    assertThrows(HaulException.SourceChanged.class, () -> read(file, SIZE / 2, 10));
            assertTrue(changed.getMessage().startsWith("file: "), changed.getMessage());
            assertThrows(HaulException.SourceChanged.class, () -> read(file, SIZE / 3, 10));
        }
    }

    @Test
    void aFileThatIsWrittenToIsReadNoMoreThoughItsTimeIsSetBack() throws Exception {
        Path path = Trees.file(root.resolve("file"), SIZE, 1);
        byte[] content = Files.readAllBytes(path);
        FileTime time = Files.getLastModifiedTime(path);
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""));
                RemoteFile file = client.open("file", SMALL_SPANS)) {
            assertArrayEquals(Arrays.copyOf(content, 10), read(file, 0, 10));
            try (RandomAccessFile written = new RandomAccessFile(path.toFile(), "rw")) {
                written.seek(SIZE / 2);
                written.write(content[SIZE / 2] ^ 1);
            }
            Files.setLastModifiedTime(path, time);
            assertThrows(HaulException.SourceChanged.class, () -> read(file, SIZE / 2, 10));
        }
    }

    @Test
    void aFileThatChangedBetweenTwoSessionsIsReadNoMore() throws Exception {
        Path path = Trees.file(root.resolve("file"), SIZE, 1);
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""));
                RemoteFile file = client.open("file", SMALL_SPANS)) {
            read(file, 0, 10);
            file.release();
            FileTime time = Files.getLastModifiedTime(path);
            Files.write(path, new byte[SIZE]);
            Files.setLastModifiedTime(path, time);
            assertThrows(HaulException.SourceChanged.class, () -> read(file, 0, 10));
        }
    }

    @ParameterizedTest
    @EnumSource(TransferOptions.Protection.class)
    void aFlippedBitIsSeenAndLostStreamsAreReplaced(TransferOptions.Protection protection)
            throws Exception {
        byte[] content = Files.readAllBytes(Trees.file(root.resolve("file"), SIZE, 1));
        TransferOptions options =
                TransferOptions.builder().streams(1).spanBytes(SPAN).protection(protection).build();
        try (HaulServer server = HaulServer.start(folder, root);
                FaultyPath path = new FaultyPath(server.url());
                HaulClient client = HaulClient.connect(path.through(server.url("")));
                RemoteFile file = client.open("file", options)) {
            path.flipAfter = SIZE / 4;
            path.cutStreamAfter = SIZE / 2;
            assertArrayEquals(content, read(file, 0, SIZE));
            assertEquals(1, path.damaged());
            assertEquals(Long.MAX_VALUE, path.cutStreamAfter, "it was cut");
            assertEquals(1, file.sessions());
        }
    }

    @Test
    void aServerThatComesBackIsReadOn() throws Exception {
        byte[] content = Files.readAllBytes(Trees.file(root.resolve("file"), SIZE, 1));
        HaulServer first = HaulServer.start(folder, root);
        String url = first.url("");
        HaulServer second = null;
        try (HaulClient client = HaulClient.connect(url);
                RemoteFile file = client.open("file", SMALL_SPANS)) {
            assertArrayEquals(Arrays.copyOf(content, 10), read(file, 0, 10));
            first.process().destroyForcibly().waitFor();
            second = HaulServer.start(folder, root, "--listen", "127.0.0.1:" + first.url().port());
            assertArrayEquals(content, read(file, 0, SIZE));
            assertEquals(2, file.sessions());
        } finally {
            first.close();
            if (second != null) {
                second.close();
            }
        }
    }

    @Test
    void aServerThatIsGoneIsSaid() throws Exception {
        Trees.file(root.resolve("file"), SIZE, 1);
        TransferOptions options =
                TransferOptions.builder().spanBytes(SPAN).retryFor(Duration.ofMillis(300)).build();
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""));
                RemoteFile file = client.open("file", options)) {
            byte[] begin = read(file, 0, 10);
            server.process().destroyForcibly().waitFor();
            assertThrows(HaulException.ConnectionLost.class, () -> read(file, SIZE / 2, 10));
            assertThrows(HaulException.ConnectionLost.class, () -> read(file, SIZE / 2, 10));
            assertArrayEquals(begin, read(file, 0, 10), "what is in memory is still read");
            assertThrows(HaulException.Unreachable.class, () -> client.open("file"));
        }
    }

    /** A server that ended the session while nobody read, as it does after an hour without one. */
    @Test
    void aReaderThatWasIdleHasAllItsTimeToGetBackWhenItReadsAgain() throws Exception {
        Trees.file(root.resolve("file"), SIZE, 1);
        TransferOptions options =
                TransferOptions.builder().spanBytes(SPAN).retryFor(Duration.ofMillis(500)).build();
        HaulServer server = HaulServer.start(folder, root);
        try (HaulClient client = HaulClient.connect(server.url(""));
                RemoteFile file = client.open("file", options)) {
            read(file, 0, 10);
            server.process().destroyForcibly().waitFor();
            // Longer than it tries, and than it takes to notice.
            Thread.sleep(1500);
            AtomicInteger tries = new AtomicInteger();
            try (ServerSocket other = new ServerSocket(server.url().port())) {
                Thread accepting = new Thread(() -> hangUp(other, tries));
                accepting.start();
                assertThrows(HaulException.ConnectionLost.class, () -> read(file, SIZE / 2, 10));
            }
            assertTrue(tries.get() > 1, tries.get() + " tries");
        } finally {
            server.close();
        }
    }

    private static void hangUp(ServerSocket server, AtomicInteger count) {
        try {
            while (true) {
                server.accept().close();
                count.incrementAndGet();
            }
        } catch (IOException closed) {
            // The test is over.
        }
    }

    @Test
    void aReadThatWaitsEndsWithItsFile() throws Exception {
        Trees.file(root.resolve("file"), SIZE, 1);
        ExecutorService threads = Executors.newSingleThreadExecutor();
        try (HaulServer server = HaulServer.start(folder, root);
                FaultyPath path = new FaultyPath(server.url())) {
            HaulClient client = HaulClient.connect(path.through(server.url("")));
            RemoteFile file = client.open("file", SMALL_SPANS);
            path.slowMs = 1000;
            Future<byte[]> read = threads.submit(() -> read(file, 0, SIZE));
            while (path.dataBytes() == 0) {
                Thread.sleep(5);
            }
            client.close();
            Exception ended = assertThrows(Exception.class, () -> read.get(30, TimeUnit.SECONDS));
            assertTrue(ended.getCause() instanceof HaulException, ended.toString());
            file.close();
        } finally {
            threads.shutdownNow();
        }
    }
}
