package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** What only some systems have, and the classes that may ask for it. */
final class PlatformsTest {
    private static final Path HERE = Path.of("").toAbsolutePath();

    /** Each thing, as it stands in code, and the classes of all modules that name it. */
    private static final Map<String, Set<String>> MAY_ASK =
            Map.of(
                    // Linux: one class of the library, and two that look for the bench.
                    "\"/(proc|sys|dev|etc)\\b",
                            Set.of("LinuxHost", "ContextSwitches", "CongestionControl"),
                    // A file that becomes shorter while CRC32C reads its mapping ends the JVM: the
                    // one mapping makes a file longer, and nobody reads or writes it.
                    "MapMode\\b|MappedByteBuffer\\b", Set.of("PartialFile"),
                    // Unix: both have other ways where there is none.
                    "\"unix:", Set.of("FileLook", "FileFacts"),
                    "PosixFile|\"posix", Set.of("OpenDirectory"),
                    "SecureDirectoryStream<", Set.of("OpenDirectory"),
                    // The JDK's own: O_DIRECT where there is one, and processor time of the bench.
                    "com\\.sun\\.|[^.]\\bsun\\.(?!jnu)|\\bjdk\\.", Set.of("DiskReader", "BenchRun"),
                    // Native code there is none.
                    "System\\.load|\\bnative\\b|java\\.lang\\.foreign", Set.of(),
                    // Programs: the bench starts haul itself, where it is named.
                    "ProcessBuilder|getRuntime\\(\\)\\.exec", Set.of("ProgramRun"));

    private static Set<String> whereStands(Pattern pattern) throws IOException {
        Set<String> found = new TreeSet<>();
        for (String module : new String[] {"client", "command", "hadoop"}) {
            Path sources = HERE.resolveSibling(module).resolve("src/main/java");
            assertTrue(Files.isDirectory(sources), sources.toString());
            try (Stream<Path> all = Files.walk(sources)) {
                for (Path one : all.filter(PlatformsTest::isClass).toList()) {
                    if (pattern.matcher(codeOf(one)).find()) {
                        found.add(one.getFileName().toString().replace(".java", ""));
                    }
                }
            }
        }
        return found;
    }

    private static boolean isClass(Path file) {
        return file.toString().endsWith(".java") && !file.endsWith("module-info.java");
    }

    /** The lines of a file that are no comments. */
    private static String codeOf(Path file) throws IOException {
        return Files.readAllLines(file).stream()
                .filter(line -> !line.strip().startsWith("*") && !line.strip().startsWith("/"))
                .collect(Collectors.joining("\n"));
    }

    @Test
    void onlyTheClassesThatHaveAnotherWayAskForWhatSomeSystemsHave() throws IOException {
        for (Map.Entry<String, Set<String>> one : MAY_ASK.entrySet()) {
            Set<String> found = whereStands(Pattern.compile(one.getKey()));
            assertEquals(new TreeSet<>(one.getValue()), found, one.getKey());
        }
    }
}
