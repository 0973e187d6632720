package io.github.haul.client;

import java.time.Duration;
import java.util.List;

/**
 * What a transfer did. Directories and links count as files.
 *
 * @param filesDone files that are durable at the target now
 * @param filesSkipped files that were there already, the same
 * @param filesFailed files that are not at the target
 * @param filesPlanned of a dry run: files that would be sent
 * @param bytes bytes of the files that are done
 * @param bytesSkipped bytes of the files that were skipped
 * @param bytesResumed bytes that an earlier run had left at the target
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
        long filesPlanned,
        long bytes,
        long bytesSkipped,
        long bytesResumed,
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
