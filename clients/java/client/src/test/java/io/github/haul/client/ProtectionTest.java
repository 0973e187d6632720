package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Servers that ask for more protection than a transfer has. */
final class ProtectionTest {
    @TempDir Path folder;

    private static TransferOptions with(TransferOptions.Protection protection) {
        return TransferOptions.builder().protection(protection).build();
    }

    private static Problem refused(Executable call) {
        Problem problem = assertThrows(HaulException.Refused.class, call).problem();
        assertEquals("PROTECTION_TOO_LOW", problem.code(), problem.toString());
        return problem;
    }

    @Test
    void aServerThatAsksForPrivateIsRefusedWithWhatToDo() throws Exception {
        Path root = Files.createDirectory(folder.resolve("root"));
        Path file = Files.writeString(root.resolve("file"), "text");
        Path copy = folder.resolve("copy");
        try (HaulServer server = HaulServer.start(folder, root, "--protection-min", "private");
                HaulClient client = HaulClient.connect(server.url("file"))) {
            TransferOptions safe = with(TransferOptions.Protection.SAFE);
            List<Executable> calls =
                    List.of(
                            () -> client.push(List.of(file), safe),
                            () -> client.pull(copy, safe),
                            () -> client.open("file"),
                            () -> client.list("file"));
            for (Executable call : calls) {
                String said = refused(call).toString();
                assertTrue(said.contains("--protection private or more"), said);
                assertTrue(said.contains("the program haul"), said);
                assertTrue(said.contains("--protection-min safe"), said);
            }
            assertTrue(Files.notExists(copy));
        }
    }

    @Test
    void aServerThatAsksForSafeSaysSoToAClearTransfer() throws Exception {
        Path root = Files.createDirectory(folder.resolve("root"));
        Path copy = folder.resolve("copy");
        Files.writeString(root.resolve("file"), "text");
        try (HaulServer server = HaulServer.start(folder, root, "--protection-min", "safe");
                HaulClient client = HaulClient.connect(server.url("file"))) {
            TransferOptions clear = with(TransferOptions.Protection.CLEAR);
            String said = refused(() -> client.pull(copy, clear)).toString();
            assertTrue(said.contains("ask for the protection safe"), said);
            client.pull(copy, with(TransferOptions.Protection.SAFE));
            assertEquals("text", Files.readString(copy));
        }
    }
}
