package io.github.haul.client.internal.target;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.FaultCode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Names of hidden files, and names that are no text. */
final class NamesTest {
    @TempDir Path folder;

    @Test
    void hiddenNamesAreThoseOfTheProgram() {
        for (String name : new String[] {".x.haul-part", ".x.haul-journal", ".haul-durable"}) {
            assertTrue(HiddenNames.isHidden(Offers.name(name)), name);
        }
        for (String name : new String[] {"x.haul-part", ".x.haul-par", ".x", ""}) {
            assertFalse(HiddenNames.isHidden(Offers.name(name)), name);
        }
        assertEquals(Offers.name(".x.haul-part"), HiddenNames.part(Offers.name("x")));
        assertEquals(Offers.name(".x.haul-journal"), HiddenNames.journal(Offers.name("x")));
        String longest = "n".repeat(255 - 1 - ".haul-journal".length());
        assertEquals(255, HiddenNames.journal(Offers.name(longest)).size());
        // SHA-256 of 242 letters n, by sha256sum(1).
        ByteString hashed = HiddenNames.part(Offers.name(longest + "n"));
        String digits = "cef67dffa483f8dd04b4e8cc8d360772";
        assertEquals(1 + 64 + ".haul-part".length(), hashed.size());
        assertEquals("." + digits, hashed.toStringUtf8().substring(0, 1 + digits.length()));
        ByteString link = HiddenNames.link(Offers.name("x"));
        assertTrue(HiddenNames.isHidden(link));
        assertNotEquals(link, HiddenNames.link(Offers.name("y")));
    }

    @Test
    void everyByteOfANameArrives() throws IOException {
        byte[] all = new byte[255];
        int length = 0;
        for (int octet = 1; octet <= 0xff; octet++) {
            if (octet != '/') {
                all[length++] = (byte) octet;
            }
        }
        ByteString name = ByteString.copyFrom(all, 0, length);
        Path path = NativeName.of(name);
        assertEquals(name, NativeName.bytes(path));
        Files.createFile(folder.resolve(path));
        try (var entries = Files.newDirectoryStream(folder)) {
            assertEquals(name, NativeName.bytes(entries.iterator().next().getFileName()));
        }
    }

    @Test
    void aNameThatJavaWouldChangeIsRefusedWithWhatToDo() {
        for (String name : new String[] {"a//b", "a/", "", "nul\0"}) {
            TargetFault fault =
                    assertThrows(TargetFault.class, () -> NativeName.of(Offers.name(name)), name);
            assertEquals(FaultCode.NAME_REFUSED, fault.fault().getCode());
            assertTrue(fault.fault().getHint().contains("haul pull"), fault.fault().getHint());
        }
    }

    @Test
    void aNameThatLeavesTheRootOrIsHiddenIsRefused() throws TargetFault {
        for (String name : new String[] {"../x", "/x", "a/../b", ".x.haul-part/y", "a//b"}) {
            TargetFault fault =
                    assertThrows(
                            TargetFault.class, () -> TargetRoot.check(Offers.name(name)), name);
            assertEquals(FaultCode.NAME_REFUSED, fault.fault().getCode());
        }
        TargetRoot.check(Offers.name("a/b"));
    }
}
