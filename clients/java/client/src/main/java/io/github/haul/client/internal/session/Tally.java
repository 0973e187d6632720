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
import java.util.HashMap;
import java.util.List;
import java.util.Map;

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

    /**
     * Bytes that an earlier run had left of the files that did not fail: those of an earlier
     * session are this run's own.
     */
    long resumedBytes;

    /** Bytes of the done files' holes, which never come. */
    long holeBytes;

    /** Bytes verified in this session. */
    long verifiedBytes;

    /** Bytes that this session need not bring of the files under way: resumed ones, and holes. */
    private long foundInPlace;

    /** Bytes that are durable at the target, as far as this session knows. */
    private long durableBytes;

    /** Bytes that went over the data streams of this session. */
    long wireBytes;

    /** Bytes of the files that this session has found to be the same already. */
    private long sameBytes;

    /** Bytes of the files that this session has put in place. */
    private long putBytes;

    /** Data streams that are open. */
    int streams;

    private final Map<Integer, TakenUp> takenUp = new HashMap<>();

    long resentSpans;
    boolean isTotalKnown;
    final List<FileResult> failures = new ArrayList<>();
    private final NameSet inPlace = new NameSet();
    private final MessageDigest sha256;
    private int sessions;
    private long settledInSession;

    /** What need not come of a file that is under way. */
    private record TakenUp(long resumedBytes, long holeBytes) {}

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
        durableBytes = 0;
        sameBytes = 0;
        putBytes = 0;
        wireBytes = 0;
        streams = 0;
        takenUp.clear();
        settledInSession = 0;
        isTotalKnown = false;
    }

    /**
     * Counts bytes of a file that need not come: {@link #ended} is called for it.
     *
     * @param resumed those that an earlier run has left
     * @param holes those of holes
     */
    void takenUp(int file, long resumed, long holes) {
        foundInPlace += resumed + holes;
        long before = sessions <= 1 ? resumed : 0;
        resumedBytes += before;
        if (before + holes > 0) {
            takenUp.put(file, new TakenUp(before, holes));
        }
    }

    /** Takes off bytes of an earlier run that are not there any more. */
    void lost(int file, long bytes) {
        foundInPlace -= bytes;
        TakenUp of = takenUp.get(file);
        if (of != null) {
            long lost = Math.min(bytes, of.resumedBytes);
            resumedBytes -= lost;
            takenUp.put(file, new TakenUp(of.resumedBytes - lost, of.holeBytes));
        }
    }

    /** Ends the account of a file; what was there of one that failed counts for nothing. */
    void ended(int file, boolean hasFailed) {
        TakenUp of = takenUp.remove(file);
        if (of != null) {
            resumedBytes -= hasFailed ? of.resumedBytes : 0;
            holeBytes += hasFailed ? 0 : of.holeBytes;
        }
    }

    /** Bytes of this session's files that need not come. */
    long thereBefore() {
        return foundInPlace + sameBytes;
    }

    /** Bytes of the files that are in place by now, as this session knows. */
    long inPlaceBytes() {
        return putBytes + sameBytes;
    }

    /** Notes how many bytes are durable at the target; less than before means nothing. */
    void durable(long bytes) {
        durableBytes = Math.max(durableBytes, bytes);
    }

    /** Counts a file that has come out; false where an earlier session has counted it. */
    boolean count(FileResult file) {
        long bytes = file.isDirectory() ? 0 : file.bytes();
        sameBytes += file.status() == FileResult.Status.SKIPPED ? bytes : 0;
        putBytes += file.status() == FileResult.Status.DONE ? bytes : 0;
        boolean isInPlace =
                file.status() == FileResult.Status.DONE
                        || file.status() == FileResult.Status.SKIPPED;
        if (isInPlace) {
            long hash = hash(file);
            if (inPlace.contains(hash)) {
                return false;
            }
            inPlace.add(hash);
            settledInSession++;
        }
        long directory = file.isDirectory() ? 1 : 0;
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

    /**
     * What has got on in this session, in a number that grows. A file that an earlier session has
     * put in place, or found there, is no headway: else a server that is lost each time behind the
     * last file would be tried for ever.
     */
    long headway() {
        return verifiedBytes + settledInSession;
    }

    TransferProgress progress() {
        long failed = failedFiles - failedDirectories;
        long settled = doneFiles + skippedFiles + failed + plannedFiles;
        long before = Math.min(thereBefore(), foundBytes);
        long verified = Math.min(verifiedBytes + before, foundBytes);
        long durable = Math.max(durableBytes, before);
        return new TransferProgress(
                Math.max(foundFiles - foundDirectories, settled),
                doneFiles,
                settled,
                foundBytes,
                verified,
                before,
                Math.min(durable, foundBytes),
                wireBytes,
                streams,
                isTotalKnown);
    }
}
