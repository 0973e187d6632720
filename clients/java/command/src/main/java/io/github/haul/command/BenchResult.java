package io.github.haul.command;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.EnumMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.OptionalLong;
import java.util.function.Function;

/** Rounds of one size, and what comes of them. */
final class BenchResult {
    private static final double NS_PER_MS = 1e6;
    private static final String NOT_SEEN = "not seen";

    private final long bytes;
    private final Map<BenchWay, List<BenchWay.Moved>> rounds = new EnumMap<>(BenchWay.class);

    BenchResult(long bytes) {
        this.bytes = bytes;
        for (BenchWay way : BenchWay.values()) {
            rounds.put(way, new ArrayList<>());
        }
    }

    /** Takes what a round measured. */
    void add(BenchWay way, BenchWay.Moved moved) {
        of(way).add(moved);
    }

    private List<BenchWay.Moved> of(BenchWay way) {
        return rounds.getOrDefault(way, new ArrayList<>());
    }

    private boolean has(BenchWay way) {
        return !of(way).isEmpty();
    }

    private static double median(List<Double> values) {
        List<Double> sorted = values.stream().sorted(Comparator.naturalOrder()).toList();
        int half = sorted.size() / 2;
        boolean isOdd = sorted.size() % 2 == 1;
        return isOdd ? sorted.get(half) : (sorted.get(half - 1) + sorted.get(half)) / 2;
    }

    /** Milliseconds of a way, the median. */
    double ms(BenchWay way) {
        return median(of(way).stream().map(moved -> moved.ns() / NS_PER_MS).toList());
    }

    /** How many times longer the traditional way takes. */
    double ratio() {
        return ms(BenchWay.TRADITIONAL) / ms(BenchWay.TRANSFER_TO);
    }

    /** Milliseconds of the processor of a way that pushes, the median. */
    double cpuMs(BenchWay way) {
        return median(of(way).stream().map(moved -> moved.cpuNs().orElse(0) / NS_PER_MS).toList());
    }

    /** This client's rate over the program's. */
    double rateOverProgram() {
        return ms(BenchWay.HAUL_PROGRAM) / ms(BenchWay.HAUL_PUSH);
    }

    /** This client's processor time over the program's. */
    double cpuOverProgram() {
        return cpuMs(BenchWay.HAUL_PUSH) / cpuMs(BenchWay.HAUL_PROGRAM);
    }

    private OptionalLong count(BenchWay way, Function<BenchWay.Moved, OptionalLong> what) {
        List<Double> seen = new ArrayList<>();
        of(way).forEach(moved -> what.apply(moved).ifPresent(count -> seen.add((double) count)));
        return seen.isEmpty() ? OptionalLong.empty() : OptionalLong.of(Math.round(median(seen)));
    }

    private static String shown(OptionalLong count) {
        return count.isPresent() ? Long.toString(count.getAsLong()) : NOT_SEEN;
    }

    /** The heads of the table, with those of the program's columns or without. */
    static String head(boolean hasProgram) {
        String program =
                String.format("%12s %7s %12s %7s   ", "haul itself", "rate", "cpu, ms", "ratio");
        return String.format(
                "%9s %12s %12s %7s %15s %7s %12s   %s%s",
                "size",
                "traditional",
                "transferTo",
                "ratio",
                "study, ms",
                "ratio",
                "haul push",
                hasProgram ? program : "",
                "context switches (calls, copies of a byte)");
    }

    /** The row of the table. */
    String row() {
        StudyTable.Row study = StudyTable.of(bytes);
        String theirs = study == null ? "-" : study.traditionalMs() + "/" + study.transferToMs();
        String ratio = study == null ? "-" : Amounts.threeDigits(study.ratio());
        List<String> counts = new ArrayList<>();
        List<BenchWay> counted =
                List.of(BenchWay.TRADITIONAL, BenchWay.TRANSFER_TO, BenchWay.HAUL_PUSH);
        for (BenchWay way : counted) {
            if (!has(way)) {
                continue;
            }
            OptionalLong calls = count(way, BenchWay.Moved::calls);
            String switches = shown(count(way, BenchWay.Moved::switches));
            OptionalLong copied = count(way, BenchWay.Moved::copied);
            String ofWay =
                    calls.isPresent() && copied.isPresent()
                            ? String.format(
                                    Locale.ROOT,
                                    " (%d, %.0f)",
                                    calls.getAsLong(),
                                    (double) copied.getAsLong() / bytes)
                            : "";
            counts.add(switches + ofWay);
        }
        return String.format(
                Locale.ROOT,
                "%9s %9.1f ms %9.1f ms %7s %15s %7s %12s   %s%s",
                study == null ? Amounts.bytes(bytes) : study.name(),
                ms(BenchWay.TRADITIONAL),
                ms(BenchWay.TRANSFER_TO),
                Amounts.threeDigits(ratio()),
                theirs,
                ratio,
                has(BenchWay.HAUL_PUSH)
                        ? String.format(Locale.ROOT, "%.1f ms", ms(BenchWay.HAUL_PUSH))
                        : "-",
                has(BenchWay.HAUL_PROGRAM) ? besideProgram() : "",
                String.join(", ", counts));
    }

    private String besideProgram() {
        return String.format(
                Locale.ROOT,
                "%9.1f ms %7.2f %12s %7.2f   ",
                ms(BenchWay.HAUL_PROGRAM),
                rateOverProgram(),
                Math.round(cpuMs(BenchWay.HAUL_PUSH))
                        + "/"
                        + Math.round(cpuMs(BenchWay.HAUL_PROGRAM)),
                cpuOverProgram());
    }

    /** The size as JSON, with the study's figures. */
    Json json() {
        Json size = new Json().put("bytes", bytes);
        for (BenchWay way : BenchWay.values()) {
            if (!has(way)) {
                continue;
            }
            String name = way.label().replace('-', '_');
            size.put(name + "_ms", ms(way));
            count(way, BenchWay.Moved::copied)
                    .ifPresent(
                            copied -> size.put(name + "_copies_per_byte", (double) copied / bytes));
            if (of(way).get(0).cpuNs().isPresent()) {
                size.put(name + "_cpu_ms", cpuMs(way));
            }
            count(way, BenchWay.Moved::calls).ifPresent(n -> size.put(name + "_calls", n));
            count(way, BenchWay.Moved::switches)
                    .ifPresent(n -> size.put(name + "_context_switches", n));
        }
        size.put("ratio", ratio());
        if (has(BenchWay.HAUL_PROGRAM)) {
            size.put("rate_over_program", rateOverProgram());
            size.put("cpu_over_program", cpuOverProgram());
        }
        StudyTable.Row study = StudyTable.of(bytes);
        if (study != null) {
            size.put("study_traditional_ms", study.traditionalMs());
            size.put("study_transfer_to_ms", study.transferToMs());
            size.put("study_ratio", study.ratio());
        }
        return size;
    }
}
