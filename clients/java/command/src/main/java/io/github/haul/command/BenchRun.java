package io.github.haul.command;

import com.sun.management.OperatingSystemMXBean;
import io.github.haul.client.FileResult;
import io.github.haul.client.HaulClient;
import io.github.haul.client.HaulException;
import io.github.haul.client.HaulToken;
import io.github.haul.client.HaulUrl;
import io.github.haul.client.TransferListener;
import io.github.haul.client.TransferOptions;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.nio.channels.FileChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * What a bench moves a file with.
 *
 * @param sink the receiver of the study's ways
 * @param url the place that is pushed to, or null
 * @param protection the protection of pushes
 * @param program the program that pushes beside this one, or null
 */
record BenchRun(
        InetSocketAddress sink,
        @Nullable HaulUrl url,
        TransferOptions.Protection protection,
        @Nullable Path program) {
    /** Bytes that the study reads and writes at a time. */
    private static final int BLOCK_BYTES = 4096;

    private static final Pattern CPU =
            Pattern.compile("\"source\":\\{\"cpu_s_per_gb\":([0-9.eE+-]+)");

    /** Moves a file once. */
    BenchWay.Moved move(BenchWay way, Path file) throws IOException, InterruptedException {
        return switch (way) {
            case TRADITIONAL, TRANSFER_TO -> send(way, file);
            case HAUL_PUSH -> push(file, place());
            case HAUL_PROGRAM -> runProgram(file, place());
        };
    }

    private HaulUrl place() {
        return Objects.requireNonNull(url, "a way that cannot be taken");
    }

    /** Whether a way can be taken. */
    boolean has(BenchWay way) {
        return switch (way) {
            case TRADITIONAL, TRANSFER_TO -> true;
            case HAUL_PUSH -> url != null;
            case HAUL_PROGRAM -> url != null && program != null;
        };
    }

    private BenchWay.Moved send(BenchWay way, Path file) throws IOException {
        try (SocketChannel socket = SocketChannel.open(sink)) {
            ContextSwitches before = ContextSwitches.ofThisThread();
            long begunNs = System.nanoTime();
            Counted counted =
                    way == BenchWay.TRADITIONAL ? copy(file, socket) : transfer(file, socket);
            socket.shutdownOutput();
            ByteSink.awaitCount(socket, Files.size(file));
            long ns = System.nanoTime() - begunNs;
            OptionalLong switches = ContextSwitches.ofThisThread().since(before);
            return new BenchWay.Moved(
                    ns,
                    OptionalLong.of(counted.calls),
                    OptionalLong.of(counted.copied),
                    switches,
                    OptionalLong.empty());
        }
    }

    /** Calls, and bytes that they copied into this program's memory or out of it. */
    private record Counted(long calls, long copied) {}

    private static Counted copy(Path file, SocketChannel socket) throws IOException {
        byte[] block = new byte[BLOCK_BYTES];
        long calls = 0;
        long copied = 0;
        try (FileInputStream input = new FileInputStream(file.toFile())) {
            OutputStream output = socket.socket().getOutputStream();
            for (int read = input.read(block); read >= 0; read = input.read(block)) {
                output.write(block, 0, read);
                calls += 2;
                copied += 2L * read;
            }
        }
        return new Counted(calls + 1, copied);
    }

    private static Counted transfer(Path file, SocketChannel socket) throws IOException {
        long calls = 0;
        try (FileChannel input = FileChannel.open(file, StandardOpenOption.READ)) {
            long size = input.size();
            long at = 0;
            while (at < size) {
                at += input.transferTo(at, size - at, socket);
                calls++;
            }
        }
        return new Counted(calls, 0);
    }

    private BenchWay.Moved push(Path file, HaulUrl place) throws IOException, InterruptedException {
        long[] switches = {-1};
        ContextSwitches before = ContextSwitches.ofAllThreads();
        TransferOptions options =
                TransferOptions.builder()
                        .protection(protection)
                        .onConflict(TransferOptions.OnConflict.REPLACE)
                        .listener(
                                new TransferListener() {
                                    @Override
                                    public void onFile(FileResult done) {
                                        // Later the threads that sent would be gone.
                                        ContextSwitches now = ContextSwitches.ofAllThreads();
                                        switches[0] = now.since(before).orElse(-1);
                                    }
                                })
                        .build();
        long cpuNs = processorNs();
        long begunNs = System.nanoTime();
        try (HaulClient client = HaulClient.connect(place)) {
            if (client.push(List.of(file), options).filesDone() != 1) {
                throw new IOException("the push did not send the file");
            }
        } catch (HaulException failed) {
            throw new IOException(ProblemText.of(failed.problem()), failed);
        }
        long ns = System.nanoTime() - begunNs;
        OptionalLong seen = switches[0] < 0 ? OptionalLong.empty() : OptionalLong.of(switches[0]);
        OptionalLong spentNs = OptionalLong.of(processorNs() - cpuNs);
        OptionalLong none = OptionalLong.empty();
        return new BenchWay.Moved(ns, none, none, seen, spentNs);
    }

    /** Processor time of all threads of this process so far, those of the compiler too. */
    private static long processorNs() {
        return ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class).getProcessCpuTime();
    }

    /** Pushes by the program, from its start to its end; its own report says what it took. */
    private BenchWay.Moved runProgram(Path file, HaulUrl place)
            throws IOException, InterruptedException {
        List<String> words =
                List.of(
                        String.valueOf(program),
                        "push",
                        "--json",
                        "--quiet",
                        "--protection=" + protection.name().toLowerCase(Locale.ROOT),
                        "--on-conflict=replace",
                        file.toString(),
                        // It shows that there is a token, and not which.
                        place.toString().replace("...@", ""));
        HaulToken token = place.token();
        Map<String, String> variables =
                token == null ? Map.of() : Map.of(Tokens.VARIABLE, token.reveal());
        long begunNs = System.nanoTime();
        ProgramRun run = ProgramRun.of(words, variables);
        long ns = System.nanoTime() - begunNs;
        Matcher cpu = CPU.matcher(run.said());
        if (run.status() != 0 || !cpu.find()) {
            throw new IOException(
                    program + " ended with " + run.status() + ": " + run.said().strip());
        }
        // Seconds a gigabyte are as many nanoseconds a byte.
        double spentNs = Double.parseDouble(cpu.group(1)) * Files.size(file);
        OptionalLong none = OptionalLong.empty();
        return new BenchWay.Moved(ns, none, none, none, OptionalLong.of(Math.round(spentNs)));
    }
}
