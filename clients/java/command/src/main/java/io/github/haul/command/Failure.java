package io.github.haul.command;

import io.github.haul.client.Problem;

/** The reason why a command ended before its work was done, and its exit status. */
final class Failure extends Exception {
    private static final long serialVersionUID = 1;

    private final int status;
    private final transient Problem problem;

    Failure(int status, Problem problem) {
        super(ProblemText.of(problem));
        this.status = status;
        this.problem = problem;
    }

    /** A mistake that let nothing start. */
    static Failure usage(String what, String needs, String found, String hint) {
        Problem problem = new Problem("", "", "", what, needs, found, hint);
        return new Failure(ExitStatus.COULD_NOT_START, problem);
    }

    int status() {
        return status;
    }

    Problem problem() {
        return problem;
    }
}
