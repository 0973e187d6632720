package io.github.haul.command;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import io.github.haul.client.HaulServer;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalLong;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The bench, run small, and what it computes. */
final class BenchCommandTest {
    @TempDir Path folder;

    @Test
    void everyWayIsMeasuredInEveryRoundAndNothingIsLeft() throws Exception {
        Path root = Files.createDirectory(folder.resolve("root"));
        Path made = Files.createDirectory(folder.resolve("made"));
        try (HaulServer server = HaulServer.start(folder, root)) {
            String[] words = {
                "bench",
                "--json",
                "--sizes=4097,7M",
                "--rounds=2",
                "--directory=made",
                server.url("place/")
            };
            CommandProcess bench = CommandProcess.run(folder, words);
            assertEquals(0, bench.status(), bench.errors());
            List<String> rounds = new ArrayList<>();
            for (JsonNode event : bench.events()) {
                if (event.path("event").asText().equals("round")) {
                    assertTrue(event.path("ms").asDouble() > 0);
                    assertEquals(event.path("round").asInt() > 0, event.path("counts").asBoolean());
                    rounds.add(
                            event.path("bytes").asText()
                                    + event.path("way").asText()
                                    + event.path("round").asText());
                }
            }
            assertEquals(18, rounds.size());
            assertEquals(18, rounds.stream().distinct().count());
            JsonNode sizes = bench.event("bench").path("sizes");
            assertEquals(2, sizes.size());
            // Two reads and writes, and the read that finds the end; one transfer.
            assertEquals(5, sizes.path(0).path("traditional_calls").asInt());
            assertEquals(1, sizes.path(0).path("transfer_to_calls").asInt());
            assertFalse(sizes.path(0).has("study_ratio"));
            assertEquals(3.467, sizes.path(1).path("study_ratio").asDouble(), 0.001);
            assertTrue(sizes.path(1).path("haul_push_ms").asDouble() > 0);
        }
        assertEquals(7 << 20, Files.size(root.resolve("place/haul-bench-" + (7 << 20))));
        try (Stream<Path> left = Files.list(made)) {
            assertEquals(List.of(), left.toList());
        }
    }

    @Test
    void theTableHasMediansBesideTheStudysFigures() {
        BenchResult result = new BenchResult(7 << 20);
        for (long ms : new long[] {10, 30, 20}) {
            OptionalLong calls = OptionalLong.of(ms);
            OptionalLong unseen = OptionalLong.empty();
            result.add(BenchWay.TRADITIONAL, new BenchWay.Moved(4_000_000 * ms, calls, unseen));
            result.add(BenchWay.TRANSFER_TO, new BenchWay.Moved(1_000_000 * ms, calls, calls));
            result.add(BenchWay.HAUL_PUSH, new BenchWay.Moved(2_000_000 * ms, unseen, calls));
        }
        assertEquals(
                "7MB80.0ms20.0ms4.00156/453.4740.0msnotseen(20),20(20),20",
                result.row().replace(" ", ""));
        assertNull(StudyTable.of(5));
        assertNotNull(StudyTable.of(1 << 30));
    }

    @Test
    void theSinkSaysHowMuchCameAndWhatIsMissingIsAnError() throws Exception {
        try (ByteSink sink = ByteSink.start()) {
            for (int sent : new int[] {5, 4}) {
                try (SocketChannel socket = SocketChannel.open(sink.address())) {
                    assertEquals(sent, socket.write(ByteBuffer.allocate(sent)));
                    socket.shutdownOutput();
                    if (sent == 5) {
                        ByteSink.awaitCount(socket, 5);
                    } else {
                        IOException error =
                                assertThrows(
                                        IOException.class, () -> ByteSink.awaitCount(socket, 5));
                        assertEquals("4 of 5 bytes came", error.getMessage());
                    }
                }
            }
        }
    }

    @Test
    void whereThereIsNoCountOfSwitchesNoneIsSeen() {
        ContextSwitches before = ContextSwitches.ofThisThread();
        boolean isSeen = Files.exists(Path.of("/proc/thread-self/status"));
        assertEquals(isSeen, ContextSwitches.ofThisThread().since(before).isPresent());
        assertEquals(isSeen, ContextSwitches.ofAllThreads().since(before).isPresent());
    }
}
