package io.github.haul.client;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.io.TempDir;

/** A fresh folder with the root of a server, and one of its client beside it. */
abstract class TwoFolders {
    @TempDir Path folder;
    Path root = Path.of("");
    Path local = Path.of("");

    @BeforeEach
    void makeFolders() throws IOException {
        root = Files.createDirectories(folder.resolve("root"));
        local = Files.createDirectories(folder.resolve("local"));
    }
}
