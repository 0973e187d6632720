package io.github.haul.client.internal.target;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * The permission bits that this process takes from new files (umask(2)). Linux tells them;
 * elsewhere the usual ones are assumed.
 */
final class HostUmask {
    private static final Path STATUS = Path.of("/proc/self/status");
    private static final String FIELD = "Umask:";
    private static final int USUAL = 022;
    private static final int OCTAL = 8;
    private static final int THIS = read();

    private HostUmask() {}

    /** Returns the bits. */
    static int bits() {
        return THIS;
    }

    private static int read() {
        try {
            for (String line : Files.readAllLines(STATUS)) {
                if (line.startsWith(FIELD)) {
                    return Integer.parseInt(line.substring(FIELD.length()).strip(), OCTAL);
                }
            }
        } catch (IOException | RuntimeException notThere) {
            return USUAL;
        }
        return USUAL;
    }
}
