package io.github.haul.client;

import org.jspecify.annotations.Nullable;

/**
 * How a file, a directory or a link came out.
 *
 * @param name its name below the target, with {@code /} between components; bytes that are no text
 *     are shown as U+FFFD
 * @param status how it came out
 * @param isDirectory it is a directory
 * @param bytes its size
 * @param storedAs the name that it got, where another file kept its own; else null
 * @param problem why it failed; null if it did not
 * @param nameEncoded where bytes of the name are no text, all of it percent-encoded as in the path
 *     of a URL; else empty
 */
public record FileResult(
        String name,
        Status status,
        boolean isDirectory,
        long bytes,
        @Nullable String storedAs,
        @Nullable Problem problem,
        String nameEncoded) {
    /** The ways in which a file comes out. */
    public enum Status {
        /** It is durable at the target. */
        DONE,
        /** What is there already is the same. */
        SKIPPED,
        /** A dry run: it would be sent. */
        WOULD_COPY,
        /** A dry run: it would be sent, in place of something else. */
        WOULD_REPLACE,
        /** It is not at the target. */
        FAILED
    }
}
