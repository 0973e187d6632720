package io.github.haul.client.internal.target;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;

/**
 * Number of this start of the host's kernel, which a journal holds: a crash in between may have
 * kept the journal and not the data. Linux tells it; elsewhere it is not known, and nothing of an
 * earlier run is believed.
 */
final class HostBoot {
    private static final Path ID = Path.of("/proc/sys/kernel/random/boot_id");
    private static final int BYTES = 16;
    private static final byte[] THIS = read();

    private HostBoot() {}

    /** Returns the number, zeros where it is not known. */
    static byte[] id() {
        return THIS.clone();
    }

    static boolean isKnown(byte[] id) {
        return !Arrays.equals(id, new byte[BYTES]);
    }

    private static byte[] read() {
        try {
            byte[] id = HexFormat.of().parseHex(Files.readString(ID).strip().replace("-", ""));
            return id.length == BYTES ? id : new byte[BYTES];
        } catch (IOException | RuntimeException notThere) {
            return new byte[BYTES];
        }
    }
}
