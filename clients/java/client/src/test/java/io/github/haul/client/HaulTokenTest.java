package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.HexFormat;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Tokens are read as servers print them, and do not reach a log. */
final class HaulTokenTest {
    /**
     * As {@code base32} of coreutils prints 01, 00 to 0f, f0 to ff, in lower case and without
     * padding.
     */
    private static final String TEXT = "aeaacaqdaqcqmbyibefawdanbyh7b4ps6p2pl5xx7d47v6747x7p6";

    @Test
    void aTokenIsReadAndWritten() {
        HaulToken token = HaulToken.parse(TEXT);
        assertEquals(TEXT, token.reveal());
        assertArrayEquals(
                HexFormat.of().parseHex("000102030405060708090a0b0c0d0e0f"), token.secret());
        assertEquals("...", token.toString());
    }

    @Test
    void whatIsNoTokenIsRefusedAndNotRepeated() {
        String good = TEXT;
        List<String> bad =
                List.of(
                        "",
                        good.toUpperCase(java.util.Locale.ROOT),
                        good + "a",
                        good.substring(1),
                        "b" + good.substring(1),
                        "1" + good.substring(1),
                        good.substring(0, 52) + "b");
        for (String text : bad) {
            Exception refused =
                    assertThrows(IllegalArgumentException.class, () -> HaulToken.parse(text));
            assertEquals(
                    "the token is damaged: a whole one has 53 letters and digits,"
                            + " as `haul serve` printed it",
                    refused.getMessage());
        }
    }
}
