package io.github.haul.command;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Standard output and standard error, in UTF-8 whatever the locale says. */
final class Terminal {
    private static final int BUFFER_BYTES = 64 << 10;

    private final PrintStream output;
    private final PrintStream errors;

    Terminal(OutputStream output, OutputStream errors) {
        this.output =
                new PrintStream(
                        new java.io.BufferedOutputStream(output, BUFFER_BYTES),
                        false,
                        StandardCharsets.UTF_8);
        this.errors = new PrintStream(errors, true, StandardCharsets.UTF_8);
    }

    /** The process's own. */
    static Terminal ofProcess() {
        return new Terminal(
                new FileOutputStream(FileDescriptor.out), new FileOutputStream(FileDescriptor.err));
    }

    /** Prints a line on standard output at once. */
    void line(String text) {
        gather(text);
        output.flush();
    }

    /** Prints a line on standard output together with the next ones. */
    void gather(String text) {
        output.print(text + "\n");
    }

    /** Prints a line on standard error, behind what was gathered. */
    void error(String words) {
        output.flush();
        errors.print("haul: " + words + "\n");
    }

    /** Prints what was gathered; false where standard output does not take it. */
    boolean finish() {
        return !output.checkError();
    }
}
