package io.github.haul.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.github.haul.client.ShadedLicences;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The licences in {@code haul-hadoop.jar}. */
final class LicencesTest {
    @Test
    void eachLibraryInTheJarHasItsLicenceThere() throws Exception {
        assertEquals(List.of("protobuf-java"), ShadedLicences.check(""));
    }
}
