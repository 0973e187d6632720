package io.github.haul.client.internal.session;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Ping;
import io.github.haul.client.internal.proto.Progress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;

/** What a session's thread hears. */
final class SessionLoopTest {
    /** A role that keeps what it hears, and ends when it has heard enough. */
    private static final class Listening implements Role {
        final List<Control> heard = new ArrayList<>();
        int enough = Integer.MAX_VALUE;

        @Override
        public void handle(Control message) {
            heard.add(message);
        }

        @Override
        public @Nullable SessionEnd pump(long nowNs) {
            return heard.size() >= enough ? new SessionEnd.Finished() : null;
        }

        @Override
        public @Nullable Control pollMessage() {
            return null;
        }

        @Override
        public boolean isAtWork() {
            return false;
        }

        @Override
        public void stop() {}
    }

    private static Control progress(long bytes) {
        return Control.newBuilder()
                .setProgress(Progress.newBuilder().setReceivedBytes(bytes))
                .build();
    }

    /** Once the message behind those of a turn was lost: every 257th. */
    @Test
    void noMessageIsLostBetweenTurns() throws Exception {
        Inbox inbox = new Inbox();
        Listening role = new Listening();
        BlockingQueue<Control> outgoing = new LinkedBlockingQueue<>();
        for (int number = 0; number < 1000; number++) {
            inbox.put(new Inbox.Said(progress(number)));
        }
        for (int turn = 0; turn < 5; turn++) {
            assertNull(SessionLoop.hear(inbox, role, outgoing));
        }
        assertEquals(1000, role.heard.size());
        for (int number = 0; number < 1000; number++) {
            assertEquals(number, role.heard.get(number).getProgress().getReceivedBytes());
        }
    }

    @Test
    void pingsAreAnsweredAndNoneOfTheRolesBusiness() throws Exception {
        Inbox inbox = new Inbox();
        Listening role = new Listening();
        BlockingQueue<Control> outgoing = new LinkedBlockingQueue<>();
        Ping ping = Ping.newBuilder().setNumber(7).build();
        inbox.put(new Inbox.Said(Control.newBuilder().setPing(ping).build()));
        inbox.put(new Inbox.Said(Control.newBuilder().setPong(ping).build()));
        assertNull(SessionLoop.hear(inbox, role, outgoing));
        assertEquals(List.of(Control.newBuilder().setPong(ping).build()), List.copyOf(outgoing));
        assertEquals(List.of(), role.heard);
    }

    /** Once the end of the connection came before what the peer had said last was looked at. */
    @Test
    void theLastWordOfAPeerThatIsGoneCounts() throws Exception {
        for (int enough = 1; enough <= 2; enough++) {
            Inbox inbox = new Inbox();
            Listening role = new Listening();
            role.enough = enough;
            inbox.put(new Inbox.Said(progress(1)));
            inbox.put(new Inbox.Gone("closed"));
            SessionEnd end = SessionLoop.hear(inbox, role, new LinkedBlockingQueue<>());
            Class<? extends SessionEnd> expected =
                    enough == 1 ? SessionEnd.Finished.class : SessionEnd.Lost.class;
            assertInstanceOf(expected, end);
        }
    }

    @Test
    void whatThePeerMayNotSayEndsTheSession() throws Exception {
        Inbox inbox = new Inbox();
        inbox.put(new Inbox.Forbidden("a group, which no message has"));
        SessionEnd end = SessionLoop.hear(inbox, new Listening(), new LinkedBlockingQueue<>());
        assertEquals(
                "a group, which no message has",
                assertInstanceOf(SessionEnd.Refused.class, end).fault().getFound());
    }
}
