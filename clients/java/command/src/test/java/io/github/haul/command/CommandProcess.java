package io.github.haul.command;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * The command as a process of its own: the classes of this build, or the jar that the system
 * property {@code haul.jar} names.
 *
 * @param status its exit status
 * @param output what it printed on standard output
 * @param errors what it printed on standard error
 */
record CommandProcess(int status, String output, String errors) {
    private static final long PATIENCE_S = 120;

    /** The heap that any transfer has to do with: its files are larger, or many. */
    private static final String HEAP = "-Xmx64m";

    /** Runs a command line in a directory to its end. */
    static CommandProcess run(Path directory, String... words)
            throws IOException, InterruptedException {
        return run(directory, Map.of(), words);
    }

    /** Runs a command line with these variables of the environment. */
    static CommandProcess run(Path directory, Map<String, String> environment, String... words)
            throws IOException, InterruptedException {
        Path output = Files.createTempFile(directory, "stdout", "");
        Path errors = Files.createTempFile(directory, "stderr", "");
        ProcessBuilder builder = builder(directory, words);
        builder.environment().putAll(environment);
        builder.redirectOutput(output.toFile()).redirectError(errors.toFile());
        Process process = builder.start();
        try {
            if (!process.waitFor(PATIENCE_S, TimeUnit.SECONDS)) {
                throw new IOException(
                        "the command does not end: "
                                + builder.command()
                                + Files.readString(errors));
            }
            return new CommandProcess(
                    process.exitValue(), Files.readString(output), Files.readString(errors));
        } finally {
            process.destroyForcibly();
            Files.delete(output);
            Files.delete(errors);
        }
    }

    /** Starts a command line; what it prints on standard error goes into a file. */
    static Process start(Path directory, Path errors, String... words) throws IOException {
        return builder(directory, words).redirectError(errors.toFile()).start();
    }

    private static ProcessBuilder builder(Path directory, String... words) {
        Path java = Path.of(System.getProperty("java.home"), "bin", "java");
        List<String> command = new ArrayList<>(List.of(java.toString(), HEAP));
        String jar = System.getProperty("haul.jar", "");
        if (jar.isEmpty()) {
            String classes = System.getProperty("java.class.path");
            command.addAll(List.of("-cp", classes, Main.class.getName()));
        } else {
            command.addAll(List.of("-jar", jar));
        }
        command.addAll(List.of(words));
        ProcessBuilder builder = new ProcessBuilder(command).directory(directory.toFile());
        builder.environment().remove("HAUL_TOKEN");
        return builder;
    }

    /** The lines of {@code --json}, each of which is an object. */
    List<JsonNode> events() throws IOException {
        ObjectMapper mapper = new ObjectMapper();
        List<JsonNode> events = new ArrayList<>();
        for (String line : output.lines().toList()) {
            events.add(mapper.readTree(line));
        }
        return events;
    }

    /** The only event of this name. */
    JsonNode event(String name) throws IOException {
        List<JsonNode> named =
                events().stream().filter(one -> one.path("event").asText().equals(name)).toList();
        if (named.size() != 1) {
            throw new IOException(named.size() + " events " + name + ": " + output + errors);
        }
        return named.get(0);
    }
}
