package io.github.haul.client.internal.target;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.time.Instant;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A look at what has a name, by lstat(2): a link is not followed.
 *
 * <p>Number and ctime of an inode come by the attribute view {@code unix} of the JDK, which
 * platforms other than Unix lack: there they are zeros, and nothing of an earlier run is believed.
 *
 * @param key what tells one file from another, null where the file system has nothing such
 */
record FileLook(
        Kind kind,
        long sizeBytes,
        long mtimeS,
        int mtimeNs,
        long ctimeS,
        int ctimeNs,
        int mode,
        long inode,
        long device,
        int links,
        @Nullable Object key) {
    private static final int MODE_BITS = 0777;

    /** Kinds of what may have a name. */
    enum Kind {
        FILE("a file"),
        DIRECTORY("a directory"),
        LINK("a symbolic link"),
        OTHER("a FIFO, socket or device");

        private final String words;

        Kind(String words) {
            this.words = words;
        }

        String words() {
            return words;
        }
    }

    /** Looks at a path. */
    static FileLook at(Path path) throws IOException {
        Map<String, Object> all = attributes(path);
        Kind kind =
                is(all, "isRegularFile")
                        ? Kind.FILE
                        : is(all, "isDirectory")
                                ? Kind.DIRECTORY
                                : is(all, "isSymbolicLink") ? Kind.LINK : Kind.OTHER;
        Instant mtime = time(all, "lastModifiedTime");
        Instant ctime = time(all, "ctime");
        return new FileLook(
                kind,
                number(all, "size", 0),
                mtime.getEpochSecond(),
                mtime.getNano(),
                ctime.getEpochSecond(),
                ctime.getNano(),
                (int) number(all, "mode", 0) & MODE_BITS,
                number(all, "ino", 0),
                number(all, "dev", 0),
                (int) number(all, "nlink", 1),
                all.get("fileKey"));
    }

    private static Map<String, Object> attributes(Path path) throws IOException {
        String basic = "size,lastModifiedTime,isRegularFile,isDirectory,isSymbolicLink,fileKey";
        try {
            String names = "unix:mode,ino,dev,nlink,ctime," + basic;
            return Files.readAttributes(path, names, LinkOption.NOFOLLOW_LINKS);
        } catch (UnsupportedOperationException | IllegalArgumentException noUnix) {
            return Files.readAttributes(path, basic, LinkOption.NOFOLLOW_LINKS);
        }
    }

    private static boolean is(Map<String, Object> attributes, String name) {
        return Boolean.TRUE.equals(attributes.get(name));
    }

    private static Instant time(Map<String, Object> attributes, String name) {
        return attributes.get(name) instanceof FileTime time ? time.toInstant() : Instant.EPOCH;
    }

    private static long number(Map<String, Object> attributes, String name, long otherwise) {
        return attributes.get(name) instanceof Number number ? number.longValue() : otherwise;
    }

    boolean isFile() {
        return kind == Kind.FILE;
    }

    boolean isDirectory() {
        return kind == Kind.DIRECTORY;
    }

    /** Whether both are looks at one and the same file. */
    boolean isSameFile(FileLook other) {
        return key != null && key.equals(other.key);
    }
}
