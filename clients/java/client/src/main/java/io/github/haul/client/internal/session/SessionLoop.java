package io.github.haul.client.internal.session;

import io.github.haul.client.HaulException;
import io.github.haul.client.internal.net.ControlConnection;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.Ping;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.io.IOException;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;

/**
 * The loop of a session's thread. Two more threads read and write its control connection, so that a
 * peer which does neither holds nothing up.
 */
final class SessionLoop {
    private static final long TURN_MS = 100;

    /** Silence after which this side asks whether the peer is there. */
    private static final long PING_AFTER_NS = TimeUnit.SECONDS.toNanos(5);

    /** Silence after which the session is lost. */
    private static final long LOST_AFTER_NS = TimeUnit.SECONDS.toNanos(20);

    /** The longest time that a last word may take. */
    private static final long GOODBYE_MS = 2000;

    /** Messages handled before the role has its turn again. */
    private static final int MESSAGES_A_TURN = 256;

    private final ControlConnection control;
    private final Inbox inbox;
    private final AtomicBoolean isCancelled;
    private final BlockingQueue<Control> outgoing = new LinkedBlockingQueue<>();
    private final Control lastWord = Control.newBuilder().build();
    private volatile long heardAtNs = System.nanoTime();
    private long pingedAtNs = System.nanoTime();

    SessionLoop(ControlConnection control, Inbox inbox, AtomicBoolean isCancelled) {
        this.control = control;
        this.inbox = inbox;
        this.isCancelled = isCancelled;
    }

    /**
     * Runs a role until the session ends, and closes the connection.
     *
     * @throws HaulException.OutOfMemory if this thread or another of the session found no memory
     */
    SessionEnd run(Role role) throws HaulException, InterruptedException {
        Thread reader = daemon("haul control reader", this::read);
        Thread writer = daemon("haul control writer", this::write);
        SessionEnd end = new SessionEnd.Cancelled();
        try {
            reader.start();
            writer.start();
            end = drive(role);
            OutOfMemoryError exhausted = inbox.exhausted();
            if (exhausted != null && end instanceof SessionEnd.Lost) {
                // What was lost is the connection of the thread that found none.
                throw exhausted;
            }
            return end;
        } catch (OutOfMemoryError error) {
            throw Words.outOfMemory(error);
        } finally {
            if (end instanceof SessionEnd.Refused refused && refused.isOurs()) {
                outgoing.add(Control.newBuilder().setRefused(refused.fault()).build());
            }
            outgoing.add(lastWord);
            try {
                role.stop();
            } finally {
                boolean isHeard = end instanceof SessionEnd.Lost;
                join(writer, isHeard ? 0 : GOODBYE_MS);
                control.abort();
                reader.interrupt();
                join(writer, GOODBYE_MS);
                join(reader, GOODBYE_MS);
            }
        }
    }

    private static void join(Thread thread, long patienceMs) {
        boolean wasInterrupted = Thread.interrupted();
        try {
            if (patienceMs > 0) {
                thread.join(patienceMs);
            }
        } catch (InterruptedException again) {
            wasInterrupted = true;
        }
        if (wasInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private Thread daemon(String name, Runnable work) {
        Thread thread = new Thread(() -> inbox.run(work), name);
        thread.setDaemon(true);
        return thread;
    }

    private SessionEnd drive(Role role) throws InterruptedException {
        while (true) {
            OutOfMemoryError exhausted = inbox.exhausted();
            if (exhausted != null) {
                throw exhausted;
            }
            SessionEnd end = role.pump(System.nanoTime());
            for (Control message = role.pollMessage();
                    message != null;
                    message = role.pollMessage()) {
                outgoing.add(message);
            }
            if (end != null) {
                return end;
            }
            if (isCancelled.get()) {
                return new SessionEnd.Cancelled();
            }
            end = listen();
            if (end == null) {
                end = hear(inbox, role, outgoing);
            }
            if (end != null) {
                return end;
            }
        }
    }

    /** Asks a silent peer, and gives it up when its time is over. */
    private @Nullable SessionEnd listen() {
        long now = System.nanoTime();
        long silentNs = now - heardAtNs;
        // What was heard and waits is no silence, however long this thread was busy.
        if (silentNs > LOST_AFTER_NS && inbox.isEmpty()) {
            return new SessionEnd.Lost(
                    "nothing heard for " + TimeUnit.NANOSECONDS.toSeconds(silentNs) + " s");
        }
        if (silentNs > PING_AFTER_NS && now - pingedAtNs > PING_AFTER_NS) {
            pingedAtNs = now;
            outgoing.add(Control.newBuilder().setPing(Ping.getDefaultInstance()).build());
        }
        return null;
    }

    /** Hands what is heard to a role: all that is there, or as much as one turn takes. */
    static @Nullable SessionEnd hear(Inbox inbox, Role role, BlockingQueue<Control> outgoing)
            throws InterruptedException {
        long patienceMs = TURN_MS;
        for (int count = 0; count < MESSAGES_A_TURN; count++) {
            Inbox.Inbound heard = inbox.take(patienceMs);
            patienceMs = 0;
            if (heard == null) {
                return null;
            }
            if (heard instanceof Inbox.Gone gone) {
                // What the peer said before may have been its last word.
                SessionEnd last = role.pump(System.nanoTime());
                return last == null ? new SessionEnd.Lost(gone.why()) : last;
            }
            if (heard instanceof Inbox.Forbidden forbidden) {
                return violation(forbidden.what());
            }
            if (heard instanceof Inbox.Said said) {
                try {
                    handle(role, said.message(), outgoing);
                } catch (ProtocolViolation violation) {
                    return violation(String.valueOf(violation.getMessage()));
                }
            }
        }
        return null;
    }

    private static void handle(Role role, Control message, BlockingQueue<Control> outgoing)
            throws ProtocolViolation {
        if (message.hasPing()) {
            outgoing.add(Control.newBuilder().setPong(message.getPing()).build());
        } else if (!message.hasPong()) {
            role.handle(message);
        }
    }

    private static SessionEnd violation(String what) {
        Fault fault =
                Fault.newBuilder()
                        .setCode(FaultCode.PROTOCOL_VIOLATION)
                        .setWhat("the peer broke the protocol")
                        .setFound(what)
                        .build();
        return new SessionEnd.Refused(fault, true);
    }

    private void read() {
        try {
            while (true) {
                Control message = control.receive();
                heardAtNs = System.nanoTime();
                inbox.put(new Inbox.Said(message));
            }
        } catch (ProtocolViolation violation) {
            tell(new Inbox.Forbidden(String.valueOf(violation.getMessage())));
        } catch (IOException lost) {
            tell(new Inbox.Gone(String.valueOf(lost.getMessage())));
        } catch (InterruptedException over) {
            // The session has ended.
        }
    }

    private void write() {
        try {
            Control message = outgoing.take();
            while (message != lastWord) {
                control.send(message);
                message = outgoing.take();
            }
        } catch (IOException lost) {
            // The reader sees it too, behind what the peer said before.
            control.abort();
        } catch (InterruptedException over) {
            // Nobody interrupts this thread.
        }
    }

    private void tell(Inbox.Inbound heard) {
        try {
            inbox.put(heard);
        } catch (InterruptedException over) {
            // The session has ended.
        }
    }
}
