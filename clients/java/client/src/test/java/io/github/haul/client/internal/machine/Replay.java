package io.github.haul.client.internal.machine;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.IntNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.LongNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.SpanRange;
import io.github.haul.client.internal.wire.ControlMessages;
import io.github.haul.client.internal.wire.Limits;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** Plays one session of {@code machines.json}, and compares all that comes out with the vector. */
abstract class Replay {
    private final ObjectNode expectedState = JsonNodeFactory.instance.objectNode();

    /** Calls the machine; null where the call returns nothing. */
    abstract @Nullable JsonNode call(String name, JsonNode step) throws ProtocolViolation;

    /** The answers of all queries. */
    abstract ObjectNode state();

    /** The next event as the vectors have it, or null. */
    abstract @Nullable JsonNode pollEvent();

    abstract @Nullable Control pollMessage();

    /** Plays the session, and returns how many steps it has. */
    final int play(JsonNode trace) {
        int at = 0;
        for (JsonNode step : trace.get("steps")) {
            String where = trace.get("name").textValue() + ", step " + at + ": " + step;
            check(step, where);
            at++;
        }
        return at;
    }

    private void check(JsonNode step, String where) {
        JsonNode returned = null;
        ProtocolViolation violation = null;
        try {
            returned = call(step.get("call").textValue(), step);
        } catch (ProtocolViolation thrown) {
            violation = thrown;
        }
        assertEquals(step.has("error"), violation != null, where + ": " + violation);
        assertEquals(step.get("returns"), returned, where);
        if (step.has("state")) {
            expectedState.setAll((ObjectNode) step.get("state"));
        }
        assertEquals(expectedState, state(), where);
        ArrayNode events = JsonNodeFactory.instance.arrayNode();
        for (JsonNode event = pollEvent(); event != null; event = pollEvent()) {
            events.add(event);
        }
        assertEquals(
                step.path("events").isMissingNode() ? array() : step.get("events"), events, where);
        if (step.has("messages")) {
            ArrayNode messages = array();
            for (Control said = pollMessage(); said != null; said = pollMessage()) {
                messages.add(hex(said));
            }
            assertEquals(step.get("messages"), messages, where);
        }
    }

    static ArrayNode array() {
        return JsonNodeFactory.instance.arrayNode();
    }

    static ObjectNode object() {
        return JsonNodeFactory.instance.objectNode();
    }

    /** An event or an outcome that has a value. */
    static ObjectNode named(String name, JsonNode value) {
        return object().set(name, value);
    }

    /** A number as the reader of the vectors makes it. */
    static JsonNode number(long number) {
        return (int) number == number ? new IntNode((int) number) : new LongNode(number);
    }

    /** An unsigned number. */
    static JsonNode unsigned(int number) {
        return number(Integer.toUnsignedLong(number));
    }

    static TextNode text(String text) {
        return new TextNode(text);
    }

    static TextNode hex(ByteString bytes) {
        return text(HexFormat.of().formatHex(bytes.toByteArray()));
    }

    /** Bytes in hex, or null for none. */
    static JsonNode hexOrNull(ByteString bytes) {
        return bytes.isEmpty() ? NullNode.instance : hex(bytes);
    }

    static TextNode hex(Control message) {
        return hex(ByteString.copyFrom(ControlMessages.encode(message)));
    }

    static TextNode hex(Control.Builder message) {
        return hex(message.build());
    }

    static TextNode hex(Fault fault) {
        return hex(Control.newBuilder().setRefused(fault));
    }

    static JsonNode runs(SpanSet set) {
        ArrayNode runs = array();
        for (SpanRange run : set.toRanges()) {
            runs.add(array().add(number(run.getFirst())).add(number(run.getCount())));
        }
        return runs;
    }

    static JsonNode awaited(@Nullable Awaited awaited) {
        return text(awaited == null ? "nothing" : awaited.name().toLowerCase(Locale.ROOT));
    }

    static int integer(JsonNode step, String key) {
        return (int) step.get(key).longValue();
    }

    static ByteString bytes(JsonNode hex) {
        return ByteString.copyFrom(HexFormat.of().parseHex(hex.textValue()));
    }

    static Control message(JsonNode hex) throws ProtocolViolation {
        ByteBuffer encoded = bytes(hex).asReadOnlyByteBuffer();
        Control message = ControlMessages.decode(encoded, Limits.MESSAGE_BYTES_MAX);
        return Objects.requireNonNull(message);
    }

    static @Nullable Fault fault(JsonNode step) throws ProtocolViolation {
        return step.get("fault").isNull() ? null : message(step.get("fault")).getRefused();
    }

    static SpanSet set(JsonNode fileSpans, JsonNode runs) throws ProtocolViolation {
        List<SpanRange> ranges = new ArrayList<>();
        for (JsonNode run : runs) {
            int first = run.get(0).intValue();
            int count = run.get(1).intValue();
            ranges.add(SpanRange.newBuilder().setFirst(first).setCount(count).build());
        }
        return SpanSet.of(fileSpans.intValue(), ranges);
    }
}
