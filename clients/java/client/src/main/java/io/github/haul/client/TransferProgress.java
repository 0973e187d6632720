package io.github.haul.client;

/**
 * How far a transfer is. Links count as files, and directories are not counted.
 *
 * @param filesFound files found so far
 * @param filesDone files that are durable at the target by this transfer
 * @param filesSettled files that are at the target, or failed
 * @param bytesFound bytes of the files found so far
 * @param bytesVerified bytes that are at the target and verified, those of an earlier run included
 * @param isTotalKnown all files are found
 */
public record TransferProgress(
        long filesFound,
        long filesDone,
        long filesSettled,
        long bytesFound,
        long bytesVerified,
        boolean isTotalKnown) {}
