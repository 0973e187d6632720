package io.github.haul.client.internal.machine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.Need;
import io.github.haul.client.internal.wire.ControlMessages;
import io.github.haul.client.internal.wire.Frames;
import io.github.haul.client.internal.wire.Limits;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.nio.ByteBuffer;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The receiver where a vector would be too long. */
final class ReceiverTest {
    private static final long SPAN = Limits.SPAN_BYTES_MIN;

    private static Receiver receiving(int spans, SpanSet durable, OfferAnswer.Earlier earlier)
            throws ProtocolViolation {
        Receiver receiver = new Receiver(100, Limits.OFFER_BYTES_MAX);
        FileOffer.Builder offer =
                FileOffer.newBuilder()
                        .setName(ByteString.copyFromUtf8("file"))
                        .setSizeBytes(spans * SPAN);
        receiver.handle(Control.newBuilder().setFileOffer(offer).build());
        receiver.answer(0, new OfferAnswer.Needed(SPAN, durable, ByteString.EMPTY, earlier));
        return receiver;
    }

    private static SpanSet everySecond(int runs) {
        SpanSet set = new SpanSet(2 * runs);
        for (int span = 0; span < 2 * runs; span += 2) {
            set.add(span);
        }
        return set;
    }

    private static Need need(Receiver receiver) throws ProtocolViolation {
        Control answer = receiver.pollMessage();
        assertNotNull(answer);
        ByteBuffer encoded = ByteBuffer.wrap(ControlMessages.encode(answer));
        assertEquals(answer, ControlMessages.decode(encoded, Limits.MESSAGE_BYTES_MAX));
        return answer.getFileAnswer().getNeed();
    }

    @Test
    void theDigestOfWhatIsDurableGoesOutOnlyWithAllOfItsSpans() throws ProtocolViolation {
        OfferAnswer.Earlier earlier =
                new OfferAnswer.Earlier(0, 0, ByteString.copyFrom(new byte[16]), false);
        for (int runs : new int[] {1, Limits.RANGES_MAX, Limits.RANGES_MAX + 1}) {
            Need need = need(receiving(2 * runs, everySecond(runs), earlier));
            assertEquals(Math.min(runs, Limits.RANGES_MAX), need.getDurableCount());
            assertEquals(runs > Limits.RANGES_MAX, need.getDurableDigest().isEmpty());
        }
    }

    @Test
    void aSpanThatFitsInNoMessageIsMissingAgain() throws ProtocolViolation {
        int runs = Limits.RANGES_MAX + 1;
        Receiver receiver = receiving(2 * runs, everySecond(runs), OfferAnswer.Earlier.NOTHING);
        receiver.streamOpened(0);
        int last = 2 * Limits.RANGES_MAX;
        assertEquals(
                Receiver.DISCARD,
                receiver.spanStarts(0, new Frames.Span(0, (last - 2) * SPAN, SPAN, 0, 0)));
        assertEquals(last, receiver.spanStarts(0, new Frames.Span(0, last * SPAN, SPAN, 1, 0)));
    }

    @Test
    void whatIsVerifiedIsToldInAsManyMessagesAsItTakes() throws ProtocolViolation {
        int runs = Limits.RANGES_MAX + 1;
        Receiver receiver = receiving(2 * runs, new SpanSet(2 * runs), OfferAnswer.Earlier.NOTHING);
        need(receiver);
        receiver.streamOpened(0);
        for (int run = runs - 1; run >= 0; run--) {
            int span = 2 * run;
            receiver.spanStarts(0, new Frames.Span(0, span * SPAN, SPAN, runs - 1 - run, 0));
            receiver.spanEnded(0, 0, span, SpanEnd.VERIFIED);
        }
        int told = 0;
        for (int expected : new int[] {Limits.RANGES_MAX, 1}) {
            Control message = receiver.pollMessage();
            assertNotNull(message);
            assertEquals(expected, message.getSpansVerified().getSpansCount());
            assertEquals(2 * told, message.getSpansVerified().getSpans(0).getFirst());
            told += expected;
        }
        assertNull(receiver.pollMessage());
    }

    @Test
    void namesAreRemovedWhenAllIsSettledAndNotBefore() throws ProtocolViolation {
        Receiver receiver = receiving(0, new SpanSet(0), OfferAnswer.Earlier.NOTHING);
        assertThrows(IllegalStateException.class, () -> receiver.removed(List.of()));
    }
}
