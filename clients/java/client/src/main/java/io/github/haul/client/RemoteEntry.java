package io.github.haul.client;

import java.time.Instant;
import org.jspecify.annotations.Nullable;

/**
 * A file, directory or link at a server.
 *
 * <p>Names are bytes. In their text each byte that is no UTF-8 stands as the lone surrogate {@code
 * U+DC00} plus the byte, as in Python's {@code surrogateescape}, so that every name leads back to
 * its file.
 *
 * @param name its name below the path that was asked for; empty for what that path itself is
 * @param kind a file, a directory or a link
 * @param sizeBytes the length of a file; 0 of anything else
 * @param modified when it was last changed
 * @param mode its permission bits
 * @param linkTarget where a symbolic link leads to; else null
 */
public record RemoteEntry(
        String name,
        Kind kind,
        long sizeBytes,
        Instant modified,
        int mode,
        @Nullable String linkTarget) {
    /** Kinds of entries. */
    public enum Kind {
        /** A regular file. */
        FILE,
        /** A directory. */
        DIRECTORY,
        /**
         * A symbolic link in a directory that was listed; one that is asked for by name is
         * followed.
         */
        SYMLINK
    }
}
