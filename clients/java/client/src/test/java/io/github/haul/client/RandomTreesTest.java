package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.source.NameBytes;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Trees drawn by a seed, pushed to the real server and pulled back. */
final class RandomTreesTest {
    /** How many trees; each seed is its own, and a failure names it. */
    private static final int TREES = Integer.getInteger("haul.trees", 500);

    /** How many move at a time: each waits for the disk most of its time. */
    private static final int AT_A_TIME = 4;

    private static final int ENTRIES_MAX = 12;
    private static final String[] MODES = {"rw-r--r--", "rwxr-x---", "r--------", "rw-rw-rw-"};

    @TempDir Path folder;

    /** Seeds from one file with a long hole to the next: each third has spans short enough. */
    private static final int HOLE_EVERY = 21;

    /** Shortest file that a sender looks for holes in. */
    private static final int HOLES_FROM_BYTES = 16 << 20;

    /** Draws a file that is a hole but for its ends. */
    private static void drawHole(Path top, Random random) throws IOException {
        long size = HOLES_FROM_BYTES + random.nextInt(4 << 20);
        try (var channel =
                java.nio.channels.FileChannel.open(
                        top.resolve("hole"),
                        java.nio.file.StandardOpenOption.CREATE_NEW,
                        java.nio.file.StandardOpenOption.WRITE)) {
            for (long at : new long[] {0, size - 5000}) {
                byte[] bytes = new byte[5000];
                random.nextBytes(bytes);
                channel.write(java.nio.ByteBuffer.wrap(bytes), at);
            }
        }
    }

    /** What a tree holds, and which of its names are one file. */
    private static List<Object> describe(Path tree) throws Exception {
        int prefix = tree.toUri().getRawPath().length();
        SortedMap<Object, Set<String>> names = new TreeMap<>();
        try (Stream<Path> paths = Files.walk(tree)) {
            for (Path path : (Iterable<Path>) paths::iterator) {
                if (Files.isRegularFile(path, java.nio.file.LinkOption.NOFOLLOW_LINKS)) {
                    Object inode = Files.getAttribute(path, "unix:ino");
                    String name = path.toUri().getRawPath().substring(prefix);
                    names.computeIfAbsent(inode, none -> new TreeSet<>()).add(name);
                }
            }
        }
        Set<String> together = new TreeSet<>();
        names.values().forEach(one -> together.add(one.toString()));
        return List.of(Trees.describe(tree), together);
    }

    /** Draws a tree: nested, with names of any bytes, links of both kinds, holes, odd times. */
    private static void draw(Path top, Random random) throws IOException {
        List<Path> directories = new ArrayList<>(List.of(Files.createDirectory(top)));
        List<Path> files = new ArrayList<>();
        List<Path> all = new ArrayList<>();
        for (int left = random.nextInt(ENTRIES_MAX); left > 0; left--) {
            Path in = directories.get(random.nextInt(directories.size()));
            Path path = NameBytes.below(in, name(random));
            if (Files.exists(path, java.nio.file.LinkOption.NOFOLLOW_LINKS)) {
                continue;
            }
            switch (random.nextInt(8)) {
                case 0 -> directories.add(Files.createDirectory(path));
                case 1 -> Files.createSymbolicLink(path, Path.of("x/" + random.nextInt(9)));
                case 2 -> {
                    if (!files.isEmpty()) {
                        Files.createLink(path, files.get(random.nextInt(files.size())));
                    }
                }
                default -> files.add(file(path, random));
            }
            if (Files.exists(path) && !Files.isSymbolicLink(path)) {
                all.add(path);
            }
        }
        for (Path path : all) {
            if (Files.isRegularFile(path)) {
                String mode = MODES[random.nextInt(MODES.length)];
                Files.setPosixFilePermissions(path, PosixFilePermissions.fromString(mode));
            }
            long seconds = random.nextInt(2_000_000_000);
            Instant time = Instant.ofEpochSecond(seconds, random.nextInt(1_000_000_000));
            Files.setLastModifiedTime(path, FileTime.from(time));
        }
    }

    private static ByteString name(Random random) {
        byte[] name = new byte[1 + random.nextInt(random.nextInt(9) == 0 ? 255 : 12)];
        random.nextBytes(name);
        for (int at = 0; at < name.length; at++) {
            boolean isPlain = random.nextInt(3) > 0;
            name[at] = isPlain || name[at] == 0 || name[at] == '/' ? (byte) 'n' : name[at];
        }
        return ByteString.copyFrom(name);
    }

    private static Path file(Path path, Random random) throws IOException {
        int size =
                switch (random.nextInt(6)) {
                    case 0 -> 0;
                    case 1 -> 1 + random.nextInt(3_000_000);
                    default -> random.nextInt(5000);
                };
        byte[] bytes = new byte[size];
        random.nextBytes(bytes);
        if (random.nextInt(4) == 0) {
            java.util.Arrays.fill(bytes, size / 4, size / 2, (byte) 0);
        }
        return Files.write(path, bytes);
    }

    @Test
    void treesComeBackAsTheyWere() throws Exception {
        Path root = Files.createDirectory(folder.resolve("root"));
        ExecutorService threads = Executors.newFixedThreadPool(AT_A_TIME);
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""))) {
            List<Future<?>> moving = new ArrayList<>();
            for (int seed = 0; seed < TREES; seed++) {
                int drawn = seed;
                moving.add(
                        threads.submit(
                                () -> {
                                    move(drawn, root, server, client);
                                    return null;
                                }));
            }
            for (Future<?> one : moving) {
                one.get();
            }
        } finally {
            threads.shutdownNow();
        }
    }

    /** Pushes the tree of a seed, and pulls it back. */
    private void move(int seed, Path root, HaulServer server, HaulClient client) throws Exception {
        boolean isSafe = seed % 2 == 0;
        TransferOptions options =
                TransferOptions.builder()
                        .protection(
                                isSafe
                                        ? TransferOptions.Protection.SAFE
                                        : TransferOptions.Protection.CLEAR)
                        .spanBytes(seed % 3 == 0 ? 64 << 10 : 0)
                        .build();
        String name = "tree" + seed;
        Path tree = folder.resolve(name);
        Path back = Files.createDirectory(folder.resolve("back" + seed));
        draw(tree, new Random(seed));
        boolean hasHole = seed % HOLE_EVERY == 0;
        if (hasHole) {
            drawHole(tree, new Random(seed));
        }
        TransferResult pushed = client.push(List.of(tree), options);
        assertEquals(hasHole, pushed.bytesOfHoles() > HOLES_FROM_BYTES / 2, "seed " + seed);
        List<Object> drawn = describe(tree);
        assertEquals(drawn, describe(root.resolve(name)), "seed " + seed);
        try (HaulClient puller = HaulClient.connect(server.url(name))) {
            TransferResult pulled = puller.pull(back, options);
            assertEquals(hasHole, pulled.bytesOfHoles() > HOLES_FROM_BYTES / 2, "seed " + seed);
        }
        assertEquals(drawn, describe(back.resolve(name)), "seed " + seed);
    }

    /** A file that is nearly all hole costs neither time on the wire nor space at the target. */
    @Test
    void aSparseFileOfFiveGigabytesKeepsItsHoles() throws Exception {
        Path root = Files.createDirectory(folder.resolve("root"));
        Path file = folder.resolve("sparse");
        long size = 5_000_000_000L;
        try (var channel =
                java.nio.channels.FileChannel.open(
                        file,
                        java.nio.file.StandardOpenOption.CREATE_NEW,
                        java.nio.file.StandardOpenOption.WRITE)) {
            channel.write(java.nio.ByteBuffer.wrap(new byte[] {1, 2, 3}), 0);
            channel.write(java.nio.ByteBuffer.wrap(new byte[] {4}), 2_500_000_001L);
            channel.write(java.nio.ByteBuffer.wrap(new byte[] {5}), size - 1);
        }
        try (HaulServer server = HaulServer.start(folder, root);
                HaulClient client = HaulClient.connect(server.url(""));
                HaulClient puller = HaulClient.connect(server.url("sparse"))) {
            client.push(file);
            Path back = folder.resolve("back");
            puller.pull(back);
            for (Path copy : List.of(root.resolve("sparse"), back)) {
                assertEquals(size, Files.size(copy));
                assertEquals(-1, Files.mismatch(file, copy));
                Process du = new ProcessBuilder("du", "-k", copy.toString()).start();
                String used = new String(du.getInputStream().readAllBytes()).split("\\s")[0];
                assertEquals(true, Long.parseLong(used) < 20_000, used + " KiB");
            }
        }
    }
}
