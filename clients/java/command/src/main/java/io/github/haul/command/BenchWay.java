package io.github.haul.command;

import java.util.OptionalLong;

/** The ways in which the bench moves a file: the study's two, and pushes of haul. */
enum BenchWay {
    /** The study's first: read 4 KiB into the JVM's memory, write them to the socket's stream. */
    TRADITIONAL("traditional"),
    /** The study's second: {@code FileChannel.transferTo} to the socket. */
    TRANSFER_TO("transfer-to"),
    /** A push of haul by this process, with all that belongs to one. */
    HAUL_PUSH("haul-push"),
    /** The same push by the program that the user named. */
    HAUL_PROGRAM("haul-program");

    private final String label;

    BenchWay(String label) {
        this.label = label;
    }

    /** The name in tables and JSON. */
    String label() {
        return label;
    }

    /**
     * A file that was moved.
     *
     * @param ns how long it took, until the receiver had all of it
     * @param calls reads, writes and transfers that this program called; empty where it does not
     *     count them
     * @param copied bytes that those calls brought into this program's memory or took out of it;
     *     empty where it does not count them
     * @param switches context switches of the threads that sent, as the kernel counts them; empty
     *     where it does not tell
     * @param cpuNs processor time of the process that pushed; empty for the study's ways, which
     *     share theirs with their receiver
     */
    record Moved(
            long ns,
            OptionalLong calls,
            OptionalLong copied,
            OptionalLong switches,
            OptionalLong cpuNs) {}
}
