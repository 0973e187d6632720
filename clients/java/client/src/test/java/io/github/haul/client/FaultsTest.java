package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Transfers over paths that fail, to and from servers that die, at disks that are full. */
final class FaultsTest extends TwoFolders {
    private static final long SIZE = 40_000_003;

    private static TransferOptions with(TransferOptions.Protection protection) {
        return TransferOptions.builder()
                .protection(protection)
                .streams(2)
                .spanBytes(1 << 20)
                .retryFor(Duration.ofSeconds(30))
                .build();
    }

    private static final TransferOptions SAFE = with(TransferOptions.Protection.SAFE);

    /** Moves a file in this direction over a path, and sees that it is whole. */
    private TransferResult move(
            boolean isPush, HaulServer server, FaultyPath path, TransferOptions options)
            throws Exception {
        Path source = Trees.file((isPush ? local : root).resolve("file"), SIZE, 3);
        Path copy = (isPush ? root : local).resolve("copy");
        String url = path.through(server.url(isPush ? "copy" : "file"));
        try (HaulClient client = HaulClient.connect(url)) {
            TransferResult result =
                    isPush ? client.push(List.of(source), options) : client.pull(copy, options);
            assertEquals(Trees.hash(source), Trees.hash(copy));
            assertEquals(1, result.filesDone());
            return result;
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aLostConnectionComesBackAndGoesOn(boolean isPush) throws Exception {
        try (HaulServer server = HaulServer.start(folder, root);
                FaultyPath path = new FaultyPath(server.url())) {
            path.cutAllAfter = SIZE / 2;
            path.slowMs = 1;
            TransferResult result = move(isPush, server, path, SAFE);
            assertEquals(2, result.connections());
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aLostStreamIsReplaced(boolean isPush) throws Exception {
        try (HaulServer server = HaulServer.start(folder, root);
                FaultyPath path = new FaultyPath(server.url())) {
            path.cutStreamAfter = SIZE / 2;
            assertEquals(1, move(isPush, server, path, SAFE).connections());
            assertEquals(Long.MAX_VALUE, path.cutStreamAfter, "it was cut");
        }
    }

    @ParameterizedTest
    @EnumSource(TransferOptions.Protection.class)
    void aFlippedBitIsSeenAndSentAgain(TransferOptions.Protection protection) throws Exception {
        for (boolean isPush : new boolean[] {true, false}) {
            try (HaulServer server = HaulServer.start(folder, root);
                    FaultyPath path = new FaultyPath(server.url())) {
                path.flipAfter = SIZE / 2;
                TransferResult result = move(isPush, server, path, with(protection));
                assertEquals(1, path.damaged());
                assertEquals(1, result.spansResent());
                Files.delete((isPush ? root : local).resolve("copy"));
            }
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void progressTellsWhatIsDurableAndWhatWentOverTheWire(boolean isPush) throws Exception {
        List<TransferProgress> told = new CopyOnWriteArrayList<>();
        try (HaulServer server = HaulServer.start(folder, root);
                FaultyPath path = new FaultyPath(server.url())) {
            // Until a part of it was told to be durable.
            path.slowMs = 20;
            TransferListener listener =
                    new TransferListener() {
                        @Override
                        public void onProgress(TransferProgress progress) {
                            told.add(progress);
                            path.slowMs = progress.bytesDurable() > 0 ? 0 : path.slowMs;
                        }
                    };
            TransferOptions options =
                    TransferOptions.builder()
                            .streams(2)
                            .spanBytes(1 << 20)
                            .listener(listener)
                            .build();
            move(isPush, server, path, options);
        }
        assertTrue(
                told.stream().anyMatch(one -> one.streams() == 2 && one.bytesOnWire() > 0),
                told.toString());
        assertTrue(
                told.stream().anyMatch(one -> one.bytesDurable() > 0 && one.bytesDurable() < SIZE),
                told.toString());
        TransferProgress last = told.get(told.size() - 1);
        assertEquals(SIZE, last.bytesDurable());
        assertEquals(SIZE, last.bytesVerified());
        assertEquals(0, last.bytesThereBefore());
        long frames = last.bytesOnWire() - SIZE;
        assertTrue(frames > 0 && frames < SIZE / 100, last.toString());
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void holesAreNeitherMovedNorResumed(boolean isPush) throws Exception {
        Path source = Trees.file((isPush ? local : root).resolve("file"), 1 << 20, 3);
        try (RandomAccessFile file = new RandomAccessFile(source.toFile(), "rw")) {
            file.setLength(32 << 20);
        }
        Path copy = (isPush ? root : local).resolve("copy");
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(isPush ? "copy" : "file"))) {
            TransferResult result =
                    isPush ? client.push(List.of(source), SAFE) : client.pull(copy, SAFE);
            assertEquals(Trees.hash(source), Trees.hash(copy));
            assertEquals(32 << 20, result.bytes());
            assertEquals(31 << 20, result.bytesOfHoles());
            assertEquals(0, result.bytesResumed());
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aServerThatIsKilledAndStartedAgainMovesTheRest(boolean isPush) throws Exception {
        Path source = Trees.file((isPush ? local : root).resolve("file"), SIZE, 3);
        Path copy = (isPush ? root : local).resolve("copy");
        HaulServer first = HaulServer.start(folder, root);
        int port = first.url().port();
        String url = first.url(isPush ? "copy" : "file");
        HaulServer second = null;
        try (FaultyPath path = new FaultyPath(first.url());
                HaulClient client = HaulClient.connect(path.through(url))) {
            path.slowMs = 5;
            CompletableFuture<TransferResult> moving =
                    isPush ? client.pushAsync(List.of(source), SAFE) : client.pullAsync(copy, SAFE);
            while (path.dataBytes() < SIZE / 2) {
                Thread.sleep(5);
            }
            first.process().destroyForcibly().waitFor();
            path.cutAll();
            path.slowMs = 0;
            long before = path.dataBytes();
            second = HaulServer.start(folder, root, "--listen", "127.0.0.1:" + port);
            TransferResult result = moving.get(60, TimeUnit.SECONDS);
            assertEquals(2, result.connections());
            assertEquals(Trees.hash(source), Trees.hash(copy));
            if (!isPush) {
                // What was verified before stays with the client.
                long rest = path.dataBytes() - before;
                assertTrue(rest < SIZE - (4 << 20), rest + " bytes came after the start");
            }
        } finally {
            first.close();
            if (second != null) {
                second.close();
            }
        }
    }

    @Test
    void aServerThatDoesNotComeBackIsGivenUpInWords() throws Exception {
        Path file = Trees.file(local.resolve("file"), SIZE, 3);
        try (HaulServer server = HaulServer.start(folder, root);
                FaultyPath path = new FaultyPath(server.url());
                HaulClient client = HaulClient.connect(path.through(server.url("copy")))) {
            path.slowMs = 5;
            TransferOptions options =
                    TransferOptions.builder().retryFor(Duration.ofSeconds(1)).build();
            CompletableFuture<TransferResult> pushing = client.pushAsync(List.of(file), options);
            while (path.dataBytes() < SIZE / 4) {
                Thread.sleep(5);
            }
            path.end();
            Exception failed =
                    assertThrows(Exception.class, () -> pushing.get(60, TimeUnit.SECONDS));
            HaulException lost =
                    assertInstanceOf(HaulException.ConnectionLost.class, failed.getCause());
            assertTrue(lost.problem().hint().contains("goes on"), lost.toString());
        }
    }

    @Test
    void aWrongTokenAndAWrongServerAreToldApart() throws Exception {
        Path other = Files.createDirectories(folder.resolve("other"));
        try (HaulServer server = HaulServer.start(folder, root);
                HaulServer stranger = HaulServer.start(other, root)) {
            Path file = Trees.file(local.resolve("file"), 5, 1);
            String url = server.url("x");
            String token = url.substring("haul://".length(), url.indexOf('@'));
            // Another secret, and the fingerprint of the server as it is.
            char last = token.charAt(8) == 'a' ? 'b' : 'a';
            String wrong = token.substring(0, 8) + last + token.substring(9);
            try (HaulClient client = HaulClient.connect(url.replace(token, wrong))) {
                HaulException.Refused refused =
                        assertThrows(HaulException.Refused.class, () -> client.push(file));
                assertEquals("TOKEN_WRONG", refused.problem().code());
                HaulException.Refused ofPull =
                        assertThrows(HaulException.Refused.class, () -> client.pull(local));
                assertEquals("TOKEN_WRONG", ofPull.problem().code());
            }
            String elsewhere = url.replace(":" + server.url().port(), ":" + stranger.url().port());
            try (HaulClient client = HaulClient.connect(elsewhere)) {
                assertThrows(HaulException.WrongServer.class, () -> client.push(file));
                assertThrows(HaulException.WrongServer.class, () -> client.pull(local));
            }
        }
        try (HaulClient client =
                HaulClient.connect(
                        "haul://"
                                + "aeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqc"
                                + "@127.0.0.1:1/")) {
            assertThrows(HaulException.Unreachable.class, () -> client.push(local));
            assertThrows(HaulException.Unreachable.class, () -> client.pull(local));
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aTransferThatIsCancelledIsFinishedByTheNext(boolean isPush) throws Exception {
        Path source = Trees.file((isPush ? local : root).resolve("file"), SIZE, 3);
        Path copy = (isPush ? root : local).resolve("copy");
        try (HaulServer server = HaulServer.start(folder, root);
                FaultyPath path = new FaultyPath(server.url())) {
            path.slowMs = 5;
            String url = path.through(server.url(isPush ? "copy" : "file"));
            try (HaulClient client = HaulClient.connect(url)) {
                CompletableFuture<TransferResult> moving =
                        isPush
                                ? client.pushAsync(List.of(source), SAFE)
                                : client.pullAsync(copy, SAFE);
                while (path.dataBytes() < SIZE / 2) {
                    Thread.sleep(5);
                }
                // It cannot come to its end meanwhile, however quick this host is.
                path.slowMs = 500;
                Thread.sleep(300);
                moving.cancel(true);
                path.slowMs = 0;
                TransferResult rest =
                        isPush ? client.push(List.of(source), SAFE) : client.pull(copy, SAFE);
                assertTrue(rest.bytesResumed() > 0, rest.toString());
                assertEquals(Trees.hash(source), Trees.hash(copy));
            }
        }
    }

    /** The program that is no Java goes on with what the client left, and the other way round. */
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void eachProgramFinishesWhatTheOtherBegan(boolean isJavaFirst) throws Exception {
        Path source = Trees.file(root.resolve("file"), SIZE, 3);
        Path copy = local.resolve("copy");
        try (HaulServer server = HaulServer.start(folder, root);
                FaultyPath path = new FaultyPath(server.url());
                HaulClient client = HaulClient.connect(path.through(server.url("file")))) {
            path.slowMs = 5;
            String url = path.through(server.url("file"));
            Path events = folder.resolve("events");
            if (isJavaFirst) {
                CompletableFuture<TransferResult> pulling = client.pullAsync(copy, SAFE);
                while (path.dataBytes() < SIZE / 2) {
                    Thread.sleep(5);
                }
                pulling.cancel(true);
                while (pullRuns()) {
                    Thread.sleep(10);
                }
                path.slowMs = 0;
                Process program =
                        HaulServer.program(events, "pull", "--json", url, copy.toString());
                assertEquals(0, program.waitFor());
                assertTrue(Files.readString(events).contains("\"resume\""), "it resumed");
            } else {
                Process program =
                        HaulServer.program(
                                events, "pull", "--span-size", "1M", url, copy.toString());
                while (path.dataBytes() < SIZE / 2) {
                    Thread.sleep(5);
                }
                // What is verified is journaled within about a second.
                path.slowMs = 500;
                Thread.sleep(2500);
                program.destroyForcibly().waitFor();
                path.slowMs = 0;
                TransferResult rest = client.pull(copy, SAFE);
                assertTrue(rest.bytesResumed() > 0, rest.toString());
            }
            assertEquals(Trees.hash(source), Trees.hash(copy));
        }
    }

    private static boolean pullRuns() {
        return Thread.getAllStackTraces().keySet().stream()
                .anyMatch(thread -> thread.getName().startsWith("haul committer"));
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aFullDiskIsSaidToBeFull(boolean isPush) throws Exception {
        Path small = Files.createDirectories(folder.resolve("small"));
        int mounted =
                new ProcessBuilder("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", small + "")
                        .redirectErrorStream(true)
                        .start()
                        .waitFor();
        assumeTrue(mounted == 0, "needs the right to mount a tmpfs");
        try (HaulServer server = HaulServer.start(folder, isPush ? small : root)) {
            Path source = Trees.file((isPush ? local : root).resolve("file"), SIZE, 3);
            Path fits = Trees.file((isPush ? local : root).resolve("fits"), 1000, 4);
            try (HaulClient client = HaulClient.connect(server.url(""))) {
                HaulException.FilesFailed failed =
                        assertThrows(
                                HaulException.FilesFailed.class,
                                () -> {
                                    if (isPush) {
                                        client.push(source, fits);
                                    } else {
                                        client.pull(small);
                                    }
                                });
                assertEquals("NO_SPACE", failed.problem().code());
                assertEquals(1, failed.result().filesDone());
                assertEquals(Trees.hash(fits), Trees.hash(small.resolve("fits")));
            }
        } finally {
            new ProcessBuilder("umount", small.toString()).start().waitFor();
        }
    }
}
