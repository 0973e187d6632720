package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.wire.Names;
import java.io.Closeable;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A directory that names from outside cannot leave: they are opened component by component, and no
 * link is followed. {@link OpenDirectory} says how strong that is.
 *
 * <p>A few directories are kept open for a moment, as the files of one directory come one after the
 * other. Several threads may use it.
 */
final class TargetRoot implements Closeable {
    /** Permission bits of a directory that no source has, before the umask. */
    static final int DIRECTORY_MODE = 0755;

    /** Time for which a directory is used again without a new look at its path. */
    private static final long KEPT_NS = 100_000_000;

    /** The most directories that are kept open. */
    private static final int KEPT_MAX = 8;

    private record Kept(OpenDirectory directory, long openedNs) {}

    private final OpenDirectory root;

    /** Directories that are kept open, by their names, the one opened longest ago first. */
    private final Map<ByteString, Kept> kept = new LinkedHashMap<>();

    private TargetRoot(OpenDirectory root) {
        this.root = root;
    }

    /**
     * Opens a root, which is made where it is missing, with the directories above it.
     *
     * @param path the directory; links on its way are followed
     */
    static TargetRoot open(Path path) throws IOException {
        Deque<Path> missing = new ArrayDeque<>();
        for (Path at = path.toAbsolutePath(); at != null; at = at.getParent()) {
            if (Files.exists(at)) {
                break;
            }
            missing.push(at);
        }
        for (Path one : missing) {
            try {
                Files.createDirectory(one);
            } catch (FileAlreadyExistsException other) {
                // Somebody else made it meanwhile.
            }
            Path above = one.getParent();
            if (above != null) {
                try (OpenDirectory opened = OpenDirectory.root(above)) {
                    opened.sync();
                }
            }
        }
        return new TargetRoot(OpenDirectory.root(path));
    }

    /** A place in an open directory; closing it lets go of the directory. */
    record Place(OpenDirectory directory, Path last) implements Closeable {
        @Override
        public void close() throws IOException {
            directory.close();
        }
    }

    /**
     * Opens the directory that holds a name.
     *
     * @param name the name below the root
     * @throws TargetFault with NAME_REFUSED if Java cannot hold the name
     * @throws IOException if the directory is not there, or a link is on the way
     */
    Place parentOf(ByteString name) throws IOException {
        Path last = NativeName.of(HiddenNames.last(name));
        return new Place(directory(HiddenNames.parent(name)), last);
    }

    /** Opens a directory below; the empty name is the root. */
    OpenDirectory directory(ByteString name) throws IOException {
        if (name.isEmpty()) {
            return root.share();
        }
        synchronized (kept) {
            letGoOfOld();
            Kept found = kept.get(name);
            if (found != null) {
                return found.directory.share();
            }
        }
        OpenDirectory opened = walk(name);
        synchronized (kept) {
            if (kept.size() >= KEPT_MAX) {
                Iterator<Kept> oldest = kept.values().iterator();
                oldest.next().directory.close();
                oldest.remove();
            }
            Kept before = kept.put(name, new Kept(opened.share(), System.nanoTime()));
            if (before != null) {
                before.directory.close();
            }
        }
        return opened;
    }

    private void letGoOfOld() throws IOException {
        Iterator<Kept> all = kept.values().iterator();
        while (all.hasNext()) {
            Kept one = all.next();
            if (System.nanoTime() - one.openedNs >= KEPT_NS) {
                all.remove();
                one.directory.close();
            }
        }
    }

    /** Forgets the directories that are kept open: each path is looked at anew. */
    void forget() throws IOException {
        synchronized (kept) {
            for (Kept one : kept.values()) {
                one.directory.close();
            }
            kept.clear();
        }
    }

    private OpenDirectory walk(ByteString name) throws IOException {
        OpenDirectory at = root.share();
        for (Path component : NativeName.of(name)) {
            try (OpenDirectory above = at) {
                at = above.below(component);
            }
        }
        return at;
    }

    /** Looks at a name; null where nothing has it, or nothing can be seen. */
    @Nullable FileLook look(ByteString name) {
        try (Place place = parentOf(name)) {
            return place.directory().look(place.last());
        } catch (IOException notThere) {
            return null;
        }
    }

    /**
     * Makes a directory with these permission bits, and those above it, as far as they are missing.
     *
     * @return how many were missing: they are durable when {@link #syncParents} of so many is done
     */
    int makeDirectories(ByteString name, int mode) throws IOException {
        Deque<ByteString> missing = new ArrayDeque<>();
        for (ByteString at = name; !at.isEmpty(); at = HiddenNames.parent(at)) {
            try {
                directory(at).close();
                break;
            } catch (NoSuchFileException notThere) {
                missing.push(at);
            }
        }
        for (ByteString one : missing) {
            try (Place place = parentOf(one)) {
                int bits = one.equals(name) ? mode : DIRECTORY_MODE;
                place.directory().makeDirectory(place.last(), bits);
            } catch (FileAlreadyExistsException other) {
                // Somebody else made it meanwhile, and may not have synced it.
            }
        }
        return missing.size();
    }

    /** Syncs the directory that holds a name, and those above it, so many in all. */
    void syncParents(ByteString name, int levels) throws IOException {
        ByteString at = name;
        for (int level = 0; level < levels; level++) {
            at = HiddenNames.parent(at);
            try (OpenDirectory directory = directory(at)) {
                directory.sync();
            }
        }
    }

    /**
     * Refuses a name that leaves the root, or is one of haul's own.
     *
     * @param name the name below the root
     */
    static void check(ByteString name) throws TargetFault {
        String refusal = Names.refusal(name);
        if (refusal == null && HiddenNames.holdsHidden(name)) {
            refusal = "haul's own temporaries have such names";
        }
        if (refusal != null) {
            throw TargetFault.of(
                    FaultCode.NAME_REFUSED,
                    name,
                    "the name is refused",
                    "a name below the target's root, without `.` and `..`",
                    refusal,
                    "");
        }
    }

    @Override
    public void close() throws IOException {
        forget();
        root.close();
    }
}
