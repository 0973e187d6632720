package io.github.haul.command;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

/**
 * Run of another program to its end.
 *
 * @param status the exit status
 * @param said all that it printed
 */
record ProgramRun(int status, String said) {
    /** Starts a program with these variables besides, and waits for its end. */
    static ProgramRun of(List<String> command, Map<String, String> variables)
            throws IOException, InterruptedException {
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        builder.environment().putAll(variables);
        Process process = builder.start();
        String said;
        try {
            said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        } finally {
            process.destroy();
        }
        return new ProgramRun(process.waitFor(), said);
    }
}
