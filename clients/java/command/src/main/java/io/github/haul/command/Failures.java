package io.github.haul.command;

import io.github.haul.client.FileResult;
import io.github.haul.client.Problem;

/** Files that failed, in words on standard error: the first of them, and how many more. */
final class Failures {
    private static final int SHOWN_MAX = 20;

    private final Terminal terminal;
    private long failed;

    Failures(Terminal terminal) {
        this.terminal = terminal;
    }

    /** Says why a file failed, if it did. */
    void add(FileResult file) {
        Problem problem = file.problem();
        if (file.status() != FileResult.Status.FAILED || problem == null) {
            return;
        }
        failed++;
        if (failed <= SHOWN_MAX) {
            terminal.error(ProblemText.of(problem));
        }
    }

    /** Says how many were not shown. */
    void finish() {
        if (failed > SHOWN_MAX) {
            terminal.error(Amounts.count(failed - SHOWN_MAX, "more file") + " failed");
        }
    }
}
