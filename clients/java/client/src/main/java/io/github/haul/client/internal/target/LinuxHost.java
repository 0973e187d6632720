package io.github.haul.client.internal.target;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;

/**
 * What only Linux tells of the host, by files of {@code /proc}: the one class of the library that
 * asks for it. Each answer has a value for the other systems.
 */
final class LinuxHost {
    private static final Path BOOT = Path.of("/proc/sys/kernel/random/boot_id");
    private static final int BOOT_BYTES = 16;
    private static final byte[] THIS_BOOT = readBoot();

    private static final Path STATUS = Path.of("/proc/self/status");
    private static final String UMASK = "Umask:";
    private static final int USUAL_UMASK = 022;
    private static final int OCTAL = 8;
    private static final int THIS_UMASK = readUmask();

    private LinuxHost() {}

    /**
     * Number of this start of the host's kernel, which a journal holds: a crash in between may have
     * kept the journal and not the data. Zeros where it is not known: then nothing of an earlier
     * run is believed unread.
     */
    static byte[] boot() {
        return THIS_BOOT.clone();
    }

    static boolean isKnownBoot(byte[] boot) {
        return !Arrays.equals(boot, new byte[BOOT_BYTES]);
    }

    /**
     * The permission bits that this process takes from new files (umask(2)); the usual ones where
     * they are not known.
     */
    static int umask() {
        return THIS_UMASK;
    }

    private static byte[] readBoot() {
        try {
            byte[] boot = HexFormat.of().parseHex(Files.readString(BOOT).strip().replace("-", ""));
            return boot.length == BOOT_BYTES ? boot : new byte[BOOT_BYTES];
        } catch (IOException | RuntimeException notThere) {
            return new byte[BOOT_BYTES];
        }
    }

    private static int readUmask() {
        try {
            for (String line : Files.readAllLines(STATUS)) {
                if (line.startsWith(UMASK)) {
                    return Integer.parseInt(line.substring(UMASK.length()).strip(), OCTAL);
                }
            }
        } catch (IOException | RuntimeException notThere) {
            return USUAL_UMASK;
        }
        return USUAL_UMASK;
    }
}
