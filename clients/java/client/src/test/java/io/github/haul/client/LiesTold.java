package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.FileAnswer;
import io.github.haul.client.internal.proto.FileConfirm;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.FileSettled;
import io.github.haul.client.internal.proto.Finish;
import io.github.haul.client.internal.proto.Hello;
import io.github.haul.client.internal.proto.Need;
import io.github.haul.client.internal.proto.OffersEnd;
import io.github.haul.client.internal.proto.SpanBad;
import io.github.haul.client.internal.proto.SpanRange;
import io.github.haul.client.internal.proto.SpansVerified;
import io.github.haul.client.internal.proto.StreamClosed;
import io.github.haul.client.internal.wire.Frames;
import java.net.Socket;
import java.time.Duration;
import java.util.List;
import java.util.function.Predicate;
import org.junit.jupiter.api.function.Executable;

/** Words of servers that lie, and what has to become of a client that hears them. */
final class LiesTold {
    /** The bytes of each span. */
    static final int SPAN_BYTES = 64 << 10;

    /** The time after which a client that is lied to would be one that hangs. */
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    private LiesTold() {}

    static final TransferOptions SAFE = with(TransferOptions.Protection.SAFE);

    /** Options of a client that does not wait long. */
    static TransferOptions with(TransferOptions.Protection protection) {
        return with(protection, 2);
    }

    static TransferOptions with(TransferOptions.Protection protection, int streams) {
        return TransferOptions.builder()
                .protection(protection)
                .streams(streams)
                .spanBytes(SPAN_BYTES)
                .retryFor(Duration.ofMillis(300))
                .stallAfter(Duration.ofMillis(200))
                .build();
    }

    /** Sees that a transfer ends in time, by an exception of this class that has these words. */
    static <E extends HaulException> E fails(Class<E> kind, String words, Executable transfer) {
        E failed = assertTimeoutPreemptively(PATIENCE, () -> assertThrows(kind, transfer));
        String told = failed.problem() + " " + failed.getMessage();
        assertTrue(told.contains(words), words + " is not in: " + told);
        assertFalse(failed.problem().what().isEmpty(), told);
        return failed;
    }

    /** Sees that no thread of a client is left. */
    static void assertNoThreadsLeft() throws InterruptedException {
        long end = System.nanoTime() + PATIENCE.toNanos() / 2;
        while (true) {
            List<String> left =
                    Thread.getAllStackTraces().keySet().stream()
                            .map(Thread::getName)
                            .filter(
                                    name ->
                                            name.startsWith("haul ")
                                                    && !name.equals("haul warm-up"))
                            .toList();
            if (left.isEmpty()) {
                return;
            }
            assertTrue(System.nanoTime() < end, "threads that are left: " + left);
            Thread.sleep(20);
        }
    }

    /**
     * Says these messages in each session in place of the first that fits, and nothing from then on
     * but answers to pings, on no connection.
     */
    static Lie instead(Predicate<Control> fits, List<Control> messages) {
        return new Lie() {
            private volatile boolean isSaid;

            @Override
            public boolean takesStream(Socket client, Frames.Preface preface) throws Exception {
                if (isSaid) {
                    Lie.silence();
                }
                return true;
            }

            @Override
            public void control(Control said, LyingServer.Words client) throws Exception {
                isSaid &= !said.hasHelloReply();
                if (!isSaid && fits.test(said)) {
                    isSaid = true;
                    for (Control message : messages) {
                        client.say(message);
                    }
                } else if (!isSaid || said.hasPong()) {
                    client.say(said);
                }
            }
        };
    }

    static Control offer(FileOffer.Builder offer) {
        return Control.newBuilder().setFileOffer(offer).build();
    }

    /** A file of 200,000 bytes, or whatever else is set. */
    static FileOffer.Builder file(int number, String name) {
        return FileOffer.newBuilder()
                .setFile(number)
                .setName(ByteString.copyFromUtf8(name))
                .setKind(FileKind.REGULAR)
                .setSizeBytes(200_000)
                .setMode(0644)
                .setMtimeS(1);
    }

    /** An empty directory or file, or a link. */
    static FileOffer.Builder empty(int number, String name, FileKind kind) {
        return file(number, name).setSizeBytes(0).setKind(kind);
    }

    static Control answer(FileAnswer.Builder answer) {
        return Control.newBuilder().setFileAnswer(answer).build();
    }

    /**
     * What a receiver needs, but for spans that it calls durable: first and count of each range.
     */
    static Control need(int file, long spanBytes, int... durable) {
        Need.Builder need = Need.newBuilder().setSpanBytes(spanBytes);
        for (int at = 0; at < durable.length; at += 2) {
            need.addDurable(range(durable[at], durable[at + 1]));
        }
        return answer(FileAnswer.newBuilder().setFile(file).setNeed(need));
    }

    private static SpanRange range(int first, int count) {
        return SpanRange.newBuilder().setFirst(first).setCount(count).build();
    }

    static Control verified(int file, int first, int count) {
        return Control.newBuilder()
                .setSpansVerified(
                        SpansVerified.newBuilder().setFile(file).addSpans(range(first, count)))
                .build();
    }

    static Control bad(int file, int span, int stream) {
        return Control.newBuilder()
                .setSpanBad(SpanBad.newBuilder().setFile(file).setSpan(span).setStream(stream))
                .build();
    }

    static Control closed(int stream) {
        return Control.newBuilder()
                .setStreamClosed(StreamClosed.newBuilder().setStream(stream))
                .build();
    }

    static Control settled(int file) {
        return Control.newBuilder().setFileSettled(FileSettled.newBuilder().setFile(file)).build();
    }

    static Control confirm(int file) {
        return Control.newBuilder().setFileConfirm(FileConfirm.newBuilder().setFile(file)).build();
    }

    static Control finish() {
        return Control.newBuilder().setFinish(Finish.getDefaultInstance()).build();
    }

    static Control ends(int files) {
        return Control.newBuilder()
                .setOffersEnd(OffersEnd.newBuilder().setFiles(files).setBytes(files * 200_000L))
                .build();
    }

    static Control hello() {
        return Control.newBuilder()
                .setHello(Hello.newBuilder().setVersionMin(1).setVersionMax(1))
                .build();
    }
}
