package io.github.haul.client.internal.session;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.haul.client.FileResult;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The counts of a transfer over several sessions. */
final class TallyTest {
    private static FileResult file(String name, FileResult.Status status) {
        return new FileResult(name, status, false, 10, null, null, "");
    }

    @Test
    void whatAnEarlierSessionPutInPlaceCountsOnceAndAsItCameOut() {
        Tally tally = new Tally();
        tally.beginSession();
        assertTrue(tally.count(file("a", FileResult.Status.DONE)));
        assertTrue(tally.count(file("b", FileResult.Status.SKIPPED)));
        assertTrue(tally.count(file("c", FileResult.Status.FAILED)));
        tally.resumed(7);
        tally.resentSpans++;
        tally.beginSession();
        // A session that has done nothing yet has not got on: or nobody would ever give up.
        assertEquals(0, tally.headway());
        assertFalse(tally.count(file("a", FileResult.Status.SKIPPED)));
        assertFalse(tally.count(file("b", FileResult.Status.SKIPPED)));
        assertTrue(tally.count(file("c", FileResult.Status.DONE)));
        tally.resumed(5);
        assertEquals(2, tally.doneFiles);
        assertEquals(20, tally.doneBytes);
        assertEquals(1, tally.skippedFiles);
        assertEquals(0, tally.failedFiles);
        assertEquals(7, tally.resumedBytes);
        assertEquals(1, tally.resentSpans);
        assertEquals(3, tally.headway());
    }

    @Test
    void aFileAndADirectoryOfOneNameAreTwoAndCountedApart() {
        Tally tally = new Tally();
        tally.beginSession();
        tally.count(file("a", FileResult.Status.DONE));
        assertTrue(
                tally.count(new FileResult("a", FileResult.Status.DONE, true, 0, null, null, "")));
        tally.foundFiles = 2;
        tally.foundDirectories = 1;
        assertEquals(List.of(1L, 1L), List.of(tally.doneFiles, tally.doneDirectories));
        assertEquals(1, tally.progress().filesFound());
        assertEquals(1, tally.progress().filesSettled());
    }
}
