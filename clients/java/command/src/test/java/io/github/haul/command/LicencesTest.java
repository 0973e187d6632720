package io.github.haul.command;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.github.haul.client.ShadedLicences;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The licences in {@code haul.jar}. */
final class LicencesTest {
    @Test
    void eachLibraryInTheJarHasItsLicenceThere() throws Exception {
        List<String> looked = ShadedLicences.check(System.getProperty("haul.jar", ""));
        assertEquals(List.of("protobuf-java", "picocli", "jspecify"), looked);
    }
}
