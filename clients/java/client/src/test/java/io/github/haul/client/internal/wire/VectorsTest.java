package io.github.haul.client.internal.wire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Digest;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.Notice;
import io.github.haul.client.internal.wire.ClientHandshake.Granted;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** The bytes on the wire are those that the vectors pin, for this client as for the others. */
final class VectorsTest {
    private static final String DAMAGED = "a control message: ";

    private static Control decode(byte[] bytes) throws ProtocolViolation {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        Control message = ControlMessages.decode(buffer, Limits.MESSAGE_BYTES_MAX);
        assertNotNull(message);
        assertEquals(0, buffer.remaining());
        return message;
    }

    @Test
    void messagesAreWhatTheVectorsSay() throws Exception {
        JsonNode vectors = Vectors.read("messages.json").get("messages");
        assertTrue(vectors.size() > 60);
        for (JsonNode vector : vectors) {
            byte[] bytes = Vectors.hex(vector, "hex");
            String name = vector.get("name").textValue();
            Control message = Vectors.message(vector.get("fields"));
            assertArrayEquals(bytes, ControlMessages.encode(message), name);
            assertEquals(message, decode(bytes), name);
            for (int length = 0; length < bytes.length; length++) {
                ByteBuffer part = ByteBuffer.wrap(bytes, 0, length);
                assertNull(ControlMessages.decode(part, Limits.MESSAGE_BYTES_MAX), name);
                assertEquals(0, part.position(), name);
            }
        }
    }

    @Test
    void badMessagesAreRefusedForTheReasonOfTheVectors() throws IOException {
        for (JsonNode vector : Vectors.read("messages.json").get("bad")) {
            byte[] bytes = Vectors.hex(vector, "hex");
            String name = vector.get("name").textValue();
            String reason = vector.get("reason").textValue();
            ProtocolViolation violation =
                    assertThrows(ProtocolViolation.class, () -> decode(bytes), name);
            boolean isOfDecoder = reason.startsWith(DAMAGED);
            assertEquals(
                    isOfDecoder ? DAMAGED : reason,
                    isOfDecoder
                            ? violation.getMessage().substring(0, DAMAGED.length())
                            : violation.getMessage(),
                    name);
        }
    }

    @Test
    void whatOneDecoderTakesLastAndAnotherFirstIsRefused() {
        Map<String, String> messages =
                Map.of(
                        "0a000000" + "92010208019a01020802",
                                "a control message of more than one kind",
                        "08000000" + "42060801" + "1a002a00",
                                "a file answer of more than one answer",
                        "01000000" + "0b", "a group, which no message has",
                        "04000000" + "920101" + "0b", "a group, which no message has");
        messages.forEach(
                (hex, reason) -> {
                    Executable decoded = () -> decode(HexFormat.of().parseHex(hex));
                    assertEquals(
                            reason, assertThrows(ProtocolViolation.class, decoded).getMessage());
                });
    }

    @Test
    void textsAreCutToWhatAPeerTakesBetweenCharacters() throws ProtocolViolation {
        Fault fault =
                Fault.newBuilder()
                        .setWhat("x" + "\u00fc".repeat(3000))
                        .setNeeds("y".repeat(Limits.TEXT_BYTES_MAX))
                        .build();
        Notice notice = Notice.newBuilder().setFault(fault).setWhy("z".repeat(5000)).build();
        Control message = Control.newBuilder().setNotice(notice).build();
        Notice read = decode(ControlMessages.encode(message)).getNotice();
        assertEquals("x" + "\u00fc".repeat(2047), read.getFault().getWhat());
        assertEquals(fault.getNeeds(), read.getFault().getNeeds());
        assertEquals(Limits.TEXT_BYTES_MAX, read.getWhy().length());
    }

    @Test
    void namesAreWhatTheVectorsSay() throws IOException {
        JsonNode vectors = Vectors.read("names.json");
        for (JsonNode good : vectors.get("good")) {
            byte[] name = HexFormat.of().parseHex(good.textValue());
            assertNull(Names.refusal(ByteString.copyFrom(name)), good.textValue());
        }
        for (JsonNode bad : vectors.get("bad")) {
            String refusal = Names.refusal(ByteString.copyFrom(Vectors.hex(bad, "hex")));
            assertEquals(bad.get("reason").textValue(), refusal);
        }
    }

    @Test
    void framesAreWhatTheVectorsSay() throws Exception {
        JsonNode vectors = Vectors.read("frames.json");
        for (JsonNode vector : vectors.get("headers")) {
            byte[] bytes = Vectors.hex(vector, "hex");
            if (vector.get("kind").textValue().equals("renewal")) {
                // Of private streams only, which this client does not have.
                assertThrows(ProtocolViolation.class, () -> Frames.Header.decode(bytes));
                continue;
            }
            Frames.Header header = header(vector);
            assertArrayEquals(bytes, header.encode());
            assertEquals(header, Frames.Header.decode(bytes));
        }
        for (JsonNode vector : vectors.get("trailers")) {
            byte[] bytes = Vectors.hex(vector, "hex");
            Frames.Trailer trailer = Frames.Trailer.decode(bytes);
            assertEquals(
                    vector.get("status").textValue(),
                    trailer.status().name().toLowerCase(java.util.Locale.ROOT));
            assertArrayEquals(Vectors.hex(vector, "digest"), trailer.digest());
            assertArrayEquals(bytes, trailer.encode());
        }
        for (JsonNode vector : vectors.get("prefaces")) {
            byte[] bytes = Vectors.hex(vector, "hex");
            Frames.Preface preface = Frames.Preface.decode(bytes);
            assertEquals(vector.get("stream").intValue(), preface.stream());
            assertArrayEquals(Vectors.hex(vector, "session"), preface.session());
            assertArrayEquals(Vectors.hex(vector, "mac"), preface.mac());
            assertArrayEquals(bytes, preface.encode());
        }
        for (JsonNode vector : vectors.get("bad")) {
            byte[] bytes = Vectors.hex(vector, "hex");
            Executable decoded =
                    switch (vector.get("layout").textValue()) {
                        case "preface" -> () -> Frames.Preface.decode(bytes);
                        case "header" -> () -> Frames.Header.decode(bytes);
                        default -> () -> Frames.Trailer.decode(bytes);
                    };
            ProtocolViolation violation = assertThrows(ProtocolViolation.class, decoded);
            String reason = vector.get("reason").textValue();
            assertEquals(reason, violation.getMessage(), vector.get("name").textValue());
        }
    }

    private static Frames.Header header(JsonNode vector) {
        long sequence = vector.get("sequence").longValue();
        int stream = (int) vector.get("stream").longValue();
        return switch (vector.get("kind").textValue()) {
            case "span" ->
                    new Frames.Span(
                            (int) vector.get("file").longValue(),
                            vector.get("offset_bytes").longValue(),
                            vector.get("len_bytes").longValue(),
                            sequence,
                            stream);
            case "pack" ->
                    new Frames.Pack(
                            vector.get("spans").intValue(),
                            vector.get("len_bytes").longValue(),
                            sequence,
                            stream);
            default -> new Frames.End(sequence, stream);
        };
    }

    private static DataKeys keys() {
        byte[] told = new byte[Limits.DATA_KEYS_BYTES];
        for (int i = 0; i < told.length; i++) {
            told[i] = (byte) i;
        }
        return new DataKeys(told);
    }

    @Test
    void digestsAreWhatTheVectorsSayInPiecesOfAnySize() throws Exception {
        Map<String, Digest> kinds =
                Map.of(
                        "none", Digest.NONE,
                        "crc32c", Digest.CRC32C,
                        "xxh3-128", Digest.XXH3_128,
                        "aes-gmac", Digest.AES_GMAC);
        int seen = 0;
        for (JsonNode vector : Vectors.read("digests.json").get("spans")) {
            Digest kind = kinds.get(vector.get("digest").textValue());
            assertNotNull(kind, vector.get("digest").textValue());
            SpanDigest digest = SpanDigest.of(kind, keys());
            for (int piece : new int[] {700_000, 262_144, 100_003, 4096}) {
                // Of a span that was begun and broken off nothing is left.
                digest.begin(new Frames.Span(9, 0, 300_000, 1000 + piece, 9));
                digest.update(ByteBuffer.wrap(new byte[300_000]));
                assertEquals(
                        vector.get("value").textValue(),
                        HexFormat.of().formatHex(value(digest, vector, piece)));
                digest = SpanDigest.of(kind, keys());
            }
            seen++;
        }
        assertEquals(20, seen);
    }

    private static byte[] value(SpanDigest digest, JsonNode vector, int piece)
            throws ProtocolViolation {
        ByteBuffer payload = ByteBuffer.allocateDirect(vector.get("payload_bytes").intValue());
        for (int i = 0; i < payload.capacity(); i++) {
            payload.put(i, (byte) ((i * 31L + 7) % 251));
        }
        digest.begin((Frames.Span) Frames.Header.decode(Vectors.hex(vector, "header")));
        while (payload.position() < payload.capacity()) {
            payload.limit(Math.min(payload.position() + piece, payload.capacity()));
            digest.update(payload);
            assertEquals(payload.limit(), payload.position());
        }
        return digest.end(Frames.Status.values()[vector.get("status").intValue()]);
    }

    @Test
    void digestsThatNobodyKnowsAreRefused() {
        for (Digest kind : List.of(Digest.DIGEST_UNKNOWN, Digest.UNRECOGNIZED)) {
            assertThrows(ProtocolViolation.class, () -> SpanDigest.of(kind, keys()));
        }
    }

    @Test
    void aPrefaceIsSignedAsTheVectorsSay() throws IOException {
        byte[] expected = Vectors.hex(Vectors.read("digests.json"), "preface");
        byte[] session = HexFormat.of().parseHex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
        assertArrayEquals(expected, keys().preface(5, session).encode());
        assertEquals("DataKeys(..)", keys().toString());
    }

    @Test
    void handshakesEndAsTheVectorsSay() throws Exception {
        for (JsonNode vector : Vectors.read("handshake.json").get("handshakes")) {
            String name = vector.get("name").textValue();
            List<Control> ours = new ArrayList<>();
            List<Control> theirs = new ArrayList<>();
            for (JsonNode step : vector.get("steps")) {
                Control message = decode(Vectors.hex(step, "hex"));
                assertEquals(Vectors.message(step.get("fields")), message, name);
                (step.get("from").textValue().equals("client") ? ours : theirs).add(message);
            }
            if (ours.get(0).hasHello() && ours.get(0).getHello().getVersionMax() == 1) {
                assertEquals(vector.get("client").textValue(), outcome(ours, theirs), name);
            }
        }
    }

    private static String outcome(List<Control> ours, List<Control> theirs) {
        List<Integer> listed = ours.get(0).getHello().getCapabilitiesList();
        ClientHandshake handshake = new ClientHandshake(listed);
        assertEquals(
                ours.get(0),
                handshake
                        .start(ours.get(0).getHello().getSoftware(), ours.get(1).getOpen())
                        .get(0));
        try {
            Granted granted = null;
            for (Control message : theirs) {
                granted = handshake.handle(message);
            }
            return granted == null ? "nothing" : "open";
        } catch (SessionRefused | ProtocolViolation refused) {
            return "refused";
        }
    }
}
