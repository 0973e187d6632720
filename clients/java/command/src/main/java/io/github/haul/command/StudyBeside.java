package io.github.haul.command;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The same table by {@code haul bench files}, which is no Java: what the JVM adds can be seen. */
final class StudyBeside {
    /** A line of the program about a size, whose fields stand in the order of their names. */
    private static final Pattern CELL =
            Pattern.compile(
                    "\"bytes\":(\\d+),\"event\":\"cell\".*"
                            + "\"traditional_ms\":\\{[^}]*\"median\":([0-9.eE+-]+)}.*"
                            + "\"zero_copy_ms\":\\{[^}]*\"median\":([0-9.eE+-]+)}");

    private StudyBeside() {}

    /**
     * A size.
     *
     * @param bytes the size
     * @param traditionalMs reading and writing 4 KiB, the median
     * @param zeroCopyMs {@code sendfile}, the median
     */
    record Row(long bytes, double traditionalMs, double zeroCopyMs) {
        double ratio() {
            return traditionalMs / zeroCopyMs;
        }

        Json json() {
            return new Json()
                    .put("bytes", bytes)
                    .put("traditional_ms", traditionalMs)
                    .put("zero_copy_ms", zeroCopyMs)
                    .put("ratio", ratio());
        }

        /** The row of the table, below the columns of the JVM's. */
        String line() {
            StudyTable.Row study = StudyTable.of(bytes);
            return String.format(
                    Locale.ROOT,
                    "%9s %9.1f ms %9.1f ms %7s",
                    study == null ? Amounts.bytes(bytes) : study.name(),
                    traditionalMs,
                    zeroCopyMs,
                    Amounts.threeDigits(ratio()));
        }
    }

    /**
     * Runs the program's bench.
     *
     * @param program the program haul
     * @param rounds rounds of each size
     * @param directory where it makes its files, and removes them
     * @return a row for each of the study's sizes
     * @throws IOException if it cannot be run, or fails
     */
    static List<Row> run(Path program, int rounds, Path directory)
            throws IOException, InterruptedException {
        List<String> words =
                List.of(
                        program.toString(),
                        "bench",
                        "files",
                        "--only=times",
                        "--json",
                        "--rounds=" + rounds,
                        "--dir=" + directory);
        ProgramRun run = ProgramRun.of(words, Map.of());
        List<Row> rows = rows(run.said());
        if (run.status() != 0 || rows.isEmpty()) {
            throw new IOException(
                    "`"
                            + String.join(" ", words)
                            + "` ended with "
                            + run.status()
                            + ": "
                            + run.said().strip());
        }
        return rows;
    }

    /** Reads the rows out of the program's JSON. */
    static List<Row> rows(String said) {
        List<Row> rows = new ArrayList<>();
        Matcher cell = CELL.matcher(said);
        while (cell.find()) {
            rows.add(
                    new Row(
                            Long.parseLong(cell.group(1)),
                            Double.parseDouble(cell.group(2)),
                            Double.parseDouble(cell.group(3))));
        }
        return rows;
    }
}
