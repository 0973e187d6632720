package io.github.haul.client.internal.target;

import static io.github.haul.client.internal.target.Offers.need;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Digest;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.Growth;
import io.github.haul.client.internal.proto.OnConflict;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What is done where something is there already, and with directories and links. */
final class TargetTest {
    @TempDir Path folder;
    private Path place = Path.of("");
    private final byte[] bytes = Offers.bytes(3, 1000);
    private FileOffer offer = FileOffer.getDefaultInstance();

    @BeforeEach
    void makeSource() throws IOException {
        place = Files.createDirectory(folder.resolve("place"));
        Path source = Files.write(folder.resolve("source"), bytes);
        Files.setLastModifiedTime(source, FileTime.from(Instant.ofEpochSecond(77, 5)));
        offer = Offers.of(source, "x").build();
    }

    private void put(String name, byte[] content, long second) throws IOException {
        Path path = Files.write(place.resolve(name), content);
        Files.setLastModifiedTime(path, FileTime.from(Instant.ofEpochSecond(second, 5)));
    }

    /** The answer to an offer, in words. */
    private String answered(OnConflict onConflict) throws IOException {
        TargetOptions options = Offers.options(onConflict);
        TargetOptions dry =
                new TargetOptions(
                        onConflict, true, false, true, options.spanBytes(), options.digest());
        String planned;
        try (Target target = Target.into(place, dry)) {
            planned = words(target.prepare(offer));
        }
        try (Target target = Target.into(place, options)) {
            Prepared prepared = target.prepare(offer);
            if (prepared instanceof Prepared.Need need) {
                String stored = need.storedAs().toStringUtf8();
                assertTrue(planned.endsWith(stored), planned);
                return planned;
            }
            assertEquals(words(prepared), planned);
            return planned;
        }
    }

    private static String words(Prepared prepared) {
        if (prepared instanceof Prepared.Skip) {
            return "skip";
        }
        if (prepared instanceof Prepared.Planned planned) {
            String does = planned.replaces() ? "replace" : "take";
            return does + " " + planned.storedAs().toStringUtf8();
        }
        if (prepared instanceof Prepared.Refused refused) {
            return refused.fault().getCode() + " " + refused.fault().getFound();
        }
        throw new AssertionError(prepared.toString());
    }

    @Test
    void whatIsThereIsSkippedReplacedRefusedOrKept() throws IOException {
        for (OnConflict rule : OnConflict.values()) {
            if (rule != OnConflict.UNRECOGNIZED) {
                assertEquals("take ", answered(rule));
            }
        }
        put("x", bytes, 77);
        assertEquals("skip", answered(OnConflict.SKIP_SAME));
        assertEquals("skip", answered(OnConflict.FAIL));
        assertEquals("skip", answered(OnConflict.KEEP_BOTH));
        assertEquals("replace ", answered(OnConflict.REPLACE));
        put("x", bytes, 78);
        assertEquals("replace ", answered(OnConflict.SKIP_SAME));
        assertEquals("EXISTS a file of another time", answered(OnConflict.FAIL));
        assertEquals("take x.1", answered(OnConflict.KEEP_BOTH));
        put("x.1", new byte[3], 77);
        assertEquals("take x.2", answered(OnConflict.KEEP_BOTH));
        put("x.2", bytes, 77);
        assertEquals("skip", answered(OnConflict.KEEP_BOTH));
        put("x", new byte[3], 77);
        assertEquals("EXISTS a file of 3 bytes, not of 1000", answered(OnConflict.FAIL));
        Files.delete(place.resolve("x"));
        Files.createSymbolicLink(place.resolve("x"), folder.resolve("source"));
        assertEquals("EXISTS something else", answered(OnConflict.FAIL));
        assertEquals("replace ", answered(OnConflict.SKIP_SAME));
        Files.delete(place.resolve("x"));
        Files.createDirectory(place.resolve("x"));
        assertEquals("NAME_REFUSED ", answered(OnConflict.REPLACE));
        assertFalse(Files.exists(place.resolve("x.3")), "a dry run makes nothing");
    }

    @Test
    void theSourceItselfIsSkippedWhateverTheRule() throws IOException {
        Files.createLink(place.resolve("x"), folder.resolve("source"));
        offer = Offers.of(folder.resolve("source"), "x").build();
        assertEquals("skip", answered(OnConflict.REPLACE));
    }

    @Test
    void aFileThatIsKeptBesideGetsAnotherName() throws IOException {
        put("x", new byte[3], 77);
        try (Target target = Target.into(place, Offers.options(OnConflict.KEEP_BOTH))) {
            Prepared.Need need = need(target, offer);
            assertEquals("x.1", need.storedAs().toStringUtf8());
            Offers.finish(target, need, bytes);
        }
        assertArrayEquals(bytes, Files.readAllBytes(place.resolve("x.1")));
        assertEquals(3, Files.size(place.resolve("x")));
    }

    @Test
    void aFileThatIsTheSameGetsTheModeAndLosesItsLeftovers() throws IOException {
        put("x", bytes, 77);
        Files.setPosixFilePermissions(
                place.resolve("x"), PosixFilePermissions.fromString("rw-------"));
        Files.writeString(place.resolve(".x.haul-part"), "left");
        Files.writeString(place.resolve(".x.haul-journal"), "left");
        try (Target target = Target.into(place, Offers.options())) {
            FileOffer other = offer.toBuilder().setMode(0640).build();
            assertInstanceOf(Prepared.Skip.class, target.prepare(other));
        }
        assertEquals(0640, FileLook.at(place.resolve("x")).mode());
        assertEquals(List.of("x"), names(place));
    }

    private static List<String> names(Path folder) throws IOException {
        try (Stream<Path> all = Files.walk(folder)) {
            return all.filter(path -> !path.equals(folder))
                    .map(path -> folder.relativize(path).toString())
                    .sorted()
                    .toList();
        }
    }

    private static FileOffer directory(String name, int mode) {
        return FileOffer.newBuilder()
                .setName(Offers.name(name))
                .setKind(FileKind.DIRECTORY)
                .setMode(mode)
                .setMtimeS(1_000_000_000)
                .setMtimeNs(7)
                .build();
    }

    @Test
    void aTreeArrivesWithItsLinksAndWithModesAndTimesOfDirectoriesAtTheEnd() throws IOException {
        FileOffer inner = offer.toBuilder().setName(Offers.name("d/e/x")).build();
        FileOffer hard =
                FileOffer.newBuilder()
                        .setName(Offers.name("d/hard"))
                        .setKind(FileKind.HARD_LINK)
                        .setLinkTarget(inner.getName())
                        .build();
        ByteString away = ByteString.copyFrom(new byte[] {'.', '.', '/', (byte) 0xff});
        FileOffer soft =
                FileOffer.newBuilder()
                        .setName(Offers.name("d/soft"))
                        .setKind(FileKind.SYMLINK)
                        .setLinkTarget(away)
                        .setMtimeS(5)
                        .build();
        for (int run = 0; run < 2; run++) {
            try (Target target = Target.into(place, Offers.options())) {
                List<TargetEntry> made = new ArrayList<>();
                for (FileOffer one : List.of(directory("d", 0550), directory("d/e", 0700))) {
                    if (target.prepare(one) instanceof Prepared.Need need) {
                        made.add(need.entry());
                    }
                }
                Prepared file = target.prepare(inner);
                if (file instanceof Prepared.Need need) {
                    Offers.write(Offers.file(need), bytes, 0);
                    target.commit(need.entry());
                }
                for (FileOffer link : List.of(hard, soft)) {
                    if (target.prepare(link) instanceof Prepared.Need need) {
                        made.add(need.entry());
                    }
                }
                assertEquals(run == 0 ? 4 : 0, made.size(), "the second run skips all");
                target.commit(made).values().forEach(it -> assertEquals(Optional.empty(), it));
                assertEquals(List.of(), target.finishDirectories());
            }
            assertEquals(List.of("d", "d/e", "d/e/x", "d/hard", "d/soft"), names(place));
            FileLook top = FileLook.at(place.resolve("d"));
            assertEquals(List.of(0550, 7), List.of(top.mode(), top.mtimeNs()));
            assertEquals(1_000_000_000, FileLook.at(place.resolve("d/e")).mtimeS());
            FileLook first = FileLook.at(place.resolve("d/e/x"));
            assertTrue(first.isSameFile(FileLook.at(place.resolve("d/hard"))));
            Path link = Files.readSymbolicLink(place.resolve("d/soft"));
            assertEquals(away, NativeName.bytes(link));
            assertEquals(5, FileLook.at(place.resolve("d/soft")).mtimeS());
        }
    }

    @Test
    void linksReplaceWhatHasTheirNamesAndNothingHiddenStays() throws IOException {
        put("x", bytes, 77);
        put("hard", new byte[3], 3);
        put("soft", new byte[3], 3);
        FileOffer hard =
                FileOffer.newBuilder()
                        .setName(Offers.name("hard"))
                        .setKind(FileKind.HARD_LINK)
                        .setLinkTarget(Offers.name("x"))
                        .build();
        FileOffer soft =
                hard.toBuilder().setName(Offers.name("soft")).setKind(FileKind.SYMLINK).build();
        try (Target target = Target.into(place, Offers.options())) {
            target.commit(need(target, hard).entry());
            TargetEntry given = need(target, soft).entry();
            given.seal();
            given.abandon(true);
            assertEquals(List.of("hard", "soft", "x"), names(place));
            target.commit(need(target, soft).entry());
            FileOffer none = hard.toBuilder().setLinkTarget(Offers.name("gone")).build();
            Prepared.Refused refused =
                    assertInstanceOf(Prepared.Refused.class, target.prepare(none));
            assertEquals(FaultCode.KIND_UNSUPPORTED, refused.fault().getCode());
        }
        assertEquals(List.of("hard", "soft", "x"), names(place));
        assertTrue(Files.isSymbolicLink(place.resolve("soft")));
        assertEquals(1000, Files.size(place.resolve("hard")));
    }

    @Test
    void noLinkIsFollowedOnTheWayToAName() throws IOException {
        Path outside = Files.createDirectory(folder.resolve("outside"));
        Files.createSymbolicLink(place.resolve("d"), outside);
        try (Target target = Target.into(place, Offers.options())) {
            FileOffer below = offer.toBuilder().setName(Offers.name("d/x")).build();
            Prepared.Need need = need(target, below);
            Fault fault =
                    assertThrows(TargetFault.class, () -> Offers.finish(target, need, bytes))
                            .fault();
            assertEquals(FaultCode.NAME_REFUSED, fault.getCode());
            assertTrue(fault.getHint().contains("symbolic link"), fault.toString());
            Prepared made = target.prepare(directory("d/new", 0755));
            assertInstanceOf(Prepared.Refused.class, made);
        }
        assertEquals(List.of(), names(outside));
    }

    @Test
    void aDirectoryThatIsMovedAwayMeanwhileIsNoticed() throws IOException {
        try (Target target = Target.into(place, Offers.options())) {
            target.commit(need(target, directory("d", 0755)).entry());
            FileOffer below = offer.toBuilder().setName(Offers.name("d/x")).build();
            Prepared.Need need = need(target, below);
            Offers.write(Offers.file(need), bytes, 0);
            Files.move(place.resolve("d"), place.resolve("moved"));
            Files.createDirectory(place.resolve("d"));
            assertThrows(TargetFault.class, () -> target.commit(need.entry()));
        }
        assertFalse(Files.exists(place.resolve("d/x")));
    }

    @Test
    void aNewNameIsThatOfAFileAndADirectoryForASourceThatIsOne() throws IOException {
        Path named = place.resolve("new");
        try (Target target = Target.named(named, Offers.options())) {
            Offers.finish(target, need(target, offer), bytes);
        }
        assertArrayEquals(bytes, Files.readAllBytes(named));
        Path other = place.resolve("other");
        try (Target target = Target.named(other, Offers.options(OnConflict.KEEP_BOTH))) {
            Files.createDirectory(other);
            target.commit(need(target, directory("d", 0755)).entry());
            Files.write(other.resolve("d/x"), new byte[3]);
            FileOffer below = offer.toBuilder().setName(Offers.name("d/x")).build();
            Prepared.Need need = need(target, below);
            // Nothing is looked for in a directory that this session made.
            assertEquals(ByteString.EMPTY, need.storedAs());
            need.entry().abandon(false);
        }
        try (Target target = Target.named(other, Offers.options(OnConflict.KEEP_BOTH))) {
            FileOffer below = offer.toBuilder().setName(Offers.name("d/x")).build();
            Prepared.Need need = need(target, below);
            assertEquals("d/x.1", need.storedAs().toStringUtf8());
            need.entry().abandon(false);
        }
    }

    @Test
    void aNewNameInADirectoryThatIsMissingIsRefused() throws IOException {
        Files.write(place.resolve("file"), new byte[1]);
        for (String name : List.of("missing/deep/new", "file/new")) {
            TargetFault fault =
                    assertThrows(
                            TargetFault.class,
                            () -> Target.named(place.resolve(name), Offers.options()));
            assertEquals(FaultCode.NOT_FOUND, fault.fault().getCode());
        }
        assertEquals(List.of("file"), names(place));
    }

    @Test
    void aDryRunMakesNoDirectoryForItsTarget() throws IOException {
        TargetOptions dry =
                new TargetOptions(
                        OnConflict.KEEP_BOTH, true, false, true, Offers.SPAN, Digest.AES_GMAC);
        Path missing = place.resolve("not/there");
        try (Target into = Target.into(missing, dry);
                Target named = Target.named(missing.resolve("new"), dry)) {
            assertEquals("take ", words(into.prepare(directory("d", 0755))));
            FileOffer below = offer.toBuilder().setName(Offers.name("d/x")).build();
            assertEquals("take ", words(into.prepare(below)));
            assertEquals("take ", words(named.prepare(offer)));
        }
        assertEquals(List.of(), names(place));
        Files.createDirectories(missing);
        put("not/there/new", new byte[3], 1);
        try (Target named = Target.named(missing.resolve("new"), dry)) {
            assertEquals("take new.1", words(named.prepare(offer)));
        }
    }

    @Test
    void whatCannotBeReceivedIsRefused() throws IOException {
        try (Target target = Target.into(place, Offers.options())) {
            List<FileOffer> offers =
                    List.of(
                            offer.toBuilder().setGrowth(Growth.GROWING).build(),
                            offer.toBuilder().setKind(FileKind.FILE_KIND_UNKNOWN).build(),
                            offer.toBuilder().setName(Offers.name(".y.haul-part")).build(),
                            offer.toBuilder().setName(Offers.name("../x")).build());
            List<FaultCode> codes = new ArrayList<>();
            for (FileOffer one : offers) {
                Prepared refused = target.prepare(one);
                codes.add(((Prepared.Refused) refused).fault().getCode());
            }
            FaultCode kind = FaultCode.KIND_UNSUPPORTED;
            FaultCode name = FaultCode.NAME_REFUSED;
            assertEquals(List.of(kind, kind, name, name), codes);
        }
    }

    @Test
    void aFileThatDoesNotFitIsRefusedBeforeItsFirstByte() throws IOException {
        long most = 1L << 50;
        FileOffer huge = offer.toBuilder().setSizeBytes(most).build();
        TargetOptions options =
                new TargetOptions(OnConflict.SKIP_SAME, false, false, true, 0, Digest.AES_GMAC);
        try (Target target = Target.into(place, options)) {
            Prepared.Refused refused =
                    assertInstanceOf(Prepared.Refused.class, target.prepare(huge));
            assertEquals(FaultCode.NO_SPACE, refused.fault().getCode());
        }
        assertEquals(List.of(), names(place));
    }

    @Test
    void theSpanSizeIsThatOfTheProgram() {
        TargetOptions chosen =
                new TargetOptions(OnConflict.SKIP_SAME, false, false, true, 0, Digest.AES_GMAC);
        assertEquals(8 << 20, chosen.spanBytesFor(0));
        assertEquals(8 << 20, chosen.spanBytesFor(1L << 43));
        assertEquals(16 << 20, chosen.spanBytesFor((1L << 43) + 1));
        assertEquals(1 << 30, chosen.spanBytesFor(1L << 50));
        assertEquals(64 << 10, Offers.options().spanBytesFor(1L << 36));
        assertEquals(128 << 10, Offers.options().spanBytesFor((1L << 36) + 1));
    }

    @Test
    void failuresOfTheSystemHaveTheCodesOfTheProgram() {
        ByteString name = Offers.name("x");
        String[] words = {
            "No space left on device", "Disk quota exceeded", "Read-only file system",
            "Permission denied", "Operation not permitted", "Too many levels of symbolic links",
            "Input/output error", "Too many open files", "File too large"
        };
        FaultCode[] codes = {
            FaultCode.NO_SPACE, FaultCode.NO_SPACE, FaultCode.READ_ONLY,
            FaultCode.NOT_PERMITTED, FaultCode.NOT_PERMITTED, FaultCode.NAME_REFUSED,
            FaultCode.IO_FAILED, FaultCode.IO_FAILED, FaultCode.IO_FAILED
        };
        for (int at = 0; at < words.length; at++) {
            Fault fault =
                    TargetFault.of(name, "cannot be written", new IOException(words[at])).fault();
            assertEquals(codes[at], fault.getCode(), words[at]);
            assertEquals(words[at], fault.getFound());
            assertEquals(name, fault.getPath());
            assertFalse(fault.getHint().isEmpty());
        }
        Fault gone = TargetFault.of(name, "cannot be made", new NoSuchFileException("x")).fault();
        assertEquals(FaultCode.NOT_FOUND, gone.getCode());
    }
}
