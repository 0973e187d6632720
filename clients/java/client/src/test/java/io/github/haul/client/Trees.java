package io.github.haul.client;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.source.NameBytes;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.time.Instant;
import java.util.HexFormat;
import java.util.Random;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.stream.Stream;

/** Trees that tests make, and what is in them. */
final class Trees {
    /** Entries of the tree that {@link #make} makes. */
    static final int FILES = 310;

    private Trees() {}

    /** Makes a tree of everything that a transfer may meet. */
    static Path make(Path top) throws IOException {
        Path tree = Files.createDirectories(top.resolve("deep"));
        Files.createDirectories(tree.resolve("deeper"));
        for (int number = 0; number < 300; number++) {
            file(tree.resolve("small" + number), number * 37L, number);
        }
        file(top.resolve("large"), 9_000_000, 7);
        file(top.resolve("middle"), 300_000, 8);
        Files.createFile(top.resolve("empty"));
        Files.createSymbolicLink(top.resolve("link"), Path.of("deep/../nowhere"));
        Files.createLink(top.resolve("other name"), top.resolve("large"));
        Path odd = NameBytes.below(top, ByteString.copyFrom(new byte[] {'o', (byte) 0xff, '\n'}));
        Files.writeString(odd, "odd");
        Files.writeString(top.resolve("W\u00e4hrung \u20ac"), "text");
        Files.setPosixFilePermissions(odd, PosixFilePermissions.fromString("r-x--x---"));
        FileTime time = FileTime.from(Instant.ofEpochSecond(981_173_106, 123_456_789));
        Files.setLastModifiedTime(odd, time);
        Files.setLastModifiedTime(tree, time);
        return top;
    }

    /** Describes everything in a directory: each name with its kind, mode, time and content. */
    static SortedMap<String, String> describe(Path root) throws Exception {
        SortedMap<String, String> found = new TreeMap<>();
        try (Stream<Path> paths = Files.walk(root)) {
            for (Path path : (Iterable<Path>) paths::iterator) {
                if (!path.equals(root)) {
                    found.put(name(root, path), describeOne(path));
                }
            }
        }
        return found;
    }

    private static String name(Path root, Path path) {
        StringBuilder name = new StringBuilder();
        Path at = path;
        while (!at.equals(root)) {
            byte[] bytes = NameBytes.ofLast(at).toByteArray();
            name.insert(0, "/" + HexFormat.of().formatHex(bytes));
            at = at.getParent();
        }
        return name.toString();
    }

    private static String describeOne(Path path) throws Exception {
        if (Files.isSymbolicLink(path)) {
            return "link " + Files.readSymbolicLink(path);
        }
        String mode =
                PosixFilePermissions.toString(
                        Files.getPosixFilePermissions(path, LinkOption.NOFOLLOW_LINKS));
        FileTime time = Files.getLastModifiedTime(path);
        if (Files.isDirectory(path)) {
            return "directory " + mode + " " + time;
        }
        return "file " + mode + " " + time + " " + Files.size(path) + " " + hash(path);
    }

    static String hash(Path file) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        byte[] buffer = new byte[1 << 20];
        try (var input = Files.newInputStream(file)) {
            for (int got = input.read(buffer); got >= 0; got = input.read(buffer)) {
                digest.update(buffer, 0, got);
            }
        }
        return HexFormat.of().formatHex(digest.digest());
    }

    /** Writes a file of random bytes. */
    static Path file(Path path, long bytes, long seed) throws IOException {
        Random random = new Random(seed);
        byte[] buffer = new byte[1 << 20];
        try (var output = Files.newOutputStream(path)) {
            for (long left = bytes; left > 0; left -= buffer.length) {
                random.nextBytes(buffer);
                output.write(buffer, 0, (int) Math.min(left, buffer.length));
            }
        }
        return path;
    }
}
