package io.github.haul.command;

import io.github.haul.client.ConnectionChange;
import io.github.haul.client.FileResult;
import io.github.haul.client.HaulException;
import io.github.haul.client.Problem;
import io.github.haul.client.SessionOpened;
import io.github.haul.client.TransferListener;
import io.github.haul.client.TransferNotice;
import io.github.haul.client.TransferProgress;
import io.github.haul.client.TransferResult;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/** A transfer from its first event to its exit status. */
final class TransferRun {
    private final Screen screen;
    private final String from;
    private final String to;
    private final boolean isDryRun;
    private volatile boolean hasBegun;

    TransferRun(Screen screen, String from, String to, boolean isDryRun) {
        this.screen = screen;
        this.from = from;
        this.to = to;
        this.isDryRun = isDryRun;
    }

    /** The listener that shows the transfer and counts. */
    TransferListener listener() {
        return new TransferListener() {
            @Override
            public void onProgress(TransferProgress progress) {
                hasBegun = true;
                screen.onProgress(progress);
            }

            @Override
            public void onFile(FileResult file) {
                hasBegun = true;
                screen.onFile(file);
            }

            @Override
            public void onSession(SessionOpened session) {
                screen.onSession(session);
            }

            @Override
            public void onConnection(ConnectionChange change) {
                hasBegun = true;
                screen.onConnection(change);
            }

            @Override
            public void onNotice(TransferNotice notice) {
                hasBegun = true;
                screen.onNotice(notice);
            }
        };
    }

    /**
     * Waits for the end of the transfer and shows it.
     *
     * @return the exit status
     */
    int await(CompletableFuture<TransferResult> transfer) throws InterruptedException {
        Interrupt interrupt = Interrupt.on(transfer);
        try {
            screen.report(report(transfer.get()));
            return ExitStatus.ALL_DONE;
        } catch (CancellationException cancelled) {
            String hint = "run the same command to go on";
            screen.failure(new Problem("", "", "", "interrupted", "", "", hint));
            return ExitStatus.SOME_FAILED;
        } catch (ExecutionException failed) {
            return show(Objects.requireNonNull(failed.getCause(), "a future fails by a cause"));
        } finally {
            interrupt.isOver();
        }
    }

    private int show(Throwable cause) {
        if (cause instanceof HaulException.FilesFailed failed) {
            if (isNothingThere(failed.result())) {
                return ExitStatus.COULD_NOT_START;
            }
            screen.report(report(failed.result()));
            return ExitStatus.SOME_FAILED;
        }
        if (cause instanceof HaulException failed) {
            screen.failure(failed.problem());
            boolean isMidway = hasBegun || failed instanceof HaulException.ConnectionLost;
            return isMidway ? ExitStatus.SOME_FAILED : ExitStatus.COULD_NOT_START;
        }
        screen.failure(
                new Problem(
                        "",
                        "",
                        "",
                        "the transfer ended by an error of this program",
                        "",
                        String.valueOf(cause),
                        "please report it; the same command goes on"));
        return ExitStatus.SOME_FAILED;
    }

    /** Whether no source was there, which was said of each. */
    private static boolean isNothingThere(TransferResult result) {
        long others =
                result.filesDone()
                        + result.filesSkipped()
                        + result.filesPlanned()
                        + result.directoriesDone()
                        + result.directoriesSkipped()
                        + result.directoriesPlanned();
        return others == 0
                && result.failures().stream()
                        .map(FileResult::problem)
                        .allMatch(one -> one != null && one.code().equals("NOT_FOUND"));
    }

    private Report report(TransferResult result) {
        return new Report(from, to, isDryRun, result);
    }
}
