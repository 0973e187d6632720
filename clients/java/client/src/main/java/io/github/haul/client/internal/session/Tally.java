package io.github.haul.client.internal.session;

import io.github.haul.client.FileResult;
import io.github.haul.client.TransferProgress;
import io.github.haul.client.TransferResult;
import java.util.ArrayList;
import java.util.List;

/** The counts of a session. */
final class Tally {
    long foundFiles;
    long foundBytes;
    long doneFiles;
    long doneBytes;
    long skippedFiles;
    long skippedBytes;
    long failedFiles;
    long plannedFiles;
    long resumedBytes;
    long verifiedBytes;
    long resentSpans;
    boolean isTotalKnown;
    final List<FileResult> failures = new ArrayList<>();

    /** Counts a file that has come out. */
    void count(FileResult file) {
        switch (file.status()) {
            case DONE -> {
                doneFiles++;
                doneBytes += file.bytes();
            }
            case SKIPPED -> {
                skippedFiles++;
                skippedBytes += file.bytes();
            }
            case WOULD_COPY, WOULD_REPLACE -> plannedFiles++;
            case FAILED -> {
                failedFiles++;
                if (failures.size() < TransferResult.FAILURES_MAX) {
                    failures.add(file);
                }
            }
        }
    }

    /** What has got on, in a number that grows. */
    long headway() {
        return verifiedBytes + doneFiles + skippedFiles + plannedFiles;
    }

    TransferProgress progress() {
        long settled = doneFiles + skippedFiles + failedFiles + plannedFiles;
        long verified = verifiedBytes + resumedBytes + skippedBytes;
        return new TransferProgress(
                foundFiles, settled, foundBytes, Math.min(verified, foundBytes), isTotalKnown);
    }
}
