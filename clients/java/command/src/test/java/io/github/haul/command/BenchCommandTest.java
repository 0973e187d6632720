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
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import picocli.CommandLine;

/** The bench, run small, and what it computes. */
@Tag("one-jdk")
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
                "--sizes=4097,7000000",
                "--rounds=2",
                "--directory=made",
                "--program=" + System.getProperty("haul.program"),
                "--protection=safe",
                server.url("place/")
            };
            CommandProcess bench = CommandProcess.run(folder, words);
            assertEquals(0, bench.status(), bench.errors());
            List<String> rounds = new ArrayList<>();
            List<String> order = new ArrayList<>();
            for (JsonNode event : bench.events()) {
                if (event.path("event").asText().equals("round")) {
                    assertTrue(event.path("ms").asDouble() > 0);
                    assertEquals(event.path("round").asInt() > 0, event.path("counts").asBoolean());
                    order.add(event.path("way").asText());
                    rounds.add(
                            event.path("bytes").asText()
                                    + event.path("way").asText()
                                    + event.path("round").asText());
                }
            }
            assertEquals(24, rounds.size());
            assertEquals(24, rounds.stream().distinct().count());
            assertEquals(inTurns(2, 3, BenchWay.values()), order);
            JsonNode sizes = bench.event("bench").path("sizes");
            assertEquals(2, sizes.size());
            // Two reads and writes, and the read that finds the end; one transfer.
            assertEquals(5, sizes.path(0).path("traditional_calls").asInt());
            assertEquals(1, sizes.path(0).path("transfer_to_calls").asInt());
            assertEquals(2, sizes.path(0).path("traditional_copies_per_byte").asDouble());
            assertEquals(0, sizes.path(0).path("transfer_to_copies_per_byte").asDouble(1));
            assertFalse(sizes.path(0).has("study_ratio"));
            assertEquals(3.467, sizes.path(1).path("study_ratio").asDouble(), 0.001);
            JsonNode large = sizes.path(1);
            assertTrue(large.path("haul_push_ms").asDouble() > 0);
            double rate =
                    large.path("haul_program_ms").asDouble()
                            / large.path("haul_push_ms").asDouble();
            assertEquals(rate, large.path("rate_over_program").asDouble(), 1e-9);
            double cpu =
                    large.path("haul_push_cpu_ms").asDouble()
                            / large.path("haul_program_cpu_ms").asDouble();
            assertEquals(cpu, large.path("cpu_over_program").asDouble(), 1e-9);
            JsonNode beside = bench.event("bench").path("haul_bench_files");
            assertEquals(8, beside.size());
            double ratio =
                    beside.path(0).path("traditional_ms").asDouble()
                            / beside.path(0).path("zero_copy_ms").asDouble();
            assertEquals(7_000_000, beside.path(0).path("bytes").asLong());
            assertEquals(ratio, beside.path(0).path("ratio").asDouble(), 1e-9);
            assertEquals("safe", bench.event("bench").path("protection").asText());
            String control = bench.event("bench").path("congestion_control").asText();
            assertEquals(CongestionControl.ofHost().name(), control);
        }
        assertEquals(7_000_000, Files.size(root.resolve("place/haul-bench-" + 7_000_000)));
        try (Stream<Path> left = Files.list(made)) {
            assertEquals(List.of(), left.toList());
        }
    }

    /** The ways of all sizes and rounds: they take turns, each round begins with another one. */
    private static List<String> inTurns(int sizes, int rounds, BenchWay... ways) {
        List<String> order = new ArrayList<>();
        for (int round = 0; round < sizes * rounds; round++) {
            for (int turn = 0; turn < ways.length; turn++) {
                order.add(ways[(round % rounds + turn) % ways.length].label());
            }
        }
        return order;
    }

    @Test
    void aPushToNowhereIsMeasuredToo() throws Exception {
        Path root = Files.createDirectory(folder.resolve("root"));
        try (HaulServer server = HaulServer.start(folder, root)) {
            String[] words = {
                "bench", "--json", "--sizes=7000000", "--rounds=3", server.url("null:")
            };
            CommandProcess bench = CommandProcess.run(folder, words);
            assertEquals(0, bench.status(), bench.errors());
            List<String> order = new ArrayList<>();
            for (JsonNode event : bench.events()) {
                if (event.path("event").asText().equals("round")) {
                    order.add(event.path("way").asText());
                }
            }
            BenchWay[] ways = {BenchWay.TRADITIONAL, BenchWay.TRANSFER_TO, BenchWay.HAUL_PUSH};
            assertEquals(inTurns(1, 4, ways), order);
            JsonNode size = bench.event("bench").path("sizes").path(0);
            assertTrue(size.path("haul_push_ms").asDouble() > 0, size.toString());
            assertEquals("clear", bench.event("bench").path("protection").asText());
            assertTrue(server.saidUntil("null:", 4).contains("null:"));
        }
        try (Stream<Path> left = Files.list(root)) {
            assertEquals(List.of(), left.toList());
        }
    }

    @Test
    void withoutSizesTheStudysEightAreMeasured() {
        BenchCommand bench = new BenchCommand(Terminal.ofProcess());
        new CommandLine(bench).parseArgs();
        assertEquals(
                Stream.of(7, 21, 63, 98, 200, 350, 700, 1000).map(mb -> mb * 1_000_000L).toList(),
                bench.sizes());
        bench.sizes().forEach(size -> assertNotNull(StudyTable.of(size)));
    }

    @Test
    void theTableHasMediansBesideTheStudysFigures() {
        BenchResult result = new BenchResult(7_000_000);
        for (long ms : new long[] {10, 30, 20}) {
            OptionalLong calls = OptionalLong.of(ms);
            OptionalLong unseen = OptionalLong.empty();
            result.add(BenchWay.TRADITIONAL, moved(4 * ms, calls, unseen, unseen));
            result.add(BenchWay.TRANSFER_TO, moved(ms, calls, calls, unseen));
            OptionalLong cpuNs = OptionalLong.of(3_000_000 * ms);
            result.add(BenchWay.HAUL_PUSH, moved(2 * ms, unseen, calls, cpuNs));
        }
        assertEquals(
                "7MB80.0ms20.0ms4.00156/453.4740.0msnotseen(20,2),20(20,2),20",
                result.row().replace(" ", ""));
        for (long ms : new long[] {30, 50, 90}) {
            OptionalLong unseen = OptionalLong.empty();
            OptionalLong cpuNs = OptionalLong.of(1_000_000 * ms);
            result.add(BenchWay.HAUL_PROGRAM, moved(ms, unseen, unseen, cpuNs));
        }
        assertEquals(
                "7MB80.0ms20.0ms4.00156/453.4740.0ms50.0ms1.2560/501.20notseen(20,2),20(20,2),20",
                result.row().replace(" ", ""));
        assertNull(StudyTable.of(5));
        assertNotNull(StudyTable.of(1_000_000_000));
    }

    private static BenchWay.Moved moved(
            long ms, OptionalLong calls, OptionalLong switches, OptionalLong cpuNs) {
        OptionalLong copied = calls.isPresent() ? OptionalLong.of(14_000_000) : calls;
        return new BenchWay.Moved(1_000_000 * ms, calls, copied, switches, cpuNs);
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
    void aCongestionControlThatPacesIsNamedWithWhatToDo() {
        CongestionControl paces = new CongestionControl("bbr");
        assertEquals(", congestion control bbr", paces.words());
        assertTrue(paces.advice().contains("tcp_congestion_control=cubic"), paces.advice());
        assertEquals("", new CongestionControl("cubic").advice());
        assertEquals("", new CongestionControl("").words());
        Path ofHost = Path.of("/proc/sys/net/ipv4/tcp_congestion_control");
        assertEquals(Files.exists(ofHost), !CongestionControl.ofHost().name().isEmpty());
    }

    @Test
    void whereThereIsNoCountOfSwitchesNoneIsSeen() {
        ContextSwitches before = ContextSwitches.ofThisThread();
        boolean isSeen = Files.exists(Path.of("/proc/thread-self/status"));
        assertEquals(isSeen, ContextSwitches.ofThisThread().since(before).isPresent());
        assertEquals(isSeen, ContextSwitches.ofAllThreads().since(before).isPresent());
    }
}
