package io.github.haul.client;

import java.time.Duration;
import java.util.List;

/**
 * What a transfer did. Links count as files, directories by themselves.
 *
 * @param filesDone files that are durable at the target now
 * @param filesSkipped files that were there already, the same
 * @param filesFailed files and directories that are not at the target
 * @param filesLeftOut FIFOs, sockets and devices, which are never sent
 * @param filesPlanned of a dry run: files that would be sent
 * @param directoriesDone directories that were made
 * @param directoriesSkipped directories that were there already
 * @param directoriesPlanned of a dry run: directories that would be made
 * @param bytes bytes of the files that are done
 * @param bytesSkipped bytes of the files that were skipped
 * @param bytesResumed bytes that an earlier run had left at the target
 * @param bytesOfHoles bytes of the files that are done which no run sends: long runs of zeros
 * @param bytesPlanned of a dry run: bytes that would be sent
 * @param spansResent pieces that arrived damaged and went out again
 * @param connections sessions that it took: more than one where the connection was lost
 * @param duration how long it took
 * @param protection {@code clear} or {@code safe}
 * @param digest what verified each piece: {@code crc32c}, or {@code aes-gmac} and the provider that
 *     computed it
 * @param server the server's name and version
 * @param failures the first files that failed, at most {@value #FAILURES_MAX}
 */
public record TransferResult(
        long filesDone,
        long filesSkipped,
        long filesFailed,
        long filesLeftOut,
        long filesPlanned,
        long directoriesDone,
        long directoriesSkipped,
        long directoriesPlanned,
        long bytes,
        long bytesSkipped,
        long bytesResumed,
        long bytesOfHoles,
        long bytesPlanned,
        long spansResent,
        int connections,
        Duration duration,
        String protection,
        String digest,
        String server,
        List<FileResult> failures) {
    /** The most failures that are kept; a listener hears of all. */
    public static final int FAILURES_MAX = 1000;

    /**
     * Whether every file is at the target.
     *
     * @return whether none failed
     */
    public boolean isComplete() {
        return filesFailed == 0;
    }
}
