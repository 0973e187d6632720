package io.github.haul.client.internal.machine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.wire.Limits;
import java.util.HashSet;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Names that are taken: how many are known, and in how much memory. */
final class TakenNamesTest {
    private final TakenNames names = new TakenNames(TargetPath.DIRECTORY, Repeats.REFUSED);

    private static FileOffer file(String name) {
        return FileOffer.newBuilder()
                .setName(ByteString.copyFromUtf8(name))
                .setKind(FileKind.REGULAR)
                .build();
    }

    @Test
    void aNameThatIsReleasedIsFreeHoweverLongItWasTaken() {
        long hash = names.hash(file("old").getName());
        assertNull(names.take(file("old")));
        for (int number = 0; number < Limits.TAKEN_NAMES_MAX / 2; number++) {
            assertNull(names.take(file("run7/" + number)));
        }
        assertTrue(names.holds(hash));
        names.release(hash);
        assertFalse(names.holds(hash));
    }

    @Test
    void asManyNamesAreKnownAsTheLimitSaysAndNoMoreAreKept() {
        int count = 2 * Limits.TAKEN_NAMES_MAX;
        for (int number = 0; number < count; number++) {
            assertNull(names.take(file("run7/" + number)));
            assertTrue(names.size() <= Limits.TAKEN_NAMES_MAX);
        }
        for (int number = count - Limits.TAKEN_NAMES_MAX / 2; number < count; number++) {
            assertNotNull(names.take(file("run7/" + number)));
        }
    }

    /** Few lists and few numbers in them, so that the same ones come and go. */
    @Test
    void aSetOfNamesHoldsWhatAnySetWould() {
        Random random = new Random(7);
        NameSet set = new NameSet();
        Set<Long> plain = new HashSet<>();
        for (int step = 0; step < 100_000; step++) {
            long hash = random.nextLong(4) * 341 << 54 | random.nextLong(40);
            if (random.nextBoolean()) {
                set.add(hash);
                plain.add(hash);
            } else {
                set.remove(hash);
                plain.remove(hash);
            }
            assertEquals(plain.size(), set.size());
            long asked = random.nextLong(4) * 341 << 54 | random.nextLong(40);
            assertEquals(plain.contains(asked), set.contains(asked));
        }
    }

    /** Promise of memory: a list grows by an eighth. */
    @Test
    void aNameTakesLittleMoreThanItsHash() {
        Random random = new Random(7);
        NameSet set = new NameSet();
        for (int number = 0; number < 200_000; number++) {
            set.add(random.nextLong());
        }
        assertEquals(200_000, set.size());
        assertTrue(set.room() <= 200_000 * 9 / 8 + 4096, set.room() + " places");
    }
}
