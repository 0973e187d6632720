package io.github.haul.command;

import io.github.haul.client.TransferResult;

/**
 * Report of a transfer, by the words of the program {@code haul}.
 *
 * @param from the sources as the user named them
 * @param to where the files are now, without a token
 * @param isDryRun nothing was moved
 * @param result what the client says
 * @param counts what the listener counted
 */
record Report(String from, String to, boolean isDryRun, TransferResult result, FileCounts counts) {
    private static final double NS_PER_S = 1e9;

    /**
     * Whether the counts are of the whole transfer. A session that follows a lost one tells of all
     * files again, and the listener does not hear where it begins.
     */
    boolean isCounted() {
        return result.connections() <= 1;
    }

    long doneDirectories() {
        return isCounted() ? counts.doneDirectories() : 0;
    }

    long skippedDirectories() {
        return isCounted() ? counts.skippedDirectories() : 0;
    }

    long plannedDirectories() {
        return isCounted() ? counts.plannedDirectories() : 0;
    }

    double seconds() {
        return result.duration().toNanos() / NS_PER_S;
    }

    /** Bytes of the files that are in place: moved, resumed and skipped. */
    long bytes() {
        return result.bytes() + result.bytesSkipped();
    }

    /** Bytes that were there already. */
    long resumedBytes() {
        return result.bytesResumed() + result.bytesSkipped();
    }

    /** Bytes that this run brought. */
    long movedBytes() {
        return Math.max(0, bytes() - resumedBytes());
    }

    double gbitPerS() {
        return Amounts.gbitPerS(movedBytes(), seconds());
    }

    long doneFiles() {
        return Math.max(0, result.filesDone() - doneDirectories());
    }

    long skippedFiles() {
        return Math.max(0, result.filesSkipped() - skippedDirectories());
    }

    long plannedFiles() {
        return Math.max(0, result.filesPlanned() - plannedDirectories());
    }

    /** The last line of {@code --json}: what this client does not know of is left out. */
    Json json() {
        Json files = new Json().put("done", doneFiles());
        if (doneDirectories() > 0) {
            files.put("done_directories", doneDirectories());
        }
        files.put("skipped", skippedFiles());
        if (skippedDirectories() > 0) {
            files.put("skipped_directories", skippedDirectories());
        }
        files.put("failed", result.filesFailed()).put("removed", 0).put("planned", plannedFiles());
        if (plannedDirectories() > 0) {
            files.put("planned_directories", plannedDirectories());
        }
        Json report =
                Json.event("report")
                        .put("ok", result.isComplete())
                        .put("from", from)
                        .put("to", to)
                        .put("bytes", bytes())
                        .put("resumed_bytes", resumedBytes())
                        .put("skipped_bytes", result.bytesSkipped())
                        .put("moved_bytes", movedBytes())
                        .put("dry_run", isDryRun);
        if (isCounted()) {
            report.put("planned_bytes", counts.plannedBytes());
        }
        return report.put("sources_removed", 0)
                .put("seconds", seconds())
                .put("gbit_per_s", gbitPerS())
                .put("files", files)
                .put("protection", result.protection())
                .put("digest", result.digest())
                .put("resent_spans", result.spansResent())
                .put("reconnections", Math.max(0, result.connections() - 1));
    }
}
