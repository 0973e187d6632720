package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.protobuf.ByteString;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** A JVM of its own that runs a main class of the tests with the client. */
final class ChildJvm {
    private static final long PATIENCE_S = 120;

    private ChildJvm() {}

    /** The class path of the client, its tests, and what both need at run time. */
    static String classPath() {
        return Stream.of(ChildJvm.class, HaulClient.class, ByteString.class)
                .map(it -> it.getProtectionDomain().getCodeSource().getLocation().getPath())
                .distinct()
                .collect(Collectors.joining(File.pathSeparator));
    }

    /** A command line that runs a main class, with options of the JVM before it. */
    static List<String> command(List<String> options, Class<?> main, List<String> arguments) {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(options);
        if (!options.contains("-cp")) {
            command.addAll(List.of("-cp", classPath()));
        }
        command.add(main.getName());
        command.addAll(arguments);
        return command;
    }

    /** Runs a command line to its end, which must be a good one; returns what it printed. */
    static String run(Path folder, List<String> command) throws IOException, InterruptedException {
        Path said = Files.createTempFile(folder, "child", "");
        Process process;
        try {
            process =
                    new ProcessBuilder(command)
                            .redirectErrorStream(true)
                            .redirectOutput(said.toFile())
                            .start();
        } catch (IOException missing) {
            assumeTrue(false, "needs " + command.get(0) + ", found: " + missing.getMessage());
            throw missing;
        }
        try {
            boolean isOver = process.waitFor(PATIENCE_S, TimeUnit.SECONDS);
            String words = Files.readString(said);
            assertTrue(isOver, "it does not end: " + words);
            assumeTrue(!words.contains("ptrace"), "needs to trace, found: " + words);
            assertEquals(0, process.exitValue(), words);
            return words;
        } finally {
            process.destroyForcibly();
        }
    }
}
