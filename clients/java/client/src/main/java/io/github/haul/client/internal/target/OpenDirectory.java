package io.github.haul.client.internal.target;

import java.io.Closeable;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.SecureDirectoryStream;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributeView;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Instant;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * An open directory, and what is done with single names in it. No name is followed as a link.
 *
 * <p>Where the platform has {@link SecureDirectoryStream} (Linux), files are opened, renamed and
 * removed in the very directory that was opened, whatever becomes of its path (openat(2)). Java has
 * no such calls to make directories and links, and to set times in nanoseconds: these go by the
 * path, and are looked at afterwards by the open directory, so that one that was moved away is
 * noticed, and at worst an empty directory or a link is somewhere else. Elsewhere everything goes
 * by the path, of which only is known that no link was on it when it was opened: the weaker form,
 * for directories that nobody else may write to.
 *
 * <p>It is counted who uses it, and the last to let go closes it.
 */
final class OpenDirectory implements Closeable {
    private static final LinkOption NOFOLLOW = LinkOption.NOFOLLOW_LINKS;
    private static final Path SELF = Path.of(".");

    /** The owner's bits, from the lowest of nine. */
    private static final PosixFilePermission[] BITS = {
        PosixFilePermission.OTHERS_EXECUTE,
        PosixFilePermission.OTHERS_WRITE,
        PosixFilePermission.OTHERS_READ,
        PosixFilePermission.GROUP_EXECUTE,
        PosixFilePermission.GROUP_WRITE,
        PosixFilePermission.GROUP_READ,
        PosixFilePermission.OWNER_EXECUTE,
        PosixFilePermission.OWNER_WRITE,
        PosixFilePermission.OWNER_READ,
    };

    private final Path path;
    private final @Nullable SecureDirectoryStream<Path> stream;
    private final FileLook own;
    private final AtomicInteger users = new AtomicInteger(1);

    private OpenDirectory(Path path, DirectoryStream<Path> opened, FileLook own)
            throws IOException {
        this.path = path;
        this.own = own;
        if (opened instanceof SecureDirectoryStream<Path> secure) {
            stream = secure;
            return;
        }
        stream = null;
        opened.close();
    }

    /** Opens the first directory; links on its way are followed. */
    static OpenDirectory root(Path path) throws IOException {
        Path real = path.toRealPath();
        return new OpenDirectory(real, Files.newDirectoryStream(real), FileLook.at(real));
    }

    /** Opens a directory in this one, which is no link. */
    OpenDirectory below(Path name) throws IOException {
        Path below = path.resolve(name);
        FileLook look = look(name);
        if (!look.isDirectory()) {
            throw look.kind() == FileLook.Kind.LINK
                    ? new IOException("Too many levels of symbolic links")
                    : new NotDirectoryException(name.toString());
        }
        DirectoryStream<Path> opened =
                stream == null
                        ? Files.newDirectoryStream(below)
                        : stream.newDirectoryStream(name, NOFOLLOW);
        OpenDirectory directory = new OpenDirectory(below, opened, look);
        try {
            directory.checkOwn();
        } catch (IOException moved) {
            directory.close();
            throw moved;
        }
        return directory;
    }

    /** Fails where this is another directory than the one that its path led to. */
    private void checkOwn() throws IOException {
        Object key =
                stream == null
                        ? FileLook.at(path).key()
                        : stream.getFileAttributeView(BasicFileAttributeView.class)
                                .readAttributes()
                                .fileKey();
        if (own.key() != null && !own.key().equals(key)) {
            throw new NoSuchFileException(path.toString());
        }
    }

    /** Takes part in the use of it, which {@link #close} ends. */
    OpenDirectory share() {
        users.incrementAndGet();
        return this;
    }

    /** What tells this directory from others. */
    Object key() {
        return own.key() == null ? path : own.key();
    }

    Path path() {
        return path;
    }

    /** Looks at a name. */
    FileLook look(Path name) throws IOException {
        FileLook look = FileLook.at(path.resolve(name));
        if (stream != null && look.key() != null) {
            Object key =
                    stream.getFileAttributeView(name, BasicFileAttributeView.class, NOFOLLOW)
                            .readAttributes()
                            .fileKey();
            if (!look.key().equals(key)) {
                // The directory was moved away, or somebody changed the name between the looks.
                throw new NoSuchFileException(name.toString());
            }
        }
        return look;
    }

    /** Looks at a name; null where nothing has it, or nothing can be seen. */
    @Nullable FileLook lookIfThere(Path name) {
        try {
            return look(name);
        } catch (IOException notThere) {
            return null;
        }
    }

    /** Opens a file to read and write, made with the owner's rights where it is not there. */
    FileChannel open(Path name, Creation creation) throws IOException {
        Set<OpenOption> options =
                new HashSet<>(Set.of(StandardOpenOption.READ, StandardOpenOption.WRITE, NOFOLLOW));
        FileAttribute<?>[] attributes = {};
        if (creation == Creation.NEW) {
            options.add(StandardOpenOption.CREATE_NEW);
            attributes = modeAtCreation(0600);
        }
        return open(name, options, attributes);
    }

    /** Whether a file is to be made. */
    enum Creation {
        NEW,
        NONE
    }

    private FileChannel open(Path name, Set<OpenOption> options, FileAttribute<?>... attributes)
            throws IOException {
        if (stream == null) {
            checkOwn();
            return FileChannel.open(path.resolve(name), options, attributes);
        }
        SeekableByteChannel opened = stream.newByteChannel(name, options, attributes);
        if (opened instanceof FileChannel file) {
            return file;
        }
        opened.close();
        throw new IOException("the file system gives no channels of files");
    }

    private FileAttribute<?>[] modeAtCreation(int mode) {
        return hasModes()
                ? new FileAttribute<?>[] {PosixFilePermissions.asFileAttribute(permissions(mode))}
                : new FileAttribute<?>[] {};
    }

    private boolean hasModes() {
        return path.getFileSystem().supportedFileAttributeViews().contains("posix");
    }

    private static Set<PosixFilePermission> permissions(int mode) {
        Set<PosixFilePermission> permissions = EnumSet.noneOf(PosixFilePermission.class);
        for (int bit = 0; bit < BITS.length; bit++) {
            if ((mode >>> bit & 1) == 1) {
                permissions.add(BITS[bit]);
            }
        }
        return permissions;
    }

    /** Renames in this directory, over what has the other name. */
    void rename(Path from, Path to) throws IOException {
        if (stream == null) {
            checkOwn();
            Files.move(path.resolve(from), path.resolve(to), StandardCopyOption.ATOMIC_MOVE);
            return;
        }
        // renameat(2), which replaces.
        stream.move(from, stream, to);
    }

    /** Removes a file or link, where it is there. */
    void remove(Path name) throws IOException {
        try {
            if (stream == null) {
                checkOwn();
                Files.delete(path.resolve(name));
            } else {
                stream.deleteFile(name);
            }
        } catch (NoSuchFileException gone) {
            // As it is to be.
        }
    }

    /** Removes a directory, which is empty. */
    void removeDirectory(Path name) throws IOException {
        if (stream == null) {
            checkOwn();
            Files.delete(path.resolve(name));
        } else {
            stream.deleteDirectory(name);
        }
    }

    /** What is done with one name of a directory. */
    interface ForName {
        void take(Path name) throws IOException;
    }

    /** Hands on each name in this directory, which may be removed meanwhile. */
    void eachName(ForName act) throws IOException {
        checkOwn();
        try (DirectoryStream<Path> all =
                stream == null
                        ? Files.newDirectoryStream(path)
                        : stream.newDirectoryStream(SELF, NOFOLLOW)) {
            for (Path one : all) {
                act.take(one.getFileName());
            }
        } catch (DirectoryIteratorException failed) {
            throw failed.getCause();
        }
    }

    /** Makes a directory. */
    void makeDirectory(Path name, int mode) throws IOException {
        checkOwn();
        Files.createDirectory(path.resolve(name), modeAtCreation(mode));
        look(name);
    }

    /** Makes a symbolic link. */
    void makeLink(Path name, Path target) throws IOException {
        checkOwn();
        Files.createSymbolicLink(path.resolve(name), target);
        look(name);
    }

    /** Makes a second name of a file of this or another directory. */
    void makeHardLink(Path name, OpenDirectory of, Path file) throws IOException {
        checkOwn();
        FileLook first = of.look(file);
        Files.createLink(path.resolve(name), of.path.resolve(file));
        if (!look(name).isSameFile(first)) {
            remove(name);
            throw new FileAlreadyExistsException(name.toString());
        }
    }

    /** The bytes where a symbolic link leads, as far as a path of Java has them. */
    Path readLink(Path name) throws IOException {
        return Files.readSymbolicLink(path.resolve(name));
    }

    /**
     * Sets the time of modification of a name, or of this directory.
     *
     * <p>Java cannot set a time before 1970 with a part of a second: the second is set. That of a
     * symbolic link has microseconds.
     */
    void setTime(@Nullable Path name, long seconds, int nanos) throws IOException {
        FileTime time = FileTime.from(Instant.ofEpochSecond(seconds, seconds < 0 ? 0 : nanos));
        Path whole = name == null ? path : path.resolve(name);
        Files.getFileAttributeView(whole, BasicFileAttributeView.class, NOFOLLOW)
                .setTimes(time, null, null);
    }

    /** Sets the permission bits of a name that is no link, or of this directory. */
    void setMode(@Nullable Path name, int mode) throws IOException {
        if (!hasModes()) {
            return;
        }
        PosixFileAttributeView view;
        if (stream == null) {
            checkOwn();
            Path whole = name == null ? path : path.resolve(name);
            view = Files.getFileAttributeView(whole, PosixFileAttributeView.class, NOFOLLOW);
        } else if (name == null) {
            view = stream.getFileAttributeView(PosixFileAttributeView.class);
        } else {
            view = stream.getFileAttributeView(name, PosixFileAttributeView.class, NOFOLLOW);
        }
        view.setPermissions(permissions(mode));
    }

    /**
     * Syncs the directory, so that what was entered in it is durable (fsync(2)), and asks its file
     * system for a change: one that has given up says of a sync that all is well.
     *
     * <p>Java opens directories to sync them on Linux and macOS. Windows does not let it: there
     * this does nothing, as NTFS has its names in a journal of its own.
     */
    void sync() throws IOException {
        if (System.getProperty("os.name", "").toLowerCase(Locale.ROOT).startsWith("windows")) {
            return;
        }
        try (FileChannel opened = open(SELF, Set.of(StandardOpenOption.READ))) {
            opened.force(true);
        }
        FileTime now = FileTime.from(Instant.now());
        try {
            BasicFileAttributeView view =
                    stream == null
                            ? Files.getFileAttributeView(path, BasicFileAttributeView.class)
                            : stream.getFileAttributeView(BasicFileAttributeView.class);
            view.setTimes(now, now, null);
        } catch (IOException refused) {
            String words = String.valueOf(refused.getMessage()).toLowerCase(Locale.ROOT);
            if (words.contains("input/output error") || words.contains("read-only file system")) {
                throw refused;
            }
            // Of a directory of somebody else nobody may set the times: it is believed.
        }
    }

    /** Space that this user may still take, in bytes. */
    long usableBytes() throws IOException {
        return Files.getFileStore(path).getUsableSpace();
    }

    @Override
    public void close() throws IOException {
        if (users.decrementAndGet() == 0 && stream != null) {
            stream.close();
        }
    }
}
