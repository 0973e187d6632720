package io.github.haul.command;

import io.github.haul.client.FileResult;
import io.github.haul.client.Problem;
import io.github.haul.client.TransferProgress;
import java.util.Locale;

/** One object a line on standard output, and what failed in words on standard error. */
final class JsonScreen implements Screen {
    /** Time within which lines of files are printed together. */
    private static final long GATHER_NS = 50_000_000;

    private final Terminal terminal;
    private final boolean isQuiet;
    private final Interval interval = new Interval(System.nanoTime());
    private final Failures failures;
    private long printedNs = System.nanoTime();

    JsonScreen(Terminal terminal, boolean isQuiet) {
        this.terminal = terminal;
        this.isQuiet = isQuiet;
        failures = new Failures(terminal);
    }

    @Override
    public void onProgress(TransferProgress progress) {
        Interval.Ended ended = isQuiet ? null : interval.end(progress, System.nanoTime());
        if (ended != null) {
            line(
                    Json.event("progress")
                            .put("seconds", ended.seconds())
                            .put("bytes_received", progress.bytesVerified())
                            .put("bytes_total", progress.bytesFound())
                            .put("gbit_per_s", ended.gbitPerS())
                            .put("interval_bytes", ended.bytes())
                            .put("interval_seconds", ended.lengthSeconds())
                            .put("files_settled", progress.filesSettled())
                            .put("files_total", progress.filesFound())
                            .put("total_known", progress.isTotalKnown()));
        }
    }

    @Override
    public void onFile(FileResult file) {
        if (file.problem() != null) {
            line(event(file.problem()));
            failures.add(file);
        }
        String status = file.status().name().toLowerCase(Locale.ROOT).replace('_', '-');
        Json line =
                Json.event("file")
                        .put("path", file.name())
                        .put("status", status)
                        .put("bytes", file.isDirectory() ? 0 : file.bytes());
        if (file.storedAs() != null) {
            line.put("stored_as", file.storedAs());
        }
        if (System.nanoTime() - printedNs < GATHER_NS) {
            terminal.gather(line.toString());
        } else {
            line(line);
        }
    }

    @Override
    public void onNotice(String words) {
        line(Json.event("notice").put("what", words));
    }

    @Override
    public void report(Report report) {
        failures.finish();
        line(report.json());
    }

    @Override
    public void failure(Problem problem) {
        failures.finish();
        terminal.error(ProblemText.of(problem));
        line(event(problem));
    }

    private void line(Json line) {
        terminal.line(line.toString());
        printedNs = System.nanoTime();
    }

    /** The event of a problem. */
    static Json event(Problem problem) {
        return Json.event("error")
                .put("path", problem.path())
                .put("side", problem.side().isEmpty() ? "session" : problem.side())
                .put("what", problem.what())
                .put("needs", problem.needs())
                .put("found", problem.found())
                .put("hint", problem.hint());
    }
}
