package io.github.haul.client.internal.target;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.google.protobuf.ByteString;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Names that Windows holds as they are, and those that would be something else there. */
final class WindowsNameTest {
    @ParameterizedTest
    @ValueSource(
            strings = {
                "a",
                "run 7/a b.txt",
                "\u00fc/\u6c34",
                ".hidden",
                "a..b",
                "CONSOLE",
                "COM",
                "COM10",
                "LPTX",
                "nul-1",
                "../up",
                "%41",
                "#",
                "aux_/x"
            })
    void whatIsANameThereGoesBothWays(String name) {
        assertEquals(name, WindowsName.text(Offers.name(name)));
        assertEquals(Offers.name(name), WindowsName.name(name.replace('/', '\\')));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                "..\\up",
                "a\\b",
                "C:",
                "C:\\x",
                "a:stream",
                "a*",
                "a?",
                "\"",
                "<",
                ">",
                "|",
                "a.",
                "a ",
                "d./x",
                "d /x",
                "a\nb",
                "NUL",
                "nul.txt",
                "x/Con",
                "COM1",
                "lpt9.x.y",
                "COM\u00b9",
                "CONIN$",
                "AUX .x",
                "/abs",
                "a//b",
                "a/",
                "\u0001"
            })
    void whatWindowsWouldReadAsSomethingElseIsNoName(String name) {
        assertNull(WindowsName.text(Offers.name(name)), name);
    }

    @Test
    void bytesThatAreNoTextAreNoName() {
        assertNull(WindowsName.text(ByteString.copyFrom(new byte[] {'a', (byte) 0xff})));
    }
}
