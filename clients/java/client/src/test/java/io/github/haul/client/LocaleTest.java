package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Names of files where the user's locale has no letters for them. */
final class LocaleTest {
    @TempDir Path folder;

    /** A child JVM's work: a push, and a pull of what came of it. */
    static final class ThereAndBack {
        private ThereAndBack() {}

        public static void main(String[] words) throws Exception {
            try (HaulClient client = HaulClient.connect(words[0])) {
                client.push(Path.of(words[1]));
            }
            try (HaulClient client = HaulClient.connect(words[0] + "tree")) {
                client.pull(Path.of(words[2]));
            }
        }
    }

    /**
     * Bytes that are no ASCII are not even printable there; what is moved has them nevertheless.
     */
    @Test
    void namesStayWhatTheyAreInTheLocaleC() throws Exception {
        Path root = Files.createDirectories(folder.resolve("root"));
        Path tree = Trees.make(Files.createDirectories(folder.resolve("tree")));
        Path back = Files.createDirectories(folder.resolve("back"));
        try (HaulServer server = HaulServer.start(folder, root)) {
            List<String> words = List.of(server.url(""), tree.toString(), back.toString());
            List<String> command = new ArrayList<>(List.of("env", "LC_ALL=C"));
            command.addAll(ChildJvm.command(List.of(), ThereAndBack.class, words));
            ChildJvm.run(folder, command);
        }
        assertEquals(Trees.describe(tree), Trees.describe(root.resolve("tree")));
        assertEquals(Trees.describe(tree), Trees.describe(back.resolve("tree")));
    }
}
