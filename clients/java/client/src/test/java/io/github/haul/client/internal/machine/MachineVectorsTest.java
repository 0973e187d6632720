package io.github.haul.client.internal.machine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import io.github.haul.client.internal.wire.Frames;
import io.github.haul.client.internal.wire.ProtocolViolation;
import io.github.haul.client.internal.wire.Vectors;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.junit.jupiter.api.Test;

/** Both state machines do what those of the other clients do, call by call. */
final class MachineVectorsTest {
    @Test
    void theSenderDoesWhatTheVectorsSay() throws IOException {
        int steps = 0;
        for (JsonNode trace : Vectors.read("machines.json").get("sender")) {
            steps += new SenderReplay(trace).play(trace);
        }
        assertTrue(steps > 500, steps + " steps");
    }

    @Test
    void theReceiverDoesWhatTheVectorsSay() throws IOException {
        int steps = 0;
        for (JsonNode trace : Vectors.read("machines.json").get("receiver")) {
            steps += new ReceiverReplay(trace).play(trace);
        }
        assertTrue(steps > 500, steps + " steps");
    }

    @Test
    void packsAreTakenApartAsTheVectorsSay() throws Exception {
        JsonNode packs = Vectors.read("machines.json").get("packs");
        assertTrue(packs.size() > 8);
        for (JsonNode pack : packs) {
            Frames.Pack header = (Frames.Pack) Frames.Header.decode(Vectors.hex(pack, "header"));
            ArrayNode spans = Replay.array();
            boolean isWhole = true;
            try {
                ByteBuffer body = ByteBuffer.wrap(Vectors.hex(pack, "body"));
                PackReader reader = new PackReader(header.spans(), body.remaining());
                while (reader.hasNext()) {
                    byte[] encoded = bytes(body, Frames.HEADER_BYTES);
                    Frames.Span span = reader.next(encoded);
                    spans.addObject()
                            .put("header", HexFormat.of().formatHex(encoded))
                            .put("payload", hex(bytes(body, (int) span.lenBytes())))
                            .put("trailer", hex(bytes(body, Frames.TRAILER_BYTES)));
                }
            } catch (ProtocolViolation violation) {
                isWhole = false;
            }
            assertEquals(pack.get("spans"), spans, pack.get("name").textValue());
            assertEquals(pack.get("error").isNull(), isWhole, pack.get("name").textValue());
        }
    }

    private static byte[] bytes(ByteBuffer from, int length) {
        byte[] taken = new byte[length];
        from.get(taken);
        return taken;
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }
}
