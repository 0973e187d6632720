package io.github.haul.command;

import io.github.haul.client.TransferResult;

/**
 * Report of a transfer, by the words of the program {@code haul}.
 *
 * @param from the sources as the user named them
 * @param to where the files are now, without a token
 * @param isDryRun nothing was moved
 * @param result what the client says
 */
record Report(String from, String to, boolean isDryRun, TransferResult result) {
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
        return Math.max(0, bytes() - resumedBytes() - result.bytesOfHoles());
    }

    double gbitPerS() {
        return Amounts.gbitPerS(movedBytes(), seconds());
    }

    /** The last line of {@code --json}: what this client does not know of is left out. */
    Json json() {
        Json files = new Json().put("done", result.filesDone());
        putUnlessZero(files, "done_directories", result.directoriesDone());
        files.put("skipped", result.filesSkipped());
        putUnlessZero(files, "skipped_directories", result.directoriesSkipped());
        files.put("failed", result.filesFailed())
                .put("left_out", result.filesLeftOut())
                .put("removed", 0)
                .put("planned", result.filesPlanned());
        putUnlessZero(files, "planned_directories", result.directoriesPlanned());
        Json report =
                Json.event("report")
                        .put("ok", result.isComplete())
                        .put("from", from)
                        .put("to", to)
                        .put("bytes", bytes())
                        .put("resumed_bytes", resumedBytes())
                        .put("skipped_bytes", result.bytesSkipped())
                        .put("moved_bytes", movedBytes())
                        .put("dry_run", isDryRun)
                        .put("planned_bytes", result.bytesPlanned());
        return report.put("sources_removed", 0)
                .put("seconds", seconds())
                .put("gbit_per_s", gbitPerS())
                .put("files", files)
                .put("protection", result.protection())
                .put("digest", result.digest())
                .put("resent_spans", result.spansResent())
                .put("reconnections", Math.max(0, result.connections() - 1));
    }

    private static void putUnlessZero(Json files, String name, long count) {
        if (count > 0) {
            files.put(name, count);
        }
    }
}
