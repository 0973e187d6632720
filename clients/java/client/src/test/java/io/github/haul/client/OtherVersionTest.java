package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.HelloReply;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Servers of other versions of the protocol, as a user of the client meets them. */
final class OtherVersionTest {
    @TempDir Path folder;

    /** Pushes to a server that says this in the place of its greeting. */
    private <T extends HaulException> T push(Class<T> kind, Control greeting) throws Exception {
        Path root = Files.createDirectories(folder.resolve("root"));
        Path file = Trees.file(folder.resolve("file"), 5, 1);
        Lie lie = LiesTold.instead(Control::hasHelloReply, List.of(greeting));
        try (HaulServer server = HaulServer.start(folder, root);
                LyingServer other = new LyingServer(folder, server, lie);
                HaulClient client = HaulClient.connect(other.url("copy"))) {
            T failed = assertThrows(kind, () -> client.push(file));
            assertFalse(Files.exists(root.resolve("copy")));
            return failed;
        }
    }

    @Test
    void aServerThatSpeaksAnotherVersionAloneIsQuotedWithWhatToDo() throws Exception {
        // As crates/protocol/src/handshake.rs says it.
        Fault fault =
                Fault.newBuilder()
                        .setCode(FaultCode.VERSION)
                        .setWhat("the versions do not meet")
                        .setNeeds("protocol version 2 to 3")
                        .setFound("a peer that speaks version 1 (haul-java)")
                        .setHint("install the same haul version on both ends")
                        .build();
        HaulException.Refused refused =
                push(HaulException.Refused.class, Control.newBuilder().setRefused(fault).build());
        assertEquals("VERSION", refused.problem().code());
        assertEquals("install the same haul version on both ends", refused.problem().hint());
        assertEquals(
                "the versions do not meet; it needs protocol version 2 to 3; found: a peer that"
                        + " speaks version 1 (haul-java); install the same haul version on both"
                        + " ends",
                refused.getMessage());
    }

    @Test
    void aServerThatTakesAVersionNobodyOfferedHasBrokenTheProtocol() throws Exception {
        HelloReply reply = HelloReply.newBuilder().setVersion(2).build();
        HaulException.Protocol broken =
                push(
                        HaulException.Protocol.class,
                        Control.newBuilder().setHelloReply(reply).build());
        assertTrue(broken.getMessage().contains("version 2"), broken.getMessage());
    }
}
