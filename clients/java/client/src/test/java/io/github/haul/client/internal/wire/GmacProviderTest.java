package io.github.haul.client.internal.wire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import org.junit.jupiter.api.Test;

/** Who computes GMAC. */
final class GmacProviderTest {
    /** What is named is what the digests use, and it can be warmed up any number of times. */
    @Test
    void theProviderThatIsNamedIsTheOneThatComputes() {
        assertFalse(GmacProvider.name().isEmpty());
        assertEquals(GmacProvider.name(), GmacProvider.cipher().getProvider().getName());
        GmacProvider.warmUp();
        GmacProvider.warmUp();
    }
}
