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
        return Math.max(0, result.filesDone() - counts.doneDirectories());
    }

    long skippedFiles() {
        return Math.max(0, result.filesSkipped() - counts.skippedDirectories());
    }

    long plannedFiles() {
        return Math.max(0, result.filesPlanned() - counts.plannedDirectories());
    }

    /** The last line of {@code --json}: what this client does not know of is left out. */
    Json json() {
        Json files = new Json().put("done", doneFiles());
        if (counts.doneDirectories() > 0) {
            files.put("done_directories", counts.doneDirectories());
        }
        files.put("skipped", skippedFiles());
        if (counts.skippedDirectories() > 0) {
            files.put("skipped_directories", counts.skippedDirectories());
        }
        files.put("failed", result.filesFailed()).put("removed", 0).put("planned", plannedFiles());
        if (counts.plannedDirectories() > 0) {
            files.put("planned_directories", counts.plannedDirectories());
        }
        return Json.event("report")
                .put("ok", result.isComplete())
                .put("from", from)
                .put("to", to)
                .put("bytes", bytes())
                .put("resumed_bytes", resumedBytes())
                .put("skipped_bytes", result.bytesSkipped())
                .put("moved_bytes", movedBytes())
                .put("dry_run", isDryRun)
                .put("planned_bytes", counts.plannedBytes())
                .put("sources_removed", 0)
                .put("seconds", seconds())
                .put("gbit_per_s", gbitPerS())
                .put("files", files)
                .put("protection", result.protection())
                .put("digest", result.digest())
                .put("resent_spans", result.spansResent())
                .put("reconnections", Math.max(0, result.connections() - 1));
    }
}
