package io.github.haul.client.internal.machine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import io.github.haul.client.internal.wire.Vectors;
import java.io.IOException;
import java.util.function.LongFunction;
import org.junit.jupiter.api.Test;

/**
 * Both state machines answer peers that say anything as those of the other clients do.
 *
 * <p>What each of thousands of seeds draws is played; the Rust machines are held to all promises in
 * the same sessions. {@code HAUL_TEST_SEED=SEED cargo test -p haul-protocol --test vectors --
 * --nocapture bad_peers} prints what they say in one of them.
 */
final class BadPeersTest {
    private static void play(String machine, LongFunction<BadPeer> drawn) throws IOException {
        JsonNode vectors = Vectors.read("bad_peers.json");
        int operationsMax = vectors.get("operations_max").intValue();
        long seed = 0;
        for (JsonNode line : vectors.get(machine)) {
            for (String expected : line.textValue().split(" ")) {
                String said = drawn.apply(seed).play(operationsMax);
                if (!expected.equals(BadPeer.crcOf(said))) {
                    assertEquals(expected, said, machine + ", HAUL_TEST_SEED=" + seed);
                }
                seed++;
            }
        }
        assertTrue(seed >= 4000, seed + " sessions");
    }

    @Test
    void theSenderAnswersBadReceiversAsTheVectorsSay() throws IOException {
        play("sender", BadReceiver::new);
    }

    @Test
    void theReceiverAnswersBadSendersAsTheVectorsSay() throws IOException {
        play("receiver", BadSender::new);
    }
}
