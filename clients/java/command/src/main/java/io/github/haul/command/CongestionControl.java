package io.github.haul.command;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * The congestion control of the host's new TCP connections (tcp(7), {@code
 * net.ipv4.tcp_congestion_control}), which Java has no option to choose. {@code bbr} paces each
 * connection, over loopback too, where {@code haul} itself takes another: one that paces is named
 * beside figures, for they say more of it than of the ways that are measured.
 */
record CongestionControl(String name) {
    private static final Path DEFAULT = Path.of("/proc/sys/net/ipv4/tcp_congestion_control");
    private static final String PACING = "bbr";

    /** The host's; an empty name where it is not seen. */
    static CongestionControl ofHost() {
        try {
            return new CongestionControl(Files.readString(DEFAULT).strip());
        } catch (IOException absent) {
            return new CongestionControl("");
        }
    }

    /** What stands in the line above the table. */
    String words() {
        return name.isEmpty() ? "" : ", congestion control " + name;
    }

    /**
     * What a user may want to know before he believes the figures; empty where there is nothing.
     */
    String advice() {
        String why =
                " paces the connections of Java, and haul itself takes cubic here: for ways that"
                        + " differ in nothing else, run ";
        String what = "`sysctl -w net.ipv4.tcp_congestion_control=cubic` before";
        return name.startsWith(PACING) ? name + why + what : "";
    }
}
