package io.github.haul.client.internal.source;

import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileTime;
import java.time.Instant;
import java.util.Map;
import java.util.Objects;

/**
 * What a file system says of a name, as far as this platform tells it.
 *
 * @param kind what it is; unknown for devices, FIFOs and sockets
 * @param sizeBytes its size; 0 of what is no regular file
 * @param mode its permission bits
 * @param mtimeSeconds when it was written last
 * @param mtimeNanos the part of that below a second
 * @param ctimeSeconds when its inode changed last; with {@code ctimeNanos} 0 where nobody knows
 * @param ctimeNanos the part of that below a second
 * @param inode its number; 0 where the platform has none
 * @param device its file system; 0 where the platform tells none
 * @param links how many names it has
 */
public record FileFacts(
        FileKind kind,
        long sizeBytes,
        int mode,
        long mtimeSeconds,
        int mtimeNanos,
        long ctimeSeconds,
        int ctimeNanos,
        long inode,
        long device,
        long links) {
    private static final String UNIX = "unix:mode,ino,dev,nlink,ctime,size,lastModifiedTime";
    private static final int TYPE_BITS = 0170000;
    private static final int MODE_BITS = 07777;
    private static final int MODE_OF_FILE = 0644;
    private static final int MODE_OF_DIRECTORY = 0755;

    /**
     * Looks at a name.
     *
     * @param path the name
     * @param links whether a link is followed
     * @return what is there
     * @throws IOException if nothing is, or it may not be looked at
     */
    public static FileFacts of(Path path, LinkOption... links) throws IOException {
        if (path.getFileSystem().supportedFileAttributeViews().contains("unix")) {
            return ofUnix(Files.readAttributes(path, UNIX, links));
        }
        return ofAny(Files.readAttributes(path, BasicFileAttributes.class, links));
    }

    private static FileFacts ofUnix(Map<String, Object> found) {
        int mode = (int) number(found, "mode");
        FileKind kind =
                switch (mode & TYPE_BITS) {
                    case 0100000 -> FileKind.REGULAR;
                    case 0040000 -> FileKind.DIRECTORY;
                    case 0120000 -> FileKind.SYMLINK;
                    default -> FileKind.FILE_KIND_UNKNOWN;
                };
        Instant mtime = time(found, "lastModifiedTime");
        Instant ctime = time(found, "ctime");
        return new FileFacts(
                kind,
                kind == FileKind.REGULAR ? number(found, "size") : 0,
                mode & MODE_BITS,
                mtime.getEpochSecond(),
                mtime.getNano(),
                ctime.getEpochSecond(),
                ctime.getNano(),
                number(found, "ino"),
                number(found, "dev"),
                (int) number(found, "nlink"));
    }

    private static long number(Map<String, Object> found, String name) {
        return ((Number) Objects.requireNonNull(found.get(name), name)).longValue();
    }

    private static Instant time(Map<String, Object> found, String name) {
        return ((FileTime) Objects.requireNonNull(found.get(name), name)).toInstant();
    }

    private static FileFacts ofAny(BasicFileAttributes found) {
        FileKind kind = FileKind.FILE_KIND_UNKNOWN;
        if (found.isRegularFile()) {
            kind = FileKind.REGULAR;
        } else if (found.isDirectory()) {
            kind = FileKind.DIRECTORY;
        } else if (found.isSymbolicLink()) {
            kind = FileKind.SYMLINK;
        }
        Instant mtime = found.lastModifiedTime().toInstant();
        return new FileFacts(
                kind,
                kind == FileKind.REGULAR ? found.size() : 0,
                kind == FileKind.DIRECTORY ? MODE_OF_DIRECTORY : MODE_OF_FILE,
                mtime.getEpochSecond(),
                mtime.getNano(),
                0,
                0,
                0,
                0,
                1);
    }

    /**
     * Whether two ctimes are known, and not the same; one of zeros is not known.
     *
     * @param seconds of one
     * @param nanos of one
     * @param otherSeconds of the other
     * @param otherNanos of the other
     * @return whether they differ
     */
    public static boolean ctimeDiffers(long seconds, int nanos, long otherSeconds, int otherNanos) {
        boolean areKnown = (seconds != 0 || nanos != 0) && (otherSeconds != 0 || otherNanos != 0);
        return areKnown && (seconds != otherSeconds || nanos != otherNanos);
    }

    /**
     * Describes the file as it is offered, without its name.
     *
     * @return the offer
     */
    FileOffer.Builder toOffer() {
        return FileOffer.newBuilder()
                .setKind(kind)
                .setSizeBytes(sizeBytes)
                .setMode(mode)
                .setMtimeS(mtimeSeconds)
                .setMtimeNs(mtimeNanos)
                .setCtimeS(ctimeSeconds)
                .setCtimeNs(ctimeNanos)
                .setInode(inode)
                .setDevice(device);
    }
}
