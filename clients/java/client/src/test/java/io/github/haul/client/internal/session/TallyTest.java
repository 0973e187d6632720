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
        tally.takenUp(1, 7, 0);
        tally.resentSpans++;
        tally.beginSession();
        // A session that has done nothing yet has not got on: or nobody would ever give up.
        assertEquals(0, tally.headway());
        assertFalse(tally.count(file("a", FileResult.Status.SKIPPED)));
        assertFalse(tally.count(file("b", FileResult.Status.SKIPPED)));
        assertTrue(tally.count(file("c", FileResult.Status.DONE)));
        tally.takenUp(1, 5, 0);
        assertEquals(2, tally.doneFiles);
        assertEquals(20, tally.doneBytes);
        assertEquals(1, tally.skippedFiles);
        assertEquals(0, tally.failedFiles);
        assertEquals(7, tally.resumedBytes);
        assertEquals(1, tally.resentSpans);
        assertEquals(1, tally.headway(), "the others were there: twice is no headway");
    }

    @Test
    void whatIsThereOfAFileThatFailsIsNotThereOfThoseInPlace() {
        Tally tally = new Tally();
        tally.beginSession();
        tally.foundBytes = 1000;
        tally.takenUp(1, 100, 20);
        tally.takenUp(2, 7, 5);
        tally.takenUp(3, 0, 0);
        assertEquals(132, tally.progress().bytesThereBefore());
        tally.lost(1, 30);
        assertEquals(102, tally.progress().bytesThereBefore());
        assertEquals(77, tally.resumedBytes);
        assertEquals(0, tally.holeBytes, "of files that are done");
        tally.ended(1, true);
        tally.ended(2, false);
        tally.ended(2, true);
        tally.ended(3, true);
        assertEquals(7, tally.resumedBytes);
        assertEquals(5, tally.holeBytes);
    }

    @Test
    void holesOfAFileThatALaterSessionEndsCountOnce() {
        Tally tally = new Tally();
        tally.beginSession();
        tally.takenUp(1, 10, 20);
        tally.beginSession();
        tally.takenUp(1, 300, 20);
        tally.ended(1, false);
        assertEquals(10, tally.resumedBytes, "the others came by this run");
        assertEquals(20, tally.holeBytes);
    }

    @Test
    void progressNeverTellsMoreDurableThanFoundNorLessThanBefore() {
        Tally tally = new Tally();
        tally.beginSession();
        tally.foundBytes = 100;
        tally.takenUp(1, 30, 0);
        assertEquals(30, tally.progress().bytesDurable());
        tally.durable(50);
        tally.durable(40);
        assertEquals(50, tally.progress().bytesDurable());
        tally.durable(Long.MAX_VALUE);
        assertEquals(100, tally.progress().bytesDurable());
    }

    @Test
    void whatAnEarlierSessionPutInPlaceIsThereForTheNext() {
        Tally tally = new Tally();
        tally.beginSession();
        tally.foundBytes = 20;
        tally.count(file("a", FileResult.Status.DONE));
        tally.count(file("b", FileResult.Status.SKIPPED));
        assertEquals(20, tally.inPlaceBytes());
        assertEquals(10, tally.progress().bytesThereBefore());
        tally.beginSession();
        tally.foundBytes = 30;
        assertEquals(0, tally.progress().bytesVerified());
        tally.count(file("a", FileResult.Status.SKIPPED));
        tally.count(file("b", FileResult.Status.SKIPPED));
        assertEquals(20, tally.progress().bytesVerified());
        assertEquals(20, tally.progress().bytesDurable());
        assertEquals(10, tally.skippedBytes, "of the whole transfer");
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
