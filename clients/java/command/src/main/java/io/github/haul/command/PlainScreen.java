package io.github.haul.command;

import io.github.haul.client.ConnectionChange;
import io.github.haul.client.FileResult;
import io.github.haul.client.Problem;
import io.github.haul.client.TransferNotice;
import io.github.haul.client.TransferProgress;
import java.util.Locale;

/** Interval lines, notices on standard error, and the report at the end. */
final class PlainScreen implements Screen {
    private final Terminal terminal;
    private final boolean isQuiet;
    private final Interval interval = new Interval(System.nanoTime());
    private final Failures failures;

    PlainScreen(Terminal terminal, boolean isQuiet) {
        this.terminal = terminal;
        this.isQuiet = isQuiet;
        failures = new Failures(terminal);
    }

    @Override
    public void onProgress(TransferProgress progress) {
        Interval.Ended ended = isQuiet ? null : interval.end(progress, System.nanoTime());
        if (ended != null) {
            terminal.line(
                    String.format(
                            Locale.ROOT,
                            "[%6.2f-%6.2f s]  %10s  %11s",
                            ended.seconds() - ended.lengthSeconds(),
                            ended.seconds(),
                            Amounts.bytes(ended.bytes()),
                            Amounts.rate(ended.gbitPerS())));
        }
    }

    @Override
    public void onFile(FileResult file) {
        failures.add(file);
        String verb =
                switch (file.status()) {
                    case WOULD_COPY -> "would copy ";
                    case WOULD_REPLACE -> "would replace ";
                    case DONE -> file.storedAs() == null ? "" : "stored ";
                    case SKIPPED, FAILED -> "";
                };
        if (!verb.isEmpty() && !isQuiet) {
            String other = file.storedAs() == null ? "" : " as " + file.storedAs();
            terminal.gather(verb + file.name() + other + " (" + Amounts.bytes(file.bytes()) + ")");
        }
    }

    @Override
    public void onConnection(ConnectionChange change) {
        if (!isQuiet) {
            String why = change.why().isEmpty() ? "" : ": " + change.why();
            String is = change.state() == ConnectionChange.State.BACK ? " is back" : " was lost";
            terminal.error("the connection to " + change.server() + is + why);
        }
    }

    @Override
    public void onNotice(TransferNotice notice) {
        if (notice instanceof TransferNotice.Failure failure) {
            terminal.error(ProblemText.of(failure.problem()));
        } else if (!isQuiet) {
            String words = words(notice);
            if (!words.isEmpty()) {
                terminal.error(words);
            }
        }
    }

    private static String words(TransferNotice notice) {
        if (notice instanceof TransferNotice.LeftOut leftOut) {
            return "left out: " + ProblemText.of(leftOut.problem());
        }
        if (notice instanceof TransferNotice.Fallback fallback) {
            return fallback.fromTo() + (fallback.why().isEmpty() ? "" : ": " + fallback.why());
        }
        if (notice instanceof TransferNotice.Rereading rereading) {
            return rereading.name() + " is read again: " + rereading.why();
        }
        // What is resumed stands in the report.
        return notice instanceof TransferNotice.Stall stall ? stall.what() : "";
    }

    @Override
    public void report(Report report) {
        failures.finish();
        if (!isQuiet) {
            ReportText.of(report).forEach(terminal::gather);
        }
    }

    @Override
    public void failure(Problem problem) {
        failures.finish();
        terminal.error(ProblemText.of(problem));
    }
}
