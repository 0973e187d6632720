package io.github.haul.client.internal.net;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.github.haul.client.HaulUrl;
import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/** A real {@code haul serve}: the program of the system property {@code haul.program}. */
final class HaulServer implements AutoCloseable {
    private static final long PATIENCE_S = 10;

    private final Process process;
    private final HaulUrl url;

    private HaulServer(Process process, HaulUrl url) {
        this.process = process;
        this.url = url;
    }

    /** Starts a server with this root; without the program the test is skipped. */
    static HaulServer start(Path folder, Path root) throws IOException {
        String program = System.getProperty("haul.program", "");
        assumeTrue(!program.isEmpty(), "needs the program haul, found: no -Dhaul.program");
        Path state = Files.createDirectories(folder.resolve("state"));
        ProcessBuilder builder =
                new ProcessBuilder(program, "serve", root.toString(), "--listen", "127.0.0.1:0");
        builder.environment().put("HAUL_STATE_DIR", state.toString());
        builder.redirectError(folder.resolve("stderr").toFile());
        Process process = builder.start();
        try {
            BufferedReader output = process.inputReader();
            for (String line = output.readLine(); line != null; line = output.readLine()) {
                if (line.strip().startsWith("haul://")) {
                    return new HaulServer(process, HaulUrl.parse(line.strip()));
                }
            }
            throw new IOException(
                    "haul serve printed no URL: " + Files.readString(folder.resolve("stderr")));
        } catch (IOException | RuntimeException failed) {
            process.destroyForcibly();
            throw failed;
        }
    }

    HaulUrl url() {
        return url;
    }

    /** Ends the server and waits until it is gone. */
    void end() {
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
