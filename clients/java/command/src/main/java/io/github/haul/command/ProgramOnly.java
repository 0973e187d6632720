package io.github.haul.command;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Options of the program {@code haul} that this client does not have, and says so by name. */
final class ProgramOnly {
    private static final String COPY_OVER_SSH = "copy to and from user@host:path over ssh";
    private static final Map<String, String> OPTIONS = new LinkedHashMap<>();

    static {
        OPTIONS.put("--bwlimit", "hold a transfer to a rate");
        OPTIONS.put("--digest", "choose the digest of --protection clear, which is crc32c here");
        OPTIONS.put("--send-engine", "choose the engine that sends");
        OPTIONS.put("--receive-engine", "choose the engine that receives");
        OPTIONS.put("--fabric", "send by RDMA");
        OPTIONS.put("--wait", "wait for a server that cannot be reached at first");
        OPTIONS.put("--manifest", "write a manifest");
        OPTIONS.put("--report", "tell engines, costs and stages of a transfer");
        OPTIONS.put("--include", "choose files of a tree");
        OPTIONS.put("--exclude", "choose files of a tree");
        OPTIONS.put("--files-from", "take names from a list");
        OPTIONS.put("--from0", "take names from a list");
        OPTIONS.put("--min-size", "choose files by size");
        OPTIONS.put("--max-size", "choose files by size");
        OPTIONS.put("--min-age", "choose files by age");
        OPTIONS.put("--max-age", "choose files by age");
        OPTIONS.put("--checksum-compare", "compare files by their bytes");
        OPTIONS.put("--delete", "remove from the target what the sources do not have");
        OPTIONS.put("--max-delete", "remove from the target what the sources do not have");
        OPTIONS.put("--explain", "say how engines were chosen");
        OPTIONS.put("--preflight", "look at both sides before a transfer");
        OPTIONS.put("--move", "remove sources once they are at the target");
        OPTIONS.put("--follow", "send a file while it is written");
        OPTIONS.put("--append-only", "send a file while it is written");
        OPTIONS.put("--watch", "send what appears in a directory");
        OPTIONS.put("--watch-for", "send what appears in a directory");
        OPTIONS.put("--idle", "send a file while it is written");
        OPTIONS.put("--part", "move one part of the files by each of several machines");
        OPTIONS.put("--plan", "move one shard of a plan");
        OPTIONS.put("--shard", "move one shard of a plan");
        OPTIONS.put("--signal", "end by another signal as by SIGTERM");
        OPTIONS.put("--rekey-after", "replace a private stream by one with another key");
        OPTIONS.put("--bind", "choose addresses and interfaces of this host");
        OPTIONS.put("--proxy", "go by a proxy");
        OPTIONS.put("--dscp", "mark packets with a class");
        OPTIONS.put("--scitag", "mark flows with experiment and activity");
        OPTIONS.put("--firefly", "tell collectors of each stream");
        OPTIONS.put("--ssh", COPY_OVER_SSH);
        OPTIONS.put("--remote-haul", COPY_OVER_SSH);
        OPTIONS.put("--install-remote", COPY_OVER_SSH);
        OPTIONS.put("--port-range", COPY_OVER_SSH);
        OPTIONS.put("--reverse", COPY_OVER_SSH);
        OPTIONS.put("--through-ssh", COPY_OVER_SSH);
    }

    private ProgramOnly() {}

    /** The refusal of the first such option among the words of a command line, if there is one. */
    static @Nullable Failure find(List<String> words) {
        for (String word : words) {
            if (word.equals("--")) {
                return null;
            }
            String option = word.split("=", 2)[0];
            String what = OPTIONS.get(option);
            if (what != null) {
                return refuse("take " + option, what);
            }
        }
        return null;
    }

    /** Refuses what the program can do. */
    static Failure refuse(String what, String does) {
        return Failure.usage(
                "the JVM client cannot " + what,
                "",
                "",
                "the program haul can: there it is to " + does);
    }
}
