package io.github.haul.command;

import io.github.haul.client.Problem;
import io.github.haul.client.TransferListener;

/** What a user, or a program, sees of a transfer. */
interface Screen extends TransferListener {
    /**
     * Shows the end of a transfer that came to its end, also with files that failed.
     *
     * @param report what it did
     */
    void report(Report report);

    /**
     * Shows why a transfer did not come to its end.
     *
     * @param problem the problem
     */
    void failure(Problem problem);
}
