package io.github.haul.command;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;

/**
 * Context switches of threads, as Linux counts them in {@code /proc/self/task/N/status} (proc(5)):
 * how often the scheduler gave the processor to another thread. Elsewhere they are not seen.
 */
final class ContextSwitches {
    private static final Path THIS_THREAD = Path.of("/proc/thread-self");
    private static final Path ALL_THREADS = Path.of("/proc/self/task");
    private static final String COUNT = "ctxt_switches:";

    private final Map<String, Long> threads = new HashMap<>();

    private ContextSwitches() {}

    /** Those of the calling thread so far. */
    static ContextSwitches ofThisThread() {
        ContextSwitches seen = new ContextSwitches();
        try {
            seen.add("", THIS_THREAD);
        } catch (IOException absent) {
            // Not Linux: nothing is seen.
        }
        return seen;
    }

    /** Those of all threads of this process so far. */
    static ContextSwitches ofAllThreads() {
        ContextSwitches seen = new ContextSwitches();
        try (DirectoryStream<Path> tasks = Files.newDirectoryStream(ALL_THREADS)) {
            for (Path task : tasks) {
                try {
                    seen.add(String.valueOf(task.getFileName()), task);
                } catch (IOException gone) {
                    // The thread ended meanwhile.
                }
            }
        } catch (IOException absent) {
            // Not Linux: nothing is seen.
        }
        return seen;
    }

    private void add(String name, Path task) throws IOException {
        long count = 0;
        for (String line : Files.readAllLines(task.resolve("status"))) {
            if (line.contains(COUNT)) {
                count += Long.parseLong(line.substring(line.indexOf(':') + 1).strip());
            }
        }
        threads.put(name, count);
    }

    /** How many there were since an earlier look; empty where none can be seen. */
    OptionalLong since(ContextSwitches earlier) {
        if (threads.isEmpty() || earlier.threads.isEmpty()) {
            return OptionalLong.empty();
        }
        long count = 0;
        for (Map.Entry<String, Long> thread : threads.entrySet()) {
            count += thread.getValue() - earlier.threads.getOrDefault(thread.getKey(), 0L);
        }
        return OptionalLong.of(count);
    }
}
