package io.github.haul.client.internal.machine;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import io.github.haul.client.internal.wire.Vectors;
import java.io.IOException;
import org.junit.jupiter.api.Test;

/** The sending machine does what those of the other clients do, call by call. */
final class MachineVectorsTest {
    @Test
    void theSenderDoesWhatTheVectorsSay() throws IOException {
        int steps = 0;
        for (JsonNode trace : Vectors.read("machines.json").get("sender")) {
            steps += new SenderReplay(trace).play(trace);
        }
        assertTrue(steps > 500, steps + " steps");
    }
}
