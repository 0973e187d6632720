package io.github.haul.command;

import io.github.haul.client.Problem;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.List;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.IVersionProvider;
import picocli.CommandLine.ParameterException;

/** The program of {@code haul.jar}: it runs a command line and ends with its exit status. */
public final class Main {
    private Main() {}

    /**
     * Runs a command line.
     *
     * @param words the command and its options
     */
    public static void main(String[] words) {
        Terminal terminal = Terminal.ofProcess();
        int status = run(terminal, words);
        boolean isWritten = terminal.finish();
        boolean isCutShort = status == ExitStatus.ALL_DONE && !isWritten;
        System.exit(isCutShort ? ExitStatus.SOME_FAILED : status);
    }

    /** Runs a command line to its end and returns the exit status. */
    static int run(Terminal terminal, String... words) {
        boolean isJson = List.of(words).contains("--json");
        CommandLine line = line(terminal);
        StringWriter help = new StringWriter();
        line.setOut(new PrintWriter(help));
        line.setParameterExceptionHandler((wrong, given) -> usage(terminal, wrong, given));
        line.setExecutionExceptionHandler(
                (error, command, result) -> {
                    if (error instanceof Failure failure) {
                        return show(terminal, failure, isJson);
                    }
                    throw error;
                });
        int status = line.execute(words);
        if (!help.toString().isEmpty()) {
            terminal.line(help.toString().stripTrailing());
        }
        return status;
    }

    private static CommandLine line(Terminal terminal) {
        return new CommandLine(new Top())
                .addSubcommand(new PushCommand(terminal))
                .addSubcommand(new PullCommand(terminal))
                .addSubcommand(new BenchCommand(terminal))
                .setExpandAtFiles(false)
                .setUsageHelpWidth(100)
                .setColorScheme(CommandLine.Help.defaultColorScheme(CommandLine.Help.Ansi.OFF));
    }

    private static int show(Terminal terminal, Failure failure, boolean isJson) {
        terminal.error(ProblemText.of(failure.problem()));
        if (isJson) {
            terminal.line(JsonScreen.event(failure.problem()).toString());
        }
        return failure.status();
    }

    private static int usage(Terminal terminal, ParameterException wrong, String... words) {
        boolean isJson = List.of(words).contains("--json");
        @Nullable Failure refusal = ProgramOnly.find(List.of(words));
        if (refusal != null) {
            return show(terminal, refusal, isJson);
        }
        // A token among the words is not for eyes.
        String said =
                String.valueOf(wrong.getMessage()).replaceAll("haul://[^/\\s]*@", "haul://...@");
        String name = wrong.getCommandLine().getCommandName();
        String command = name.equals("haul") ? "" : name + " ";
        String hint = "`java -jar haul.jar " + command + "--help` lists the options";
        Problem problem = new Problem("", "", "", "cannot read the command line", "", said, hint);
        return show(terminal, new Failure(ExitStatus.COULD_NOT_START, problem), isJson);
    }

    /** The command without a word: it shows its help. */
    @Command(
            name = "haul",
            header = "Moves files to haul servers, and proves that every byte arrived",
            customSynopsis = "java -jar haul.jar <COMMAND>",
            mixinStandardHelpOptions = true,
            versionProvider = Version.class)
    private static final class Top implements Runnable {
        @CommandLine.Spec private CommandLine.Model.@Nullable CommandSpec spec;

        @Override
        public void run() {
            CommandLine line = java.util.Objects.requireNonNull(spec).commandLine();
            throw new ParameterException(line, "a command is missing");
        }
    }

    /** The version of the jar. */
    static final class Version implements IVersionProvider {
        @Override
        public String[] getVersion() {
            String version = Main.class.getPackage().getImplementationVersion();
            return new String[] {"haul-java " + (version == null ? "not packaged" : version)};
        }
    }
}
