package io.github.haul.client.internal.session;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.source.SourceWalk;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.Test;

/** Walks that go on while the session's thread does other things. */
final class WalkAheadTest {
    private static SourceWalk.Listed entry(int number) {
        return new SourceWalk.Failed(Fault.newBuilder().setWhat("" + number).build());
    }

    /** Once the session's thread looked for holes itself, and was silent for as long. */
    @Test
    void aWalkThatTakesLongHoldsNobodyUp() {
        CountDownLatch scanned = new CountDownLatch(1);
        AtomicInteger number = new AtomicInteger();
        WalkAhead walk =
                new WalkAhead(
                        () -> {
                            try {
                                scanned.await();
                            } catch (InterruptedException stopped) {
                                throw new IllegalStateException(stopped);
                            }
                            int next = number.getAndIncrement();
                            return next < 1000 ? entry(next) : null;
                        },
                        new Inbox());
        walk.start();
        Assertions.assertTimeoutPreemptively(
                Duration.ofSeconds(30),
                () -> {
                    assertNull(walk.poll());
                    assertFalse(walk.isOver());
                    scanned.countDown();
                    List<SourceWalk.Listed> found = new ArrayList<>();
                    while (!walk.isOver()) {
                        SourceWalk.Listed next = walk.poll();
                        if (next != null) {
                            found.add(next);
                        }
                    }
                    assertEquals(1000, found.size());
                    for (int at = 0; at < found.size(); at++) {
                        assertEquals(entry(at), found.get(at));
                    }
                });
    }

    @Test
    void aWalkThatFailsEndsTheTransfer() {
        WalkAhead walk =
                new WalkAhead(
                        () -> {
                            throw new SecurityException("not here");
                        },
                        new Inbox());
        walk.start();
        Assertions.assertTimeoutPreemptively(
                Duration.ofSeconds(30),
                () ->
                        assertThrows(
                                SecurityException.class,
                                () -> {
                                    while (true) {
                                        walk.poll();
                                    }
                                }));
    }
}
