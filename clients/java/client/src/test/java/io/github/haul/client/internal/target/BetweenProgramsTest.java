package io.github.haul.client.internal.target;

import static io.github.haul.client.internal.target.Offers.need;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.haul.client.internal.machine.SpanGrid;
import io.github.haul.client.internal.machine.SpanSet;
import io.github.haul.client.internal.proto.Digest;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.Growth;
import io.github.haul.client.internal.proto.OnConflict;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Transfers that the program haul begins and this client finishes, and the other way round. */
final class BetweenProgramsTest {
    private static final int SIZE = (8 << 20) - 77;

    /** A name too long for its hidden ones, which are told by its hash. */
    private static final String LONG = "n".repeat(250);

    @TempDir Path folder;
    private final byte[] bytes = Offers.bytes(11, SIZE);
    private Path root = Path.of("");
    private Path place = Path.of("");

    @BeforeEach
    void makeFolders() throws IOException {
        root = Files.createDirectory(folder.resolve("root"));
        place = Files.createDirectory(folder.resolve("place"));
    }

    private FileOffer offerOf(String name) throws IOException {
        return Offers.of(root.resolve(name), name).setGrowth(Growth.NOT_GROWING).build();
    }

    private Path journal(String name) {
        return place.resolve(HiddenNames.journal(Offers.name(name)).toStringUtf8());
    }

    private Path part(String name) {
        return place.resolve(HiddenNames.part(Offers.name(name)).toStringUtf8());
    }

    /** Has the program receive some of a file, and kills it after its second record. */
    private void killInTheMiddle(HaulProgram program, String name, String... options)
            throws IOException {
        String[] slow = Arrays.copyOf(options, options.length + 1);
        slow[options.length] = "--bwlimit=1M";
        Process pull = program.begin(name, place, slow);
        HaulProgram.killAt(pull, journal(name), Journal.HEADER_BYTES + 1);
    }

    private List<String> hidden() throws IOException {
        try (Stream<Path> all = Files.walk(place)) {
            return all.map(path -> path.getFileName().toString())
                    .filter(name -> HiddenNames.isHidden(Offers.name(name)))
                    .toList();
        }
    }

    @Test
    void whatTheProgramLeftIsDurableHereAndFinishedHere() throws IOException {
        for (String name : List.of("x", LONG)) {
            Files.write(root.resolve(name), bytes);
            try (HaulProgram program = HaulProgram.serve(folder, root)) {
                killInTheMiddle(program, name);
            }
            byte[] arrived = Files.readAllBytes(part(name));
            byte[] kept = Files.readAllBytes(journal(name));
            try (Target target = Target.into(place, Offers.options())) {
                Prepared.Need need = need(target, offerOf(name));
                assertEquals(spansIn(kept), need.durable().count());
                assertTrue(need.resumedBytes() > 0 && need.resumedBytes() < SIZE);
                assertEquals(offerOf(name).getCtimeNs(), need.ctimeNs());
                SpanGrid grid = Offers.file(need).grid();
                for (int span = 0; span < grid.count(); span++) {
                    int begin = (int) grid.offsetBytes(span);
                    int end = begin + (int) grid.lenBytes(span);
                    boolean came = Arrays.equals(bytes, begin, end, arrived, begin, end);
                    assertTrue(came || !need.durable().contains(span), "span " + span);
                }
                Offers.finish(target, need, bytes);
            }
            assertArrayEquals(bytes, Files.readAllBytes(place.resolve(name)));
            assertEquals(List.of(), hidden());
        }
    }

    /** Spans that the program's records speak of: here it records each but once. */
    private static int spansIn(byte[] journal) {
        int spans = 0;
        int at = Journal.HEADER_BYTES;
        while (at + JournalRecord.HEAD_BYTES <= journal.length) {
            int word =
                    ByteBuffer.wrap(journal)
                            .order(ByteOrder.LITTLE_ENDIAN)
                            .getInt(at + Integer.BYTES);
            int count = word & (1 << 29) - 1;
            spans += count;
            at += JournalRecord.HEAD_BYTES + ((word & 1 << 30) == 0 ? 0 : 16 * count);
            at += (word & 1 << 31) == 0 ? 0 : 32 * count;
        }
        return spans;
    }

    @Test
    void whatThisClientLeftIsDurableForTheProgramAndFinishedByIt() throws IOException {
        for (String name : List.of("x", LONG)) {
            Files.write(root.resolve(name), bytes);
            try (Target target = Target.into(place, Offers.options())) {
                PartialFile file = Offers.file(need(target, offerOf(name)));
                for (int span = 3; span < 40; span++) {
                    Offers.write(file, bytes, span);
                }
                assertEquals(37 * Offers.SPAN, file.sync());
                file.abandon(true);
            }
            try (HaulProgram program = HaulProgram.serve(folder, root)) {
                assertEquals(37 * Offers.SPAN, program.pull(name, place));
            }
            assertArrayEquals(bytes, Files.readAllBytes(place.resolve(name)));
            assertEquals(List.of(), hidden());
            try (Target target = Target.into(place, Offers.options())) {
                assertInstanceOf(Prepared.Skip.class, target.prepare(offerOf(name)));
            }
        }
    }

    /** Each keeps what the other wrote, also digests that only one of them understands. */
    @Test
    void bothTakeTurnsAtOneFile() throws IOException {
        Files.write(root.resolve("x"), bytes);
        try (HaulProgram program = HaulProgram.serve(folder, root)) {
            killInTheMiddle(program, "x", "--manifest", folder.resolve("sums").toString());
            byte[] kept = Files.readAllBytes(journal("x"));
            long here;
            try (Target target = Target.into(place, Offers.options())) {
                Prepared.Need need = need(target, offerOf("x"));
                PartialFile file = Offers.file(need);
                assertEquals(spansIn(kept), need.durable().count());
                Offers.write(file, bytes, 127);
                here = need.resumedBytes() + file.sync();
                file.abandon(true);
            }
            byte[] then = Files.readAllBytes(journal("x"));
            assertArrayEquals(kept, Arrays.copyOf(then, kept.length));
            assertEquals(here, program.pull("x", place));
        }
        assertArrayEquals(bytes, Files.readAllBytes(place.resolve("x")));
    }

    @Test
    void theProgramReadsBackWhatWasJournaledHereAndFetchesWhatIsDamaged() throws IOException {
        Files.write(root.resolve("x"), bytes);
        try (Target target = Target.into(place, Offers.options())) {
            PartialFile file = Offers.file(need(target, offerOf("x")));
            for (int span = 0; span < 5; span++) {
                Offers.write(file, bytes, span);
            }
            file.sync();
            file.abandon(true);
        }
        damage("x", 3);
        try (HaulProgram program = HaulProgram.serve(folder, root)) {
            assertEquals(5 * Offers.SPAN, program.pull("x", place, "--recheck"));
            assertTrue(program.told().contains("\"lost_bytes\":" + Offers.SPAN), program.told());
        }
        assertArrayEquals(bytes, Files.readAllBytes(place.resolve("x")));
    }

    private void damage(String name, int span) throws IOException {
        try (FileChannel part = FileChannel.open(part(name), StandardOpenOption.WRITE)) {
            part.write(ByteBuffer.wrap(new byte[10]), span * Offers.SPAN + 5);
            part.force(true);
        }
    }

    @Test
    void whatTheProgramJournaledIsReadBackHereAndWhatIsDamagedIsLost() throws IOException {
        Files.write(root.resolve("x"), bytes);
        try (HaulProgram program = HaulProgram.serve(folder, root)) {
            killInTheMiddle(program, "x");
        }
        TargetOptions asking =
                new TargetOptions(
                        OnConflict.SKIP_SAME, false, true, true, Offers.SPAN, Digest.AES_GMAC);
        damage("x", 0);
        try (Target target = Target.into(place, asking)) {
            Prepared.Need need = need(target, offerOf("x"));
            Recheck recheck = Objects.requireNonNull(need.recheck());
            assertTrue(need.durable().contains(0) && !need.digest().isEmpty());
            SpanSet lost = recheck.file().readBack(recheck.spans(), () -> true);
            assertEquals(1, lost.count());
            assertTrue(lost.contains(0));
            need.entry().abandon(true);
        }
    }

    @Test
    void aSourceThatChangedIsReceivedAnewByWhoeverComesNext() throws IOException {
        Files.write(root.resolve("x"), bytes);
        try (HaulProgram program = HaulProgram.serve(folder, root)) {
            killInTheMiddle(program, "x");
            byte[] other = Offers.bytes(12, SIZE);
            Files.write(root.resolve("x"), other);
            try (Target target = Target.into(place, Offers.options())) {
                Prepared.Need need = need(target, offerOf("x"));
                assertEquals(0, need.durable().count());
                PartialFile file = Offers.file(need);
                Offers.write(file, other, 1);
                file.sync();
                file.abandon(true);
            }
            Files.write(root.resolve("x"), bytes);
            assertEquals(0, program.pull("x", place));
        }
        assertArrayEquals(bytes, Files.readAllBytes(place.resolve("x")));
    }

    @Test
    void neitherWritesToWhatTheOtherHasLocked() throws IOException {
        Files.write(root.resolve("x"), bytes);
        try (HaulProgram program = HaulProgram.serve(folder, root);
                Target target = Target.into(place, Offers.options())) {
            Process pull = program.begin("x", place, "--bwlimit=1M");
            HaulProgram.killAt(pull, journal("x"), Journal.HEADER_BYTES + 1);
            pull = program.begin("x", place, "--bwlimit=1M");
            try {
                // It holds the lock when it has said what it resumes.
                HaulProgram.awaitWords(pull, "\"event\":\"resume\"");
                Prepared.Refused refused =
                        assertInstanceOf(Prepared.Refused.class, target.prepare(offerOf("x")));
                assertEquals(FaultCode.LOCKED, refused.fault().getCode());
                assertTrue(pull.isAlive(), "it went on");
            } finally {
                HaulProgram.await(pull.destroyForcibly());
            }
            Prepared.Need need = need(target, offerOf("x"));
            pull = program.begin("x", place);
            String told = new String(pull.getInputStream().readAllBytes());
            assertTrue(HaulProgram.await(pull) != 0, told);
            assertTrue(told.contains("another transfer is writing to it"), told);
            Offers.finish(target, need, bytes);
            program.pull("x", place);
        }
        assertArrayEquals(bytes, Files.readAllBytes(place.resolve("x")));
        assertEquals(List.of(), hidden());
    }

    /** A tree of which the program kept what came hidden, when it was killed. */
    private void killInATree(HaulProgram program) throws IOException {
        for (int number = 0; number < 64; number++) {
            Path file = root.resolve("tree/d" + number % 3 + "/f" + number);
            Files.createDirectories(file.getParent());
            Files.write(file, Offers.bytes(number, 60_000));
        }
        Process pull = program.begin("tree", place, "--bwlimit=1M");
        HaulProgram.killAt(pull, place.resolve(".tree.haul-durable"), 1);
        assertTrue(Files.isDirectory(place.resolve(".tree.haul-staged")));
        assertTrue(!Files.exists(place.resolve("tree")));
    }

    /** Receives files of the tree, and returns how many were there. */
    private int receive(Target target, int begin, int end) throws IOException {
        int skipped = 0;
        for (int number = begin; number < end; number++) {
            FileOffer offer = offerOf("tree/d" + number % 3 + "/f" + number);
            if (target.prepare(offer) instanceof Prepared.Need need) {
                Offers.finish(target, need, Offers.bytes(number, 60_000));
            } else {
                skipped++;
            }
        }
        return skipped;
    }

    private void assertTreeIsWhole() throws IOException {
        for (int number = 0; number < 64; number++) {
            byte[] there = Files.readAllBytes(place.resolve("tree/d" + number % 3 + "/f" + number));
            assertArrayEquals(Offers.bytes(number, 60_000), there, "f" + number);
        }
        assertEquals(List.of(), hidden());
        try (Stream<Path> all = Files.walk(place.resolve("tree"))) {
            assertEquals(68, all.count());
        }
    }

    @Test
    void aDirectoryThatTheProgramKeptHiddenIsGoneOnWithHere() throws IOException {
        try (HaulProgram program = HaulProgram.serve(folder, root);
                Target target = Target.into(place, Offers.options())) {
            killInATree(program);
            assertInstanceOf(Prepared.Skip.class, target.prepare(offerOf("tree")));
            int skipped = receive(target, 0, 64);
            assertTrue(skipped > 0 && skipped < 64, skipped + " were durable");
            assertEquals(List.of(), target.finishDirectories());
        }
        assertTreeIsWhole();
    }

    @Test
    void aTreeThatIsBegunHereIsFinishedByTheProgram() throws IOException {
        try (HaulProgram program = HaulProgram.serve(folder, root)) {
            killInATree(program);
            try (Target target = Target.into(place, Offers.options())) {
                target.prepare(offerOf("tree"));
                receive(target, 0, 40);
            }
            program.pull("tree", place);
            assertTrue(program.told().contains("\"skipped\":4"), program.told());
        }
        assertTreeIsWhole();
    }

    /** Order of the calls, as the kernel saw them. */
    @Test
    void bytesAreForcedOutBeforeTheJournalAndBeforeTheName() throws IOException {
        Strace calls = Strace.of(folder, place);
        String part = ".x.haul-part";
        String journal = ".x.haul-journal";
        int written = calls.last("pwrite64", part);
        int synced = calls.firstBehind(written, "fdatasync", part);
        int recorded = calls.last("write", journal);
        assertTrue(synced > written && recorded > synced, calls::toString);
        int forced = calls.firstBehind(recorded, "fdatasync", journal);
        int whole = calls.last("fsync", part);
        int named = calls.last("rename", part);
        assertTrue(forced > recorded && whole > forced && named > whole, calls::toString);
        int times = calls.last("utimensat", part);
        assertTrue(calls.last("fchmod", part) < whole, calls::toString);
        assertTrue(calls.firstBehind(times, "fcntl", part) > 0, "the lock is taken again");
        int directory = calls.firstBehind(named, "fsync", Objects.toString(place.getFileName()));
        assertTrue(directory > named, calls::toString);
    }
}
