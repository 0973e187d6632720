package io.github.haul.command;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import io.github.haul.client.HaulServer;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * The lines of {@code --json} beside those of the program haul, for the same transfers: events,
 * names of fields, kinds of values.
 */
final class JsonEventsTest {
    /** Fields of the program that this client does not know, by event. */
    private static final Map<String, Set<String>> UNKNOWN =
            Map.of(
                    "progress",
                    Set.of("retransmits", "current", "limiting", "stages"),
                    "report",
                    Set.of(
                            "streams",
                            "span_bytes",
                            "send_engine",
                            "receive_engine",
                            "chosen_because",
                            "copied_bytes",
                            "retransmits",
                            "source",
                            "target",
                            "bottleneck",
                            "stages",
                            "recheck",
                            "updated_attributes"));

    @TempDir Path folder;
    private Path root = Path.of("");
    private Path here = Path.of("");

    /** Makes a file of a name that is no UTF-8, which Java cannot hold in every locale. */
    private static void makeOddName(Path place) throws Exception {
        Process shell =
                new ProcessBuilder("sh", "-c", "printf odd > \"$(printf 'odd\\377')\"")
                        .directory(place.toFile())
                        .start();
        assertEquals(0, shell.waitFor());
    }

    private static void makeTree(Path place) throws Exception {
        Path tree = Files.createDirectories(place.resolve("tree/deep"));
        Files.writeString(tree.resolve("b"), "beside");
        // Long enough for some progress at the rate of a host that is busy.
        byte[] content = new byte[40 << 20];
        new Random(1).nextBytes(content);
        Files.write(tree.resolve("large"), content);
        makeOddName(tree);
        assertEquals(
                0, new ProcessBuilder("mkfifo", tree.resolve("fifo").toString()).start().waitFor());
        Files.writeString(place.resolve("good"), "good");
    }

    /** Events by their names: each a map of its fields to the kinds of their values. */
    private static Map<String, Map<String, String>> kinds(CommandProcess run) throws IOException {
        Map<String, Map<String, String>> kinds = new TreeMap<>();
        for (JsonNode event : run.events()) {
            add(kinds, event.path("event").asText(), event);
        }
        return kinds;
    }

    private static void add(Map<String, Map<String, String>> kinds, String name, JsonNode object) {
        Map<String, String> fields = kinds.computeIfAbsent(name, none -> new TreeMap<>());
        object.properties()
                .forEach(
                        field -> {
                            fields.put(field.getKey(), kind(field.getValue()));
                            if (field.getKey().equals("files")) {
                                add(kinds, "report.files", field.getValue());
                            }
                        });
    }

    private static String kind(JsonNode value) {
        return value.isNumber() ? "NUMBER" : value.getNodeType().name();
    }

    private static void compare(CommandProcess ours, CommandProcess theirs) throws IOException {
        Map<String, Map<String, String>> our = kinds(ours);
        Map<String, Map<String, String>> their = kinds(theirs);
        // Progress and stalls are told by the clock: a quick run has none.
        Set<String> names = new TreeSet<>(our.keySet());
        Set<String> others = new TreeSet<>(their.keySet());
        for (String timed : List.of("progress", "stall", "fallback")) {
            names.remove(timed);
            others.remove(timed);
        }
        assertEquals(others, names, () -> ours.output() + ours.errors() + theirs.output());
        for (String name : our.keySet()) {
            if (their.containsKey(name)) {
                Map<String, String> expected = new TreeMap<>(their.get(name));
                expected.keySet().removeAll(UNKNOWN.getOrDefault(name, Set.of()));
                assertEquals(expected, our.get(name), name);
            }
        }
        assertEquals(counts(theirs), counts(ours));
        assertEquals(files(theirs), files(ours));
    }

    private static JsonNode counts(CommandProcess run) throws IOException {
        return run.event("report").path("files");
    }

    /** How each file came out, with the bytes of its name. */
    private static Map<String, String> files(CommandProcess run) throws IOException {
        Map<String, String> files = new TreeMap<>();
        for (JsonNode event : run.events()) {
            if (event.path("event").asText().equals("file")) {
                String name = event.path("path_encoded").asText(event.path("path").asText());
                files.put(name, event.path("status").asText() + " " + event.path("bytes"));
            }
        }
        return files;
    }

    private CommandProcess theirs(String... words) throws Exception {
        List<String> command = new ArrayList<>(List.of(System.getProperty("haul.program", "")));
        command.addAll(List.of(words));
        Process process = new ProcessBuilder(command).directory(here.toFile()).start();
        process.getOutputStream().close();
        String output = new String(process.getInputStream().readAllBytes());
        return new CommandProcess(process.waitFor(), output, "");
    }

    private HaulServer begin() throws Exception {
        root = Files.createDirectories(folder.resolve("root"));
        here = Files.createDirectories(folder.resolve("here"));
        makeTree(root);
        makeTree(here);
        return HaulServer.start(folder, root);
    }

    @Test
    void aPushOfATreeTellsTheSameInTheSameWords() throws Exception {
        try (HaulServer server = begin()) {
            String[] ours = {"push", "tree", "missing", "--json", server.url("java/")};
            String[] theirs = {"push", "tree", "missing", "--json", server.url("rust/")};
            compare(CommandProcess.run(here, ours), theirs(theirs));
            // And once more, all of it being there.
            compare(CommandProcess.run(here, ours), theirs(theirs));
            String[] plan = {"push", "tree", "-n", "--json", server.url("plan/")};
            compare(CommandProcess.run(here, plan), theirs(plan));
        }
    }

    @Test
    void aPullOfATreeTellsTheSameInTheSameWords() throws Exception {
        try (HaulServer server = begin()) {
            compare(
                    CommandProcess.run(here, "pull", "--json", server.url("tree"), "java/"),
                    theirs("pull", "--json", server.url("tree"), "rust/"));
            compare(
                    CommandProcess.run(here, "pull", "--json", server.url("tree"), "java/"),
                    theirs("pull", "--json", server.url("tree"), "rust/"));
        }
    }

    @Test
    void aFileWithHolesIsCountedAsByTheProgram() throws Exception {
        try (HaulServer server = begin()) {
            for (Path place : List.of(here, root)) {
                Path file = Files.write(place.resolve("sparse"), new byte[] {1, 2, 3});
                try (FileChannel open = FileChannel.open(file, StandardOpenOption.WRITE)) {
                    open.write(ByteBuffer.wrap(new byte[] {4}), (64 << 20) - 1);
                }
            }
            for (boolean isPush : List.of(true, false)) {
                List<Map<String, JsonNode>> counted = new ArrayList<>();
                for (String name : List.of("java", "rust")) {
                    String[] words =
                            isPush
                                    ? new String[] {"push", "sparse", server.url(name)}
                                    : new String[] {"pull", server.url("sparse"), name};
                    List<String> all = new ArrayList<>(List.of(words));
                    all.addAll(List.of("--json", "--span-size=1M"));
                    words = all.toArray(String[]::new);
                    JsonNode report =
                            (name.equals("java") ? CommandProcess.run(here, words) : theirs(words))
                                    .event("report");
                    Map<String, JsonNode> bytes = new TreeMap<>();
                    for (String field :
                            List.of("bytes", "resumed_bytes", "moved_bytes", "skipped_bytes")) {
                        bytes.put(field, report.path(field));
                    }
                    counted.add(bytes);
                }
                assertEquals(counted.get(1), counted.get(0));
                assertEquals(2 << 20, counted.get(0).get("moved_bytes").asLong());
            }
        }
    }

    /** Leaves most of a file at the server, and changes the source's inode. */
    private void leave(HaulServer server, String name) throws Exception {
        Path source = here.resolve("tree/deep/large");
        Path part = root.resolve("." + name + ".haul-part");
        Path journal = root.resolve("." + name + ".haul-journal");
        Process push =
                HaulServer.program(
                        folder.resolve("begun"),
                        "push",
                        "--bwlimit=8M",
                        "--span-size=64K",
                        source.toString(),
                        server.url(name));
        // Its header, and a record behind it.
        while (!Files.exists(journal) || Files.size(journal) <= 128) {
            assertTrue(push.isAlive(), Files.readString(folder.resolve("begun")));
            Thread.sleep(10);
        }
        push.destroyForcibly().waitFor();
        assertTrue(Files.exists(part));
        assertEquals(0, new ProcessBuilder("chmod", "600", source.toString()).start().waitFor());
    }

    @Test
    void whatIsResumedAndReadAgainIsToldInTheSameWords() throws Exception {
        try (HaulServer server = begin()) {
            String source = "tree/deep/large";
            leave(server, "java");
            CommandProcess ours =
                    CommandProcess.run(here, "push", source, "--json", server.url("java"));
            Files.setPosixFilePermissions(
                    here.resolve(source), PosixFilePermissions.fromString("rw-r--r--"));
            leave(server, "rust");
            CommandProcess theirs = theirs("push", source, "--json", server.url("rust"));
            compare(ours, theirs);
            Set<String> told = kinds(ours).keySet();
            assertTrue(told.containsAll(Set.of("session", "resume", "rereading")), ours.output());
        }
    }

    @Test
    void aSourceThatChangedIsAnErrorInTheSameWords() throws Exception {
        try (HaulServer server = begin()) {
            Path source = here.resolve("tree/deep/large");
            List<CommandProcess> runs = new ArrayList<>();
            for (String name : List.of("java", "rust")) {
                leave(server, name);
                var time = Files.getLastModifiedTime(source);
                try (FileChannel file = FileChannel.open(source, StandardOpenOption.WRITE)) {
                    file.write(ByteBuffer.wrap(new byte[] {(byte) runs.size(), 1, 2}), 9);
                }
                Files.setLastModifiedTime(source, time);
                String[] words = {"push", source.toString(), "--json", server.url(name)};
                runs.add(name.equals("java") ? CommandProcess.run(here, words) : theirs(words));
            }
            compare(runs.get(0), runs.get(1));
            JsonNode our = runs.get(0).event("error");
            JsonNode their = runs.get(1).event("error");
            assertEquals(their.path("found"), our.path("found"));
            assertEquals(their.path("what"), our.path("what"));
        }
    }
}
