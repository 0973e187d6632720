package io.github.haul.command;

import io.github.haul.client.HaulUrl;
import io.github.haul.client.TransferOptions;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.SplittableRandom;
import java.util.concurrent.Callable;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** {@code bench}: repeats a study of zero copy from Java, beside a push of haul. */
@Command(
        name = "bench",
        header = "Repeats a study: reading and writing 4 KiB against transferTo, beside a push",
        description = {
            "",
            "Files of the study's sizes are sent from the page cache over loopback to a receiver in"
                    + " this process that throws away, in both of the study's ways, and pushed to"
                    + " URL, where one is named. The ways take turns in each round; the first"
                    + " round of a size warms up and does not count. The table has medians, with"
                    + " the study's figures beside them: "
                    + StudyTable.SOURCE
                    + ".",
            "",
            "A URL that ends in `null:` leaves the server's disk out. A push takes its time from"
                    + " opening the connection to the last word, that all is verified and durable.",
            ""
        },
        customSynopsis = "java -jar haul.jar bench [OPTIONS] [<URL>]",
        mixinStandardHelpOptions = true,
        sortOptions = false)
final class BenchCommand implements Callable<Integer> {
    private static final int BLOCK_BYTES = 1 << 20;
    private static final int ROUNDS_MAX = 1000;

    @Parameters(
            paramLabel = "<URL>",
            arity = "0..1",
            description =
                    "haul://[TOKEN@]HOST[:PORT]/null: or a place; without it nothing is pushed")
    private @Nullable String place;

    @Option(
            names = "--sizes",
            paramLabel = "<LIST>",
            split = ",",
            hideParamSyntax = true,
            defaultValue =
                    "7000000,21000000,63000000,98000000,200000000,350000000,700000000,1000000000",
            converter = TransferFlags.SizeName.class,
            description = "Sizes of the files; without it the study's, 7 MB to 1 GB")
    private List<Long> sizes = List.of();

    @Option(
            names = "--rounds",
            paramLabel = "<N>",
            defaultValue = "5",
            description = "Rounds of each size that count [default: ${DEFAULT-VALUE}]")
    private int rounds;

    @Option(
            names = "--directory",
            paramLabel = "<DIR>",
            description =
                    "Where the files are made, and removed at the end; without it the host's"
                            + " directory for temporary files")
    private @Nullable Path directory;

    @Option(
            names = "--protection",
            paramLabel = "<PROTECTION>",
            defaultValue = "clear",
            converter = TransferFlags.ProtectionName.class,
            description = "Protection of pushes: clear or safe [default: ${DEFAULT-VALUE}]")
    private TransferOptions.Protection protection = TransferOptions.Protection.CLEAR;

    @Option(
            names = "--program",
            paramLabel = "<HAUL>",
            description =
                    "A program haul that pushes too, in the same rounds: the table has its time and"
                            + " both processor times. Behind it stands the same study by its"
                            + " `bench files`")
    private @Nullable Path program;

    @Option(
            names = "--token-file",
            paramLabel = "<FILE>",
            description = "Read the token from a file, not from the URL or HAUL_TOKEN")
    private @Nullable Path tokenFile;

    @Option(names = "--json", description = "Print one JSON object a line: round, bench")
    private boolean isJson;

    private final Terminal terminal;

    BenchCommand(Terminal terminal) {
        this.terminal = terminal;
    }

    /** Sizes that are measured, in this order. */
    List<Long> sizes() {
        return sizes;
    }

    @Override
    public Integer call() throws Failure, InterruptedException {
        if (rounds < 1 || rounds > ROUNDS_MAX || sizes.stream().anyMatch(size -> size < 1)) {
            throw Failure.usage("cannot measure", "a size and 1 to 1000 rounds", "fewer", "");
        }
        HaulUrl url = place == null ? null : Tokens.complete(place, tokenFile, System.getenv());
        if (url == null && program != null) {
            throw Failure.usage("cannot take --program", "a URL to push to", "none", "");
        }
        try {
            Path made =
                    directory == null
                            ? Files.createTempDirectory("haul-bench")
                            : Files.createTempDirectory(directory, "haul-bench");
            try (ByteSink sink = ByteSink.start()) {
                measure(made, sink, new BenchRun(sink.address(), url, protection, program));
            } finally {
                Files.delete(made);
            }
        } catch (IOException error) {
            throw Failure.usage("the bench came to nothing", "", Sources.why(error), "");
        }
        return ExitStatus.ALL_DONE;
    }

    private void measure(Path made, ByteSink sink, BenchRun run)
            throws IOException, InterruptedException {
        List<Json> results = new ArrayList<>();
        CongestionControl control = CongestionControl.ofHost();
        if (!isJson) {
            String path = ", over loopback" + control.words();
            terminal.line("medians of " + Amounts.count(rounds, "round") + path);
            if (!control.advice().isEmpty()) {
                terminal.line(control.advice());
            }
            terminal.line(BenchResult.head(run.has(BenchWay.HAUL_PROGRAM)));
        }
        for (long size : sizes) {
            Path file = made.resolve("haul-bench-" + size);
            try {
                write(file, size);
                BenchResult result = measure(file, size, sink, run);
                results.add(result.json());
                if (!isJson) {
                    terminal.line(result.row());
                }
            } finally {
                Files.deleteIfExists(file);
            }
        }
        List<StudyBeside.Row> beside =
                program == null ? List.of() : StudyBeside.run(program, rounds, made);
        if (isJson) {
            Json bench = Json.event("bench").put("rounds", rounds).put("path", "loopback");
            bench.put("java", Runtime.version().toString());
            bench.put("system", System.getProperty("os.name") + " " + systemVersion());
            if (!control.name().isEmpty()) {
                bench.put("congestion_control", control.name());
            }
            bench.put("processors", Runtime.getRuntime().availableProcessors());
            bench.put("protection", protection.name().toLowerCase(Locale.ROOT));
            bench.put("study", StudyTable.SOURCE).put("sizes", results);
            bench.put("haul_bench_files", beside.stream().map(StudyBeside.Row::json).toList());
            terminal.line(bench.toString());
        } else {
            if (!beside.isEmpty()) {
                terminal.line("the same by `haul bench files`:");
            }
            beside.forEach(row -> terminal.line(row.line()));
            terminal.line("study: " + StudyTable.SOURCE);
        }
    }

    private static String systemVersion() {
        return System.getProperty("os.version");
    }

    /** Writes a file of bytes that no disk and no socket can leave out. */
    private static void write(Path file, long bytes) throws IOException {
        byte[] block = new byte[BLOCK_BYTES];
        new SplittableRandom(bytes).nextBytes(block);
        try (OutputStream output = Files.newOutputStream(file)) {
            for (long left = bytes; left > 0; left -= BLOCK_BYTES) {
                output.write(block, 0, (int) Math.min(left, BLOCK_BYTES));
            }
        }
    }

    private BenchResult measure(Path file, long size, ByteSink sink, BenchRun run)
            throws IOException, InterruptedException {
        BenchResult result = new BenchResult(size);
        List<BenchWay> ways = Stream.of(BenchWay.values()).filter(run::has).toList();
        for (int round = 0; round <= rounds; round++) {
            for (int turn = 0; turn < ways.size(); turn++) {
                BenchWay way = ways.get((round + turn) % ways.size());
                BenchWay.Moved moved = run.move(way, file);
                if (round > 0) {
                    result.add(way, moved);
                }
                if (isJson) {
                    terminal.line(line(way, size, round, moved).toString());
                }
            }
        }
        IOException failure = sink.failure();
        if (failure != null) {
            throw failure;
        }
        return result;
    }

    private static Json line(BenchWay way, long size, int round, BenchWay.Moved moved) {
        Json line =
                Json.event("round")
                        .put("bytes", size)
                        .put("way", way.label())
                        .put("round", round)
                        .put("counts", round > 0)
                        .put("ms", moved.ns() / 1e6);
        moved.calls().ifPresent(count -> line.put("calls", count));
        moved.cpuNs().ifPresent(ns -> line.put("cpu_ms", ns / 1e6));
        moved.switches().ifPresent(count -> line.put("context_switches", count));
        return line;
    }
}
