package io.github.haul.command;

import io.github.haul.client.HaulClient;
import io.github.haul.client.HaulException;
import io.github.haul.client.HaulToken;
import io.github.haul.client.HaulUrl;
import io.github.haul.client.TransferOptions;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
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
                    + " name, or `null:` to throw away what arrives. Without TARGET files come to"
                    + " the directory that you are in.",
            ""
        },
        customSynopsis = "java -jar haul.jar pull [OPTIONS] <URL>... [TARGET]")
final class PullCommand extends TransferCommand {
    @Parameters(
            arity = "1..*",
            paramLabel = "<URL>... [TARGET]",
            hideParamSyntax = true,
            description =
                    "haul://[TOKEN@]HOST[:PORT]/path, several of one server, and last TARGET: the"
                            + " directory, file name or `null:`; without it .")
    private List<String> words = List.of();

    PullCommand(Terminal terminal) {
        super(terminal);
    }

    @Override
    public Integer call() throws Failure, InterruptedException {
        String last = words.get(words.size() - 1);
        boolean hasTarget = words.size() > 1 && !last.startsWith("haul://");
        String place = hasTarget ? last : ".";
        List<HaulUrl> urls = urls(hasTarget ? words.subList(0, words.size() - 1) : words);
        HaulUrl first = urls.get(0);
        Screen screen = flags.screen(terminal);
        int more = urls.size() - 1;
        String from = shown(first) + (more > 0 ? " and " + more + " more" : "");
        TransferRun run = new TransferRun(screen, from, place, flags.isDryRun());
        TransferOptions options = flags.options(run.listener());
        @Nullable Path target = place.equals("null:") ? null : target(place, urls);
        try (HaulClient client = HaulClient.connect(first)) {
            return run.await(client.pullAsync(urls, target, options));
        } catch (HaulException refused) {
            throw new Failure(ExitStatus.COULD_NOT_START, refused.problem());
        }
    }

    /** Reads the URLs, which are of one server; a token in the first is that of all. */
    private List<HaulUrl> urls(List<String> words) throws Failure {
        List<HaulUrl> urls = new ArrayList<>();
        HaulUrl first = Tokens.complete(words.get(0), flags.tokenFile(), System.getenv());
        urls.add(first);
        for (String word : words.subList(1, words.size())) {
            HaulUrl url = Tokens.parse(word);
            boolean isSame = url.host().equals(first.host()) && url.port() == first.port();
            HaulToken token = url.token();
            HaulToken known = first.token();
            boolean hasOther =
                    token != null && known != null && !token.reveal().equals(known.reveal());
            if (!isSame || hasOther) {
                throw Failure.usage(
                        "one pull fetches from one server",
                        "URLs of one server and token",
                        shown(first) + " and " + shown(url),
                        "pull from the other server by a command of its own");
            }
            urls.add(url);
        }
        return urls;
    }

    /** The target; a directory that is not there yet is made for what has a name of its own. */
    private Path target(String word, List<HaulUrl> urls) throws Failure {
        String what = "cannot pull to this target";
        String needs = "a directory, a file name or null:";
        if (word.isEmpty()) {
            String hint = "is a variable in your script empty? Here is .";
            throw Failure.usage(what, needs, "an empty name", hint);
        }
        try {
            Path target = Path.of(word);
            HaulUrl url = urls.get(0);
            boolean isOfContents = url.path().length == 0 || url.toString().endsWith("/");
            boolean isOfOne = urls.size() == 1 && !isOfContents;
            if (word.endsWith("/") && isOfOne && !flags.isDryRun()) {
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
