package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.FaultCode;
import java.io.Closeable;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * A temporary that only this has open, and that is locked against other processes.
 *
 * <p>The lock is that of {@link FileChannel#tryLock()}, on Unix a POSIX lock (fcntl_locking(2)),
 * which the program haul takes beside its own (docs/decisions/0057). It ends when the process
 * closes any descriptor of the file, so a temporary is opened once in a process: a table of those
 * that are open is asked before, and two pulls of one process exclude each other by it.
 */
final class HeldTemporary implements Closeable {
    /** Time for which a lock is waited for: its holder may be a session that is just ending. */
    private static final long PATIENCE_NS = TimeUnit.MILLISECONDS.toNanos(1500);

    private static final long POLL_MS = 20;

    /** Temporaries that this process has open. */
    private static final Set<Key> OPEN = ConcurrentHashMap.newKeySet();

    private record Key(Object directory, ByteString part) {}

    private final Key key;
    private final Path part;
    private final FileChannel channel;
    private final FileLook look;
    private FileLock lock;
    private @Nullable DiskReader reader;

    private HeldTemporary(Key key, Path part, FileChannel channel, FileLook look, FileLock lock) {
        this.key = key;
        this.part = part;
        this.channel = channel;
        this.look = look;
        this.lock = lock;
    }

    /**
     * Opens the temporary of a name, made when missing, and locks it.
     *
     * @param directory where it is
     * @param name the file's name below the root
     * @throws TargetFault LOCKED if another writes to it
     */
    static HeldTemporary open(OpenDirectory directory, ByteString name) throws TargetFault {
        ByteString part = HiddenNames.part(HiddenNames.last(name));
        Key key = new Key(directory.key(), part);
        long begun = System.nanoTime();
        while (true) {
            if (OPEN.add(key)) {
                HeldTemporary held = null;
                try {
                    held = tryOpen(directory, key, name);
                    if (held != null) {
                        return held;
                    }
                } catch (IOException failed) {
                    throw TargetFault.of(name, "the temporary cannot be opened", failed);
                } finally {
                    if (held == null) {
                        OPEN.remove(key);
                    }
                }
            }
            if (System.nanoTime() - begun > PATIENCE_NS) {
                throw locked(name);
            }
            try {
                Thread.sleep(POLL_MS);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw locked(name);
            }
        }
    }

    /** Opens and locks it; null where another holds it, or another has its name by now. */
    private static @Nullable HeldTemporary tryOpen(
            OpenDirectory directory, Key key, ByteString name) throws IOException {
        Path part = NativeName.of(key.part);
        FileLook before = directory.lookIfThere(part);
        if (before != null) {
            checkOwn(before, key.part, name);
        }
        FileChannel channel;
        try {
            channel =
                    directory.open(
                            part,
                            before == null
                                    ? OpenDirectory.Creation.NEW
                                    : OpenDirectory.Creation.NONE);
        } catch (FileAlreadyExistsException | NoSuchFileException changed) {
            return null;
        }
        FileLock lock = null;
        try {
            lock = tryLock(channel);
            if (lock == null) {
                return null;
            }
            FileLook look = directory.look(part);
            // The holder before may have renamed it away meanwhile.
            boolean isOurs = before == null || before.isSameFile(look) || look.key() == null;
            if (!isOurs) {
                lock = null;
                return null;
            }
            checkOwn(look, key.part, name);
            return new HeldTemporary(key, part, channel, look, lock);
        } catch (IOException failed) {
            lock = null;
            throw failed;
        } finally {
            if (lock == null) {
                channel.close();
            }
        }
    }

    private static @Nullable FileLock tryLock(FileChannel channel) throws IOException {
        try {
            return channel.tryLock();
        } catch (OverlappingFileLockException here) {
            return null;
        }
    }

    private static void checkOwn(FileLook look, ByteString part, ByteString name)
            throws TargetFault {
        if (!look.isFile()) {
            throw inTheWay(part, name, look.kind().words());
        }
        if (look.links() > 1) {
            throw inTheWay(part, name, "a file that has another name too");
        }
    }

    /** Fault of a name in the way: what haul did not make stays until its owner removes it. */
    static TargetFault inTheWay(ByteString hidden, ByteString name, String found) {
        String shown = hidden.toStringUtf8();
        return TargetFault.of(
                FaultCode.NAME_REFUSED,
                name,
                "something else has the name of its hidden temporary",
                "the name " + shown + " beside it, for what arrives until it is whole",
                found,
                "remove " + shown + " from that directory, then run the same command again");
    }

    private static TargetFault locked(ByteString name) {
        return TargetFault.of(
                FaultCode.LOCKED,
                name,
                "another transfer is writing to it",
                "to be the only writer",
                "a live one that holds the lock",
                "let that one end, or stop it");
    }

    /** Removes the temporary and the journal that a run left, unless somebody uses them. */
    static void removeLeftovers(OpenDirectory directory, ByteString name) throws IOException {
        ByteString last = HiddenNames.last(name);
        Path part = NativeName.of(HiddenNames.part(last));
        if (directory.lookIfThere(part) == null) {
            directory.remove(NativeName.of(HiddenNames.journal(last)));
            return;
        }
        HeldTemporary held = openIfFree(directory, HiddenNames.part(last), name);
        if (held != null) {
            try (held) {
                directory.remove(NativeName.of(HiddenNames.journal(last)));
                directory.remove(part);
            }
        }
    }

    /**
     * Opens a hidden file and locks it, made when missing; null where somebody uses it.
     *
     * @param directory where it is
     * @param hidden its own name there
     * @param name the name below the root that it belongs to
     */
    static @Nullable HeldTemporary openIfFree(
            OpenDirectory directory, ByteString hidden, ByteString name) throws IOException {
        Key key = new Key(directory.key(), hidden);
        if (!OPEN.add(key)) {
            return null;
        }
        HeldTemporary held = null;
        try {
            held = tryOpen(directory, key, name);
            return held;
        } finally {
            if (held == null) {
                OPEN.remove(key);
            }
        }
    }

    /**
     * Takes the lock once more. Java sets times and modes by descriptors of their own, and closing
     * one ends the lock: somebody may have had the file meanwhile.
     *
     * @throws TargetFault LOCKED if another has it now
     */
    void lockAgain(ByteString name) throws IOException {
        lock.release();
        FileLock again = tryLock(channel);
        if (again == null) {
            throw locked(name);
        }
        lock = again;
    }

    FileChannel channel() {
        return channel;
    }

    /** The temporary when it was opened. */
    FileLook look() {
        return look;
    }

    Path part() {
        return part;
    }

    /**
     * Opens it once more, to read it back from its disk. What is opened is closed with it: to close
     * it before would end the lock.
     */
    synchronized DiskReader reader(OpenDirectory directory) throws IOException {
        DiskReader open = reader;
        if (open == null) {
            open = DiskReader.open(directory.path().resolve(part), channel);
            reader = open;
            if (look.key() != null && !directory.look(part).isSameFile(look)) {
                throw new NoSuchFileException(part.toString());
            }
        }
        return open;
    }

    /** Lets go of it. The temporary stays, if it was not renamed or removed before. */
    @Override
    public synchronized void close() throws IOException {
        DiskReader open = reader;
        try (channel) {
            if (open != null) {
                open.close();
            }
        } finally {
            OPEN.remove(key);
        }
    }
}
