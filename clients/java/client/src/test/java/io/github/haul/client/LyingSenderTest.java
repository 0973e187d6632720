package io.github.haul.client;

import static io.github.haul.client.LiesTold.closed;
import static io.github.haul.client.LiesTold.confirm;
import static io.github.haul.client.LiesTold.empty;
import static io.github.haul.client.LiesTold.ends;
import static io.github.haul.client.LiesTold.fails;
import static io.github.haul.client.LiesTold.file;
import static io.github.haul.client.LiesTold.finish;
import static io.github.haul.client.LiesTold.hello;
import static io.github.haul.client.LiesTold.need;
import static io.github.haul.client.LiesTold.offer;
import static io.github.haul.client.LiesTold.settled;
import static io.github.haul.client.LiesTold.verified;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Digest;
import io.github.haul.client.internal.proto.Extent;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.Growth;
import io.github.haul.client.internal.proto.HelloReply;
import io.github.haul.client.internal.proto.Opened;
import io.github.haul.client.internal.proto.Progress;
import io.github.haul.client.internal.proto.Protection;
import io.github.haul.client.internal.wire.Frames;
import java.io.IOException;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.UnaryOperator;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Pulls from servers that lie: no wrong byte gets a name, and nothing lands outside. */
@Tag("one-jdk")
final class LyingSenderTest {
    private static final long SPAN = LiesTold.SPAN_BYTES;
    private static final String BREACH = "broke the protocol";

    @TempDir Path folder;
    private Path root = Path.of("");
    private Path target = Path.of("");

    @BeforeEach
    void makeFolders() throws IOException {
        root = Files.createDirectories(folder.resolve("root"));
        target = Files.createDirectories(folder.resolve("around/target"));
        Trees.file(root.resolve("data"), 1_000_000, 3);
    }

    /** Whatever was said: nothing has a name, nothing lies outside, and no thread is left. */
    @AfterEach
    void nothingIsThere() throws Exception {
        LiesTold.assertNoThreadsLeft();
        try (Stream<Path> around = Files.walk(folder.resolve("around"))) {
            List<String> names =
                    around.map(path -> path.getFileName().toString())
                            .filter(name -> !name.startsWith(".") || !name.contains("haul-"))
                            .toList();
            assertEquals(List.of("around", "target"), names);
        }
        assertFalse(Files.exists(Path.of("/tmp/haul-x")));
    }

    private <E extends HaulException> E pull(
            HaulServer server, Lie lie, Class<E> kind, String words) throws Exception {
        return pull(server, lie, kind, words, LiesTold.SAFE);
    }

    private <E extends HaulException> E pull(
            HaulServer server, Lie lie, Class<E> kind, String words, TransferOptions options)
            throws Exception {
        try (LyingServer lying = new LyingServer(folder, server, lie);
                HaulClient client = HaulClient.connect(lying.url("data"))) {
            return fails(kind, words, () -> client.pull(target, options));
        }
    }

    private static Lie first(List<Control> messages) {
        return LiesTold.instead(said -> !said.hasHelloReply() && !said.hasOpened(), messages);
    }

    private static List<Control> offers(
            UnaryOperator<io.github.haul.client.internal.proto.FileOffer.Builder> change) {
        return List.of(offer(change.apply(file(0, "data"))));
    }

    private static Extent.Builder extent(long offsetBytes, long lenBytes) {
        return Extent.newBuilder().setOffsetBytes(offsetBytes).setLenBytes(lenBytes);
    }

    /** What a sender may not say; crates/cli/tests/suite/hostile_lies.rs has the same list. */
    private static List<List<Control>> lies() {
        Control good = offer(file(0, "data"));
        return List.of(
                List.of(offer(file(5, "data"))),
                List.of(good, good),
                offers(one -> one.setSizeBytes(-1)),
                offers(one -> one.setSizeBytes((1L << 62) + 1)),
                offers(one -> one.setSizeBytes(Long.MAX_VALUE)),
                offers(one -> one.setFile(-1)),
                offers(one -> one.addHoles(extent(-1, -1))),
                offers(one -> one.addHoles(extent(0, -1))),
                offers(one -> one.addHoles(extent(Long.MAX_VALUE, Long.MAX_VALUE))),
                offers(one -> one.addHoles(extent(-1, 1))),
                offers(one -> one.setSizeBytes(1).setKind(FileKind.DIRECTORY)),
                offers(one -> one.setLinkTarget(ByteString.copyFromUtf8("/etc"))),
                offers(one -> one.setMode(0100644)),
                offers(one -> one.setMtimeNs(-1)),
                offers(one -> one.setGrowth(Growth.GROWING)),
                List.of(offer(empty(0, "data", FileKind.SYMLINK).setGrowth(Growth.GROWN))),
                offers(one -> one.setName(ByteString.copyFromUtf8("x".repeat(256)))),
                offers(one -> one.setName(ByteString.copyFromUtf8("data/../../x"))),
                List.of(ends(0), ends(0)),
                List.of(ends(0), good),
                List.of(confirm(0)),
                List.of(confirm(-1)),
                List.of(good, confirm(0)),
                List.of(finish()),
                List.of(good, ends(1), finish()),
                List.of(need(0, SPAN)),
                List.of(verified(0, 0, 1)),
                List.of(settled(0)),
                List.of(closed(0)),
                List.of(Control.newBuilder().setProgress(Progress.getDefaultInstance()).build()),
                List.of(hello()),
                List.of(
                        Control.newBuilder()
                                .setHelloReply(HelloReply.getDefaultInstance())
                                .build()));
    }

    @Test
    void whatASenderMayNotSayEndsThePull() throws Exception {
        try (HaulServer server = HaulServer.start(folder, root)) {
            for (List<Control> lie : lies()) {
                try {
                    pull(server, first(lie), HaulException.Protocol.class, BREACH);
                } catch (AssertionError wrong) {
                    throw new AssertionError(lie + ": " + wrong.getMessage(), wrong);
                }
            }
        }
    }

    @Test
    void namesThatLeadOutsideEndThePull() throws Exception {
        try (HaulServer server = HaulServer.start(folder, root)) {
            String[] names = {"../x", "/tmp/haul-x", "a/../../x", "x/../y", "..", "a\0b", "", "."};
            for (String name : names) {
                List<Control> lie = offers(one -> one.setName(ByteString.copyFromUtf8(name)));
                pull(server, first(lie), HaulException.Protocol.class, BREACH);
            }
        }
    }

    /** A name that nobody asked for: {@code .bashrc} in a home directory would be run. */
    @Test
    void namesThatNobodyAskedForAreNotTaken() throws Exception {
        List<Control> lies = new ArrayList<>();
        for (String name : List.of(".bashrc", "data2", "Data", "dat", ".bashrc/data", "dir/data")) {
            for (FileKind kind : List.of(FileKind.REGULAR, FileKind.DIRECTORY, FileKind.SYMLINK)) {
                boolean isLink = kind == FileKind.SYMLINK;
                ByteString link = ByteString.copyFromUtf8(isLink ? "/" : "");
                lies.add(offer(empty(lies.size(), name, kind).setLinkTarget(link)));
            }
        }
        int count = lies.size();
        lies.add(ends(count));
        lies.add(finish());
        try (HaulServer server = HaulServer.start(folder, root)) {
            HaulException.FilesFailed failed =
                    pull(
                            server,
                            first(lies),
                            HaulException.FilesFailed.class,
                            "do not trust this server");
            assertEquals("NAME_REFUSED", failed.problem().code());
            assertEquals(count, failed.result().filesFailed());
        }
    }

    @Test
    void aServerThatGrantsSomethingElseIsLeft() throws Exception {
        List<UnaryOperator<Opened.Builder>> changes =
                List.of(
                        one -> one.setProtection(Protection.CLEAR).setDigest(Digest.CRC32C),
                        one -> one.setDigest(Digest.NONE),
                        one -> one.setDigest(Digest.CRC32C),
                        one -> one.setStreams(3),
                        one -> one.setStreams(-1),
                        one -> one.setOffersMax(-1),
                        one -> one.setOfferBytesMax(-1),
                        one -> one.setVerifyTarget(true),
                        one -> one.setSession(ByteString.EMPTY),
                        one -> one.setDataKeys(ByteString.copyFrom(new byte[95])));
        try (HaulServer server = HaulServer.start(folder, root)) {
            for (UnaryOperator<Opened.Builder> change : changes) {
                AtomicInteger streams = new AtomicInteger();
                Lie lie =
                        new Lie() {
                            @Override
                            public void control(Control said, LyingServer.Words client)
                                    throws IOException {
                                Opened.Builder opened = said.getOpened().toBuilder();
                                client.say(
                                        said.hasOpened()
                                                ? said.toBuilder()
                                                        .setOpened(change.apply(opened))
                                                        .build()
                                                : said);
                            }

                            @Override
                            public boolean takesStream(Socket client, Frames.Preface preface) {
                                streams.incrementAndGet();
                                return false;
                            }
                        };
                pull(server, lie, HaulException.Protocol.class, "does not open a session");
                assertEquals(0, streams.get(), "the client went on");
            }
        }
    }

    /** Frames that are not what was asked for, each a thing that a server makes of a good one. */
    enum BadFrame {
        OTHER_BYTES,
        OTHER_DIGEST,
        TRAILER_OF_NO_KIND,
        OTHER_FILE,
        OFFSET_BEYOND,
        OFFSET_BETWEEN,
        LONGER,
        ENDLESS,
        SHORTER,
        OTHER_STREAM,
        OTHER_SEQUENCE,
        NO_HEADER,
        END_AT_ONCE,
        CUT_SHORT,
        SILENT,
        ENDLESS_PACK,
        PACK_OF_NOTHING,
        LARGEST_FILE,
        LARGEST_OFFSET,
        LARGEST_LENGTH,
        LARGEST_SEQUENCE,
        LARGEST_STREAM,
        LARGEST_PACK,
        PACK_OF_MOST_SPANS;

        void send(LyingServer.Frame frame, LyingServer.Data client) throws Exception {
            if (!(frame.header() instanceof Frames.Span span)) {
                client.send(frame);
                return;
            }
            byte[] bytes = frame.payload();
            long len = span.lenBytes();
            long at = span.offsetBytes();
            long next = span.sequence();
            int stream = span.stream();
            switch (this) {
                case OTHER_BYTES -> {
                    frame.body()[bytes.length / 2] ^= 1;
                    client.send(frame);
                }
                case OTHER_DIGEST -> {
                    byte[] digest = new byte[Frames.DIGEST_BYTES];
                    client.bytes(span.encode());
                    client.bytes(bytes);
                    client.bytes(new Frames.Trailer(Frames.Status.WHOLE, digest).encode());
                }
                case TRAILER_OF_NO_KIND -> {
                    frame.body()[bytes.length + 1] = 9;
                    client.send(frame);
                }
                case OTHER_FILE -> sign(client, 7, at, bytes, next, stream);
                case OFFSET_BEYOND -> sign(client, span.file(), 1L << 40, bytes, next, stream);
                case OFFSET_BETWEEN -> sign(client, span.file(), at + 100, bytes, next, stream);
                case LONGER -> {
                    byte[] longer = java.util.Arrays.copyOf(bytes, 2 * bytes.length);
                    sign(client, span.file(), at, longer, next, stream);
                }
                case ENDLESS -> {
                    client.bytes(new Frames.Span(0, at, 1L << 40, next, stream).encode());
                    client.bytes(bytes);
                }
                case SHORTER -> {
                    byte[] shorter = java.util.Arrays.copyOf(bytes, bytes.length / 2);
                    sign(client, span.file(), at, shorter, next, stream);
                }
                case OTHER_STREAM -> sign(client, span.file(), at, bytes, next, stream + 1);
                case OTHER_SEQUENCE -> sign(client, span.file(), at, bytes, next + 1, stream);
                case NO_HEADER -> client.bytes(new byte[Frames.HEADER_BYTES]);
                case END_AT_ONCE -> client.bytes(new Frames.End(next, stream).encode());
                case CUT_SHORT -> {
                    client.bytes(span.encode());
                    client.bytes(java.util.Arrays.copyOf(bytes, (int) len / 3));
                    client.close();
                }
                case SILENT -> Lie.silence();
                case ENDLESS_PACK ->
                        client.bytes(new Frames.Pack(3, 1L << 40, next, stream).encode());
                case PACK_OF_NOTHING -> client.bytes(new Frames.Pack(0, 0, next, stream).encode());
                default -> sendLargest(span, bytes, client);
            }
        }

        /** Says the largest number that one of a header's fields holds, signed where it can be. */
        private void sendLargest(Frames.Span span, byte[] bytes, LyingServer.Data client)
                throws Exception {
            int file = span.file();
            long at = span.offsetBytes();
            long next = span.sequence();
            int stream = span.stream();
            switch (this) {
                case LARGEST_FILE -> sign(client, -1, at, bytes, next, stream);
                case LARGEST_OFFSET -> sign(client, file, -1, bytes, next, stream);
                case LARGEST_LENGTH -> {
                    client.bytes(new Frames.Span(file, at, -1, next, stream).encode());
                    client.bytes(bytes);
                }
                case LARGEST_SEQUENCE -> sign(client, file, at, bytes, -1, stream);
                case LARGEST_STREAM -> sign(client, file, at, bytes, next, -1);
                case LARGEST_PACK -> client.bytes(new Frames.Pack(1, -1, next, stream).encode());
                default -> {
                    client.bytes(new Frames.Pack(-1, bytes.length, next, stream).encode());
                    client.bytes(bytes);
                }
            }
        }

        private static void sign(
                LyingServer.Data client, int file, long at, byte[] bytes, long next, int stream)
                throws Exception {
            Frames.Span span = new Frames.Span(file, at, bytes.length, next, stream);
            client.sign(span, bytes, Frames.Status.WHOLE);
        }
    }

    /** Each bad frame under each protection: a fault of one is not hidden by another. */
    private static Stream<Arguments> badFrames() {
        return Stream.of(TransferOptions.Protection.values())
                .flatMap(
                        protection ->
                                Stream.of(BadFrame.values())
                                        .map(bad -> Arguments.of(bad, protection)));
    }

    @ParameterizedTest
    @MethodSource("badFrames")
    void badFramesAreWorthNothing(BadFrame bad, TransferOptions.Protection protection)
            throws Exception {
        AtomicInteger sent = new AtomicInteger();
        Lie lie =
                new Lie() {
                    @Override
                    public void frame(LyingServer.Frame frame, LyingServer.Data client)
                            throws Exception {
                        sent.incrementAndGet();
                        bad.send(frame, client);
                    }
                };
        try (HaulServer server = HaulServer.start(folder, root)) {
            pull(server, lie, HaulException.class, "", LiesTold.with(protection));
            assertTrue(sent.get() > 0);
        }
    }

    /** Ways to send a frame of this session once more, or what proves another one. */
    enum Replay {
        SWAPPED_PROOFS,
        SAME_FRAME,
        OTHER_PLACE;

        /** Sends two frames of one stream in a row, the second of which proves nothing. */
        void send(LyingServer.Frame first, LyingServer.Frame second, LyingServer.Data client)
                throws Exception {
            Frames.Span span = (Frames.Span) first.header();
            Frames.Span next = (Frames.Span) second.header();
            byte[] proof = proof(first);
            switch (this) {
                case SWAPPED_PROOFS -> {
                    send(span, first.payload(), proof(second), client);
                    send(next, second.payload(), proof, client);
                }
                case SAME_FRAME -> {
                    client.send(first);
                    client.send(first);
                    client.send(second);
                }
                case OTHER_PLACE -> {
                    client.send(first);
                    send(next, first.payload(), proof, client);
                }
            }
        }

        private static byte[] proof(LyingServer.Frame frame) {
            byte[] body = frame.body();
            return java.util.Arrays.copyOfRange(
                    body, body.length - Frames.TRAILER_BYTES, body.length);
        }

        private static void send(
                Frames.Span header, byte[] payload, byte[] proof, LyingServer.Data client)
                throws Exception {
            client.bytes(header.encode());
            client.bytes(payload);
            client.bytes(proof);
        }
    }

    private static Stream<Arguments> replays() {
        return Stream.of(TransferOptions.Protection.values())
                .flatMap(
                        protection ->
                                Stream.of(Replay.values())
                                        .map(replay -> Arguments.of(replay, protection)));
    }

    @ParameterizedTest
    @MethodSource("replays")
    void framesThatAreReplayedAndProofsOfOthersAreWorthNothing(
            Replay replay, TransferOptions.Protection protection) throws Exception {
        AtomicInteger lies = new AtomicInteger();
        Lie lie =
                new Lie() {
                    private final Map<LyingServer.Data, LyingServer.Frame> held =
                            new ConcurrentHashMap<>();

                    @Override
                    public void frame(LyingServer.Frame frame, LyingServer.Data client)
                            throws Exception {
                        // The first two of each stream: none is held back in vain.
                        LyingServer.Frame first = held.remove(client);
                        if (first != null) {
                            lies.incrementAndGet();
                            replay.send(first, frame, client);
                        } else if (frame.header() instanceof Frames.Span span
                                && span.sequence() == 0) {
                            held.put(client, frame);
                        } else {
                            client.send(frame);
                        }
                    }
                };
        try (HaulServer server = HaulServer.start(folder, root)) {
            TransferOptions one = LiesTold.with(protection, 1);
            HaulException failed = pull(server, lie, HaulException.class, "", one);
            assertTrue(lies.get() > 0, "no lie was told: " + failed);
        }
    }

    @Test
    void aServerThatSaysNothingMoreIsLeftInWords() throws Exception {
        try (HaulServer server = HaulServer.start(folder, root)) {
            Lie silent = first(List.of());
            HaulException left =
                    pull(server, silent, HaulException.Refused.class, "an offer, or the end");
            assertEquals("STALLED", left.problem().code());
            Lie empty = first(List.of(offer(file(0, "data")), ends(1)));
            pull(server, empty, HaulException.ConnectionLost.class, "the data streams break");
        }
    }

    @Test
    void aServerThatClosesEarlyIsGivenUp() throws Exception {
        Lie rude =
                new Lie() {
                    @Override
                    public void control(Control said, LyingServer.Words client) throws Exception {
                        client.say(said);
                        if (said.hasFileOffer()) {
                            throw new IOException("it goes");
                        }
                    }
                };
        try (HaulServer server = HaulServer.start(folder, root)) {
            pull(server, rude, HaulException.ConnectionLost.class, "goes on where it stopped");
        }
    }

    @Test
    void aMessageWithoutEndIsRefusedByItsLength() throws Exception {
        Lie endless =
                new Lie() {
                    @Override
                    public void control(Control said, LyingServer.Words client) throws Exception {
                        if (said.hasHelloReply() || said.hasOpened()) {
                            client.say(said);
                            return;
                        }
                        client.bytes(new byte[] {-1, -1, -1, 0x7f, 1, 2, 3});
                    }
                };
        try (HaulServer server = HaulServer.start(folder, root)) {
            HaulException failed = pull(server, endless, HaulException.Protocol.class, BREACH);
            assertTrue(failed.problem().found().contains("2147483647 bytes"), failed.toString());
        }
    }
}
