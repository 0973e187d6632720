package io.github.haul.client.internal.source;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.FileKind;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Hard links among the files that are sent: the first name of an inode goes as a file, the others
 * as links to it once it is in place.
 */
public final class HardLinks {
    /** The most inodes that are kept track of: of more, each name goes as a file of its own. */
    private static final int INODES_MAX = 1 << 16;

    /** The most names that wait for the first of their inode. */
    private static final int WAITING_MAX = 1 << 14;

    private final Map<Inode, First> inodes = new HashMap<>();
    private final Map<Integer, Inode> underWay = new HashMap<>();
    private int waiting;

    private record Inode(long device, long inode) {}

    private static final class First {
        final ByteString name;
        long namesLeft;
        final List<SourceEntry> waiting = new ArrayList<>();
        boolean isInPlace;

        First(SourceEntry entry) {
            name = entry.name();
            namesLeft = entry.links() - 1;
        }
    }

    private static boolean isOneOfMany(SourceEntry entry) {
        return entry.links() > 1
                && entry.offer().getKind() == FileKind.REGULAR
                && entry.offer().getInode() != 0;
    }

    private static Inode inode(SourceEntry entry) {
        return new Inode(entry.offer().getDevice(), entry.offer().getInode());
    }

    /** Returns whether no other name may wait: the walk is to pause. */
    public boolean isFull() {
        return waiting >= WAITING_MAX;
    }

    /** Returns whether any name waits for the first of its inode. */
    public boolean keepsSome() {
        return waiting > 0;
    }

    /**
     * Meets a file of the walk.
     *
     * @param entry the file
     * @return what to offer now, as it is or as a link; null if it waits
     */
    public @Nullable SourceEntry meet(SourceEntry entry) {
        First first = isOneOfMany(entry) ? inodes.get(inode(entry)) : null;
        if (first == null) {
            return entry;
        }
        first.namesLeft--;
        if (!first.isInPlace) {
            first.waiting.add(entry);
            waiting++;
            return null;
        }
        if (first.namesLeft <= 0) {
            inodes.remove(inode(entry));
        }
        return entry.asLinkTo(first.name);
    }

    /**
     * Notes the number under which a file was offered.
     *
     * @param file its number
     * @param entry the file
     */
    public void offered(int file, SourceEntry entry) {
        if (isOneOfMany(entry)
                && inodes.size() < INODES_MAX
                && inodes.putIfAbsent(inode(entry), new First(entry)) == null) {
            underWay.put(file, inode(entry));
        }
    }

    /**
     * Notes that a file has ended.
     *
     * @param file its number
     * @param isInPlace it is at the receiver
     * @return the names that waited for it, to be offered now: as links where it is in place
     */
    public List<SourceEntry> ended(int file, boolean isInPlace) {
        Inode inode = underWay.remove(file);
        First first = inode == null ? null : inodes.get(inode);
        if (inode == null || first == null) {
            return List.of();
        }
        List<SourceEntry> ready = List.copyOf(first.waiting);
        waiting -= ready.size();
        first.waiting.clear();
        first.isInPlace = true;
        if (!isInPlace || first.namesLeft <= 0) {
            inodes.remove(inode);
        }
        return isInPlace ? ready.stream().map(entry -> entry.asLinkTo(first.name)).toList() : ready;
    }
}
