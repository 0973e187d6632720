package io.github.haul.client.internal.target;

import static io.github.haul.client.internal.target.Offers.SPAN;
import static io.github.haul.client.internal.target.Offers.file;
import static io.github.haul.client.internal.target.Offers.need;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.machine.SpanSet;
import io.github.haul.client.internal.proto.Digest;
import io.github.haul.client.internal.proto.Extent;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.OnConflict;
import io.github.haul.client.internal.proto.SpanRange;
import io.github.haul.client.internal.wire.DurableDigest;
import io.github.haul.client.internal.wire.Xxh3;
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

/** What an earlier run left, read back where its journal alone is not enough. */
final class RecheckTest {
    private static final int SIZE = (int) (SPAN * 4 - 100);
    private static final TargetOptions ASKING =
            new TargetOptions(OnConflict.SKIP_SAME, false, true, true, SPAN, Digest.AES_GMAC);

    @TempDir Path folder;
    private Path place = Path.of("");
    private final byte[] bytes = Offers.bytes(7, SIZE);
    private FileOffer offer = FileOffer.getDefaultInstance();

    @BeforeEach
    void makeSource() throws IOException {
        place = Files.createDirectory(folder.resolve("place"));
        Path source = Files.write(folder.resolve("source"), bytes);
        offer = Offers.of(source, "x").build();
    }

    /** Leaves what a run did that received these spans, and ended. */
    private void leave(int... spans) throws IOException {
        try (Target target = Target.into(place, Offers.options())) {
            PartialFile file = file(need(target, offer));
            for (int span : spans) {
                Offers.write(file, bytes, span);
            }
            file.sync();
            file.abandon(true);
        }
    }

    private void damage(int span) throws IOException {
        try (FileChannel part =
                FileChannel.open(place.resolve(".x.haul-part"), StandardOpenOption.WRITE)) {
            part.write(ByteBuffer.wrap(new byte[10]), span * SPAN + 5);
            part.force(true);
        }
    }

    private static List<Integer> list(SpanSet spans) {
        List<Integer> numbers = new ArrayList<>();
        for (int span = spans.firstFrom(0); span >= 0; span = spans.firstFrom(span + 1)) {
            numbers.add(span);
        }
        return numbers;
    }

    private static Recheck recheck(Prepared.Need need) {
        Recheck recheck = need.recheck();
        assertNotNull(recheck);
        return recheck;
    }

    private static List<Integer> lost(Recheck recheck) throws TargetFault {
        return list(recheck.file().readBack(recheck.spans(), () -> true));
    }

    /** Has the journal say that another start of the host wrote it. */
    private void journalOfAnotherBoot() throws IOException {
        FileLook part = FileLook.at(place.resolve(".x.haul-part"));
        JournalIdentity identity =
                JournalIdentity.of(offer, Offers.name("x"), part, Digest.AES_GMAC.getNumber());
        byte[] boot = LinuxHost.boot();
        boot[3] ^= 1;
        try (FileChannel file =
                FileChannel.open(
                        place.resolve(".x.haul-journal"),
                        StandardOpenOption.READ,
                        StandardOpenOption.WRITE)) {
            Journal.Told told = Journal.read(file, identity);
            assertNotNull(told);
            Journal.resume(file, identity, told).confirm(boot);
        }
    }

    @Test
    void aTemporaryOfAnotherBootIsReadBackOnceAndWhatIsDamagedComesAgain() throws IOException {
        leave(0, 1, 3);
        damage(1);
        journalOfAnotherBoot();
        try (Target target = Target.into(place, Offers.options())) {
            Prepared.Need need = need(target, offer);
            assertEquals(List.of(0, 1, 3), list(need.durable()));
            assertEquals("this host was started anew since", recheck(need).why());
            assertEquals(List.of(1), lost(recheck(need)));
            need.entry().abandon(true);
        }
        try (Target target = Target.into(place, Offers.options())) {
            Prepared.Need need = need(target, offer);
            assertEquals(List.of(0, 3), list(need.durable()));
            assertNull(need.recheck(), "it was read in this boot");
            Offers.finish(target, need, bytes);
        }
        assertArrayEquals(bytes, Files.readAllBytes(place.resolve("x")));
    }

    @Test
    void whatIsAskedForOrChangedSinceIsReadBack() throws IOException {
        leave(0, 1);
        damage(0);
        try (Target target = Target.into(place, ASKING)) {
            Prepared.Need need = need(target, offer);
            assertEquals("--recheck asks", recheck(need).why());
            assertEquals(List.of(0), lost(recheck(need)));
            need.entry().abandon(true);
        }
        Instant before = Instant.now().minusSeconds(4);
        Files.setLastModifiedTime(place.resolve(".x.haul-journal"), FileTime.from(before));
        try (Target target = Target.into(place, Offers.options())) {
            Prepared.Need need = need(target, offer);
            assertEquals(
                    "the temporary was changed since its journal was written", recheck(need).why());
            assertEquals(List.of(), lost(recheck(need)));
            assertEquals(List.of(1), list(need.durable()));
            need.entry().abandon(true);
        }
    }

    @Test
    void whatHasNoDigestOrCannotBeToldAsLostComesAgain() throws IOException {
        leave(0, 1);
        TargetOptions deaf =
                new TargetOptions(OnConflict.SKIP_SAME, false, true, false, SPAN, Digest.AES_GMAC);
        try (Target target = Target.into(place, deaf)) {
            Prepared.Need need = need(target, offer);
            assertEquals(List.of(), list(need.durable()));
            assertNull(need.recheck());
            Offers.write(file(need), bytes, 2);
            file(need).sync();
            need.entry().abandon(true);
        }
        Path journal = place.resolve(".x.haul-journal");
        byte[] whole = Files.readAllBytes(journal);
        Files.write(journal, Arrays.copyOf(whole, Journal.HEADER_BYTES));
        try (FileChannel file =
                FileChannel.open(journal, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            FileLook part = FileLook.at(place.resolve(".x.haul-part"));
            JournalIdentity identity = JournalIdentity.of(offer, Offers.name("x"), part, 4);
            Journal.Told told = Journal.read(file, identity);
            assertNotNull(told);
            Journal.resume(file, identity, told)
                    .record(
                            List.of(SpanRange.newBuilder().setCount(2).build()),
                            new SpanDigests(4));
        }
        try (Target target = Target.into(place, Offers.options())) {
            Prepared.Need need = need(target, offer);
            assertEquals(List.of(0, 1), list(need.durable()), "no digests, and believed");
            assertEquals(ByteString.EMPTY, need.digest());
            need.entry().abandon(true);
        }
        try (Target target = Target.into(place, ASKING)) {
            Prepared.Need need = need(target, offer);
            assertEquals(List.of(), list(need.durable()));
            need.entry().abandon(true);
        }
    }

    @Test
    void theAnswerTellsWhatIsDurableButForHoles() throws IOException {
        leave(0, 2, 3);
        DurableDigest all = new DurableDigest();
        for (int span : new int[] {0, 3}) {
            int length = (int) Math.min(SPAN, SIZE - span * SPAN);
            all.add(span, Xxh3.of(ByteBuffer.wrap(bytes, (int) (span * SPAN), length)));
        }
        FileOffer holed =
                offer.toBuilder()
                        .addHoles(Extent.newBuilder().setOffsetBytes(SPAN * 2).setLenBytes(SPAN))
                        .build();
        try (Target target = Target.into(place, Offers.options())) {
            Prepared.Need need = need(target, holed);
            assertEquals(List.of(0, 2, 3), list(need.durable()));
            assertEquals(all.end(), need.digest());
            need.entry().abandon(true);
        }
    }

    /** A disk that has other bytes than arrived: nothing of the file stays. */
    @Test
    void aFileThatIsNotOnItsDiskWhatArrivedGetsNoName() throws IOException {
        for (long spanBytes : new long[] {SPAN, 1 << 20}) {
            TargetOptions verifying =
                    new TargetOptions(
                            OnConflict.SKIP_SAME,
                            false,
                            false,
                            true,
                            spanBytes,
                            Digest.AES_GMAC,
                            true,
                            true,
                            true);
            try (Target target = Target.into(place, verifying)) {
                PartialFile file = file(need(target, offer));
                for (int span = 0; span < file.grid().count(); span++) {
                    Offers.write(file, bytes, span);
                }
                file.sync();
                damage(2);
                TargetFault fault = assertThrows(TargetFault.class, () -> target.commit(file));
                assertEquals(FaultCode.DATA_DAMAGED, fault.fault().getCode());
            }
            try (Stream<Path> left = Files.list(place)) {
                assertEquals(List.of(), left.toList());
            }
        }
    }

    @Test
    void aSessionThatIsOverReadsNoFurther() throws IOException {
        leave(0, 1);
        try (Target target = Target.into(place, ASKING)) {
            Recheck recheck = recheck(need(target, offer));
            assertThrows(
                    TargetFault.class, () -> recheck.file().readBack(recheck.spans(), () -> false));
            recheck.file().abandon(true);
        }
        try (Target target = Target.into(place, Offers.options())) {
            Prepared.Need need = need(target, offer);
            assertEquals(List.of(0, 1), list(need.durable()), "nothing is lost");
            need.entry().abandon(true);
        }
    }
}
