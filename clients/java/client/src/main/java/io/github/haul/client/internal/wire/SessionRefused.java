package io.github.haul.client.internal.wire;

import io.github.haul.client.internal.proto.Fault;

/** The peer's refusal of a session, in its own words. */
public final class SessionRefused extends Exception {
    private static final long serialVersionUID = 1;

    private final transient Fault fault;

    /**
     * Keeps what the peer said.
     *
     * @param fault its fault
     */
    public SessionRefused(Fault fault) {
        super(fault.getWhat());
        this.fault = fault;
    }

    /** Returns what the peer said. */
    public Fault fault() {
        return fault;
    }
}
