package io.github.haul.client.internal.wire;

/** An act of the peer that SPEC.md forbids; the session or the stream ends with it. */
public final class ProtocolViolation extends Exception {
    private static final long serialVersionUID = 1;

    /**
     * Says what the peer did.
     *
     * @param what the act, in words
     */
    public ProtocolViolation(String what) {
        super(what);
    }

    /**
     * Throws unless a condition holds.
     *
     * @param holds the condition
     * @param what the act that the peer did where it does not hold
     * @throws ProtocolViolation if it does not hold
     */
    public static void unless(boolean holds, String what) throws ProtocolViolation {
        if (!holds) {
            throw new ProtocolViolation(what);
        }
    }
}
