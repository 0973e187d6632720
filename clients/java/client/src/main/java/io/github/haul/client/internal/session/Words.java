package io.github.haul.client.internal.session;

import com.google.protobuf.ByteString;
import io.github.haul.client.Problem;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.Side;
import java.util.Locale;

/** Faults of the protocol as problems for users. What a peer says is shown without its controls. */
public final class Words {
    private Words() {}

    /**
     * Turns a fault into a problem.
     *
     * @param fault what either side said
     * @return the problem
     */
    public static Problem of(Fault fault) {
        String side =
                fault.getSide() == Side.SIDE_UNKNOWN || fault.getSide() == Side.UNRECOGNIZED
                        ? ""
                        : fault.getSide().name().toLowerCase(Locale.ROOT);
        String code =
                switch (fault.getCode()) {
                    case FAULT_UNKNOWN, UNRECOGNIZED -> "fault " + fault.getCodeValue();
                    default -> fault.getCode().name();
                };
        return new Problem(
                code,
                side,
                name(fault.getPath()),
                printable(fault.getWhat()),
                printable(fault.getNeeds()),
                printable(fault.getFound()),
                printable(fault.getHint()));
    }

    /**
     * Turns a fault of a file into a problem that names it.
     *
     * @param fault the fault
     * @param name the file's name
     * @return the problem
     */
    static Problem of(Fault fault, ByteString name) {
        return of(fault.getPath().isEmpty() ? fault.toBuilder().setPath(name).build() : fault);
    }

    /** Shows a name, whose bytes may be no text. */
    static String name(ByteString name) {
        return printable(name.toStringUtf8());
    }

    /** Shows text without the characters by which a peer could drive a terminal. */
    static String printable(String text) {
        StringBuilder shown = new StringBuilder(text.length());
        text.codePoints()
                .forEach(
                        one -> {
                            if (Character.isISOControl(one)) {
                                shown.append(String.format("\\u%04x", one));
                            } else {
                                shown.appendCodePoint(one);
                            }
                        });
        return shown.toString();
    }
}
