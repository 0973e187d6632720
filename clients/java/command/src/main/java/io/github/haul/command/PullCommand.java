package io.github.haul.command;

import io.github.haul.client.HaulClient;
import io.github.haul.client.HaulException;
import io.github.haul.client.HaulUrl;
import io.github.haul.client.TransferOptions;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.Callable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Parameters;

/** {@code pull}: fetches files and directories from a server. */
@Command(
        name = "pull",
        header = "Fetches files and directories from a server",
        description = {
            "",
            "URL is what `haul serve` printed, with the path of a file or directory behind: `dir`"
                    + " fetches the directory itself, `dir/` its contents. In the path `%%25`"
                    + " stands for a %%, `%%20` for a blank.",
            "",
            "TARGET is an existing directory, a name that ends in `/`, or for a single file its new"
                    + " name. Without TARGET files come to the directory that you are in.",
            ""
        },
        customSynopsis = "java -jar haul.jar pull [OPTIONS] <URL> [TARGET]",
        mixinStandardHelpOptions = true,
        sortOptions = false,
        exitCodeListHeading = PushCommand.STATUS_HEADING,
        exitCodeList = {PushCommand.STATUS_0, PushCommand.STATUS_1, PushCommand.STATUS_2},
        footer = {"", PushCommand.ENVIRONMENT, PushCommand.TOKEN})
final class PullCommand implements Callable<Integer> {
    @Parameters(
            arity = "1..*",
            paramLabel = "<URL> [TARGET]",
            hideParamSyntax = true,
            description =
                    "haul://[TOKEN@]HOST[:PORT]/path, and last TARGET: the directory or file name;"
                            + " without it .")
    private List<String> words = List.of();

    @Mixin private TransferFlags flags = new TransferFlags();

    private final Terminal terminal;

    PullCommand(Terminal terminal) {
        this.terminal = terminal;
    }

    @Override
    public Integer call() throws Failure, InterruptedException {
        String last = words.size() == 1 ? "." : words.get(words.size() - 1);
        if (words.size() > 2 || last.startsWith("haul://")) {
            throw ProgramOnly.refuse(
                    "pull several URLs at once", "name several URLs; here pull each by itself");
        }
        if (last.equals("null:")) {
            throw ProgramOnly.refuse("pull to null:", "throw away what arrives");
        }
        HaulUrl url = Tokens.complete(words.get(0), flags.tokenFile(), System.getenv());
        Screen screen = flags.screen(terminal);
        String from = PushCommand.shown(url);
        TransferRun run = new TransferRun(screen, from, last, flags.isDryRun());
        TransferOptions options = flags.options(run.listener());
        Path target = target(last, url);
        try (HaulClient client = HaulClient.connect(url)) {
            return run.await(client.pullAsync(target, options));
        } catch (HaulException refused) {
            throw new Failure(ExitStatus.COULD_NOT_START, refused.problem());
        }
    }

    /** The target; a directory that is not there yet is made for what has a name of its own. */
    private Path target(String word, HaulUrl url) throws Failure {
        String what = "cannot pull to this target";
        String needs = "a directory or a file name";
        if (word.isEmpty()) {
            String hint = "is a variable in your script empty? Here is .";
            throw Failure.usage(what, needs, "an empty name", hint);
        }
        try {
            Path target = Path.of(word);
            boolean isOfContents = url.path().length == 0 || url.toString().endsWith("/");
            if (word.endsWith("/") && !isOfContents && !flags.isDryRun()) {
                Files.createDirectories(target);
            }
            return target;
        } catch (InvalidPathException wrong) {
            throw Failure.usage(what, needs, String.valueOf(wrong.getReason()), "");
        } catch (IOException error) {
            throw Failure.usage(what, needs, Sources.why(error), "check its name and rights");
        }
    }
}
