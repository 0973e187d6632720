package io.github.haul.command;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.github.haul.client.Problem;
import java.io.ByteArrayOutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Command lines that start nothing. */
final class MainTest {
    @TempDir Path folder;

    private static CommandProcess run(String... words) {
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        Terminal terminal = new Terminal(output, errors);
        int status = Main.run(terminal, words);
        assertTrue(terminal.finish());
        return new CommandProcess(
                status,
                output.toString(StandardCharsets.UTF_8),
                errors.toString(StandardCharsets.UTF_8));
    }

    @Test
    void theProcessEndsWithTheStatusOfItsCommandLine() throws Exception {
        CommandProcess unknown = CommandProcess.run(folder, "push", "--nonsense", "a", "haul://h");
        assertEquals(2, unknown.status());
        assertTrue(unknown.errors().contains("'--nonsense'"), unknown.errors());
        assertEquals("", unknown.output());
        CommandProcess help = CommandProcess.run(folder, "push", "--help");
        assertEquals(0, help.status(), help.errors());
        assertTrue(help.output().contains("push [OPTIONS] <SOURCE>... <URL>"), help.output());
    }

    @Test
    void aSignalEndsATransferWithTheStatusOfABrokenOne() throws Exception {
        try (ServerSocket silent = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            String url = "haul://" + TOKEN + "@127.0.0.1:" + silent.getLocalPort() + "/";
            Path errors = folder.resolve("errors");
            Process push = CommandProcess.start(folder, errors, "push", ".", url);
            try (Socket connection = silent.accept()) {
                assumeTrue(push.supportsNormalTermination(), "needs a system with signals");
                // The transfer has begun once TLS says its first word.
                assertTrue(connection.getInputStream().read() >= 0);
                push.destroy();
                assertTrue(push.waitFor(60, TimeUnit.SECONDS), "the command ends");
                assertEquals(1, push.exitValue());
                String words = "haul: interrupted. Run the same command to go on.\n";
                assertEquals(words, Files.readString(errors));
            } finally {
                push.destroyForcibly();
            }
        }
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "--follow",
                "--watch",
                "--move",
                "--delete",
                "--exclude=*.tmp",
                "--manifest",
                "--fabric",
                "--bwlimit",
                "--send-engine",
                "--wait",
                "--digest"
            })
    void anOptionOfTheProgramAloneIsRefusedByName(String option) {
        CommandProcess refused = run("push", option, "a", "haul://h/", "--json");
        assertEquals(2, refused.status());
        String name = option.split("=")[0];
        assertTrue(
                refused.errors()
                        .startsWith("haul: the JVM client cannot take " + name + ". The program"),
                refused.errors());
        assertTrue(refused.output().contains("\"event\":\"error\""));
    }

    @ParameterizedTest
    @ValueSource(strings = {"push", "pull"})
    void eachOptionOfTheProgramIsTakenOrRefusedByName(String command) throws Exception {
        String program = System.getProperty("haul.program", "");
        assumeTrue(!program.isEmpty());
        String help = ProgramRun.of(List.of(program, command, "--help"), Map.of()).said();
        List<String> options =
                Pattern.compile("(?m)^ +(?:-\\w, )?(--[a-z0-9-]+)")
                        .matcher(help)
                        .results()
                        .map(found -> found.group(1))
                        .distinct()
                        .toList();
        assertTrue(options.containsAll(List.of("--from0", "--streams", "--part")), help);
        for (String option : options) {
            String errors = run(command, "a", "haul://h/", option).errors();
            assertFalse(errors.contains("Unknown option"), errors);
        }
    }

    @Test
    void ownersAndZerosAreRefusedByName() {
        for (String word : new String[] {"owner", "group", "xattrs", "acls", "all"}) {
            CommandProcess refused =
                    run("push", "--preserve", "mode," + word, ".", "haul://" + TOKEN + "@h/");
            assertEquals(2, refused.status());
            assertTrue(refused.errors().contains("--preserve " + word), refused.errors());
        }
        CommandProcess zeros = run("push", "zero:1G", "haul://" + TOKEN + "@h/");
        assertTrue(zeros.errors().contains("cannot push zero:SIZE"), zeros.errors());
    }

    private static final String TOKEN = "ae" + "a".repeat(51);

    @ParameterizedTest
    @CsvSource({
        "push haul://h/, needs a source",
        "push a, needs a URL",
        "push a b, no haul:// in front",
        "push, Missing required parameter",
        "push haul://h/a haul://h/b, no token",
        "push . haul://h/ --streams 65, streams are 1 to 64",
        "push . haul://h/ --span-size 3M, a power of two",
        "push a haul://h/ --protection private, the JVM client cannot encrypt data",
        "push a haul://h/ --protection none, is none of clear",
        "push a haul://h/ --on-conflict ask, keep-both",
        "push a haul://h/ --retry-for soon, is not a duration",
        "push . haul://h/ --stall-timeout 0s, needs some time",
        "push a haul://h/100%, %25",
        "push a haul://secret@h/, the token is damaged",
        "push a haul://h/ --token-file nowhere, no such file",
        "get haul://h/a, get",
        "'', a command is missing"
    })
    void whatMakesNoSenseIsRefusedInWords(String line, String says) {
        String text = line.replace(". haul://h/", ". haul://" + TOKEN + "@h/");
        CommandProcess refused = run(text.isEmpty() ? new String[0] : text.split(" "));
        assertEquals(2, refused.status());
        assertTrue(refused.errors().startsWith("haul: "), refused.errors());
        assertTrue(refused.errors().contains(says), refused.errors());
        assertFalse(refused.errors().contains("secret") || refused.errors().contains(TOKEN));
    }

    @Test
    void aTokenAmongTheWordsIsNotRepeatedAndOneOfTwoIsRefused() {
        String url = "haul://" + TOKEN + "@h/";
        CommandProcess wrong = run("push", ".", url, "--json", "--streams", url);
        assertEquals(2, wrong.status());
        assertTrue(wrong.errors().contains("haul://...@h/"), wrong.errors());
        assertFalse((wrong.output() + wrong.errors()).contains(TOKEN));
        CommandProcess two = run("push", ".", url, "--token-file", "nowhere");
        assertEquals(2, two.status());
        assertTrue(two.errors().contains("found another in the URL"), two.errors());
    }

    @Test
    void theDocumentHasTheHelpAsItIs() throws Exception {
        String page = Files.readString(Path.of("../../../docs/java.md"));
        String help = run("push", "--help").output();
        assertTrue(page.contains(help.replaceAll("(?m)^(?=.)", "    ")), help);
    }

    @Test
    void aPullOfTwoServersOrReadBackFromNowhereIsRefused() throws Exception {
        String first = "haul://" + TOKEN + "@h/a";
        CommandProcess two = run("pull", first, "haul://other/b", "place/");
        assertEquals(2, two.status());
        assertTrue(
                two.errors().contains("URLs of one server and token, found haul://h:7117/a and"),
                two.errors());
        assertFalse(two.errors().contains(TOKEN));
        CommandProcess nowhere = run("pull", first, "null:", "--verify-target");
        assertEquals(2, nowhere.status());
        assertTrue(nowhere.errors().contains("cannot read the target back"), nowhere.errors());
    }

    @Test
    void theDocumentsProgramIsTheOneThatIsCompiled() throws Exception {
        String page = Files.readString(Path.of("../../../docs/java.md"));
        String program = Files.readString(Path.of("../examples/src/main/java/Push.java"));
        assertTrue(page.contains("```java\n" + program + "```\n"), program);
        assertTrue(program.lines().count() <= 10, "a push takes ten lines at most: " + program);
    }

    @Test
    void theLibraryLogsNothingAsTheDocumentSays() throws Exception {
        String page = Files.readString(Path.of("../../../docs/java.md"));
        assertTrue(page.contains("The library logs nothing"), page);
        Pattern log =
                Pattern.compile("(?m)^(?! *(//|\\*)).*(Logger|slf4j|System\\.(out|err)\\b).*");
        try (Stream<Path> all = Files.walk(Path.of("../client/src/main/java"))) {
            List<Path> sources = all.filter(one -> one.toString().endsWith(".java")).toList();
            assertTrue(sources.size() > 50, "the library's sources are there: " + sources);
            for (Path source : sources) {
                Matcher found = log.matcher(Files.readString(source));
                assertFalse(found.find(), () -> source + ": " + found.group());
            }
        }
    }

    @Test
    void problemsReadAsTheProgramPrintsThem() {
        Problem whole = new Problem("", "source", "a", "tried", "this", "that", "do it");
        assertEquals("source: a: tried: needs this, found that. Do it.", ProblemText.of(whole));
        Problem found = new Problem("", "path", "", "tried", "", "that.", "haul serve does");
        assertEquals("network: tried: that. haul serve does.", ProblemText.of(found));
    }

    @Test
    void amountsAreThoseOfTheProgram() {
        assertEquals(8 << 20, Amounts.size("8M"));
        assertEquals(1536, Amounts.size("1.5kib"));
        assertEquals(4096, Amounts.size("4096"));
        assertEquals(Duration.ofMillis(90_000), Amounts.time("1.5m"));
        assertEquals(Duration.ofSeconds(10), Amounts.time("10"));
        assertEquals("1023 B", Amounts.bytes(1023));
        assertEquals("1.50 KiB", Amounts.bytes(1536));
        assertEquals("1.00 GiB", Amounts.bytes((1 << 30) - 1));
        assertEquals("19.8 Gbit/s", Amounts.rate(19.8));
        assertEquals("3 min 20 s", Amounts.time(200));
    }

    @Test
    void everyTextBecomesJson() throws Exception {
        String text = "\"\\\n\t\u0001 \u20ac \ud83d\ude00";
        String line = new Json().put("a", text).put("b", 0.0 / 0).put("c", 1L).toString();
        JsonNode read = new ObjectMapper().readTree(line);
        assertEquals(text, read.path("a").asText());
        assertTrue(read.path("b").isNull());
        assertEquals(1, read.path("c").asInt());
    }
}
