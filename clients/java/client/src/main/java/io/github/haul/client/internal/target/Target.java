package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.machine.SpanGrid;
import io.github.haul.client.internal.machine.SpanSet;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.Growth;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * The place to which received files go.
 *
 * <p>Directories are made under their own names. What a receiver of the program haul left hidden of
 * one is put there first ({@link LeftHidden}): the transfer goes on with it.
 *
 * <p>{@link #prepare} serves one thread; entries may be committed by others meanwhile.
 */
public final class Target implements ReceivePlace {
    /** Most bytes of directories whose mode and time are set at the end; others keep new ones. */
    private static final long DIRECTORY_BYTES_MAX = 32L << 20;

    /** Most bytes of the names of directories that the session made; others are looked into. */
    private static final long FRESH_BYTES_MAX = 1L << 20;

    /** Estimate of what an offer of a directory takes beside its name. */
    private static final int OFFER_BYTES = 256;

    private static final int MODE_BITS = 0777;
    private static final int OWNER_BITS = 0700;

    private final TargetRoot root;
    private final TargetOptions options;

    /** Directory below the root that all goes into; empty for the root. */
    private ByteString base;

    /** New name of the one source; null where sources keep theirs. */
    private @Nullable ByteString newName;

    private final List<FileOffer> directories = new ArrayList<>();
    private long directoryBytes;

    /** Directories that the session made, or a dry run would make: nothing else is in them. */
    private final Set<ByteString> fresh = new HashSet<>();

    /** Files that a dry run would replace. */
    private final Set<ByteString> replaced = new HashSet<>();

    private long freshBytes;

    private Target(
            TargetRoot root, ByteString base, @Nullable ByteString newName, TargetOptions options) {
        this.root = root;
        this.base = base;
        this.newName = newName;
        this.options = options;
    }

    /**
     * Receives into a directory, which is made where it is missing: files keep their names.
     *
     * @param directory the directory
     * @param options rules
     * @return the target
     * @throws TargetFault if it cannot be made or opened
     */
    public static Target into(Path directory, TargetOptions options) throws TargetFault {
        return open(directory, null, options);
    }

    /**
     * Receives one source under a new name, in a directory that is there: one that is missing is a
     * slip in the name. A directory as the source keeps its name, below the new one.
     *
     * @param path the new name
     * @param options rules
     * @return the target
     * @throws TargetFault if its directory is missing or cannot be opened, or the name is refused
     */
    public static Target named(Path path, TargetOptions options) throws TargetFault {
        Path whole = path.toAbsolutePath().normalize();
        Path last = whole.getFileName();
        Path above = whole.getParent();
        if (last == null || above == null) {
            return open(whole, null, options);
        }
        ByteString name = NativeName.bytes(last);
        TargetRoot.check(name);
        if (!options.isDryRun() && !Files.isDirectory(above)) {
            boolean isThere = Files.exists(above);
            throw TargetFault.of(
                    FaultCode.NOT_FOUND,
                    NativeName.bytes(whole),
                    "cannot be put into its directory",
                    "a directory that is there",
                    isThere ? "something that is no directory" : "no such file or directory",
                    "make that directory first, or check the name");
        }
        return open(above, name, options);
    }

    private static Target open(Path directory, @Nullable ByteString name, TargetOptions options)
            throws TargetFault {
        Path there = directory.toAbsolutePath().normalize();
        ByteString base = ByteString.EMPTY;
        // A dry run makes nothing: what is missing belongs to the names then.
        while (options.isDryRun() && !Files.exists(there)) {
            Path last = there.getFileName();
            Path above = there.getParent();
            if (last == null || above == null) {
                break;
            }
            base = HiddenNames.join(NativeName.bytes(last), base);
            there = above;
        }
        try {
            return new Target(TargetRoot.open(there), base, name, options);
        } catch (IOException failed) {
            ByteString shown = NativeName.bytes(directory.toAbsolutePath());
            throw TargetFault.of(shown, "the target directory cannot be made", failed);
        }
    }

    @Override
    public void giveRootMode(int mode) {
        try (OpenDirectory directory = root.directory(ByteString.EMPTY)) {
            directory.setMode(null, options.modeOf(mode & MODE_BITS) | OWNER_BITS);
        } catch (IOException notKept) {
            // It is there, with the mode of a new directory.
        }
    }

    @Override
    public boolean isOfSeveralSpans(long sizeBytes) {
        return sizeBytes > options.spanBytesFor(sizeBytes);
    }

    /** The name below the root of what is offered. */
    private ByteString nameOf(ByteString offered) {
        ByteString given = newName;
        if (given == null) {
            return HiddenNames.join(base, offered);
        }
        int slash = 0;
        while (slash < offered.size() && offered.byteAt(slash) != '/') {
            slash++;
        }
        ByteString below =
                slash == offered.size() ? ByteString.EMPTY : offered.substring(slash + 1);
        return HiddenNames.join(HiddenNames.join(base, given), below);
    }

    @Override
    public Prepared prepare(FileOffer offer) {
        ByteString name = offer.getName();
        try {
            TargetRoot.check(name);
            boolean isDirectory = offer.getKind() == FileKind.DIRECTORY;
            ByteString given = newName;
            if (given != null && (isDirectory || !HiddenNames.parent(name).isEmpty())) {
                base = HiddenNames.join(base, given);
                newName = null;
            }
            name = nameOf(name);
            TargetRoot.check(name);
            NativeName.of(name);
            if (offer.getGrowth() != Growth.NOT_GROWING) {
                throw unsupported(name, "a file that is still being written");
            }
            return switch (offer.getKind()) {
                case DIRECTORY -> directory(offer, name);
                case HARD_LINK -> hardLink(offer, name);
                case REGULAR, SYMLINK -> fileOrLink(offer, name);
                default -> throw unsupported(name, "a kind that this version does not know");
            };
        } catch (IOException failed) {
            return new Prepared.Refused(TargetFault.of(name, "cannot be created", failed).fault());
        }
    }

    private static TargetFault unsupported(ByteString name, String found) {
        return TargetFault.of(
                FaultCode.KIND_UNSUPPORTED,
                name,
                "is of a kind that is not received",
                "",
                found,
                "");
    }

    /** What has a name; nothing of what is offered in a directory that this session made. */
    private @Nullable FileLook look(ByteString name) {
        return fresh.contains(HiddenNames.parent(name)) ? null : root.look(name);
    }

    private Prepared directory(FileOffer offer, ByteString name) throws IOException {
        FileLook there = look(name);
        Conflicts.checkDirectory(name, there);
        boolean mayBeLeft = !options.isDryRun() && !fresh.contains(HiddenNames.parent(name));
        if (mayBeLeft && LeftHidden.takeUp(root, name)) {
            there = look(name);
        }
        if (there != null) {
            finishLater(offer);
            return new Prepared.Skip();
        }
        if (options.isDryRun()) {
            checkParent(name);
            addFresh(fresh, name);
            return new Prepared.Planned(false, ByteString.EMPTY);
        }
        // Never wider than the source, also until its end, and this session may write into it.
        int mode = options.modeOf(offer.getMode() & MODE_BITS) | OWNER_BITS;
        int newLevels = root.makeDirectories(name, mode);
        if (newLevels > 0) {
            addFresh(fresh, name);
        }
        return need(new PendingDirectory(offer, name, newLevels), ByteString.EMPTY);
    }

    private void addFresh(Set<ByteString> names, ByteString name) {
        if (freshBytes < FRESH_BYTES_MAX && names.add(name)) {
            freshBytes += name.size();
        }
    }

    /** Fails in a dry run where something is in the way of the parent directory. */
    private void checkParent(ByteString name) throws IOException {
        ByteString parent = HiddenNames.parent(name);
        if (!fresh.contains(parent)) {
            try {
                root.directory(parent).close();
            } catch (NoSuchFileException made) {
                // It would be made.
            }
        }
    }

    private Prepared hardLink(FileOffer offer, ByteString name) throws IOException {
        ByteString first = nameOf(offer.getLinkTarget());
        FileLook there = look(name);
        FileLook to = root.look(first);
        if (options.isDryRun() && (to == null || replaced.contains(first))) {
            // A file that would be made or replaced gets an inode of its own, and its names with
            // it.
            to = null;
        } else if (to == null || !to.isFile()) {
            throw Conflicts.noHardLink(name, to == null ? "nothing" : to.kind().words());
        }
        if (there != null && to != null && there.isSameFile(to)) {
            return new Prepared.Skip();
        }
        Conflicts.Decision decision =
                Conflicts.decide(root, name, there, offer, options.onConflict());
        if (decision.skips()) {
            return new Prepared.Skip();
        }
        if (options.isDryRun()) {
            checkParent(name);
            return new Prepared.Planned(there != null, ByteString.EMPTY);
        }
        try {
            return need(PendingLink.hard(root, offer, name, first), ByteString.EMPTY);
        } catch (UnsupportedOperationException | IOException cannot) {
            throw Conflicts.noHardLink(name, String.valueOf(cannot.getMessage()));
        }
    }

    private Prepared fileOrLink(FileOffer offer, ByteString name) throws IOException {
        FileLook there = look(name);
        Conflicts.Decision decision =
                Conflicts.decide(root, name, there, offer, options.onConflict());
        if (decision.skips()) {
            bringUpToDate(offer, decision.name());
            return new Prepared.Skip();
        }
        ByteString stored = decision.name();
        ByteString storedAs = ByteString.EMPTY;
        if (!stored.equals(name)) {
            storedAs = base.isEmpty() ? stored : stored.substring(base.size() + 1);
        }
        if (options.isDryRun()) {
            if (decision.replaces()) {
                addFresh(replaced, name);
            } else {
                checkParent(name);
            }
            return new Prepared.Planned(decision.replaces(), storedAs);
        }
        if (offer.getKind() == FileKind.SYMLINK) {
            return need(PendingLink.symbolic(root, offer, stored, options), storedAs);
        }
        return receive(offer, stored, storedAs);
    }

    private Prepared receive(FileOffer offer, ByteString name, ByteString storedAs)
            throws IOException {
        SpanGrid grid = PartialFile.gridOf(offer, options.spanBytesFor(offer.getSizeBytes()));
        if (grid.count() <= 1) {
            return need(PartialFile.whole(root, offer, name, grid, options), storedAs);
        }
        PartialFile.Opened opened = PartialFile.open(root, offer, name, grid, options);
        FileLook there = root.look(name);
        if (there != null && isFinished(offer, name, there)) {
            // An earlier session has finished it while this one waited for its lock.
            opened.file().abandon(false);
            return new Prepared.Skip();
        }
        return new Prepared.Need(
                opened.file(),
                opened.file().grid().spanBytes(),
                opened.durable(),
                opened.resumedBytes(),
                storedAs,
                opened.ctimeS(),
                opened.ctimeNs(),
                opened.digest(),
                opened.recheck());
    }

    private boolean isFinished(FileOffer offer, ByteString name, FileLook there) {
        try {
            return Conflicts.decide(root, name, there, offer, options.onConflict()).skips();
        } catch (TargetFault other) {
            return false;
        }
    }

    private static Prepared need(TargetEntry entry, ByteString storedAs) throws TargetFault {
        FileOffer offer = entry.offer();
        SpanGrid grid =
                entry instanceof PartialFile file
                        ? file.grid()
                        : PartialFile.gridOf(offer, 1L << 23);
        SpanSet none = new SpanSet(grid.count());
        return new Prepared.Need(
                entry, grid.spanBytes(), none, 0, storedAs, 0, 0, ByteString.EMPTY, null);
    }

    /** Gives a file that holds the same bytes the source's mode too, and removes leftovers. */
    private void bringUpToDate(FileOffer offer, ByteString name) {
        if (offer.getKind() != FileKind.REGULAR || options.isDryRun()) {
            return;
        }
        try (TargetRoot.Place place = root.parentOf(name)) {
            OpenDirectory directory = place.directory();
            FileLook there = directory.look(place.last());
            boolean differs = there.mode() != offer.getMode() && options.keepsMode();
            if (differs && there.key() != null) {
                directory.setMode(place.last(), offer.getMode());
            }
            HeldTemporary.removeLeftovers(directory, name);
        } catch (IOException notAllowed) {
            // Somebody else's file with the same bytes has always been good enough.
        }
    }

    /**
     * Commits one entry; {@link #commit(List)} shares the syncs of directories among many.
     *
     * @param entry what is complete and confirmed
     * @throws TargetFault if a step fails; what a later run can go on from stays then
     */
    public void commit(TargetEntry entry) throws TargetFault {
        Optional<Fault> fault = commit(List.of(entry)).get(entry);
        if (fault != null && fault.isPresent()) {
            throw new TargetFault(fault.get());
        }
    }

    @Override
    public Map<TargetEntry, Optional<Fault>> commit(List<? extends TargetEntry> entries) {
        Map<TargetEntry, Optional<Fault>> faults = new LinkedHashMap<>();
        entries.forEach(entry -> faults.put(entry, Optional.empty()));
        each(faults, TargetEntry::seal);
        each(faults, TargetEntry::publish);
        try {
            root.forget();
        } catch (IOException stillOpen) {
            // They are closed when the system likes.
        }
        Map<ByteString, Optional<IOException>> synced = new LinkedHashMap<>();
        each(faults, entry -> syncDirectories(entry, synced));
        each(faults, TargetEntry::checkInPlace);
        faults.forEach(this::finishOrAbandon);
        return faults;
    }

    /** A step of a commit. */
    private interface Step {
        void take(TargetEntry entry) throws TargetFault;
    }

    private static void each(Map<TargetEntry, Optional<Fault>> faults, Step step) {
        for (Map.Entry<TargetEntry, Optional<Fault>> one : faults.entrySet()) {
            if (one.getValue().isEmpty()) {
                try {
                    step.take(one.getKey());
                } catch (TargetFault failed) {
                    one.setValue(Optional.of(failed.fault()));
                }
            }
        }
    }

    /** Syncs the directories that a name, or those above it, are new in, each once. */
    private void syncDirectories(TargetEntry entry, Map<ByteString, Optional<IOException>> synced)
            throws TargetFault {
        ByteString at = entry.name();
        for (int level = 0; level < entry.newLevels(); level++) {
            Optional<IOException> failed =
                    synced.computeIfAbsent(
                            HiddenNames.parent(at),
                            it -> {
                                try (OpenDirectory directory = root.directory(it)) {
                                    directory.sync();
                                    return Optional.empty();
                                } catch (IOException error) {
                                    return Optional.of(error);
                                }
                            });
            if (failed.isPresent()) {
                String what = "its directory cannot be synced";
                throw TargetFault.of(entry.name(), what, failed.get());
            }
            at = HiddenNames.parent(at);
        }
    }

    private void finishOrAbandon(TargetEntry entry, Optional<Fault> fault) {
        if (fault.isPresent()) {
            entry.abandon(true);
        } else if (entry instanceof PendingDirectory directory) {
            finishLater(directory.offer());
        }
    }

    private synchronized void finishLater(FileOffer offer) {
        directoryBytes += OFFER_BYTES + offer.getName().size();
        if (directoryBytes < DIRECTORY_BYTES_MAX && !options.isDryRun()) {
            directories.add(offer);
        }
    }

    @Override
    public synchronized List<Fault> finishDirectories() {
        List<Fault> faults = new ArrayList<>();
        for (int at = directories.size() - 1; at >= 0; at--) {
            FileOffer offer = directories.get(at);
            ByteString name = nameOf(offer.getName());
            try (OpenDirectory directory = root.directory(name)) {
                // The time first: the mode may not let the directory be opened once more.
                if (options.keepsTime()) {
                    directory.setTime(null, offer.getMtimeS(), offer.getMtimeNs());
                }
                directory.setMode(null, options.modeOf(offer.getMode() & MODE_BITS));
            } catch (IOException failed) {
                Fault fault =
                        TargetFault.of(name, "cannot be given its attributes", failed).fault();
                // One that belongs to somebody else keeps its own.
                if (fault.getCode() != FaultCode.NOT_PERMITTED) {
                    faults.add(fault);
                }
            }
        }
        directories.clear();
        return faults;
    }

    @Override
    public void close() throws IOException {
        root.close();
    }
}
