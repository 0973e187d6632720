package io.github.haul.client.internal.target;

import io.github.haul.client.internal.machine.SpanGrid;
import io.github.haul.client.internal.machine.SpanSet;
import io.github.haul.client.internal.proto.SpanRange;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.zip.CRC32C;
import org.jspecify.annotations.Nullable;

/**
 * Journal of a target file: which spans are verified and durable. Its bytes are those of the
 * program haul (crates/transfer/src/storage/journal.rs).
 *
 * <p>A header names what is moved; records, each a run of spans, follow. Both carry a CRC-32C and
 * the header's random number, so that a torn tail, a damaged, an older or a foreign journal is
 * never believed.
 *
 * <p>A record holds the digest of each span, so that a later run can read it back and compare.
 * BLAKE3 values that records of the program haul hold are kept as they are, for it to go on with;
 * this writes none.
 */
final class Journal implements Closeable {
    static final int HEADER_BYTES = 128;
    private static final byte[] MAGIC = {'h', 'a', 'u', 'l', '-', 'j', 'n', '2'};
    private static final int SUM_AT = HEADER_BYTES - 4;
    private static final int SOURCE_DEVICE_AT = 40;
    private static final int TARGET_DEVICE_AT = 56;
    private static final int NAME_HASH_AT = 64;
    private static final int SPAN_BYTES_AT = 80;
    private static final int NUMBER_AT = 88;
    private static final int CTIME_AT = 96;
    private static final int BOOT_AT = 108;
    private static final int BOOT_BYTES = 16;
    private static final SecureRandom RANDOM = new SecureRandom();

    /**
     * Circumstances under which the first of the durable spans came.
     *
     * @param ctimeS change time of the source's inode; zeros: not known
     * @param ctimeNs its nanoseconds
     * @param boot boot of this host
     */
    record Circumstances(long ctimeS, int ctimeNs, byte[] boot) {
        boolean hasCtime() {
            return ctimeS != 0 || ctimeNs != 0;
        }

        boolean isOfBoot(byte[] other) {
            return Arrays.equals(boot, other);
        }
    }

    /**
     * Contents of a journal.
     *
     * @param hasSourceDevice whether it names the source's device of the identity that was asked
     *     for
     * @param hasTargetDevice whether it names the temporary's
     * @param digests digests of the durable spans, as far as they were journaled
     * @param wholeBytes bytes of it that are whole
     */
    record Told(
            int number,
            SpanGrid grid,
            Circumstances circumstances,
            boolean hasSourceDevice,
            boolean hasTargetDevice,
            SpanSet durable,
            SpanDigests digests,
            long wholeBytes) {}

    private final FileChannel file;
    private final JournalIdentity identity;
    private final long spanBytes;
    private final int number;
    private Circumstances circumstances;

    /** Whether the journal names other numbers of devices than the identity. */
    private boolean isRenumbered;

    private Journal(
            FileChannel file,
            JournalIdentity identity,
            long spanBytes,
            int number,
            Circumstances circumstances) {
        this.file = file;
        this.identity = identity;
        this.spanBytes = spanBytes;
        this.number = number;
        this.circumstances = circumstances;
    }

    /** Begins an empty journal in a file, which it takes over, and makes it durable. */
    static Journal begin(
            FileChannel file, JournalIdentity identity, long spanBytes, Circumstances circumstances)
            throws IOException {
        int number = RANDOM.nextInt();
        file.truncate(0);
        file.position(0);
        writeAll(file, header(identity, spanBytes, number, circumstances));
        file.force(false);
        return new Journal(file, identity, spanBytes, number, circumstances);
    }

    /** Takes up a journal that {@link #read} has read. */
    static Journal resume(FileChannel file, JournalIdentity identity, Told told)
            throws IOException {
        // What comes behind a torn record would otherwise hide the records that follow it.
        file.truncate(told.wholeBytes);
        file.position(told.wholeBytes);
        Journal journal =
                new Journal(file, identity, told.grid.spanBytes(), told.number, told.circumstances);
        journal.isRenumbered = !(told.hasSourceDevice && told.hasTargetDevice);
        return journal;
    }

    /** Reads a journal; null when it is not one of this very transfer. */
    static @Nullable Told read(FileChannel file, JournalIdentity identity) throws IOException {
        file.position(0);
        InputStream journal = new BufferedInputStream(Channels.newInputStream(file), 1 << 16);
        byte[] bytes = new byte[HEADER_BYTES];
        if (journal.readNBytes(bytes, 0, HEADER_BYTES) < HEADER_BYTES) {
            return null;
        }
        ByteBuffer said = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        long spanBytes = said.getLong(SPAN_BYTES_AT);
        int number = said.getInt(NUMBER_AT);
        byte[] boot = Arrays.copyOfRange(bytes, BOOT_AT, BOOT_AT + BOOT_BYTES);
        Circumstances circumstances =
                new Circumstances(said.getLong(CTIME_AT), said.getInt(CTIME_AT + 8), boot);
        long source = said.getLong(SOURCE_DEVICE_AT);
        long target = said.getLong(TARGET_DEVICE_AT);
        JournalIdentity named = identity.onDevices(source, target);
        if (!said.equals(header(named, spanBytes, number, circumstances))) {
            return null;
        }
        SpanGrid grid;
        try {
            grid = new SpanGrid(identity.sizeBytes(), spanBytes);
        } catch (ProtocolViolation noGrid) {
            return null;
        }
        SpanSet durable = new SpanSet(grid.count());
        SpanDigests digests = new SpanDigests(grid.count());
        long whole = HEADER_BYTES;
        while (true) {
            JournalRecord record = JournalRecord.read(journal, number, grid.count());
            if (record == null) {
                boolean hasSource = source == identity.sourceDevice();
                boolean hasTarget = target == identity.targetDevice();
                return new Told(
                        number, grid, circumstances, hasSource, hasTarget, durable, digests, whole);
            }
            long end = Integer.toUnsignedLong(record.first()) + record.count();
            if (end > grid.count()) {
                return null;
            }
            for (int span = record.first(); span < end; span++) {
                if (record.isLost()) {
                    durable.remove(span);
                } else {
                    durable.add(span);
                }
            }
            digests.take(record);
            whole += record.bytes();
        }
    }

    /** Records that these spans are durable. The caller has forced the data out before. */
    void record(List<SpanRange> spans, SpanDigests digests) throws IOException {
        append(spans, false, digests);
    }

    /** Takes back what was said of these spans: they are not what came. */
    void lose(List<SpanRange> spans) throws IOException {
        append(spans, true, null);
    }

    private void append(List<SpanRange> spans, boolean areLost, @Nullable SpanDigests digests)
            throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        for (SpanRange range : spans) {
            byte[] known = digests == null ? new byte[0] : digests.of(range);
            bytes.writeBytes(JournalRecord.encode(range, areLost, known, number));
        }
        writeAll(file, ByteBuffer.wrap(bytes.toByteArray()));
        file.force(false);
    }

    /** Records that the durable spans are known to be right in this start of the host. */
    void confirm(byte[] boot) throws IOException {
        if (circumstances.isOfBoot(boot) && !isRenumbered) {
            return;
        }
        circumstances = new Circumstances(circumstances.ctimeS, circumstances.ctimeNs, boot);
        // All of it lies in one sector of a disk; a torn one is not believed.
        ByteBuffer header = header(identity, spanBytes, number, circumstances);
        while (header.hasRemaining()) {
            file.write(header, header.position());
        }
        file.force(false);
        isRenumbered = false;
    }

    /**
     * Cuts the journal to smaller spans, which are whole parts of those before; what was durable
     * stays so. The digests of the larger spans are of no use to the smaller ones.
     *
     * @return what is durable then
     */
    Cut cutSmaller(Told told, SpanGrid smaller) throws IOException {
        int parts = (int) (told.grid.spanBytes() / smaller.spanBytes());
        List<SpanRange> ranges = new ArrayList<>();
        SpanSet durable = new SpanSet(smaller.count());
        for (SpanRange range : told.durable.toRanges()) {
            long first = (long) range.getFirst() * parts;
            long end = Math.min(first + (long) range.getCount() * parts, smaller.count());
            ranges.add(
                    SpanRange.newBuilder()
                            .setFirst((int) first)
                            .setCount((int) (end - first))
                            .build());
            for (long span = first; span < end; span++) {
                durable.add((int) span);
            }
        }
        SpanDigests unknown = new SpanDigests(smaller.count());
        Journal cut = begin(file, identity, smaller.spanBytes(), told.circumstances);
        cut.record(ranges, unknown);
        return new Cut(cut, durable, unknown);
    }

    /** A journal of smaller spans, and those of them that are durable, without digests. */
    record Cut(Journal journal, SpanSet durable, SpanDigests digests) {}

    private static ByteBuffer header(
            JournalIdentity identity, long spanBytes, int number, Circumstances circumstances) {
        ByteBuffer bytes = ByteBuffer.allocate(HEADER_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        bytes.put(MAGIC);
        bytes.putLong(identity.sizeBytes());
        bytes.putLong(identity.mtimeS());
        bytes.putInt(identity.mtimeNs()).putInt(0);
        bytes.putLong(identity.sourceInode());
        bytes.putLong(identity.sourceDevice());
        bytes.putLong(identity.targetInode());
        bytes.putLong(identity.targetDevice());
        bytes.put(NAME_HASH_AT, identity.nameHash().toByteArray());
        bytes.position(SPAN_BYTES_AT);
        bytes.putLong(spanBytes);
        bytes.putInt(number);
        bytes.putInt(identity.digest());
        bytes.putLong(circumstances.ctimeS);
        bytes.putInt(circumstances.ctimeNs);
        bytes.put(circumstances.boot);
        CRC32C sum = new CRC32C();
        sum.update(bytes.array(), 0, SUM_AT);
        bytes.putInt(SUM_AT, (int) sum.getValue());
        return bytes.rewind().limit(HEADER_BYTES);
    }

    private static void writeAll(FileChannel file, ByteBuffer bytes) throws IOException {
        while (bytes.hasRemaining()) {
            file.write(bytes);
        }
    }

    @Override
    public void close() throws IOException {
        file.close();
    }
}
