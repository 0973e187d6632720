package io.github.haul.client.internal.machine;

import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FileAnswer;
import io.github.haul.client.internal.proto.Finish;
import io.github.haul.client.internal.proto.SideReport;
import io.github.haul.client.internal.wire.ControlMessages;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Locale;
import java.util.zip.CRC32C;
import org.jspecify.annotations.Nullable;

/**
 * A session of a state machine with a peer that says anything, drawn by a seed as in {@code
 * bad_peers.rs}. Its transcript has the lines of {@code transcript.rs}.
 */
abstract class BadPeer {
    /** The most offers open at a time. */
    static final int OFFERS_MAX = 4;

    final Seeded random;
    private final StringBuilder transcript = new StringBuilder();

    BadPeer(long seed) {
        random = new Seeded(seed);
    }

    /** Draws an operation and plays it; throws where the machine calls the peer a liar. */
    abstract void operate() throws ProtocolViolation;

    /** Takes all messages and events, and notes them and the machine's state. */
    abstract void lookAtOutput();

    /** Plays the session to its end, and returns what was said. */
    final String play(int operationsMax) {
        boolean goesOn = true;
        for (int left = random.below(operationsMax + 1); left > 0 && goesOn; left--) {
            goesOn = isDone("does", this::operate);
            lookAtOutput();
        }
        return transcript.toString();
    }

    static String crcOf(String text) {
        CRC32C crc = new CRC32C();
        crc.update(text.getBytes(StandardCharsets.UTF_8));
        return String.format(Locale.ROOT, "%08x", crc.getValue());
    }

    /** A call that may be refused. */
    interface Call {
        void run() throws ProtocolViolation;
    }

    /** Notes how a call comes out. */
    final boolean isDone(String name, Call call) {
        try {
            call.run();
            note(name + " ok");
            return true;
        } catch (ProtocolViolation refused) {
            note(name + " refused");
            return false;
        }
    }

    final void note(String line) {
        transcript.append(line).append('\n');
    }

    final void noteMessage(Control said) {
        note("says " + wire(said.toBuilder()));
    }

    static String number(int unsigned) {
        return Integer.toUnsignedString(unsigned);
    }

    static String number(long unsigned) {
        return Long.toUnsignedString(unsigned);
    }

    static String wire(Control.Builder message) {
        return HexFormat.of().formatHex(ControlMessages.encode(message.build()));
    }

    static String fault(Fault fault) {
        return wire(Control.newBuilder().setRefused(fault));
    }

    static String finish(SideReport report) {
        return wire(Control.newBuilder().setFinish(Finish.newBuilder().setReport(report)));
    }

    static String answer(FileAnswer.Builder answer) {
        return wire(Control.newBuilder().setFileAnswer(answer));
    }

    static String awaited(@Nullable Awaited awaited) {
        return awaited == null ? "nothing" : awaited.name().toLowerCase(Locale.ROOT);
    }
}
