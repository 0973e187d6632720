package io.github.haul.client.internal.session;

import io.github.haul.client.FileResult;
import io.github.haul.client.TransferProgress;
import io.github.haul.client.TransferResult;
import io.github.haul.client.internal.machine.NameSet;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.List;

/**
 * The counts of a transfer. What is offered again after a lost connection, and is in place by then,
 * counts once, as it came out the first time.
 */
final class Tally {
    /** Entries that were offered, or could not be. */
    long foundFiles;

    /** Directories among them. */
    long foundDirectories;

    long foundBytes;
    long doneFiles;
    long doneBytes;
    long skippedFiles;
    long skippedBytes;
    long failedFiles;
    long plannedFiles;
    long plannedBytes;
    long doneDirectories;
    long skippedDirectories;
    long plannedDirectories;
    private long failedDirectories;

    /** Sources that are never sent, as this session told of them. */
    long leftOut;

    /** Bytes that an earlier run had left: those of an earlier session are this run's own. */
    long resumedBytes;

    /** Bytes verified in this session. */
    long verifiedBytes;

    /** Bytes that this session found in place. */
    private long foundInPlace;

    long resentSpans;
    boolean isTotalKnown;
    final List<FileResult> failures = new ArrayList<>();
    private final NameSet inPlace = new NameSet();
    private final MessageDigest sha256;
    private int sessions;
    private long settledInSession;

    Tally() {
        try {
            sha256 = MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException("every JDK has SHA-256", impossible);
        }
    }

    /** Begins another session: everything is offered again. */
    void beginSession() {
        sessions++;
        foundFiles = 0;
        foundDirectories = 0;
        foundBytes = 0;
        failedFiles = 0;
        failures.clear();
        failedDirectories = 0;
        plannedFiles = 0;
        plannedBytes = 0;
        plannedDirectories = 0;
        leftOut = 0;
        verifiedBytes = 0;
        foundInPlace = 0;
        settledInSession = 0;
        isTotalKnown = false;
    }

    /** Counts bytes of a file that need not come. */
    void resumed(long bytes) {
        foundInPlace += bytes;
        resumedBytes += sessions <= 1 ? bytes : 0;
    }

    /** Counts a file that has come out; false where an earlier session has counted it. */
    boolean count(FileResult file) {
        settledInSession++;
        boolean isInPlace =
                file.status() == FileResult.Status.DONE
                        || file.status() == FileResult.Status.SKIPPED;
        if (isInPlace) {
            long hash = hash(file);
            if (inPlace.contains(hash)) {
                return false;
            }
            inPlace.add(hash);
        }
        long directory = file.isDirectory() ? 1 : 0;
        long bytes = file.isDirectory() ? 0 : file.bytes();
        switch (file.status()) {
            case DONE -> {
                doneFiles += 1 - directory;
                doneDirectories += directory;
                doneBytes += bytes;
            }
            case SKIPPED -> {
                skippedFiles += 1 - directory;
                skippedDirectories += directory;
                skippedBytes += bytes;
            }
            case WOULD_COPY, WOULD_REPLACE -> {
                plannedFiles += 1 - directory;
                plannedDirectories += directory;
                plannedBytes += bytes;
            }
            case FAILED -> {
                failedFiles++;
                failedDirectories += directory;
                if (failures.size() < TransferResult.FAILURES_MAX) {
                    failures.add(file);
                }
            }
        }
        return true;
    }

    private long hash(FileResult file) {
        sha256.update((byte) (file.isDirectory() ? 1 : 0));
        byte[] digest =
                sha256.digest((file.nameEncoded() + file.name()).getBytes(StandardCharsets.UTF_8));
        return ByteBuffer.wrap(digest).getLong();
    }

    /** What has got on in this session, in a number that grows. */
    long headway() {
        return verifiedBytes + settledInSession;
    }

    TransferProgress progress() {
        long failed = failedFiles - failedDirectories;
        long settled = doneFiles + skippedFiles + failed + plannedFiles;
        long verified = verifiedBytes + foundInPlace + skippedBytes;
        return new TransferProgress(
                Math.max(foundFiles - foundDirectories, settled),
                doneFiles,
                settled,
                foundBytes,
                Math.min(verified, foundBytes),
                isTotalKnown);
    }
}
