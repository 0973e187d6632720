package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.machine.SpanGrid;
import io.github.haul.client.internal.machine.SpanSet;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.SpanRange;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.time.Instant;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A regular file that is being received: {@code .NAME.haul-part}, with {@code .NAME.haul-journal}
 * beside it where it has more than one span.
 *
 * <p>A file of one span is not opened before its bytes come, and nothing of it outlives the
 * session. One of several spans is open, and locked, from its preparation on, with its journal: two
 * descriptors.
 *
 * <p>Several threads may write at a time. {@link #verified} may be called by any; {@link #sync} by
 * one, about each second, as the program haul does: what a run that is killed wrote more than two
 * seconds behind its last record makes the next one read all of it back. No thread that writes may
 * be interrupted: Java closes the channel then, and the lock goes with it.
 */
public final class PartialFile implements TargetEntry {
    /** Time that a run may have written behind its last record. */
    private static final long UNJOURNALED_MAX_S = 2;

    /** Most that a file system is off with a time that it was given, in seconds: vfat's unit. */
    private static final long TIME_OFF_MAX_S = 2;

    private final TargetRoot root;
    private final FileOffer offer;
    private final ByteString name;
    private final OfferedHoles holes;

    /** Spans that are verified and not journaled. */
    private final SpanSet pending;

    private SpanGrid grid;
    private volatile @Nullable HeldTemporary held;
    private @Nullable Journal journal;
    private boolean hasDurable;

    /** Whether a sync failed: it is told of once only (fsync(2)), so nothing is believed then. */
    private boolean isPoisoned;

    private boolean isSealed;
    private @Nullable FileLook published;

    private PartialFile(TargetRoot root, FileOffer offer, ByteString name, SpanGrid grid) {
        this.root = root;
        this.offer = offer;
        this.name = name;
        this.grid = grid;
        holes = new OfferedHoles(offer);
        pending = new SpanSet(grid.count());
    }

    private PartialFile(PartialFile other, SpanGrid grid) {
        this(other.root, other.offer, other.name, grid);
        held = other.held;
        journal = other.journal;
    }

    /** A file of at most one span. */
    static PartialFile whole(TargetRoot root, FileOffer offer, ByteString name, SpanGrid grid) {
        return new PartialFile(root, offer, name, grid);
    }

    /**
     * A file as it was opened.
     *
     * @param durable spans that need not come: those of an earlier run, and those within holes
     * @param resumedBytes bytes of an earlier run among them
     * @param ctimeS ctime of the source when the first of them came, with its nanoseconds; zeros:
     *     not known
     */
    record Opened(PartialFile file, SpanSet durable, long resumedBytes, long ctimeS, int ctimeNs) {}

    /**
     * Opens and locks the temporary of a file of several spans, and takes up what an earlier run
     * left of this very file.
     */
    static Opened open(
            TargetRoot root, FileOffer offer, ByteString name, SpanGrid grid, TargetOptions options)
            throws TargetFault {
        PartialFile file = new PartialFile(root, offer, name, grid);
        try (TargetRoot.Place place = root.parentOf(name)) {
            OpenDirectory directory = place.directory();
            HeldTemporary held = HeldTemporary.open(directory, name);
            file.held = held;
            int digest = options.digest().getNumber();
            JournalIdentity identity =
                    JournalIdentity.of(offer, HiddenNames.last(name), held.look(), digest);
            Opened resumed;
            try {
                resumed = file.resume(directory, identity, options);
            } catch (IOException | RuntimeException failed) {
                // What an earlier run left stays.
                file.letGo();
                throw failed;
            }
            try {
                return resumed == null ? file.startAnew(directory, identity) : resumed;
            } catch (IOException | RuntimeException failed) {
                file.abandon(false);
                throw failed;
            }
        } catch (IOException failed) {
            throw TargetFault.of(name, "cannot be created", failed);
        }
    }

    private Path journalName() throws TargetFault {
        return NativeName.of(HiddenNames.journal(HiddenNames.last(name)));
    }

    /** Takes up what the journal says; null where it is not to be believed. */
    private @Nullable Opened resume(
            OpenDirectory directory, JournalIdentity identity, TargetOptions options)
            throws IOException {
        HeldTemporary part = open();
        FileLook look = directory.lookIfThere(journalName());
        if (look == null || !look.isFile() || look.links() != 1) {
            return null;
        }
        // Nobody can set a ctime back; another mode or owner gives the journal a ctime, and no time
        // of writing.
        long written = Math.min(look.ctimeS(), look.mtimeS());
        boolean isChanged = part.look().ctimeS() - written > UNJOURNALED_MAX_S;
        if (part.channel().size() != offer.getSizeBytes() || isChanged || options.rechecks()) {
            return null;
        }
        FileChannel channel = directory.open(journalName(), OpenDirectory.Creation.NONE);
        Journal taken = null;
        try {
            Journal.Told told = Journal.read(channel, identity);
            if (told == null || !isBelieved(told)) {
                return null;
            }
            SpanSet durable = told.durable();
            SpanGrid cut = told.grid();
            if (grid.spanBytes() < cut.spanBytes()) {
                cut = grid;
                Journal.Cut smaller =
                        Journal.resume(channel, told).cutSmaller(identity, told, grid);
                taken = smaller.journal();
                durable = smaller.durable();
            } else {
                taken = Journal.resume(channel, told);
            }
            return resumed(taken, cut, durable, told.circumstances());
        } finally {
            if (taken == null) {
                channel.close();
            }
        }
    }

    /**
     * Whether the durable spans may be said to be there. The program haul reads back by digests
     * what came before the host was started anew, or its file system mounted with another number:
     * these are XXH3-128, which the JDK lacks, so that here such spans come again.
     */
    private boolean isBelieved(Journal.Told told) {
        boolean knowsCtimes =
                told.circumstances().hasCtime()
                        && (offer.getCtimeS() != 0 || offer.getCtimeNs() != 0);
        byte[] boot = HostBoot.id();
        return told.hasTargetDevice()
                && (told.hasSourceDevice() || knowsCtimes)
                && HostBoot.isKnown(boot)
                && told.circumstances().isOfBoot(boot);
    }

    private Opened resumed(
            Journal taken, SpanGrid cut, SpanSet durable, Journal.Circumstances circumstances)
            throws IOException {
        journal = taken;
        PartialFile file = new PartialFile(this, cut);
        file.hasDurable = !durable.isEmpty();
        SpanSet within = holes.spansWithin(cut);
        SpanSet moved = durable.copy();
        moved.removeAll(within);
        long resumedBytes = moved.bytes(cut);
        if (!holes.isEmpty() && file.holes.clear(open().channel())) {
            for (SpanRange range : within.toRanges()) {
                for (int span = 0; span < range.getCount(); span++) {
                    durable.add(range.getFirst() + span);
                }
            }
        }
        held = null;
        journal = null;
        return new Opened(
                file, durable, resumedBytes, circumstances.ctimeS(), circumstances.ctimeNs());
    }

    private Opened startAnew(OpenDirectory directory, JournalIdentity identity) throws IOException {
        FileLook there = directory.lookIfThere(journalName());
        if (there != null && there.isDirectory()) {
            ByteString hidden = HiddenNames.journal(HiddenNames.last(name));
            throw HeldTemporary.inTheWay(hidden, name, "a directory");
        }
        // The journal first: while it is there, it must not speak of other bytes than these.
        directory.remove(journalName());
        FileChannel channel = open().channel();
        channel.truncate(0);
        checkSpace(directory);
        lengthen(channel);
        FileChannel opened = directory.open(journalName(), OpenDirectory.Creation.NEW);
        try {
            Journal.Circumstances now =
                    new Journal.Circumstances(offer.getCtimeS(), offer.getCtimeNs(), HostBoot.id());
            journal = Journal.begin(opened, identity, grid.spanBytes(), now);
        } finally {
            if (journal == null) {
                opened.close();
            }
        }
        return new Opened(this, holes.spansWithin(grid), 0, 0, 0);
    }

    /** Fails where the disk has too little room. Java has no call that takes it (fallocate(2)). */
    private void checkSpace(OpenDirectory directory) throws IOException {
        long needs = holes.dataBytes();
        long found = directory.usableBytes();
        if (found < needs) {
            throw TargetFault.of(
                    FaultCode.NO_SPACE,
                    name,
                    "does not fit",
                    needs + " bytes of free space",
                    found + " bytes",
                    "free space there, then run the same command again");
        }
    }

    /** Gives the temporary its size: a journal is believed beside a file of that size only. */
    private void lengthen(FileChannel channel) throws IOException {
        long size = offer.getSizeBytes();
        if (channel.size() >= size) {
            return;
        }
        if (holes.holdsLastByte()) {
            // A mapping makes the file longer and writes nothing (ftruncate(2)).
            channel.map(FileChannel.MapMode.READ_WRITE, size - 1, 1);
        }
        if (channel.size() < size) {
            OfferedHoles.writeAll(channel, ByteBuffer.allocate(1), size - 1);
        }
    }

    private HeldTemporary open() throws IOException {
        HeldTemporary open = held;
        if (open == null) {
            throw new IOException("its temporary is closed");
        }
        return open;
    }

    /** The temporary, which for a file of one span is opened now. */
    private HeldTemporary openNow() throws IOException {
        // Without the lock that a sync holds: no stream waits for one.
        HeldTemporary open = held;
        return open == null ? openFirst() : open;
    }

    private synchronized HeldTemporary openFirst() throws IOException {
        if (held == null && isOfOneSpan() && published == null) {
            try (TargetRoot.Place place = root.parentOf(name)) {
                HeldTemporary opened = HeldTemporary.open(place.directory(), name);
                held = opened;
                // It may be there alone, for a crash keeps of two new names whichever it likes.
                place.directory().remove(journalName());
                opened.channel().truncate(0);
                if (!holes.isEmpty()) {
                    lengthen(opened.channel());
                }
            }
        }
        return open();
    }

    private boolean isOfOneSpan() {
        return grid.count() <= 1;
    }

    @Override
    public FileOffer offer() {
        return offer;
    }

    @Override
    public ByteString name() {
        return name;
    }

    /** Returns the division of the file into spans. */
    public SpanGrid grid() {
        return grid;
    }

    /**
     * Writes bytes of a span, direct ones without a copy.
     *
     * @param bytes what; its position is its limit afterwards
     * @param offsetBytes the place in the file
     * @throws TargetFault if they cannot be written
     */
    public void write(ByteBuffer bytes, long offsetBytes) throws TargetFault {
        try {
            if (offsetBytes < 0 || offsetBytes + bytes.remaining() > offer.getSizeBytes()) {
                throw new IOException("the bytes are beyond the file's end");
            }
            holes.write(openNow().channel(), bytes, offsetBytes);
        } catch (IOException failed) {
            throw TargetFault.of(name, "cannot be written", failed);
        }
    }

    /**
     * Takes a span whose bytes are written and verified: the next {@link #sync} makes it durable.
     *
     * @param span its number
     */
    public void verified(int span) {
        synchronized (pending) {
            pending.add(span);
        }
    }

    /**
     * Forces out what was written so far, and journals the spans that were verified before.
     *
     * @return bytes that are durable now and were not before
     * @throws TargetFault if that fails: then the file is given up, as of what was written nothing
     *     is known
     */
    public synchronized long sync() throws TargetFault {
        List<SpanRange> ranges;
        long bytes;
        synchronized (pending) {
            ranges = pending.toRanges();
            bytes = pending.bytes(grid);
            pending.removeAll(pending.copy());
        }
        Journal taken = journal;
        if (ranges.isEmpty() || taken == null) {
            return 0;
        }
        try (TargetRoot.Place place = root.parentOf(name)) {
            check(place.directory());
            isPoisoned = true;
            open().channel().force(false);
            taken.record(ranges);
            // The names of both, and whether the file system still takes changes.
            place.directory().sync();
            isPoisoned = false;
            hasDurable = true;
            return bytes;
        } catch (IOException failed) {
            throw TargetFault.of(name, "cannot be synced", failed);
        }
    }

    /** Fails for a temporary that is not believed any more, or that was taken away. */
    private void check(OpenDirectory directory) throws IOException {
        if (isPoisoned) {
            throw new IOException("an earlier sync of it failed");
        }
        if (!isThere(directory)) {
            throw new IOException("somebody took its temporary away");
        }
    }

    private boolean isThere(OpenDirectory directory) throws IOException {
        HeldTemporary open = open();
        FileLook now = directory.lookIfThere(open.part());
        return now != null && (now.isSameFile(open.look()) || open.look().key() == null);
    }

    @Override
    public synchronized void seal() throws TargetFault {
        if (published != null) {
            return;
        }
        try {
            // An empty file is made now: no byte of it ever came.
            HeldTemporary open = openNow();
            try (TargetRoot.Place place = root.parentOf(name)) {
                check(place.directory());
                checkSize(open.channel().size());
                if (!isSealed) {
                    giveAttributes(place.directory(), open);
                    isSealed = true;
                }
                isPoisoned = true;
                open.channel().force(true);
                isPoisoned = false;
            }
        } catch (IOException failed) {
            throw TargetFault.of(name, "cannot be synced with its attributes", failed);
        }
    }

    private void checkSize(long there) throws TargetFault {
        if (there != offer.getSizeBytes()) {
            isPoisoned = true;
            throw changed(offer.getSizeBytes() + " bytes, as they came", there + " bytes");
        }
    }

    private TargetFault changed(String needs, String found) {
        return TargetFault.of(
                FaultCode.IO_FAILED,
                name,
                "another program changed its temporary while it arrived",
                needs,
                found,
                "find what writes to hidden files there, then run the same command again");
    }

    /**
     * Sets time and mode. Each goes by a descriptor of its own, whose end is that of the lock: who
     * may have had it meanwhile is seen by the time, which no write leaves as it was set.
     */
    private void giveAttributes(OpenDirectory directory, HeldTemporary open) throws IOException {
        FileLook before = directory.look(open.part());
        boolean hasTime = Conflicts.hasTime(offer);
        long seconds = hasTime ? offer.getMtimeS() : before.mtimeS();
        int nanos = hasTime ? offer.getMtimeNs() : before.mtimeNs();
        if (hasTime) {
            directory.setTime(open.part(), seconds, nanos);
        }
        directory.setMode(open.part(), offer.getMode());
        open.lockAgain(name);
        check(directory);
        FileLook after = directory.look(open.part());
        checkSize(after.sizeBytes());
        boolean isAsSet = after.mtimeS() == seconds && after.mtimeNs() == nanos;
        // Not every file system keeps nanoseconds, nor a time before 1970.
        boolean isRounded =
                seconds < 0 || Math.abs(after.mtimeS() - seconds) <= TIME_OFF_MAX_S && hasTime;
        if (!isAsSet && !isRounded) {
            isPoisoned = true;
            String found = Instant.ofEpochSecond(after.mtimeS(), after.mtimeNs()).toString();
            throw changed("the time that it was given", found);
        }
    }

    @Override
    public synchronized void publish() throws TargetFault {
        if (published != null) {
            return;
        }
        try (TargetRoot.Place place = root.parentOf(name)) {
            OpenDirectory directory = place.directory();
            check(directory);
            HeldTemporary open = open();
            Journal taken = journal;
            if (taken != null) {
                // It has nothing more to say, and as long as the temporary is ours so is it.
                taken.close();
                journal = null;
                directory.remove(journalName());
            }
            directory.rename(open.part(), place.last());
            published = open.look();
            held = null;
            open.close();
        } catch (IOException failed) {
            throw TargetFault.of(name, "cannot be put under its name", failed);
        }
    }

    @Override
    public int newLevels() {
        return 1;
    }

    @Override
    public synchronized void checkInPlace() throws TargetFault {
        FileLook own = published;
        FileLook there = root.look(name);
        boolean isThere = own != null && there != null && there.isSameFile(own);
        if (!isThere && (own == null || own.key() != null)) {
            throw TargetFault.of(
                    FaultCode.NOT_FOUND,
                    name,
                    "is not where it was put",
                    "its directory to stay where it is",
                    there == null ? "nothing of that name" : "another file",
                    "run the same command again");
        }
    }

    /** Closes both files as they are. */
    private void letGo() throws IOException {
        HeldTemporary open = held;
        Journal taken = journal;
        held = null;
        journal = null;
        if (taken != null) {
            taken.close();
        }
        if (open != null) {
            open.close();
        }
    }

    @Override
    public synchronized void abandon(boolean keep) {
        HeldTemporary open = held;
        Journal taken = journal;
        held = null;
        journal = null;
        if (open == null) {
            return;
        }
        try (open;
                TargetRoot.Place place = root.parentOf(name)) {
            OpenDirectory directory = place.directory();
            if (taken != null) {
                taken.close();
            }
            FileLook now = directory.lookIfThere(open.part());
            if (now == null || !now.isSameFile(open.look())) {
                return;
            }
            if (keep && taken != null && hasDurable) {
                // The journal is the younger of the two, and so says that all is as it tells.
                Instant time = Instant.now();
                directory.setTime(journalName(), time.getEpochSecond(), time.getNano());
            } else {
                directory.remove(journalName());
                directory.remove(open.part());
            }
        } catch (IOException failed) {
            // What stays is taken up by the next run, or removed.
        }
    }

    /** Divides a file that was offered, whose size the checks of the protocol have bounded. */
    static SpanGrid gridOf(FileOffer offer, long spanBytes) throws TargetFault {
        try {
            return new SpanGrid(offer.getSizeBytes(), spanBytes);
        } catch (ProtocolViolation noGrid) {
            throw TargetFault.of(
                    FaultCode.PROTOCOL_VIOLATION,
                    offer.getName(),
                    "cannot be divided into spans",
                    "",
                    String.valueOf(noGrid.getMessage()),
                    "");
        }
    }
}
