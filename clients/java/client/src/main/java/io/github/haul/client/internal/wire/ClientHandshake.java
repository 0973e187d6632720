package io.github.haul.client.internal.wire;

import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Hello;
import io.github.haul.client.internal.proto.HelloReply;
import io.github.haul.client.internal.proto.Open;
import io.github.haul.client.internal.proto.Opened;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The client's part of a handshake: says hello and opens at once, without waiting (SPEC.md, 5). */
public final class ClientHandshake {
    /** The version that this client speaks. */
    public static final int VERSION = 1;

    /**
     * The capability by which a server tells the keys of the data streams: the JDK exports none.
     */
    public static final int TOLD_KEYS = 4;

    private final List<Integer> listed;
    private @Nullable HelloReply reply;

    /**
     * Begins a handshake.
     *
     * @param listed the capabilities that the hello lists
     */
    public ClientHandshake(List<Integer> listed) {
        this.listed = List.copyOf(listed);
    }

    /**
     * The messages that a client sends first.
     *
     * @param software its name and version
     * @param open what it wants
     * @return the hello, and what it opens
     */
    public List<Control> start(String software, Open open) {
        Hello hello =
                Hello.newBuilder()
                        .setVersionMin(VERSION)
                        .setVersionMax(VERSION)
                        .addAllCapabilities(listed)
                        .setSoftware(software)
                        .build();
        return List.of(
                Control.newBuilder().setHello(hello).build(),
                Control.newBuilder().setOpen(open).build());
    }

    /**
     * Takes a message of the server.
     *
     * @param message the message
     * @return the session once it is open, else null
     * @throws SessionRefused if the server refuses
     * @throws ProtocolViolation if it says what it may not, or speaks no version of ours
     */
    public @Nullable Granted handle(Control message) throws SessionRefused, ProtocolViolation {
        if (message.hasRefused()) {
            throw new SessionRefused(message.getRefused());
        }
        HelloReply earlier = reply;
        reply = null;
        if (message.hasHelloReply() && earlier == null) {
            int version = message.getHelloReply().getVersion();
            ProtocolViolation.unless(
                    version == VERSION,
                    "a reply of version "
                            + Integer.toUnsignedString(version)
                            + ", this is "
                            + VERSION);
            reply = message.getHelloReply();
            return null;
        }
        if (!message.hasOpened() || earlier == null) {
            throw new ProtocolViolation("a message out of order in the handshake");
        }
        checkToldKeys(earlier, message.getOpened());
        return new Granted(
                List.copyOf(earlier.getCapabilitiesList()),
                earlier.getSoftware(),
                message.getOpened());
    }

    /** Refuses keys that were not asked for or announced, and their absence where they were. */
    private void checkToldKeys(HelloReply reply, Opened opened) throws ProtocolViolation {
        boolean areAnnounced = reply.getCapabilitiesList().contains(TOLD_KEYS);
        boolean areThere = !opened.getDataKeys().isEmpty();
        ProtocolViolation.unless(
                !areAnnounced || listed.contains(TOLD_KEYS),
                "a reply with capability 4, which the hello does not list");
        ProtocolViolation.unless(
                areAnnounced || !areThere, "data keys without capability 4 in the reply");
        ProtocolViolation.unless(
                !areAnnounced || areThere,
                "a reply with capability 4, and a session without data keys");
    }

    /**
     * A session that the server granted.
     *
     * @param capabilities those that both sides have
     * @param software the server's name and version
     * @param opened what it granted
     */
    public record Granted(List<Integer> capabilities, String software, Opened opened) {
        /** Shows nothing of the session's keys. */
        @Override
        public String toString() {
            return "Granted[" + software + "]";
        }
    }
}
