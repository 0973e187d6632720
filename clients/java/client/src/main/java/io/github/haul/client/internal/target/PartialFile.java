package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.machine.SpanGrid;
import io.github.haul.client.internal.machine.SpanSet;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.SpanRange;
import io.github.haul.client.internal.wire.ProtocolViolation;
import io.github.haul.client.internal.wire.Xxh3;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.time.Instant;
import java.util.List;
import java.util.function.BooleanSupplier;
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
public final class PartialFile implements ReceivedFile {
    /** Time that a run may have written behind its last record. */
    private static final long UNJOURNALED_MAX_S = 2;

    /** Most that a file system is off with a time that it was given, in seconds: vfat's unit. */
    private static final long TIME_OFF_MAX_S = 2;

    private final TargetRoot root;
    private final FileOffer offer;
    private final ByteString name;
    private final TargetOptions options;
    private final OfferedHoles holes;

    /** Spans that are verified and not journaled. */
    private final SpanSet pending;

    /** What is known of the spans' bytes. */
    private final SpanDigests digests;

    private SpanGrid grid;
    private volatile @Nullable HeldTemporary held;
    private @Nullable Journal journal;
    private boolean hasDurable;

    /** Whether a sync failed: it is told of once only (fsync(2)), so nothing is believed then. */
    private boolean isPoisoned;

    private boolean isSealed;
    private @Nullable FileLook published;

    private PartialFile(
            TargetRoot root,
            FileOffer offer,
            ByteString name,
            SpanGrid grid,
            SpanDigests digests,
            TargetOptions options) {
        this.root = root;
        this.options = options;
        this.offer = offer;
        this.name = name;
        this.grid = grid;
        holes = new OfferedHoles(offer);
        pending = new SpanSet(grid.count());
        this.digests = digests;
    }

    private PartialFile(PartialFile other, SpanGrid grid, SpanDigests digests) {
        this(other.root, other.offer, other.name, grid, digests, other.options);
        held = other.held;
        journal = other.journal;
    }

    /** A file of at most one span. */
    static PartialFile whole(
            TargetRoot root,
            FileOffer offer,
            ByteString name,
            SpanGrid grid,
            TargetOptions options) {
        SpanDigests none = new SpanDigests(grid.count());
        return new PartialFile(root, offer, name, grid, none, options);
    }

    /**
     * A file as it was opened.
     *
     * @param durable spans that need not come: those of an earlier run, and those within holes
     * @param resumedBytes bytes of an earlier run among them
     * @param ctimeS ctime of the source when the first of them came, with its nanoseconds; zeros:
     *     not known
     * @param digest what the durable spans hold; empty where it is not known
     * @param recheck what is to be read back of them; null where they are believed
     */
    record Opened(
            PartialFile file,
            SpanSet durable,
            long resumedBytes,
            long ctimeS,
            int ctimeNs,
            ByteString digest,
            @Nullable Recheck recheck) {}

    /**
     * Opens and locks the temporary of a file of several spans, and takes up what an earlier run
     * left of this very file.
     */
    static Opened open(
            TargetRoot root, FileOffer offer, ByteString name, SpanGrid grid, TargetOptions options)
            throws TargetFault {
        SpanDigests none = new SpanDigests(grid.count());
        PartialFile file = new PartialFile(root, offer, name, grid, none, options);
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
            } catch (IOException | RuntimeException | Error failed) {
                // What an earlier run left stays.
                file.letGo();
                throw failed;
            }
            try {
                return resumed == null ? file.startAnew(directory, identity) : resumed;
            } catch (IOException | RuntimeException | Error failed) {
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

    /** Takes up what the journal says; null where it is of another transfer. */
    private @Nullable Opened resume(
            OpenDirectory directory, JournalIdentity identity, TargetOptions options)
            throws IOException {
        HeldTemporary part = open();
        FileLook look = directory.lookIfThere(journalName());
        boolean isOwn = look != null && look.isFile() && look.links() == 1;
        if (look == null || !isOwn || part.channel().size() != offer.getSizeBytes()) {
            return null;
        }
        // Nobody can set a ctime back; another mode or owner gives the journal a ctime, and no time
        // of writing.
        long written = Math.min(look.ctimeS(), look.mtimeS());
        boolean isChanged = part.look().ctimeS() - written > UNJOURNALED_MAX_S;
        FileChannel channel = directory.open(journalName(), OpenDirectory.Creation.NONE);
        Opened opened = null;
        try {
            Journal.Told told = Journal.read(channel, identity);
            if (told == null || !isOfSource(told)) {
                return null;
            }
            Suspicion suspicion = Suspicion.of(told, isChanged, options);
            Journal taken = Journal.resume(channel, identity, told);
            // Smaller spans have no digests of what is to be read back.
            boolean mayCut = suspicion == null || suspicion == Suspicion.ASKED;
            if (mayCut && grid.spanBytes() < told.grid().spanBytes()) {
                Journal.Cut cut = taken.cutSmaller(told, grid);
                journal = cut.journal();
                opened = resumed(grid, cut.durable(), cut.digests(), told, suspicion, options);
            } else {
                journal = taken;
                SpanSet durable = told.durable();
                opened = resumed(told.grid(), durable, told.digests(), told, suspicion, options);
            }
            return opened;
        } finally {
            if (opened == null) {
                journal = null;
                channel.close();
            }
        }
    }

    /**
     * Whether the journal is of this very source: a number of its device that differs is that of
     * another mount only where its ctime is known, by which the sender sees whether it is the same.
     */
    private boolean isOfSource(Journal.Told told) {
        boolean knowsCtimes =
                told.circumstances().hasCtime()
                        && (offer.getCtimeS() != 0 || offer.getCtimeNs() != 0);
        return told.hasSourceDevice() || knowsCtimes;
    }

    /** Takes over what an earlier run left, as far as it may be believed or read back. */
    private Opened resumed(
            SpanGrid cut,
            SpanSet durable,
            SpanDigests known,
            Journal.Told told,
            @Nullable Suspicion suspicion,
            TargetOptions options)
            throws IOException {
        PartialFile file = new PartialFile(this, cut, known);
        file.hasDurable = !durable.isEmpty();
        SpanSet within = holes.spansWithin(cut);
        SpanSet moved = durable.copy();
        moved.removeAll(within);
        Recheck recheck = null;
        if (options.verifiesTarget()) {
            // There would be nothing to compare it with at the end.
            SpanSet unknown = known.unknownOf(moved);
            file.lose(unknown);
            durable.removeAll(unknown);
            moved.removeAll(unknown);
        }
        if (suspicion != null) {
            // What nobody knows, or the sender could not be told of, comes again.
            SpanSet again = options.peerRechecks() ? known.unknownOf(moved) : moved.copy();
            file.lose(again);
            durable.removeAll(again);
            moved.removeAll(again);
            recheck = moved.isEmpty() ? null : new Recheck(file, moved, suspicion.words());
        }
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
        Journal.Circumstances then = told.circumstances();
        return new Opened(
                file,
                durable,
                resumedBytes,
                then.ctimeS(),
                then.ctimeNs(),
                known.ofAll(moved),
                recheck);
    }

    /** Takes back what the journal said of these spans. */
    private void lose(SpanSet spans) throws IOException {
        Journal taken = journal;
        if (taken != null && !spans.isEmpty()) {
            isPoisoned = true;
            taken.lose(spans.toRanges());
            isPoisoned = false;
        }
    }

    /**
     * Reads back what an earlier run left, and journals what is lost of it. Streams may write
     * meanwhile.
     *
     * @param spans what is to be read
     * @param goesOn asked before each block; to end it is a fault
     * @return the spans that are not as they were journaled
     * @throws TargetFault if it cannot be journaled
     */
    public SpanSet readBack(SpanSet spans, BooleanSupplier goesOn) throws TargetFault {
        try (TargetRoot.Place place = root.parentOf(name)) {
            SpanSet lost = new SpanSet(grid.count());
            DiskReader reader = open().reader(place.directory());
            Xxh3 digest = new Xxh3();
            for (int span = spans.firstFrom(0); span >= 0; span = spans.firstFrom(span + 1)) {
                if (!isAsJournaled(reader, span, digest, goesOn)) {
                    lost.add(span);
                }
            }
            synchronized (this) {
                lose(lost);
                Journal taken = journal;
                if (taken != null) {
                    taken.confirm(LinuxHost.boot());
                }
            }
            return lost;
        } catch (IOException failed) {
            throw TargetFault.of(name, "what an earlier run left cannot be read back", failed);
        }
    }

    private boolean isAsJournaled(DiskReader reader, int span, Xxh3 digest, BooleanSupplier goesOn)
            throws IOException {
        digest.begin();
        try {
            reader.read(
                    grid.offsetBytes(span),
                    grid.lenBytes(span),
                    bytes -> {
                        if (!goesOn.getAsBoolean()) {
                            throw new InterruptedIOException("the session is over");
                        }
                        digest.update(bytes);
                    });
        } catch (InterruptedIOException | ClosedChannelException over) {
            throw over;
        } catch (IOException unreadable) {
            // As good as lost: it is written anew.
            return false;
        }
        return digests.is(span, digest.end());
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
                    new Journal.Circumstances(
                            offer.getCtimeS(), offer.getCtimeNs(), LinuxHost.boot());
            journal = Journal.begin(opened, identity, grid.spanBytes(), now);
        } finally {
            if (journal == null) {
                opened.close();
            }
        }
        return new Opened(this, holes.spansWithin(grid), 0, 0, 0, ByteString.EMPTY, null);
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

    @Override
    public boolean keepsDigests() {
        return !isOfOneSpan() || options.verifiesTarget();
    }

    @Override
    public SpanGrid grid() {
        return grid;
    }

    @Override
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

    @Override
    public void verified(int span, byte[] digest) {
        if (digest.length > 0) {
            digests.put(span, digest);
        }
        synchronized (pending) {
            pending.add(span);
        }
    }

    @Override
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
            taken.record(ranges, digests);
            // The names of both, and whether the file system still takes changes.
            place.directory().sync();
            isPoisoned = false;
            hasDurable = true;
            return bytes;
        } catch (IOException failed) {
            throw TargetFault.of(name, "cannot be synced", failed);
        }
    }

    @Override
    public long undurableBytes() {
        synchronized (pending) {
            return pending.bytes(grid);
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
                if (options.verifiesTarget()) {
                    verifyTarget(open.reader(place.directory()));
                }
            }
        } catch (IOException failed) {
            throw TargetFault.of(name, "cannot be synced with its attributes", failed);
        }
    }

    /**
     * Reads all of it back: a file that is not what arrived is an error, and nothing of it stays.
     */
    private void verifyTarget(DiskReader reader) throws IOException {
        Xxh3 digest = new Xxh3();
        SpanSet within = grid.spansWithin(offer.getHolesList());
        for (int span = 0; span < grid.count(); span++) {
            boolean isRight;
            if (within.contains(span)) {
                isRight = holdsZeros(reader, span);
            } else {
                isRight = isAsJournaled(reader, span, digest, () -> true);
            }
            if (!isRight) {
                hasDurable = false;
                throw TargetFault.of(
                        FaultCode.DATA_DAMAGED,
                        name,
                        "is on its disk not what arrived",
                        "the bytes that were verified when they arrived",
                        "other bytes within "
                                + grid.lenBytes(span)
                                + " bytes from byte "
                                + grid.offsetBytes(span)
                                + " on",
                        "do not trust that disk: see the kernel's log of that host and the disk's"
                                + " own health");
            }
        }
    }

    private boolean holdsZeros(DiskReader reader, int span) throws IOException {
        ByteBuffer zeros = ByteBuffer.allocate(1 << 20);
        boolean[] areZeros = {true};
        reader.read(
                grid.offsetBytes(span),
                grid.lenBytes(span),
                bytes -> areZeros[0] &= bytes.equals(zeros.slice(0, bytes.remaining())));
        return areZeros[0];
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
        boolean hasTime = options.keepsTime() && Conflicts.hasTime(offer);
        long seconds = hasTime ? offer.getMtimeS() : before.mtimeS();
        int nanos = hasTime ? offer.getMtimeNs() : before.mtimeNs();
        if (hasTime) {
            directory.setTime(open.part(), seconds, nanos);
        }
        directory.setMode(open.part(), options.modeOf(offer.getMode()));
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
