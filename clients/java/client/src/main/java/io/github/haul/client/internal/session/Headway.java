package io.github.haul.client.internal.session;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/**
 * Whether a transfer gets on: spans that were verified and files that were settled count, and bytes
 * that move do not, for a path that cuts every connection before a span is through moves them for
 * ever. One lasts for all sessions of a transfer. It has no clock.
 */
final class Headway {
    /** Connections that break within this time broke for one reason. */
    private static final long ROUND_NS = TimeUnit.MILLISECONDS.toNanos(200);

    /** Rounds without headway after which a session is given up for another. */
    private static final int ROUNDS_MAX = 12;

    private static final long REOPEN_DELAY_MS = 50;

    /** Rounds of streams that were at work after which spans become smaller. */
    private static final int CUTS_A_SIZE = 3;

    private static final long SPAN_BYTES_MIN = 64 << 10;
    private static final long SHRINK = 8;

    private final long retryForNs;
    private long spanBytes;
    private boolean isSmaller;
    private long verified;
    private boolean isBroken;
    private long brokenSinceNs;
    private boolean hasRound;
    private long roundAtNs;
    private int rounds;
    private int cuts;

    Headway(Duration retryFor) {
        retryForNs = retryFor.toNanos();
    }

    /** Begins another session, which has verified nothing yet. */
    void beginSession() {
        verified = 0;
        rounds = 0;
        hasRound = false;
    }

    /** Notes the size of spans that a receiver asks for. */
    void askedFor(long bytes) {
        if (!isSmaller) {
            spanBytes = Math.max(spanBytes, bytes);
        }
    }

    /** Notes what the session has verified, in a number that grows. */
    void verified(long total) {
        if (total > verified) {
            verified = total;
            isBroken = false;
            rounds = 0;
            cuts = 0;
        }
    }

    /** Notes that something was lost: from then on the time for coming back runs. */
    void broken(long nowNs) {
        if (!isBroken) {
            isBroken = true;
            brokenSinceNs = nowNs;
        }
    }

    /**
     * Counts a data stream that was cut.
     *
     * @return milliseconds until another is opened; -1 where the session is to end
     */
    long streamCut(long nowNs, boolean atWork) {
        broken(nowNs);
        if (!hasRound || nowNs - roundAtNs > ROUND_NS) {
            hasRound = true;
            roundAtNs = nowNs;
            rounds++;
            cuts += atWork ? 1 : 0;
        }
        if (rounds > ROUNDS_MAX || mustShrink() || isOver(nowNs)) {
            return -1;
        }
        return REOPEN_DELAY_MS * Math.min(rounds, ROUNDS_MAX);
    }

    private boolean mustShrink() {
        return cuts >= CUTS_A_SIZE && spanBytes > SPAN_BYTES_MIN;
    }

    /** Notes that the session was lost; whether spans are smaller from now on. */
    boolean sessionLost(long nowNs, boolean atWork) {
        broken(nowNs);
        cuts += atWork ? 1 : 0;
        if (!mustShrink()) {
            return false;
        }
        spanBytes = Math.max(SPAN_BYTES_MIN, spanBytes / SHRINK);
        isSmaller = true;
        cuts = 0;
        return true;
    }

    /** The size of spans to ask for; 0 where any will do. */
    long smallerSpanBytes() {
        return isSmaller ? spanBytes : 0;
    }

    /** Whether nothing has got on for as long as a lost connection is tried again. */
    boolean isOver(long nowNs) {
        return isBroken && nowNs - brokenSinceNs >= retryForNs;
    }

    /** The time left for coming back, in nanoseconds. */
    long leftNs(long nowNs) {
        return isBroken ? Math.max(0, retryForNs - (nowNs - brokenSinceNs)) : retryForNs;
    }
}
