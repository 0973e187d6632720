package io.github.haul.client;

/**
 * How far a transfer is. Links count as files, and directories are not counted.
 *
 * @param filesFound files found so far
 * @param filesDone files that are durable at the target by this transfer
 * @param filesSettled files that are at the target, or failed
 * @param bytesFound bytes of the files found so far
 * @param bytesVerified bytes that are at the target and verified, those of an earlier run included
 * @param bytesThereBefore bytes among them that this session need not bring: of an earlier run or
 *     session, of holes, and of what is the same already
 * @param bytesDurable bytes that are durable at the target as far as this side knows, those of an
 *     earlier run included: another run goes on from these
 * @param bytesOnWire bytes that this session has given to its data connections, or got from them
 * @param streams data connections that are open
 * @param isTotalKnown all files are found
 */
public record TransferProgress(
        long filesFound,
        long filesDone,
        long filesSettled,
        long bytesFound,
        long bytesVerified,
        long bytesThereBefore,
        long bytesDurable,
        long bytesOnWire,
        int streams,
        boolean isTotalKnown) {}
