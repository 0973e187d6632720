package io.github.haul.command;

import java.io.IOException;
import java.nio.charset.StandardCharsets;

/**
 * Run of another program to its end.
 *
 * @param status the exit status
 * @param said all that it printed
 */
record ProgramRun(int status, String said) {
    /** Starts a program, and waits for it; one that is interrupted ends it. */
    static ProgramRun of(ProcessBuilder builder) throws IOException, InterruptedException {
        Process process = builder.redirectErrorStream(true).start();
        String said;
        try {
            said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        } finally {
            process.destroy();
        }
        return new ProgramRun(process.waitFor(), said);
    }
}
