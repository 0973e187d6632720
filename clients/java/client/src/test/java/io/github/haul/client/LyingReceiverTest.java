package io.github.haul.client;

import static io.github.haul.client.LiesTold.answer;
import static io.github.haul.client.LiesTold.bad;
import static io.github.haul.client.LiesTold.closed;
import static io.github.haul.client.LiesTold.confirm;
import static io.github.haul.client.LiesTold.empty;
import static io.github.haul.client.LiesTold.ends;
import static io.github.haul.client.LiesTold.fails;
import static io.github.haul.client.LiesTold.finish;
import static io.github.haul.client.LiesTold.hello;
import static io.github.haul.client.LiesTold.need;
import static io.github.haul.client.LiesTold.offer;
import static io.github.haul.client.LiesTold.settled;
import static io.github.haul.client.LiesTold.verified;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.FileAnswer;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.Opened;
import io.github.haul.client.internal.proto.Ping;
import io.github.haul.client.internal.proto.Progress;
import io.github.haul.client.internal.proto.Skip;
import io.github.haul.client.internal.proto.SpanRange;
import io.github.haul.client.internal.proto.SpansLost;
import io.github.haul.client.internal.proto.StreamDrop;
import io.github.haul.client.internal.wire.Frames;
import java.io.IOException;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Predicate;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Pushes to servers that lie: none is believed, and none holds the client. */
final class LyingReceiverTest {
    private static final Predicate<Control> ANSWER = Control::hasFileAnswer;
    private static final long SPAN = LiesTold.SPAN_BYTES;

    @TempDir Path folder;
    private Path root = Path.of("");
    private Path file = Path.of("");

    @BeforeEach
    void makeFolders() throws IOException {
        root = Files.createDirectories(folder.resolve("root"));
        file = Trees.file(folder.resolve("data"), 200_000, 3);
    }

    @AfterEach
    void nothingIsLeft() throws InterruptedException {
        LiesTold.assertNoThreadsLeft();
    }

    private <E extends HaulException> E push(
            HaulServer server, Lie lie, Class<E> kind, String words) throws Exception {
        try (LyingServer lying = new LyingServer(folder, server, lie);
                HaulClient client = HaulClient.connect(lying.url(""))) {
            return fails(kind, words, () -> client.push(List.of(file), LiesTold.SAFE));
        }
    }

    /** What a receiver may not say; crates/cli/tests/suite/hostile_lies.rs has the same list. */
    private static List<List<Control>> lies() {
        Control good = need(0, SPAN);
        int most = -1;
        Control skip =
                answer(FileAnswer.newBuilder().setFile(most).setSkip(Skip.getDefaultInstance()));
        return List.of(
                List.of(need(7, SPAN)),
                List.of(skip),
                List.of(good, good),
                List.of(need(0, 3)),
                List.of(need(0, 0)),
                List.of(need(0, -1)),
                List.of(need(0, 2L << 30)),
                List.of(need(0, SPAN, 0, 5)),
                List.of(need(0, SPAN, most, most)),
                List.of(need(0, SPAN, 0, 2, 1, 1)),
                List.of(verified(0, 0, 1)),
                List.of(verified(9, 0, 1)),
                List.of(good, verified(0, 4, 1)),
                List.of(good, verified(0, 0, most)),
                List.of(good, verified(0, most, most)),
                List.of(verified(most, 0, 1)),
                List.of(good, bad(0, most, 0)),
                List.of(good, bad(0, 0, most)),
                List.of(settled(most)),
                List.of(good, Control.newBuilder().setSpansLost(lost(0, most, most)).build()),
                List.of(good, Control.newBuilder().setSpansLost(lost(most, 0, 1)).build()),
                List.of(bad(0, 0, 0)),
                List.of(good, bad(0, 0, 9)),
                List.of(closed(9), closed(9)),
                List.of(settled(0)),
                List.of(good, settled(0)),
                List.of(settled(1)),
                List.of(finish()),
                List.of(offer(empty(0, "x", FileKind.REGULAR))),
                List.of(ends(0)),
                List.of(confirm(0)),
                List.of(
                        Control.newBuilder()
                                .setStreamDrop(StreamDrop.getDefaultInstance())
                                .build()),
                List.of(hello()),
                List.of(Control.newBuilder().setOpened(Opened.getDefaultInstance()).build()));
    }

    private static SpansLost.Builder lost(int file, int first, int count) {
        SpanRange.Builder spans = SpanRange.newBuilder().setFirst(first).setCount(count);
        return SpansLost.newBuilder().setFile(file).addSpans(spans);
    }

    /** The largest numbers that a message can hold are no more than words. */
    @Test
    void progressBeyondAllBytesHarmsNoPush() throws Exception {
        Control progress =
                Control.newBuilder()
                        .setProgress(Progress.newBuilder().setDurableBytes(-1).setReceivedBytes(-1))
                        .build();
        Lie boasts =
                new Lie() {
                    @Override
                    public void control(Control said, LyingServer.Words client) throws Exception {
                        client.say(said);
                        if (said.hasFileAnswer()) {
                            client.say(progress);
                        }
                    }
                };
        try (HaulServer server = HaulServer.start(folder, root);
                LyingServer lying = new LyingServer(folder, server, boasts);
                HaulClient client = HaulClient.connect(lying.url(""))) {
            TransferResult result = client.push(List.of(file), LiesTold.SAFE);
            assertEquals(200_000, result.bytes());
        }
        assertEquals(Trees.hash(file), Trees.hash(root.resolve("data")));
    }

    @Test
    void whatAReceiverMayNotSayEndsThePush() throws Exception {
        try (HaulServer server = HaulServer.start(folder, root)) {
            for (List<Control> lie : lies()) {
                String words = "broke the protocol";
                try {
                    push(
                            server,
                            LiesTold.instead(ANSWER, lie),
                            HaulException.Protocol.class,
                            words);
                } catch (AssertionError wrong) {
                    throw new AssertionError(lie + ": " + wrong.getMessage(), wrong);
                }
            }
        }
        assertFalse(Files.exists(root.resolve("data")));
    }

    @Test
    void aServerThatSaysNothingMoreIsLeftInWords() throws Exception {
        try (HaulServer server = HaulServer.start(folder, root)) {
            Lie silent = LiesTold.instead(ANSWER, List.of());
            HaulException left =
                    push(server, silent, HaulException.Refused.class, "an answer to what was");
            assertEquals("STALLED", left.problem().code());
            assertFalse(left.problem().hint().isEmpty());
            Lie rude = busy(Control::hasFinish, pong());
            push(server, rude, HaulException.Refused.class, "the goodbye");
        }
    }

    /** Progress that is none does not help. */
    @Test
    void aServerThatOnlyTellsProgressIsLeftInWords() throws Exception {
        Control progress = Control.newBuilder().setProgress(Progress.getDefaultInstance()).build();
        try (HaulServer server = HaulServer.start(folder, root)) {
            Lie busy = busy(ANSWER, progress);
            push(server, busy, HaulException.Refused.class, "an answer to what was");
        }
    }

    private static Control pong() {
        return Control.newBuilder().setPong(Ping.getDefaultInstance()).build();
    }

    /** Says this again and again in place of the first message that fits. */
    private static Lie busy(Predicate<Control> fits, Control message) {
        return new Lie() {
            @Override
            public void control(Control said, LyingServer.Words client) throws Exception {
                if (!fits.test(said)) {
                    client.say(said);
                    return;
                }
                for (int turn = 0; turn < 400; turn++) {
                    client.say(message);
                    Thread.sleep(50);
                }
            }
        };
    }

    @Test
    void aServerThatTakesNoBytesIsLeftInWords() throws Exception {
        AtomicInteger taken = new AtomicInteger();
        Lie reading = streams(taken, client -> client.getInputStream().transferTo(nowhere()));
        Lie stopping = streams(taken, client -> Lie.silence());
        Lie ending = streams(taken, client -> client.shutdownOutput());
        Lie closing = streams(taken, client -> client.close());
        Lie talking = streams(taken, client -> client.getOutputStream().write(new byte[4096]));
        Trees.file(file, 30_000_000, 3);
        try (HaulServer server = HaulServer.start(folder, root)) {
            for (Lie lie : List.of(reading, stopping, ending, closing, talking)) {
                taken.set(0);
                push(server, lie, HaulException.class, "");
                assertTrue(taken.get() > 1, "it was tried again: " + taken);
            }
        }
        assertFalse(Files.exists(root.resolve("data")));
    }

    private static java.io.OutputStream nowhere() {
        return java.io.OutputStream.nullOutputStream();
    }

    /** Something that a server does with the connection of a data stream. */
    private interface Deed {
        void to(Socket client) throws IOException;
    }

    private static Lie streams(AtomicInteger taken, Deed deed) {
        return new Lie() {
            @Override
            public boolean takesStream(Socket client, Frames.Preface preface) throws IOException {
                taken.incrementAndGet();
                deed.to(client);
                return false;
            }
        };
    }

    /** A receiver that finds every span damaged could have a sender send for ever. */
    @Test
    void aServerThatIsNeverContentIsLeftInWords() throws Exception {
        AtomicInteger refused = new AtomicInteger();
        Lie never =
                new Lie() {
                    @Override
                    public void control(Control said, LyingServer.Words client) throws Exception {
                        if (!said.hasSpansVerified()) {
                            client.say(said);
                            return;
                        }
                        refused.incrementAndGet();
                        var spans = said.getSpansVerified();
                        for (var range : spans.getSpansList()) {
                            client.say(bad(spans.getFile(), range.getFirst(), 0));
                        }
                    }
                };
        try (HaulServer server = HaulServer.start(folder, root)) {
            push(server, never, HaulException.class, "");
        }
        assertTrue(refused.get() > 0);
    }
}
