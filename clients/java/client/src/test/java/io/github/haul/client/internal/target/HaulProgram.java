package io.github.haul.client.internal.target;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A real {@code haul serve}, and pulls from it: the program of the property {@code haul.program}.
 */
final class HaulProgram implements AutoCloseable {
    private static final long PATIENCE_S = 60;
    private static final Pattern RESUMED =
            Pattern.compile("\"event\":\"resume\",\"bytes\":([0-9]+)");

    private final Path folder;
    private final Process server;
    private final String url;
    private String told = "";

    private HaulProgram(Path folder, Process server, String url) {
        this.folder = folder;
        this.server = server;
        this.url = url;
    }

    /** Serves a folder; without the program the test is skipped. */
    static HaulProgram serve(Path folder, Path root) throws IOException {
        assumeTrue(!program().isEmpty(), "needs the program haul, found: no -Dhaul.program");
        Process server =
                start(folder, "serve", List.of(root.toString(), "--listen", "127.0.0.1:0"));
        BufferedReader output = server.inputReader();
        for (String line = output.readLine(); line != null; line = output.readLine()) {
            if (line.strip().startsWith("haul://")) {
                return new HaulProgram(folder, server, line.strip());
            }
        }
        server.destroyForcibly();
        throw new IOException(Files.readString(folder.resolve("serve.err")));
    }

    private static String program() {
        return System.getProperty("haul.program", "");
    }

    private static Process start(Path folder, String command, List<String> words)
            throws IOException {
        List<String> all = new ArrayList<>(List.of(program(), command));
        all.addAll(words);
        ProcessBuilder builder = new ProcessBuilder(all);
        builder.environment().put("HAUL_STATE", folder.resolve("state").toString());
        builder.redirectError(folder.resolve(command + ".err").toFile());
        return builder.start();
    }

    /** Begins a pull of a name into a folder. */
    Process begin(String name, Path into, String... options) throws IOException {
        List<String> words = new ArrayList<>(List.of(options));
        words.addAll(List.of("--json", "--span-size", "64K", url + name, into + "/"));
        return start(folder, "pull", words);
    }

    /**
     * Pulls a name to its end, which must be a good one.
     *
     * @return the bytes that the program found there already
     */
    long pull(String name, Path into, String... options) throws IOException {
        Process pull = begin(name, into, options);
        told = new String(pull.getInputStream().readAllBytes());
        int status = await(pull);
        String errors = Files.readString(folder.resolve("pull.err"));
        assertTrue(status == 0, () -> told + errors);
        long resumed = 0;
        Matcher events = RESUMED.matcher(told);
        while (events.find()) {
            resumed += Long.parseLong(events.group(1));
        }
        return resumed;
    }

    /** What the last pull said. */
    String told() {
        return told;
    }

    /** Waits until a pull has said this in a line. */
    static void awaitWords(Process pull, String words) throws IOException {
        BufferedReader output = pull.inputReader();
        for (String line = output.readLine(); line != null; line = output.readLine()) {
            if (line.contains(words)) {
                return;
            }
        }
        throw new AssertionError("it ended without " + words);
    }

    /** Waits for the end of a process, which has its bound. */
    static int await(Process process) {
        try {
            if (!process.waitFor(PATIENCE_S, TimeUnit.SECONDS)) {
                process.destroyForcibly();
                throw new AssertionError("it does not end");
            }
            return process.exitValue();
        } catch (InterruptedException interrupted) {
            throw new AssertionError(interrupted);
        }
    }

    /** Waits until a pull has written this much to a file, and kills it then. */
    static void killAt(Process pull, Path file, long bytes) throws IOException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (!Files.exists(file) || Files.size(file) < bytes) {
            assertTrue(pull.isAlive() && System.nanoTime() < end, "it came to " + file);
            try {
                Thread.sleep(10);
            } catch (InterruptedException interrupted) {
                throw new AssertionError(interrupted);
            }
        }
        await(pull.destroyForcibly());
    }

    @Override
    public void close() {
        await(server.destroyForcibly());
    }
}
