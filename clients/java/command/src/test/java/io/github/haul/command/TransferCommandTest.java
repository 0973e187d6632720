package io.github.haul.command;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import io.github.haul.client.HaulServer;
import io.github.haul.client.HaulToken;
import io.github.haul.client.HaulUrl;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Pushes and pulls by the command, started as a process, to the real server. */
final class TransferCommandTest {
    @TempDir Path folder;
    private Path root = Path.of("");
    private Path here = Path.of("");

    @BeforeEach
    void makeFolders() throws IOException {
        root = Files.createDirectories(folder.resolve("root"));
        here = Files.createDirectories(folder.resolve("here"));
    }

    private byte[] file(String name, int bytes) throws IOException {
        byte[] content = new byte[bytes];
        new Random(bytes).nextBytes(content);
        Files.createDirectories(Objects.requireNonNull(here.resolve(name).getParent()));
        Files.write(here.resolve(name), content);
        return content;
    }

    private static String token(HaulServer server) {
        return Objects.requireNonNull(server.url().token()).reveal();
    }

    private static String without(HaulServer server, String path) {
        return server.url(path).replace(token(server) + "@", "");
    }

    @Test
    void aFileArrivesWholeAndTheReportSaysSo() throws Exception {
        byte[] content = file("film", 3_000_001);
        try (HaulServer server = HaulServer.start(folder, root)) {
            CommandProcess push =
                    CommandProcess.run(
                            here,
                            "push",
                            "film",
                            "--protection=clear",
                            "--streams",
                            "2",
                            "--span-size",
                            "1M",
                            server.url("copy"));
            assertEquals(0, push.status(), push.errors());
            assertArrayEquals(content, Files.readAllBytes(root.resolve("copy")));
            assertTrue(push.output().contains("complete and verified: 2.86 MiB in"));
            assertTrue(push.output().contains("every span by crc32c"), push.output());
            assertFalse((push.output() + push.errors()).contains(token(server)));
        }
    }

    @Test
    void theReportSaysWhichProviderComputedTheDigestsOfSafe() throws Exception {
        file("film", 300_001);
        try (HaulServer server = HaulServer.start(folder, root)) {
            String[] words = {"push", "film", "--protection=safe", server.url("copy")};
            CommandProcess told = CommandProcess.run(here, words);
            assertEquals(0, told.status(), told.errors());
            String spans = "every span by aes-gmac by SunJCE (safe: ";
            assertTrue(told.output().contains(spans), told.output());
            String[] again = {"push", "film", "--json", "--protection=safe", server.url("other")};
            JsonNode report = CommandProcess.run(here, again).event("report");
            assertEquals("aes-gmac by SunJCE", report.path("digest").asText());
        }
    }

    @Test
    void aFileOfFiveTimesTheHeapGoesBothWays() throws Exception {
        Path large = here.resolve("large");
        byte[] piece = new byte[1 << 20];
        Random random = new Random(320);
        try (OutputStream output = Files.newOutputStream(large)) {
            for (int pieces = 0; pieces < 320; pieces++) {
                random.nextBytes(piece);
                output.write(piece);
            }
        }
        try (HaulServer server = HaulServer.start(folder, root)) {
            CommandProcess push = CommandProcess.run(here, "push", "large", server.url("there"));
            assertEquals(0, push.status(), push.errors());
            CommandProcess pull = CommandProcess.run(here, "pull", server.url("there"), "back");
            assertEquals(0, pull.status(), pull.errors());
        }
        assertEquals(-1, Files.mismatch(large, root.resolve("there")));
        assertEquals(-1, Files.mismatch(large, here.resolve("back")));
    }

    @Test
    void nothingIsCalledThatNewerJdksWarnOf() throws Exception {
        file("a", 100);
        Path loaded = folder.resolve("loaded");
        Map<String, String> log = Map.of("JDK_JAVA_OPTIONS", "-Xlog:class+load:file=" + loaded);
        try (HaulServer server = HaulServer.start(folder, root)) {
            CommandProcess push = CommandProcess.run(here, log, "push", "a", server.url(""));
            assertEquals(0, push.status(), push.errors());
            String classes = Files.readString(loaded);
            assertTrue(classes.contains(" com.google.protobuf.ByteString "), "what was loaded");
            // A warning on standard error from JDK 24 on, an error some day (JEP 498).
            assertFalse(classes.contains(" sun.misc.Unsafe "), "sun.misc.Unsafe was loaded");
        }
    }

    @Test
    void aSlashAtTheEndSendsTheContentsOfADirectory() throws Exception {
        file("run7/a", 10);
        file("run7/deep/b", 20);
        try (HaulServer server = HaulServer.start(folder, root)) {
            CommandProcess contents =
                    CommandProcess.run(here, "push", "run7/", server.url("bare"), "-q");
            assertEquals(0, contents.status(), contents.errors());
            assertEquals("", contents.output() + contents.errors());
            assertTrue(Files.exists(root.resolve("bare/deep/b")));
            CommandProcess whole = CommandProcess.run(here, "push", "run7", server.url("named/"));
            assertEquals(0, whole.status(), whole.errors());
            assertTrue(Files.exists(root.resolve("named/run7/a")));
        }
    }

    @Test
    void theTokenComesFromTheEnvironmentOrAFile() throws Exception {
        file("a", 10);
        try (HaulServer server = HaulServer.start(folder, root)) {
            String bare = without(server, "");
            assertFalse(bare.contains("@"));
            CommandProcess none = CommandProcess.run(here, "push", "a", bare);
            assertEquals(2, none.status());
            assertTrue(
                    none.errors().startsWith("haul: the URL has no token: needs one in the URL"));
            Map<String, String> environment = Map.of("HAUL_TOKEN", token(server));
            CommandProcess variable = CommandProcess.run(here, environment, "push", "a", bare);
            assertEquals(0, variable.status(), variable.errors());
            Path tokenFile = Files.writeString(folder.resolve("token"), token(server) + "\n");
            String[] words = {"push", "a", bare, "--token-file", tokenFile.toString()};
            assertEquals(0, CommandProcess.run(here, words).status());
        }
    }

    /** A token whose secret is another one than the server's; the key that it names is right. */
    private static String wrongToken(HaulServer server) {
        String text = token(server);
        int at = 8;
        String other = text.charAt(at) == 'a' ? "b" : "a";
        return HaulToken.parse(text.substring(0, at) + other + text.substring(at + 1)).reveal();
    }

    @Test
    void aWrongTokenIsRefusedAndNeverShown() throws Exception {
        file("a", 10);
        try (HaulServer server = HaulServer.start(folder, root)) {
            String wrong = wrongToken(server);
            CommandProcess push =
                    CommandProcess.run(
                            here,
                            "push",
                            "--json",
                            "a",
                            server.url("").replace(token(server), wrong));
            assertEquals(2, push.status(), push.output());
            assertTrue(push.errors().startsWith("haul: "), push.errors());
            assertTrue(push.errors().contains("token"), push.errors());
            assertTrue(push.event("error").path("what").asText().contains("token"));
            assertFalse((push.output() + push.errors()).contains(wrong));
            assertFalse(Files.exists(root.resolve("a")));
        }
    }

    @Test
    void aMissingSourceAloneLetsNothingStartAndBesideOthersFails() throws Exception {
        file("good", 10);
        try (HaulServer server = HaulServer.start(folder, root)) {
            CommandProcess alone = CommandProcess.run(here, "push", "missing", server.url(""));
            assertEquals(2, alone.status());
            assertEquals(
                    "haul: cannot read the source missing: no such file or directory. Check the"
                            + " name and its rights.\n",
                    alone.errors());
            CommandProcess both =
                    CommandProcess.run(here, "push", "--json", "good", "missing", server.url(""));
            assertEquals(1, both.status(), both.errors());
            assertTrue(both.errors().startsWith("haul: source: missing: "), both.errors());
            assertTrue(Files.exists(root.resolve("good")));
            assertFalse(both.event("report").path("ok").asBoolean(true));
            assertEquals(1, both.event("report").path("files").path("failed").asInt());
            assertEquals("missing", both.event("error").path("path").asText());
            assertEquals("source", both.event("error").path("side").asText());
        }
    }

    @Test
    void aServerThatCannotBeReachedIsNamed() throws Exception {
        file("a", 10);
        String token;
        try (HaulServer server = HaulServer.start(folder, root)) {
            token = token(server);
        }
        int port;
        try (ServerSocket closed = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = closed.getLocalPort();
        }
        String url = "haul://" + token + "@127.0.0.1:" + port + "/";
        CommandProcess push = CommandProcess.run(here, "push", "a", url, "--json");
        assertEquals(2, push.status(), push.output());
        assertTrue(push.errors().startsWith("haul: network: cannot open a session with 127.0.0.1"));
        assertEquals("path", push.event("error").path("side").asText());
        assertEquals(1, push.events().size());
    }

    @Test
    void aTargetThatDiffersStaysWithOnConflictFail() throws Exception {
        file("a", 10);
        Files.writeString(root.resolve("a"), "other");
        try (HaulServer server = HaulServer.start(folder, root)) {
            String[] words = {"push", "a", server.url(""), "--on-conflict", "fail"};
            CommandProcess push = CommandProcess.run(here, words);
            assertEquals(1, push.status(), push.errors());
            assertTrue(push.errors().startsWith("haul: target: a: something of that name"));
            assertTrue(push.output().contains("NOT complete, 1 file failed"), push.output());
            assertEquals("other", Files.readString(root.resolve("a")));
        }
    }

    @Test
    void aDryRunSaysWhatItWouldDoAndDoesNothing() throws Exception {
        file("run7/a", 10);
        try (HaulServer server = HaulServer.start(folder, root)) {
            CommandProcess plan = CommandProcess.run(here, "push", "-n", "run7", server.url(""));
            assertEquals(0, plan.status(), plan.errors());
            assertTrue(plan.output().contains("would copy run7/a (10 B)\n"), plan.output());
            assertTrue(plan.output().contains("1 file would be copied, 10 B"), plan.output());
            assertFalse(Files.exists(root.resolve("run7")));
        }
    }

    @Test
    void aPullBringsFilesAndTreesAndSaysWhatIsMissing() throws Exception {
        byte[] content = file("../root/run7/a", 3_000_001);
        try (HaulServer server = HaulServer.start(folder, root)) {
            String[] words = {"pull", server.url("run7/a"), "copy", "--json"};
            CommandProcess file = CommandProcess.run(here, words);
            assertEquals(0, file.status(), file.errors());
            assertArrayEquals(content, Files.readAllBytes(here.resolve("copy")));
            assertEquals(3_000_001, file.event("report").path("moved_bytes").asLong());
            assertFalse(file.output().contains(token(server)));
            CommandProcess named = CommandProcess.run(here, "pull", server.url("run7/a"), "new/");
            assertEquals(0, named.status(), named.errors());
            assertArrayEquals(content, Files.readAllBytes(here.resolve("new/a")));
            CommandProcess tree = CommandProcess.run(here, "pull", server.url("run7"));
            assertEquals(0, tree.status(), tree.errors());
            assertArrayEquals(content, Files.readAllBytes(here.resolve("run7/a")));
            CommandProcess missing = CommandProcess.run(here, "pull", server.url("none"), "b");
            assertEquals(2, missing.status(), missing.errors());
            assertFalse(missing.output().contains("->"), missing.output());
            assertTrue(missing.errors().startsWith("haul: source: none: "), missing.errors());
        }
    }

    @Test
    void aMissingDirectoryOfATargetIsRefusedAsByTheProgram() throws Exception {
        file("../root/a", 10);
        try (HaulServer server = HaulServer.start(folder, root)) {
            CommandProcess pull = CommandProcess.run(here, "pull", server.url("a"), "none/b");
            assertEquals(2, pull.status(), pull.output());
            assertTrue(pull.errors().contains("none/b: cannot be put into its directory"));
            assertEquals(2, program("pull", server.url("a"), "none/b").status());
            assertFalse(Files.exists(here.resolve("none")));
        }
    }

    @Test
    void aPatternIsTakenAsAName() throws Exception {
        file("../root/a1", 10);
        file("../root/a*", 20);
        try (HaulServer server = HaulServer.start(folder, root)) {
            CommandProcess pull = CommandProcess.run(here, "pull", server.url("a*"));
            assertEquals(0, pull.status(), pull.errors());
            assertTrue(Files.exists(here.resolve("a*")));
            assertFalse(Files.exists(here.resolve("a1")));
            CommandProcess none = CommandProcess.run(here, "pull", server.url("?1"));
            assertEquals(2, none.status(), none.output());
        }
    }

    /** The names of an object's fields. */
    private static Set<String> fields(JsonNode object) {
        Set<String> names = new HashSet<>();
        object.fieldNames().forEachRemaining(names::add);
        return names;
    }

    @Test
    void jsonLinesAreThoseOfTheProgramAsFarAsTheyGo() throws Exception {
        file("run7/a \"b\"\\", 10);
        file("run7/deep/c", 5_000_000);
        try (HaulServer server = HaulServer.start(folder, root)) {
            String[] words = {"push", "run7", server.url("java/"), "--json", "--preserve=none"};
            CommandProcess ours = CommandProcess.run(here, words);
            assertEquals(0, ours.status(), ours.errors());
            JsonNode report = ours.event("report");
            assertTrue(report.path("ok").asBoolean());
            assertEquals(5_000_010, report.path("bytes").asLong());
            assertEquals(5_000_010, report.path("moved_bytes").asLong());
            assertEquals(2, report.path("files").path("done").asInt());
            assertEquals(2, report.path("files").path("done_directories").asInt());
            assertEquals(
                    without(server, "java/run7"), report.path("to").asText(), "no token is shown");
            Set<String> names = new HashSet<>();
            for (JsonNode event : ours.events()) {
                if (event.path("event").asText().equals("file")) {
                    assertEquals("done", event.path("status").asText());
                    names.add(event.path("path").asText());
                }
            }
            assertEquals(Set.of("run7", "run7/deep", "run7/deep/c", "run7/a \"b\"\\"), names);
            JsonNode last = ours.events().get(ours.events().size() - 1);
            assertEquals("report", last.path("event").asText());

            CommandProcess theirs = program("push", "run7", server.url("rust/"), "--json");
            Set<String> known = fields(theirs.event("report"));
            assertTrue(known.containsAll(fields(report)), fields(report) + " in " + known);
            known = fields(theirs.event("report").path("files"));
            assertTrue(known.containsAll(fields(report.path("files"))), known.toString());
        }
    }

    /** The program haul, run to its end. */
    private CommandProcess program(String... words) throws IOException, InterruptedException {
        List<String> command = new java.util.ArrayList<>();
        command.add(System.getProperty("haul.program", ""));
        command.addAll(List.of(words));
        Process process = new ProcessBuilder(command).directory(here.toFile()).start();
        process.getOutputStream().close();
        String output = new String(process.getInputStream().readAllBytes());
        return new CommandProcess(process.waitFor(), output, "");
    }

    @Test
    void aUrlOfManySlashesIsOne() throws Exception {
        String token = "aga" + "a".repeat(50);
        HaulUrl url = Tokens.complete("haul://h//x//y", null, Map.of("HAUL_TOKEN", token));
        assertEquals("haul://...@h:7117/x//y", url.toString());
    }
}
