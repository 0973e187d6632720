package io.github.haul.client.internal.target;

import io.github.haul.client.internal.proto.Digest;
import io.github.haul.client.internal.proto.OnConflict;
import io.github.haul.client.internal.wire.Limits;

/**
 * Rules by which files are received.
 *
 * @param onConflict what is done where something has the name of an offered file
 * @param isDryRun whether nothing is written, and each offer is answered with a plan
 * @param rechecks whether nothing of an earlier run is believed that was not read back
 * @param peerRechecks whether the sender can be told that durable spans are lost after all
 * @param spanBytes the span size that was asked for, in bytes; 0: chosen for each file
 * @param digest the digest that verifies the session's spans, which a journal names
 * @param keepsMode whether files get the permission bits of their sources
 * @param keepsTime whether they get their modification times
 * @param verifiesTarget whether each file is read back from its disk before it gets its name
 */
public record TargetOptions(
        OnConflict onConflict,
        boolean isDryRun,
        boolean rechecks,
        boolean peerRechecks,
        long spanBytes,
        Digest digest,
        boolean keepsMode,
        boolean keepsTime,
        boolean verifiesTarget) {
    private static final long SPAN_BYTES_DEFAULT = 8L << 20;

    /**
     * Rules that keep mode and time, and read nothing back at the end.
     *
     * @param onConflict what is done where something has the name of an offered file
     * @param isDryRun whether nothing is written
     * @param rechecks whether nothing of an earlier run is believed that was not read back
     * @param peerRechecks whether the sender can be told that durable spans are lost after all
     * @param spanBytes the span size that was asked for, in bytes
     * @param digest the digest that verifies the session's spans
     */
    TargetOptions(
            OnConflict onConflict,
            boolean isDryRun,
            boolean rechecks,
            boolean peerRechecks,
            long spanBytes,
            Digest digest) {
        this(onConflict, isDryRun, rechecks, peerRechecks, spanBytes, digest, true, true, false);
    }

    /**
     * The permission bits that a target gets: those of the source, as they are; where they are not
     * kept, the umask takes its part of them, and nobody may do more than at the source.
     */
    int modeOf(int mode) {
        return keepsMode ? mode : mode & ~LinuxHost.umask();
    }

    /**
     * The size of a file's spans, as the program haul chooses it.
     *
     * @param sizeBytes the file's size
     * @return a power of two, so that the file has at most 2^20 spans
     */
    public long spanBytesFor(long sizeBytes) {
        long asked = spanBytes == 0 ? SPAN_BYTES_DEFAULT : spanBytes;
        long wanted = powerOfTwo(Math.max(asked, Limits.SPAN_BYTES_MIN));
        return Math.max(
                wanted,
                powerOfTwo(
                        sizeBytes / Limits.SPANS_MAX
                                + (sizeBytes % Limits.SPANS_MAX == 0 ? 0 : 1)));
    }

    /** The smallest power of two that is at least this, and no more than a span may have. */
    private static long powerOfTwo(long bytes) {
        long least = Math.max(1, Math.min(bytes, Limits.SPAN_BYTES_MAX));
        long highest = Long.highestOneBit(least);
        return highest == least ? least : highest << 1;
    }
}
