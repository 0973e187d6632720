package io.github.haul.client;

import static io.github.haul.client.LiesTold.answer;
import static io.github.haul.client.LiesTold.empty;
import static io.github.haul.client.LiesTold.ends;
import static io.github.haul.client.LiesTold.finish;
import static io.github.haul.client.LiesTold.offer;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Extent;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileAnswer;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.Need;
import io.github.haul.client.internal.proto.Notice;
import io.github.haul.client.internal.proto.Side;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;

/** Servers whose words would drive a terminal, and servers that never come to an end. */
final class HostileWordsTest extends TwoFolders {
    /** Colours, a bell, another way to clear the screen, and what deletes. */
    private static final String ESCAPES = "\u001b[31m\u0007\u009b2J\u007f\r";

    private static final List<String> SHOWN = List.of("\\u001b", "\\u0007", "\\u009b", "\\u007f");

    private static final long HOLE_BYTES = 1 << 20;

    /** All that a program hears of a transfer, as it might print it. */
    private static final class Ear implements TransferListener {
        private final List<String> heard = new CopyOnWriteArrayList<>();

        @Override
        public void onFile(FileResult file) {
            heard.add(file.toString());
        }

        @Override
        public void onSession(SessionOpened session) {
            heard.add(session.toString());
        }

        @Override
        public void onConnection(ConnectionChange change) {
            heard.add(change.toString());
        }

        @Override
        public void onNotice(TransferNotice notice) {
            heard.add(notice.toString());
        }

        void failed(HaulException failure) {
            Problem problem = failure.problem();
            heard.add(String.valueOf(failure.getMessage()));
            heard.add(problem.code() + problem.side() + problem.path() + problem.pathEncoded());
            heard.add(problem.what() + problem.needs() + problem.found() + problem.hint());
        }

        /** Sees that the words came, in a form that does nothing to a terminal. */
        void isHarmless(String what) {
            String all = String.join("", heard);
            for (String shown : SHOWN) {
                assertTrue(all.contains(shown), what + ", " + shown + " is not in: " + all);
            }
            boolean isPlain = all.codePoints().noneMatch(Character::isISOControl);
            assertTrue(isPlain, what + ": " + all.replace("\u001b", "ESC"));
        }
    }

    private static TransferOptions options(TransferListener ear) {
        return TransferOptions.builder()
                .listener(ear)
                .retryFor(java.time.Duration.ofMillis(300))
                .build();
    }

    private static Fault.Builder fault() {
        return Fault.newBuilder()
                .setCode(FaultCode.NOT_PERMITTED)
                .setSide(Side.TARGET)
                .setPath(ByteString.copyFromUtf8("name" + ESCAPES))
                .setWhat("what" + ESCAPES)
                .setNeeds("needs" + ESCAPES)
                .setFound("found" + ESCAPES)
                .setHint("hint" + ESCAPES);
    }

    private static Control refused() {
        return Control.newBuilder().setRefused(fault()).build();
    }

    private static Control notice(Notice.Builder notice) {
        return Control.newBuilder().setNotice(notice).build();
    }

    /** Says something else in the place of what the real server says, or before it. */
    private static Lie changing(UnaryOperator<Control> change, List<Control> before) {
        return new Lie() {
            private volatile boolean isSaid;

            @Override
            public void control(Control said, LyingServer.Words client) throws Exception {
                if (!said.hasHelloReply() && !said.hasOpened() && !isSaid) {
                    isSaid = true;
                    for (Control message : before) {
                        client.say(message);
                    }
                }
                client.say(change.apply(said));
            }
        };
    }

    private static Control called(Control said) {
        Control.Builder changed = said.toBuilder();
        if (said.hasHelloReply()) {
            changed.getHelloReplyBuilder().setSoftware("haul" + ESCAPES);
        }
        return changed.build();
    }

    private static Control storedAs(Control said) {
        Control.Builder changed = said.toBuilder();
        if (said.hasFileAnswer() && said.getFileAnswer().hasNeed()) {
            ByteString name = ByteString.copyFromUtf8("other" + ESCAPES);
            Need need = said.getFileAnswer().getNeed().toBuilder().setStoredAs(name).build();
            changed.getFileAnswerBuilder().setNeed(need);
        }
        return changed.build();
    }

    private static Control notTaken(Control said) {
        boolean isAnswer = said.hasFileAnswer();
        return isAnswer ? answer(FileAnswer.newBuilder().setFault(fault())) : said;
    }

    @Test
    void noWordOfAServerDrivesATerminalDuringAPush() throws Exception {
        UnaryOperator<Control> truth = UnaryOperator.identity();
        Notice.Builder fallback = Notice.newBuilder().setWhat("a" + ESCAPES).setWhy("b" + ESCAPES);
        List<Lie> lies =
                List.of(
                        changing(truth, List.of(refused())),
                        changing(HostileWordsTest::called, List.of()),
                        changing(HostileWordsTest::storedAs, List.of()),
                        changing(HostileWordsTest::notTaken, List.of()),
                        changing(truth, List.of(notice(fallback))));
        Path source = Trees.file(local.resolve("data"), 1000, 1);
        try (HaulServer server = HaulServer.start(folder, root)) {
            for (Lie lie : lies) {
                Ear ear = new Ear();
                String target = "to" + lies.indexOf(lie);
                try (LyingServer lying = new LyingServer(folder, server, lie);
                        HaulClient client = HaulClient.connect(lying.url(target))) {
                    client.push(List.of(source), options(ear));
                } catch (HaulException failed) {
                    ear.failed(failed);
                }
                ear.isHarmless("lie " + lies.indexOf(lie));
            }
        }
    }

    @Test
    void noWordOfAServerDrivesATerminalDuringAPullOrAListing() throws Exception {
        Control named = offer(empty(0, "data" + ESCAPES, FileKind.REGULAR));
        List<List<Control>> lies =
                List.of(
                        List.of(refused()),
                        List.of(named, ends(1), finish()),
                        List.of(notice(Notice.newBuilder().setFault(fault())), refused()));
        try (HaulServer server = HaulServer.start(folder, root)) {
            for (List<Control> lie : lies) {
                Ear ear = new Ear();
                Lie told = LiesTold.instead(HostileWordsTest::isFirst, lie);
                try (LyingServer lying = new LyingServer(folder, server, told);
                        HaulClient client = HaulClient.connect(lying.url("data"))) {
                    client.pull(local, options(ear));
                } catch (HaulException failed) {
                    ear.failed(failed);
                }
                ear.isHarmless("lie " + lies.indexOf(lie));
            }
            Ear ear = new Ear();
            Lie told = LiesTold.instead(HostileWordsTest::isFirst, List.of(refused()));
            try (LyingServer lying = new LyingServer(folder, server, told);
                    HaulClient client = HaulClient.connect(lying.url(""))) {
                ear.failed(assertThrows(HaulException.class, () -> client.list("data")));
            }
            ear.isHarmless("a listing");
        }
    }

    private static boolean isFirst(Control said) {
        return !said.hasHelloReply() && !said.hasOpened();
    }

    /** Offers without end, however fast they are answered. */
    private static final class Endless implements Lie {
        private final String stem;
        private final List<Extent> holes;

        Endless(String stem) {
            this(stem, List.of());
        }

        Endless(String stem, List<Extent> holes) {
            this.stem = stem;
            this.holes = holes;
        }

        @Override
        public void control(Control said, LyingServer.Words client) throws Exception {
            if (!isFirst(said)) {
                client.say(said);
                return;
            }
            for (int number = 0; ; number++) {
                FileOffer.Builder offered = empty(number, stem + number, FileKind.REGULAR);
                long sizeBytes = 2L * holes.size() * HOLE_BYTES;
                client.say(offer(offered.setSizeBytes(sizeBytes).addAllHoles(holes)));
            }
        }
    }

    /** Runs a listing, or a pull, and prints by what exception it ends. */
    static final class Child {
        private Child() {}

        public static void main(String[] words) throws Exception {
            try (HaulClient client = HaulClient.connect(words[1])) {
                if (words[0].equals("list")) {
                    client.list("data");
                } else {
                    client.pull(Path.of(words[2]), options(TransferListener.NONE));
                }
            } catch (HaulException failed) {
                System.out.print(failed.getClass().getSimpleName() + ": " + failed.problem());
            }
        }
    }

    private String child(String verb, Lie lie) throws Exception {
        try (HaulServer server = HaulServer.start(folder, root);
                LyingServer lying = new LyingServer(folder, server, lie)) {
            List<String> words = new ArrayList<>(List.of(verb));
            words.add(lying.url(verb.equals("list") ? "" : "data"));
            words.add(local.toString());
            List<String> command = ChildJvm.command(List.of("-Xmx32m"), Child.class, words);
            return ChildJvm.run(folder, command);
        }
    }

    @Test
    void aListingWithoutEndTakesAShareOfTheHeapAndEndsInWords() throws Exception {
        String said = child("list", new Endless("data/" + "long".repeat(50)));
        assertTrue(said.startsWith("Refused: data: the listing is too long"), said);
        assertTrue(said.contains("a quarter of the heap"), said);
        assertTrue(said.contains("-Xmx"), said);
    }

    /** Holes take few bytes of a message, and many of the heap. */
    @Test
    void aListingOfSparseFilesWithoutEndEndsInWordsToo() throws Exception {
        List<Extent> holes = new ArrayList<>();
        for (long number = 0; number < 4000; number++) {
            long from = 2 * number * HOLE_BYTES;
            holes.add(Extent.newBuilder().setOffsetBytes(from).setLenBytes(HOLE_BYTES).build());
        }
        String said = child("list", new Endless("data/x", holes));
        assertTrue(said.startsWith("Refused: data: the listing is too long"), said);
    }

    @Test
    void offersWithoutEndEndAPullInWords() throws Exception {
        Trees.file(Files.createDirectories(root.resolve("data")).resolve("real"), 1, 1);
        String said = child("pull", new Endless("data/" + "long".repeat(50)));
        assertTrue(said.startsWith("Protocol: "), said);
        assertTrue(said.contains("broke the protocol"), said);
        try (var left = Files.walk(local)) {
            List<Path> named =
                    left.filter(Files::isRegularFile)
                            .filter(path -> !path.getFileName().toString().startsWith("."))
                            .toList();
            assertEquals(List.of(), named);
        }
        assertFalse(Files.exists(local.resolve("data/real")));
    }
}
