package io.github.haul.command;

/** The exit statuses of haul. */
final class ExitStatus {
    /** All done and verified. */
    static final int ALL_DONE = 0;

    /** Some files failed, or the transfer was broken midway. */
    static final int SOME_FAILED = 1;

    /** Nothing could start. */
    static final int COULD_NOT_START = 2;

    private ExitStatus() {}
}
