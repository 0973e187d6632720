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
                PackReader reader =
                        new PackReader(header, ByteBuffer.wrap(Vectors.hex(pack, "body")));
                for (var span = reader.next(); span != null; span = reader.next()) {
                    spans.addObject()
                            .put("header", HexFormat.of().formatHex(span.header().encode()))
                            .put("payload", hex(span.payload()))
                            .put("trailer", hex(span.trailer()));
                }
            } catch (ProtocolViolation violation) {
                isWhole = false;
            }
            assertEquals(pack.get("spans"), spans, pack.get("name").textValue());
            assertEquals(pack.get("error").isNull(), isWhole, pack.get("name").textValue());
        }
    }

    private static String hex(ByteBuffer bytes) {
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return HexFormat.of().formatHex(copy);
    }
}
