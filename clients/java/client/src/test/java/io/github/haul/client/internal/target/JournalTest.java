package io.github.haul.client.internal.target;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.machine.SpanGrid;
import io.github.haul.client.internal.proto.SpanRange;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The bytes of a journal: what is believed, and what is not. */
final class JournalTest {
    private static final long SPAN = 64 << 10;
    private static final Journal.Circumstances THEN =
            new Journal.Circumstances(
                    -9, 8, new byte[] {6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6});

    @TempDir Path folder;

    private static JournalIdentity identity() {
        ByteString hash =
                ByteString.copyFrom(new byte[] {5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5});
        return new JournalIdentity(SPAN * 10 - 1, -5, 7, 1, 2, 3, 4, 4, hash);
    }

    private static SpanRange range(int first, int count) {
        return SpanRange.newBuilder().setFirst(first).setCount(count).build();
    }

    private FileChannel open(String name) throws IOException {
        return FileChannel.open(
                folder.resolve(name),
                StandardOpenOption.CREATE,
                StandardOpenOption.READ,
                StandardOpenOption.WRITE);
    }

    /** A journal that says spans 0 to 2 and then 7 are durable, as bytes. */
    private byte[] written() throws IOException {
        Path path = folder.resolve("written");
        Files.deleteIfExists(path);
        try (Journal journal = Journal.begin(open("written"), identity(), SPAN, THEN)) {
            journal.record(List.of(range(0, 3)), new SpanDigests(10));
            journal.record(List.of(range(7, 1)), new SpanDigests(10));
        }
        return Files.readAllBytes(path);
    }

    private @Nullable List<Integer> durableIn(byte[] bytes, JournalIdentity identity)
            throws IOException {
        Files.write(folder.resolve("read"), bytes);
        try (FileChannel file = open("read")) {
            Journal.Told told = Journal.read(file, identity);
            if (told == null) {
                return null;
            }
            assertEquals(SPAN, told.grid().spanBytes());
            List<Integer> durable = new ArrayList<>();
            for (int span = 0; span < 10; span++) {
                if (told.durable().contains(span)) {
                    durable.add(span);
                }
            }
            return durable;
        }
    }

    @Test
    void whatIsRecordedIsReadBackAndNothingOfAnotherTransfer() throws IOException {
        byte[] bytes = written();
        assertEquals(Journal.HEADER_BYTES + 2 * JournalRecord.HEAD_BYTES, bytes.length);
        assertEquals(List.of(0, 1, 2, 7), durableIn(bytes, identity()));
        JournalIdentity is = identity();
        ByteString hash = is.nameHash();
        for (JournalIdentity other :
                List.of(
                        new JournalIdentity(SPAN * 10, -5, 7, 1, 2, 3, 4, 4, hash),
                        new JournalIdentity(SPAN * 10 - 1, -6, 7, 1, 2, 3, 4, 4, hash),
                        new JournalIdentity(SPAN * 10 - 1, -5, 8, 1, 2, 3, 4, 4, hash),
                        new JournalIdentity(SPAN * 10 - 1, -5, 7, 2, 2, 3, 4, 4, hash),
                        new JournalIdentity(SPAN * 10 - 1, -5, 7, 1, 2, 4, 4, 4, hash),
                        new JournalIdentity(SPAN * 10 - 1, -5, 7, 1, 2, 3, 4, 3, hash),
                        new JournalIdentity(
                                SPAN * 10 - 1,
                                -5,
                                7,
                                1,
                                2,
                                3,
                                4,
                                4,
                                hash.substring(0, 15).concat(ByteString.copyFromUtf8("x"))))) {
            assertNull(durableIn(bytes, other), other.toString());
        }
    }

    @Test
    void aCutOrDamagedJournalNeverSaysMoreThanWasRecorded() throws IOException {
        byte[] bytes = written();
        for (int length = 0; length < bytes.length; length++) {
            List<Integer> durable = durableIn(Arrays.copyOf(bytes, length), identity());
            if (length < Journal.HEADER_BYTES) {
                assertNull(durable);
            } else {
                boolean hasFirst = length >= Journal.HEADER_BYTES + JournalRecord.HEAD_BYTES;
                assertEquals(hasFirst ? List.of(0, 1, 2) : List.of(), durable);
            }
        }
        for (int bit = 0; bit < bytes.length * Byte.SIZE; bit++) {
            byte[] damaged = bytes.clone();
            damaged[bit / Byte.SIZE] ^= (byte) (1 << bit % Byte.SIZE);
            List<Integer> durable = durableIn(damaged, identity());
            int record = bit / Byte.SIZE - Journal.HEADER_BYTES;
            if (record >= 0) {
                boolean hasFirst = record >= JournalRecord.HEAD_BYTES;
                assertEquals(hasFirst ? List.of(0, 1, 2) : List.of(), durable, "bit " + bit);
            } else if (durable != null) {
                // Only the number of a device may be another: the caller judges that.
                int at = bit / Byte.SIZE;
                assertTrue(at >= 40 && at < 48 || at >= 56 && at < 64, "bit " + bit);
            }
        }
    }

    /** Records with digests and values, and lost spans, as the program haul writes them. */
    @Test
    void recordsOfTheProgramWithDigestsAreUnderstoodAndKept() throws IOException {
        byte[] journal = HexFormat.of().parseHex(ProgramJournal.HEX);
        assertEquals(List.of(0, 2, 7), durableIn(journal, ProgramJournal.IDENTITY));
        Files.write(folder.resolve("kept"), journal);
        try (FileChannel file = open("kept")) {
            Journal.Told told = Objects.requireNonNull(Journal.read(file, ProgramJournal.IDENTITY));
            Journal.resume(file, ProgramJournal.IDENTITY, told)
                    .record(List.of(range(9, 1)), new SpanDigests(10));
        }
        byte[] then = Files.readAllBytes(folder.resolve("kept"));
        assertEquals(journal.length + JournalRecord.HEAD_BYTES, then.length);
        assertEquals(ByteBuffer.wrap(journal), ByteBuffer.wrap(then, 0, journal.length));
        assertEquals(List.of(0, 2, 7, 9), durableIn(then, ProgramJournal.IDENTITY));
    }

    @Test
    void aTornTailIsCutBeforeRecordsFollow() throws IOException {
        byte[] bytes = written();
        Files.write(folder.resolve("torn"), Arrays.copyOf(bytes, bytes.length - 1));
        try (FileChannel file = open("torn")) {
            Journal.Told told = Objects.requireNonNull(Journal.read(file, identity()));
            Journal.resume(file, identity(), told)
                    .record(List.of(range(9, 1)), new SpanDigests(10));
        }
        byte[] then = Files.readAllBytes(folder.resolve("torn"));
        assertEquals(List.of(0, 1, 2, 9), durableIn(then, identity()));
    }

    @Test
    void spansAreCutToSmallerOnes() throws IOException, ProtocolViolation {
        JournalIdentity large = identity();
        try (FileChannel file = open("cut")) {
            Journal begun = Journal.begin(file, large, SPAN * 4, THEN);
            begun.record(List.of(range(0, 1), range(2, 1)), new SpanDigests(3));
            Journal.Told told = Objects.requireNonNull(Journal.read(file, large));
            SpanGrid smaller = new SpanGrid(large.sizeBytes(), SPAN);
            Journal.Cut cut = Journal.resume(file, large, told).cutSmaller(told, smaller);
            // The last large one is of two spans, the second of them shorter.
            assertEquals(List.of(range(0, 4), range(8, 2)), cut.durable().toRanges());
            Journal.Told after = Journal.read(file, large);
            assertNotNull(after);
            assertEquals(cut.durable(), after.durable());
            assertEquals(SPAN, after.grid().spanBytes());
            assertTrue(after.circumstances().isOfBoot(THEN.boot()));
        }
    }
}
