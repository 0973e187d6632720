package io.github.haul.client.internal.source;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * Files that say that they are empty, and are not: the kernel makes them up while they are read, as
 * those below {@code /proc}. They would arrive empty.
 */
final class MadeUpFiles {
    private static final Set<String> KINDS =
            Set.of(
                    "proc",
                    "sysfs",
                    "cgroup",
                    "cgroup2",
                    "debugfs",
                    "tracefs",
                    "securityfs",
                    "configfs",
                    "bpf");

    /** The device of the last empty file, for most are on one; 0 is none. */
    private long device;

    private boolean isMadeUp;

    /** The kind of a file's file system; empty where that is not told, as without /proc. */
    private static String kindOf(Path file) {
        try {
            return Files.getFileStore(file).type();
        } catch (IOException notTold) {
            return "";
        }
    }

    /** The fault of a regular file that is said to be empty, or null where that may be so. */
    @Nullable Fault check(Path file, ByteString name, FileFacts facts) {
        if (facts.sizeBytes() > 0 || facts.device() == 0) {
            return null;
        }
        if (facts.device() != device) {
            isMadeUp = KINDS.contains(kindOf(file));
            device = facts.device();
        }
        return isMadeUp
                ? SourceFaults.of(FaultCode.IO_FAILED, name, "cannot be sent")
                        .setNeeds("a file whose size is known before it is read")
                        .setFound(
                                "0 bytes, on a file system that makes files up while they are read")
                        .setHint(
                                "write what it holds to a file, as `cat FILE >COPY` does, and send"
                                        + " that")
                        .build()
                : null;
    }
}
