package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * Transfers that one program begins and another one finishes, where the inode of the source changes
 * in between: its ctime is another one, and its size and time are the same.
 */
@Tag("one-jdk")
final class ChangedSourceTest extends TwoFolders {
    private static final long SIZE = 40_000_003;
    private static final FileTime TIME = FileTime.from(Instant.ofEpochSecond(77));

    private static final TransferOptions OPTIONS =
            TransferOptions.builder()
                    .streams(2)
                    .spanBytes(1 << 20)
                    .retryFor(Duration.ofSeconds(30))
                    .build();

    /** What happens to the source between the two runs. */
    private enum Change {
        MODE,
        BYTES
    }

    private static void change(Path source, Change change) throws IOException {
        if (change == Change.MODE) {
            Files.setPosixFilePermissions(source, PosixFilePermissions.fromString("rw-------"));
            return;
        }
        try (FileChannel file = FileChannel.open(source, StandardOpenOption.WRITE)) {
            // Every span: also those that an earlier run has left at the target.
            for (long at = 9; at < SIZE; at += 1 << 20) {
                file.write(ByteBuffer.wrap(new byte[5]), at);
            }
        }
        Files.setLastModifiedTime(source, TIME);
    }

    private boolean isPush = true;
    private Path source = Path.of("");
    private Path copy = Path.of("");
    private String url = "";
    private int runs;

    private Process haul(String... options) throws IOException {
        List<String> words =
                new ArrayList<>(List.of(isPush ? "push" : "pull", "--span-size", "1M"));
        words.addAll(List.of(options));
        if (isPush) {
            words.add(source.toString());
        }
        words.add(url);
        if (!isPush) {
            words.add(copy.toString());
        }
        Path events = folder.resolve("events" + runs++);
        return HaulServer.program(events, words.toArray(String[]::new));
    }

    private String events() throws IOException {
        return Files.readString(folder.resolve("events" + (runs - 1)));
    }

    private CompletableFuture<TransferResult> java(HaulClient client) throws HaulException {
        return isPush
                ? client.pushAsync(List.of(source), OPTIONS)
                : client.pullAsync(copy, OPTIONS);
    }

    private TransferResult javaToItsEnd(HaulClient client) throws Exception {
        return isPush ? client.push(List.of(source), OPTIONS) : client.pull(copy, OPTIONS);
    }

    /** Begins, and is gone when about half has come and is journaled. */
    private void begin(boolean isJava, FaultyPath path, HaulClient client) throws Exception {
        path.slowMs = 5;
        if (isJava) {
            CompletableFuture<TransferResult> moving = java(client);
            awaitHalf(path);
            moving.cancel(true);
            awaitNoThreads();
        } else {
            Process program = haul();
            awaitHalf(path);
            program.destroyForcibly().waitFor();
        }
        path.slowMs = 0;
    }

    private static void awaitHalf(FaultyPath path) throws InterruptedException {
        while (path.dataBytes() < SIZE / 2) {
            Thread.sleep(5);
        }
        // What is verified is journaled within about a second.
        path.slowMs = 500;
        Thread.sleep(2500);
    }

    private static void awaitNoThreads() throws InterruptedException {
        while (Thread.getAllStackTraces().keySet().stream()
                .anyMatch(thread -> thread.getName().startsWith("haul transfer"))) {
            Thread.sleep(10);
        }
    }

    @ParameterizedTest
    @CsvSource({
        "true,true,false,MODE", "true,true,false,BYTES",
        "true,false,true,MODE", "true,false,true,BYTES",
        "false,true,false,MODE", "false,true,false,BYTES",
        "false,false,true,MODE", "false,false,true,BYTES",
        "true,true,true,BYTES", "false,true,true,MODE"
    })
    void aSourceWhoseInodeChangedIsComparedByWhatIsDurable(
            boolean push, boolean isJavaFirst, boolean isJavaThen, Change change) throws Exception {
        isPush = push;
        source = Trees.file((push ? local : root).resolve("file"), SIZE, 3);
        Files.setLastModifiedTime(source, TIME);
        copy = (push ? root : local).resolve("copy");
        try (HaulServer server = HaulServer.start(folder, root);
                FaultyPath path = new FaultyPath(server.url())) {
            url = path.through(server.url(push ? "copy" : "file"));
            try (HaulClient client = HaulClient.connect(url)) {
                begin(isJavaFirst, path, client);
                change(source, change);
                if (isJavaThen) {
                    finishByJava(client, change);
                } else {
                    finishByHaul(change);
                }
            }
        }
        assertEquals(Trees.hash(source), Trees.hash(copy));
    }

    private void finishByJava(HaulClient client, Change change) throws Exception {
        if (change == Change.BYTES) {
            HaulException.FilesFailed failed =
                    assertThrows(HaulException.FilesFailed.class, () -> javaToItsEnd(client));
            assertEquals("SOURCE_CHANGED", failed.problem().code());
            assertTrue(failed.problem().found().contains("earlier run"), failed.toString());
            // The receiver forgets what it had.
            assertEquals(0, javaToItsEnd(client).bytesResumed());
        } else {
            assertTrue(javaToItsEnd(client).bytesResumed() > 0);
        }
    }

    private void finishByHaul(Change change) throws Exception {
        int status = haul("--json").waitFor();
        assertTrue(events().contains("\"resume\""), events());
        if (change == Change.BYTES) {
            assertEquals(1, status, events());
            assertTrue(events().contains("earlier run sent"), events());
            assertEquals(0, haul("--json").waitFor(), events());
        } else {
            assertEquals(0, status, events());
        }
    }

    /** Damage at the target is found when the user asks, in both directions. */
    @Test
    void damageAtTheTargetIsFoundWhereItIsToBeReadBack() throws Exception {
        for (boolean push : new boolean[] {true, false}) {
            isPush = push;
            source = Trees.file((push ? local : root).resolve("damaged"), SIZE, 3);
            copy = (push ? root : local).resolve("copy");
            try (HaulServer server = HaulServer.start(folder, root);
                    FaultyPath path = new FaultyPath(server.url())) {
                url = path.through(server.url(push ? "copy" : "damaged"));
                try (HaulClient client = HaulClient.connect(url)) {
                    begin(true, path, client);
                    Path part = copy.resolveSibling(".copy.haul-part");
                    try (FileChannel file = FileChannel.open(part, StandardOpenOption.WRITE)) {
                        for (long at = 9; at < SIZE; at += 1 << 20) {
                            file.write(ByteBuffer.wrap(new byte[5]), at);
                        }
                    }
                    TransferOptions asking =
                            TransferOptions.builder().spanBytes(1 << 20).recheck(true).build();
                    TransferResult rest =
                            push ? client.push(List.of(source), asking) : client.pull(copy, asking);
                    assertEquals(0, rest.bytesResumed(), "all of it was lost");
                }
            }
            assertEquals(Trees.hash(source), Trees.hash(copy));
            Files.delete(copy);
        }
    }
}
