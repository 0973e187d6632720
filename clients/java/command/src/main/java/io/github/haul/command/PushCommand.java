package io.github.haul.command;

import io.github.haul.client.HaulClient;
import io.github.haul.client.HaulUrl;
import io.github.haul.client.TransferOptions;
import java.nio.file.Path;
import java.util.List;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Parameters;

/** {@code push}: sends files and directories to a server. */
@Command(
        name = "push",
        header = "Sends files and directories to a server",
        description = {
            "",
            "SOURCE is a file, `dir` (the directory itself) or `dir/` (its contents).",
            "",
            "URL is what `haul serve` printed, with a path behind: `dir/` puts the sources into"
                    + " that directory, `name` gives a single file that name, `null:` throws"
                    + " everything away at the other side. In the path `%%25` stands for a %%,"
                    + " `%%20` for a blank.",
            ""
        },
        customSynopsis = "java -jar haul.jar push [OPTIONS] <SOURCE>... <URL>")
final class PushCommand extends TransferCommand {
    @Parameters(
            arity = "1..*",
            paramLabel = "<SOURCE>... <URL>",
            hideParamSyntax = true,
            description = "Files, `dir` or `dir/`, and last URL: haul://[TOKEN@]HOST[:PORT]/dir/")
    private List<String> words = List.of();

    PushCommand(Terminal terminal) {
        super(terminal);
    }

    @Override
    public Integer call() throws Failure, InterruptedException {
        List<String> named = words.subList(0, words.size() - 1);
        String last = words.get(words.size() - 1);
        check(named, last);
        HaulUrl url = Tokens.complete(last, flags.tokenFile(), System.getenv());
        List<Path> sources = Sources.parse(named);
        Screen screen = flags.screen(terminal);
        TransferRun run = new TransferRun(screen, from(named), to(named, url), flags.isDryRun());
        TransferOptions options = flags.options(run.listener());
        try (HaulClient client = HaulClient.connect(url)) {
            return run.await(client.pushAsync(sources, options));
        }
    }

    private static void check(List<String> sources, String last) throws Failure {
        if (!sources.isEmpty()) {
            return;
        }
        throw last.startsWith("haul://")
                ? Failure.usage(
                        "nothing to push",
                        "a source",
                        "a URL alone",
                        "name files or directories before it: push SOURCE URL")
                : Failure.usage(
                        "no place to push to",
                        "a URL",
                        "a source alone",
                        "put the URL that haul serve printed last: push SOURCE URL/dir/");
    }

    private static String from(List<String> sources) {
        int more = sources.size() - 1;
        return sources.get(0) + (more > 0 ? " and " + more + " more" : "");
    }

    /** The place of the sources: below a path that ends in a slash, a single one has its name. */
    private static String to(List<String> sources, HaulUrl url) {
        String place = shown(url);
        @Nullable Path name = Path.of(sources.get(0)).getFileName();
        boolean hasName =
                sources.size() == 1 && name != null && !sources.get(0).matches("(?s).*(/|/?\\.)");
        return hasName && place.endsWith("/") ? place + name : place;
    }
}
