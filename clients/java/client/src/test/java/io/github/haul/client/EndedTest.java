package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Transfers that their own side ends: by close(), and by an interrupt. */
@Timeout(value = 120, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
final class EndedTest extends TwoFolders {
    private static final long SIZE = 40_000_003;
    private static final long PATIENCE_S = 30;

    /** Waits until a transfer is in its midst, and makes its path so slow that it stays there. */
    private static void awaitMidst(FaultyPath path) throws InterruptedException {
        path.slowMs = 20;
        while (path.dataBytes() < SIZE / 10) {
            Thread.sleep(5);
        }
        path.slowMs = 10_000;
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void closeEndsARunningTransfer(boolean isPush) throws Exception {
        Path source = Trees.file((isPush ? local : root).resolve("file"), SIZE, 3);
        Path copy = (isPush ? root : local).resolve("copy");
        try (HaulServer server = HaulServer.start(folder, root);
                FaultyPath path = new FaultyPath(server.url())) {
            path.slowMs = 20;
            String url = path.through(server.url(isPush ? "copy" : "file"));
            HaulClient client = HaulClient.connect(url);
            CompletableFuture<TransferResult> moving =
                    isPush
                            ? client.pushAsync(List.of(source), TransferOptions.DEFAULT)
                            : client.pullAsync(copy, TransferOptions.DEFAULT);
            awaitMidst(path);
            assertFalse(moving.isDone());
            client.close();
            Exception ended =
                    assertThrows(Exception.class, () -> moving.get(PATIENCE_S, TimeUnit.SECONDS));
            Throwable why = ended instanceof ExecutionException ? ended.getCause() : ended;
            assertInstanceOf(CancellationException.class, why);
            assertFalse(Files.exists(copy), "a file has its name when it is whole");
        }
    }

    @Test
    void anInterruptEndsABlockingPush() throws Exception {
        Path source = Trees.file(local.resolve("file"), SIZE, 3);
        CompletableFuture<Throwable> thrown = new CompletableFuture<>();
        try (HaulServer server = HaulServer.start(folder, root);
                FaultyPath path = new FaultyPath(server.url());
                HaulClient client = HaulClient.connect(path.through(server.url("copy")))) {
            path.slowMs = 20;
            Thread caller =
                    new Thread(
                            () -> {
                                try {
                                    client.push(source);
                                    thrown.complete(new AssertionError("it came to its end"));
                                } catch (Throwable ended) {
                                    thrown.complete(ended);
                                }
                            });
            caller.start();
            awaitMidst(path);
            caller.interrupt();
            Throwable ended = thrown.get(PATIENCE_S, TimeUnit.SECONDS);
            assertInstanceOf(InterruptedException.class, ended);
            // The transfer ends with its caller: no thread of it goes on.
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
            while (isMoving()) {
                assertTrue(System.nanoTime() < end, "the transfer goes on");
                Thread.sleep(20);
            }
            assertFalse(Files.exists(root.resolve("copy")));
        }
    }

    private static boolean isMoving() {
        return Thread.getAllStackTraces().keySet().stream()
                .anyMatch(thread -> thread.getName().equals("haul transfer"));
    }
}
