package io.github.haul.client;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A real {@code haul serve}: the program of the system property {@code haul.program}. */
public final class HaulServer implements AutoCloseable {
    private static final long PATIENCE_S = 10;

    private final Path folder;
    private final Process process;
    private final BufferedReader output;
    private final String url;

    private HaulServer(Path folder, Process process, BufferedReader output, String url) {
        this.folder = folder;
        this.process = process;
        this.output = output;
        this.url = url;
    }

    /** Starts a server with this root; without the program the test is skipped. */
    public static HaulServer start(Path folder, Path root, String... options) throws IOException {
        String program = System.getProperty("haul.program", "");
        assumeTrue(!program.isEmpty(), "needs the program haul, found: no -Dhaul.program");
        Path state = folder.resolve("state");
        List<String> command = new ArrayList<>(List.of(program, "serve", root.toString()));
        if (!List.of(options).contains("--listen")) {
            command.addAll(List.of("--listen", "127.0.0.1:0"));
        }
        command.addAll(List.of(options));
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.environment().put("HAUL_STATE", state.toString());
        builder.redirectError(folder.resolve("stderr").toFile());
        Process process = builder.start();
        try {
            BufferedReader output = process.inputReader();
            for (String line = output.readLine(); line != null; line = output.readLine()) {
                if (line.strip().startsWith("haul://")) {
                    return new HaulServer(folder, process, output, line.strip());
                }
            }
            throw new IOException(
                    "haul serve printed no URL: " + Files.readString(folder.resolve("stderr")));
        } catch (IOException | RuntimeException failed) {
            process.destroyForcibly();
            throw failed;
        }
    }

    public HaulUrl url() {
        return HaulUrl.parse(url);
    }

    /** Starts the program with other arguments; what it prints goes to a file. */
    public static Process program(Path output, String... arguments) throws IOException {
        String program = System.getProperty("haul.program", "");
        assumeTrue(!program.isEmpty(), "needs the program haul, found: no -Dhaul.program");
        List<String> command = new ArrayList<>(List.of(program));
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectOutput(output.toFile())
                .start();
    }

    /** Its URL, with a path below its root. */
    public String url(String path) {
        return (url.endsWith("/") ? url : url + "/") + path;
    }

    /** Its URL with a token that has these rights alone, as {@code --list}. */
    public String urlWith(String... rights) throws IOException {
        List<String> words = new ArrayList<>(List.of("token", "new", "--host", "127.0.0.1"));
        words.addAll(List.of("--port", String.valueOf(url().port())));
        words.addAll(List.of("--state", folder.resolve("state").toString()));
        words.addAll(List.of(rights));
        Path output = folder.resolve("token.out");
        program(output, words.toArray(String[]::new)).onExit().join();
        return Files.readAllLines(output).stream()
                .map(String::strip)
                .filter(line -> line.contains("haul://"))
                .map(line -> line.substring(line.indexOf("haul://")))
                .findFirst()
                .orElseThrow(() -> new IOException("haul token printed no URL"));
    }

    /** What it says of its sessions, up to the line that has these words for the given time. */
    public String saidUntil(String words, int times) throws IOException {
        StringBuilder said = new StringBuilder();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(3 * PATIENCE_S);
        for (int seen = 0; seen < times; ) {
            while (!output.ready()) {
                if (System.nanoTime() > end) {
                    throw new IOException("it says no more than: " + said);
                }
                Thread.onSpinWait();
            }
            String line = output.readLine();
            said.append(line).append('\n');
            seen += line.contains(words) ? 1 : 0;
        }
        return said.toString();
    }

    /** The process, to be killed. */
    public Process process() {
        return process;
    }

    /** Ends the server and waits until it is gone. */
    public void end() {
        process.destroy();
        if (!process.onExit()
                .completeOnTimeout(process, PATIENCE_S, TimeUnit.SECONDS)
                .join()
                .isAlive()) {
            return;
        }
        process.destroyForcibly().onExit().join();
    }

    @Override
    public void close() {
        end();
    }
}
