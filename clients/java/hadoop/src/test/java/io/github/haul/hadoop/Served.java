package io.github.haul.hadoop;

import io.github.haul.client.HaulServer;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;

/** A real server for all tests of this process, and the directory that it serves. */
final class Served {
    private static Served shared;

    private final Path root;
    private final HaulServer server;

    private Served(Path root, HaulServer server) {
        this.root = root;
        this.server = server;
    }

    /** The server; without the program the test is skipped. */
    static synchronized Served shared() throws IOException {
        if (shared == null) {
            Path folder = Files.createTempDirectory("haul-hadoop");
            Path root = Files.createDirectory(folder.resolve("root"));
            Runtime.getRuntime().addShutdownHook(new Thread(() -> end(folder)));
            shared = new Served(root, HaulServer.start(folder, root));
        }
        return shared;
    }

    private static void end(Path folder) {
        if (shared != null) {
            shared.server.close();
        }
        try (Stream<Path> all = Files.walk(folder)) {
            List<Path> deepestFirst = all.sorted(Comparator.reverseOrder()).toList();
            for (Path path : deepestFirst) {
                Files.deleteIfExists(path);
            }
        } catch (IOException left) {
            System.err.println("left behind: " + left);
        }
    }

    /** The directory that is served. */
    Path root() {
        return root;
    }

    HaulServer server() {
        return server;
    }

    /** The server's URI, without its token. */
    String uri() {
        return "haul://127.0.0.1:" + server.url().port();
    }

    /** The token of everything. */
    String token() {
        return tokenOf(server.url(""));
    }

    static String tokenOf(String url) {
        return url.substring("haul://".length(), url.indexOf('@'));
    }

    /** A configuration by which Hadoop reads from the server, as a user would write it. */
    Configuration configuration() {
        Configuration conf = new Configuration();
        conf.set("fs.defaultFS", uri());
        conf.set(HaulFileSystem.TOKEN, token());
        conf.set(HaulFileSystem.SPAN_SIZE, "64K");
        return conf;
    }
}
