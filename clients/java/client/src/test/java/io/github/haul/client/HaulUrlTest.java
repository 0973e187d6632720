package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.Test;

/** URLs are read as servers print them, and do not bring a token into a log. */
final class HaulUrlTest {
    private static final String TOKEN = "aeaacaqdaqcqmbyibefawdanbyh7b4ps6p2pl5xx7d47v6747x7p6";

    @Test
    void aUrlIsTakenApart() {
        HaulUrl url = HaulUrl.parse("haul://" + TOKEN + "@dtn.example:7000/a%20b/%FF%25");
        assertEquals(HaulToken.parse(TOKEN), url.token());
        assertEquals("dtn.example", url.host());
        assertEquals(7000, url.port());
        assertArrayEquals(new byte[] {'a', ' ', 'b', '/', (byte) 0xff, '%'}, url.path());
        assertEquals("haul://...@dtn.example:7000/a%20b/%FF%25", url.toString());
    }

    @Test
    void whatAUrlLeavesOutHasADefault() {
        HaulUrl url = HaulUrl.parse("haul://[fe80::1%eth0]");
        assertNull(url.token());
        assertEquals("fe80::1%eth0", url.host());
        assertEquals(HaulUrl.PORT_DEFAULT, url.port());
        assertEquals(0, url.path().length);
        assertEquals("haul://[fe80::1%eth0]:7117/", url.toString());
    }

    @Test
    void whatIsNoUrlIsRefusedWithoutItsToken() {
        List<String> bad =
                List.of(
                        "",
                        "http://h/",
                        "haul://",
                        "haul:///a",
                        "haul://h:0/",
                        "haul://h:65536/",
                        "haul://" + TOKEN + "@/a",
                        "haul://" + TOKEN + "@h/%4",
                        "haul://" + TOKEN + "a@h/",
                        "haul://h/%zz");
        for (String text : bad) {
            Exception refused =
                    assertThrows(IllegalArgumentException.class, () -> HaulUrl.parse(text), text);
            assertFalse(String.valueOf(refused.getMessage()).contains(TOKEN), text);
        }
    }
}
