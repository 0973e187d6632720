package io.github.haul.command;

import io.github.haul.client.ConnectionChange;
import io.github.haul.client.FileResult;
import io.github.haul.client.Problem;
import io.github.haul.client.SessionOpened;
import io.github.haul.client.TransferNotice;
import io.github.haul.client.TransferProgress;
import java.time.Duration;
import java.util.Locale;

/** One object a line on standard output, and what failed in words on standard error. */
final class JsonScreen implements Screen {
    /** Time within which lines of files are printed together. */
    private static final long GATHER_NS = 50_000_000;

    private static final long NS_PER_US = 1000;
    private static final double MS_PER_TENTH = 100;
    private static final double TENTHS = 10;

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
                            .put("bytes_durable", progress.bytesDurable())
                            .put("bytes_on_wire", progress.bytesOnWire())
                            .put("bytes_total", progress.bytesFound())
                            .put("gbit_per_s", ended.gbitPerS())
                            .put("interval_bytes", ended.bytes())
                            .put("interval_seconds", ended.lengthSeconds())
                            .put("streams", progress.streams())
                            .put("files_done", progress.filesDone())
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
        Json line = path(Json.event("file"), file.name(), file.nameEncoded());
        line.put("status", status).put("bytes", file.isDirectory() ? 0 : file.bytes());
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
    public void onSession(SessionOpened session) {
        line(
                Json.event("session")
                        .put("session", session.session())
                        .put("server", session.server())
                        .put("server_software", session.serverSoftware())
                        .put("protection", session.protection())
                        .put("digest", session.digest())
                        .put("streams", session.streams())
                        .put("rtt_us", session.roundTrip().toNanos() / NS_PER_US));
    }

    @Override
    public void onConnection(ConnectionChange change) {
        line(
                Json.event("connection")
                        .put("state", change.state().name().toLowerCase(Locale.ROOT))
                        .put("server", change.server())
                        .put("why", change.why())
                        .put("since_ms", change.since().toEpochMilli())
                        .put("seconds", seconds(change.away()))
                        .put("seconds_left", seconds(change.left())));
    }

    /** Seconds with a tenth. */
    private static double seconds(Duration time) {
        return Math.round(time.toMillis() / MS_PER_TENTH) / TENTHS;
    }

    @Override
    public void onNotice(TransferNotice notice) {
        if (notice instanceof TransferNotice.Resumed resumed) {
            line(Json.event("resume").put("bytes", resumed.bytes()).put("why", resumed.why()));
        } else if (notice instanceof TransferNotice.Fallback fallback) {
            line(
                    Json.event("fallback")
                            .put("side", fallback.side())
                            .put("from_to", fallback.fromTo())
                            .put("why", fallback.why()));
        } else if (notice instanceof TransferNotice.Stall stall) {
            line(
                    Json.event("stall")
                            .put("stage", stall.stage())
                            .put("seconds", seconds(stall.still()))
                            .put("what", stall.what()));
        } else if (notice instanceof TransferNotice.Rereading again) {
            Json line = Json.event("rereading");
            line(path(line, again.name(), again.nameEncoded()).put("why", again.why()));
        } else if (notice instanceof TransferNotice.LeftOut leftOut) {
            line(event("left_out", leftOut.problem()));
        } else if (notice instanceof TransferNotice.Failure failure) {
            terminal.error(ProblemText.of(failure.problem()));
            line(event("error", failure.problem()));
        }
    }

    /** A path, and where that is not exact the bytes of it. */
    private static Json path(Json line, String path, String encoded) {
        line.put("path", path);
        return encoded.isEmpty() ? line : line.put("path_encoded", encoded);
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

    /** The event of a problem that ends a file, or the transfer. */
    static Json event(Problem problem) {
        return event("error", problem);
    }

    private static Json event(String name, Problem problem) {
        return path(Json.event(name), problem.path(), problem.pathEncoded())
                .put("side", problem.side().isEmpty() ? "session" : problem.side())
                .put("what", problem.what())
                .put("needs", problem.needs())
                .put("found", problem.found())
                .put("hint", problem.hint());
    }
}
