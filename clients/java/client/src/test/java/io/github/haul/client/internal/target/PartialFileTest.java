package io.github.haul.client.internal.target;

import static io.github.haul.client.internal.target.Offers.SPAN;
import static io.github.haul.client.internal.target.Offers.file;
import static io.github.haul.client.internal.target.Offers.need;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.haul.client.internal.proto.Digest;
import io.github.haul.client.internal.proto.Extent;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.OnConflict;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileTime;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Temporaries: what they take up of an earlier run, and what they promise. */
final class PartialFileTest {
    private static final int SIZE = (int) (SPAN * 4 - 100);

    @TempDir Path folder;
    private Path place = Path.of("");
    private final byte[] bytes = Offers.bytes(7, SIZE);
    private FileOffer offer = FileOffer.getDefaultInstance();

    @BeforeEach
    void makeSource() throws IOException {
        place = Files.createDirectory(folder.resolve("place"));
        Path source = Files.write(folder.resolve("source"), bytes);
        Files.setLastModifiedTime(source, FileTime.from(Instant.ofEpochSecond(77, 123_456_789)));
        offer = Offers.of(source, "x").setMode(0640).build();
    }

    private Target target() throws TargetFault {
        return Target.into(place, Offers.options());
    }

    private List<String> names() throws IOException {
        try (Stream<Path> all = Files.list(place)) {
            return all.map(path -> path.getFileName().toString()).sorted().toList();
        }
    }

    /** Leaves what a run did that received these spans, and ended. */
    private void leave(FileOffer offer, int... spans) throws IOException {
        try (Target target = target()) {
            PartialFile file = file(need(target, offer));
            for (int span : spans) {
                Offers.write(file, bytes, span);
            }
            file.sync();
            file.abandon(true);
        }
    }

    private List<Integer> durable(FileOffer offer, TargetOptions options) throws IOException {
        try (Target target = Target.into(place, options)) {
            Prepared.Need need = need(target, offer);
            List<Integer> durable = new ArrayList<>();
            for (int span = 0; span < need.durable().fileSpans(); span++) {
                if (need.durable().contains(span)) {
                    durable.add(span);
                }
            }
            need.entry().abandon(true);
            return durable;
        }
    }

    @Test
    void aFileHasItsNameWhenAllOfItIsThereWithModeAndTime() throws IOException {
        try (Target target = target()) {
            Prepared.Need need = need(target, offer);
            assertEquals(List.of(".x.haul-journal", ".x.haul-part"), names());
            assertEquals(SIZE, Files.size(place.resolve(".x.haul-part")));
            Offers.finish(target, need, bytes);
        }
        assertEquals(List.of("x"), names());
        assertArrayEquals(bytes, Files.readAllBytes(place.resolve("x")));
        FileLook look = FileLook.at(place.resolve("x"));
        assertEquals(0640, look.mode());
        assertEquals(List.of(77L, 123_456_789L), List.of(look.mtimeS(), (long) look.mtimeNs()));
        try (Target target = target()) {
            assertInstanceOf(Prepared.Skip.class, target.prepare(offer));
        }
    }

    @Test
    void aSmallFileIsNotThereBeforeItsBytesAndAnEmptyOneComesByItsCommit() throws IOException {
        FileOffer small = offer.toBuilder().setSizeBytes(1000).build();
        FileOffer empty = offer.toBuilder().setSizeBytes(0).setName(Offers.name("e")).build();
        Files.writeString(
                place.resolve(".x.haul-part"), "of a run that died, and longer".repeat(99));
        Files.writeString(place.resolve(".x.haul-journal"), "that speaks of it");
        try (Target target = target()) {
            Prepared.Need first = need(target, small);
            Prepared.Need second = need(target, empty);
            assertEquals(1, file(first).grid().count());
            Offers.finish(target, first, bytes);
            target.commit(second.entry());
        }
        assertEquals(List.of("e", "x"), names());
        assertArrayEquals(Arrays.copyOf(bytes, 1000), Files.readAllBytes(place.resolve("x")));
        assertEquals(0, Files.size(place.resolve("e")));
    }

    @Test
    void whatIsSyncedIsDurableForTheNextRunAndNothingElse() throws IOException {
        try (Target target = target()) {
            PartialFile file = file(need(target, offer));
            Offers.write(file, bytes, 0);
            Offers.write(file, bytes, 3);
            assertEquals(SPAN + SPAN - 100, file.sync());
            assertEquals(0, file.sync());
            // Verified, and not synced.
            Offers.write(file, bytes, 2);
            file.abandon(true);
        }
        assertEquals(List.of(0, 3), durable(offer, Offers.options()));
        try (Target target = target()) {
            Prepared.Need need = need(target, offer);
            assertEquals(SPAN + SPAN - 100, need.resumedBytes());
            assertEquals(offer.getCtimeS(), need.ctimeS());
            assertEquals(offer.getCtimeNs(), need.ctimeNs());
            // What is durable does not come again: the bytes are those of the first run.
            Offers.finish(target, need, bytes);
        }
        assertArrayEquals(bytes, Files.readAllBytes(place.resolve("x")));
    }

    @Test
    void whatCameIsBelievedForTheVerySameSourceDigestAndTemporaryOnly() throws IOException {
        List<FileOffer> others =
                List.of(
                        offer.toBuilder().setInode(offer.getInode() + 1).build(),
                        offer.toBuilder().setMtimeS(78).build(),
                        offer.toBuilder().setMtimeNs(1).build(),
                        offer.toBuilder().setSizeBytes(SIZE - 1).build());
        for (FileOffer other : others) {
            leave(offer, 0, 1);
            assertEquals(List.of(), durable(other, Offers.options()), other.toString());
        }
        TargetOptions options = Offers.options();
        leave(offer, 0, 1);
        TargetOptions crc =
                new TargetOptions(options.onConflict(), false, false, true, SPAN, Digest.CRC32C);
        assertEquals(List.of(), durable(offer, crc));
        leave(offer, 0, 1);
        Path part = place.resolve(".x.haul-part");
        Files.copy(part, folder.resolve("other"));
        Files.delete(part);
        Files.move(folder.resolve("other"), part);
        assertEquals(List.of(), durable(offer, Offers.options()), "another inode");
    }

    @Test
    void anotherDeviceIsBelievedWhereTheCtimeTellsWhetherTheSourceIsTheSame() throws IOException {
        FileOffer moved = offer.toBuilder().setDevice(offer.getDevice() + 1).build();
        leave(offer, 0);
        assertEquals(List.of(0), durable(moved, Offers.options()));
        FileOffer unknown = offer.toBuilder().setCtimeS(0).setCtimeNs(0).build();
        leave(unknown, 0);
        FileOffer both = moved.toBuilder().setCtimeS(0).setCtimeNs(0).build();
        assertEquals(List.of(), durable(both, Offers.options()));
    }

    @Test
    void aTemporaryThatWasCutIsNotBelieved() throws IOException {
        leave(offer, 0, 1);
        Path part = place.resolve(".x.haul-part");
        try (FileChannel file = FileChannel.open(part, StandardOpenOption.WRITE)) {
            file.truncate(SIZE - 1);
        }
        assertEquals(List.of(), durable(offer, Offers.options()));
    }

    @Test
    void spansThatBecomeSmallerStayDurable() throws IOException {
        TargetOptions large =
                new TargetOptions(
                        OnConflict.SKIP_SAME, false, false, true, SPAN * 2, Digest.AES_GMAC);
        try (Target target = Target.into(place, large)) {
            PartialFile file = file(need(target, offer));
            Offers.write(file, bytes, 1);
            file.sync();
            file.abandon(true);
        }
        assertEquals(List.of(2, 3), durable(offer, Offers.options()));
        // Larger ones are not made of them.
        assertEquals(List.of(2, 3), durable(offer, large));
    }

    @Test
    void twoPullsOfOneProcessExcludeEachOtherAndTheFirstKeepsItsLock() throws IOException {
        try (Target first = target();
                Target second = target()) {
            Prepared.Need need = need(first, offer);
            Prepared.Refused refused =
                    assertInstanceOf(Prepared.Refused.class, second.prepare(offer));
            assertEquals(FaultCode.LOCKED, refused.fault().getCode());
            assertTrue(isLockedForOthers(place.resolve(".x.haul-part")));
            Offers.finish(first, need, bytes);
            assertInstanceOf(Prepared.Skip.class, second.prepare(offer));
        }
    }

    /** Whether another process finds a POSIX lock on a file; true where no python3 can look. */
    private static boolean isLockedForOthers(Path file) throws IOException {
        String look =
                "import fcntl,sys\nf=open(sys.argv[1],'r+b')\n"
                        + "fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB)";
        try {
            Process python =
                    new ProcessBuilder("python3", "-c", look, file.toString())
                            .redirectError(ProcessBuilder.Redirect.DISCARD)
                            .start();
            return python.onExit().join().exitValue() != 0;
        } catch (IOException noPython) {
            return true;
        }
    }

    @Test
    void whatHasTheTemporarysNameIsNamedWithWhatToDo() throws IOException {
        Path part = place.resolve(".x.haul-part");
        Files.createSymbolicLink(part, Path.of("elsewhere"));
        refused("a symbolic link");
        Files.delete(part);
        Files.createDirectory(part);
        refused("a directory");
        Files.delete(part);
        Files.writeString(folder.resolve("victim"), "of somebody else");
        Files.createLink(part, folder.resolve("victim"));
        refused("a file that has another name too");
        assertEquals("of somebody else", Files.readString(folder.resolve("victim")));
        Files.delete(part);
        Files.createDirectory(place.resolve(".x.haul-journal"));
        refused("a directory");
    }

    private void refused(String found) throws IOException {
        try (Target target = target()) {
            Prepared.Refused refused =
                    assertInstanceOf(Prepared.Refused.class, target.prepare(offer));
            assertEquals(FaultCode.NAME_REFUSED, refused.fault().getCode());
            assertEquals(found, refused.fault().getFound());
            assertTrue(refused.fault().getHint().startsWith("remove .x.haul-"));
        }
    }

    @Test
    void aJournalThatIsAnotherNameOfAFileIsNeitherReadNorWritten() throws IOException {
        leave(offer, 0);
        Path journal = place.resolve(".x.haul-journal");
        Files.createLink(folder.resolve("second"), journal);
        byte[] then = Files.readAllBytes(journal);
        assertEquals(List.of(), durable(offer, Offers.options()));
        assertArrayEquals(then, Files.readAllBytes(folder.resolve("second")));
    }

    @Test
    void aTemporaryOfAnotherSizeOrTakenAwayGetsNoName() throws IOException {
        Path part = place.resolve(".x.haul-part");
        try (Target target = target()) {
            Prepared.Need need = need(target, offer);
            PartialFile file = file(need);
            for (int span = 0; span < 4; span++) {
                Offers.write(file, bytes, span);
            }
            Files.write(part, new byte[] {1}, StandardOpenOption.APPEND);
            TargetFault fault = assertThrows(TargetFault.class, () -> target.commit(file));
            assertEquals((SIZE + 1) + " bytes", fault.fault().getFound());
        }
        Files.deleteIfExists(part);
        try (Target target = target()) {
            PartialFile file = file(need(target, offer));
            Offers.write(file, bytes, 0);
            Files.delete(part);
            Files.write(part, bytes);
            assertThrows(TargetFault.class, file::sync);
            assertThrows(TargetFault.class, () -> target.commit(file));
        }
        assertFalse(Files.exists(place.resolve("x")));
        assertTrue(Files.exists(part), "it is somebody else's");
    }

    @Test
    void zerosOfAHoleTakeNoSpaceUnlessSomethingElseWasWrittenThere() throws IOException {
        int hole = (int) (SPAN * 3 / 2);
        byte[] sparse = bytes.clone();
        Arrays.fill(sparse, (int) SPAN / 2, (int) SPAN / 2 + hole, (byte) 0);
        Arrays.fill(sparse, (int) SPAN * 3, SIZE, (byte) 0);
        FileOffer holes =
                offer.toBuilder()
                        .addHoles(Extent.newBuilder().setOffsetBytes(SPAN / 2).setLenBytes(hole))
                        .addHoles(
                                Extent.newBuilder()
                                        .setOffsetBytes(SPAN * 3)
                                        .setLenBytes(SIZE - SPAN * 3))
                        .build();
        try (Target target = target()) {
            Prepared.Need need = need(target, holes);
            assertEquals(2, need.durable().count());
            assertTrue(need.durable().contains(1) && need.durable().contains(3));
            PartialFile file = file(need);
            // A damaged span writes to the hole first.
            Offers.write(file, bytes, 0);
            Offers.finish(target, need, sparse);
        }
        assertArrayEquals(sparse, Files.readAllBytes(place.resolve("x")));
        Files.delete(place.resolve("x"));
        try (Target target = target()) {
            Offers.finish(target, need(target, holes), sparse);
        }
        assertArrayEquals(sparse, Files.readAllBytes(place.resolve("x")));
        long data = SPAN / 2 + SPAN;
        assertEquals(data, blocks(place.resolve("x")) * 512, "bytes on the disk");
    }

    private static long blocks(Path file) throws IOException {
        Process stat = new ProcessBuilder("stat", "-c", "%b", file.toString()).start();
        return Long.parseLong(new String(stat.getInputStream().readAllBytes()).strip());
    }

    @Test
    void whatAnEarlierRunWroteWhereAHoleIsToBeBecomesZeros() throws IOException {
        leave(offer, 0);
        Path part = place.resolve(".x.haul-part");
        try (FileChannel file = FileChannel.open(part, StandardOpenOption.WRITE)) {
            file.write(ByteBuffer.wrap(bytes, 0, 1000), SPAN * 2);
        }
        FileOffer holed =
                offer.toBuilder()
                        .addHoles(Extent.newBuilder().setOffsetBytes(SPAN * 2).setLenBytes(SPAN))
                        .build();
        byte[] sparse = bytes.clone();
        Arrays.fill(sparse, (int) SPAN * 2, (int) SPAN * 3, (byte) 0);
        try (Target target = target()) {
            Prepared.Need need = need(target, holed);
            assertTrue(need.durable().contains(0) && need.durable().contains(2));
            assertEquals(SPAN, need.resumedBytes());
            Offers.finish(target, need, sparse);
        }
        assertArrayEquals(sparse, Files.readAllBytes(place.resolve("x")));
    }

    @Test
    void severalThreadsWriteAndSyncAtATime() throws Exception {
        try (Target target = target()) {
            PartialFile file = file(need(target, offer));
            List<Thread> threads = new ArrayList<>();
            List<TargetFault> failed = new ArrayList<>();
            for (int span = 0; span < 4; span++) {
                int one = span;
                threads.add(
                        new Thread(
                                () -> {
                                    try {
                                        Offers.write(file, bytes, one);
                                        file.sync();
                                    } catch (TargetFault fault) {
                                        synchronized (failed) {
                                            failed.add(fault);
                                        }
                                    }
                                }));
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
            assertEquals(List.of(), failed);
            file.abandon(true);
        }
        assertEquals(List.of(0, 1, 2, 3), durable(offer, Offers.options()));
    }
}
