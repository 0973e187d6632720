package io.github.haul.client.internal.session;

import com.google.protobuf.ByteString;
import io.github.haul.client.FileResult;
import io.github.haul.client.HaulException;
import io.github.haul.client.Problem;
import io.github.haul.client.TransferNotice;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.Notice;
import io.github.haul.client.internal.proto.Side;
import java.time.Duration;
import java.util.Locale;

/** Faults of the protocol as problems for users. What a peer says is shown without its controls. */
public final class Words {
    /** The protection that encrypts data, which this client does not have. */
    private static final String PRIVATE = "private";

    /** What is told where the other side gives no reason. */
    private static final String NO_WORDS = "failed, and the other side does not say why";

    private static final byte DELETE = 0x7f;

    private Words() {}

    /** The exception of a transfer for which the JVM has too little memory, or too few threads. */
    static HaulException outOfMemory(OutOfMemoryError error) {
        String words = error.getMessage();
        if (words != null && words.startsWith("unable to create")) {
            return new HaulException.OutOfMemory(
                    new Problem(
                            "",
                            "",
                            "",
                            "the system lets the JVM start no more threads",
                            "",
                            words,
                            "allow it more (ulimit -u, TasksMax of a service, the container's limit"
                                    + " of processes) or choose fewer streams; the same call goes"
                                    + " on where this one stopped"),
                    error);
        }
        return new HaulException.OutOfMemory(
                new Problem(
                        "",
                        "",
                        "",
                        "the JVM's memory is not enough for this transfer",
                        "",
                        error.getMessage() == null ? error.toString() : error.getMessage(),
                        "give it more (-Xmx, -XX:MaxDirectMemorySize) or choose fewer streams; the"
                                + " same call goes on where this one stopped"),
                error);
    }

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
                fault.getWhat().isEmpty() ? NO_WORDS : printable(fault.getWhat()),
                printable(fault.getNeeds()),
                printable(fault.getFound()),
                printable(fault.getHint()),
                encoded(fault.getPath()));
    }

    /**
     * Turns the fault by which a server opens no session into a problem, with what this client can
     * do about it: the server does not know which protections there are here.
     *
     * @param fault the fault
     * @return the problem
     */
    static Problem refused(Fault fault) {
        if (fault.getCode() != FaultCode.PROTECTION_TOO_LOW) {
            return of(fault);
        }
        String hint =
                fault.getNeeds().contains(PRIVATE)
                        ? "the JVM client cannot encrypt data: move it by the program haul, whose"
                                + " --protection private does, or start the server with"
                                + " --protection-min safe"
                        : "ask for the protection safe";
        return of(fault.toBuilder().setHint(hint).build());
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

    /** A name as in the path of a URL, where its bytes are no text; else empty. */
    static String encoded(ByteString name) {
        if (name.isValidUtf8()) {
            return "";
        }
        StringBuilder text = new StringBuilder(3 * name.size());
        for (byte one : name) {
            boolean isPlain = one > ' ' && one < DELETE && one != '%';
            text.append(isPlain ? String.valueOf((char) one) : String.format("%%%02X", one));
        }
        return text.toString();
    }

    /** What a peer tells its user of. */
    static TransferNotice notice(Notice notice, Side side) {
        return new TransferNotice.Fallback(
                side.name().toLowerCase(Locale.ROOT),
                printable(notice.getWhat()),
                printable(notice.getWhy()));
    }

    /** A stall, as the streams of a session tell it. */
    static TransferNotice stall(String what, Duration still) {
        String stage = what.contains("disk") ? "storage" : "network";
        return new TransferNotice.Stall(stage, still, what);
    }

    /** The result of what could not even be offered. */
    static FileResult failedBeside(Fault fault) {
        return new FileResult(
                name(fault.getPath()),
                FileResult.Status.FAILED,
                false,
                0,
                null,
                of(fault),
                encoded(fault.getPath()));
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
