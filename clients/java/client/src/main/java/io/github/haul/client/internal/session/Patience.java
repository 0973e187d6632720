package io.github.haul.client.internal.session;

import io.github.haul.client.internal.machine.Awaited;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/** Patience with a server that answers pings and does nothing that is due. */
final class Patience {
    /** Stall timeouts allowed for what costs a server nothing. */
    private static final long STALLS_MAX = 12;

    /** Stall timeouts allowed where a disk has its part. */
    private static final long STALLS_MAX_LONG = 360;

    private static final long LOOK_EVERY_NS = TimeUnit.SECONDS.toNanos(1);

    private final long stallAfterNs;
    private long lookedAtNs = System.nanoTime();
    private long sinceNs = System.nanoTime();
    private long seenDone;
    private @Nullable Awaited seenAwaited;

    Patience(long stallAfterNs) {
        this.stallAfterNs = stallAfterNs;
    }

    /**
     * Checks whether the server still does what is due.
     *
     * @param nowNs the time
     * @param done how much was done so far, in a number that grows
     * @param awaited what is due; asked once a second
     * @return the fault that ends the session, or null
     */
    @Nullable Fault check(long nowNs, long done, Supplier<@Nullable Awaited> awaited) {
        if (nowNs - lookedAtNs < Math.min(LOOK_EVERY_NS, stallAfterNs)) {
            return null;
        }
        lookedAtNs = nowNs;
        Awaited due = awaited.get();
        if (done != seenDone || due != seenAwaited) {
            seenDone = done;
            seenAwaited = due;
            sinceNs = nowNs;
        }
        boolean needsDisk = due == Awaited.SETTLEMENT || due == Awaited.CONFIRMATION;
        long limit = stallAfterNs * (needsDisk ? STALLS_MAX_LONG : STALLS_MAX);
        if (due == null || nowNs - sinceNs <= limit) {
            return null;
        }
        return Fault.newBuilder()
                .setCode(FaultCode.STALLED)
                .setWhat("the other side is due: " + words(due))
                .setFound(
                        "nothing but answers to pings for "
                                + TimeUnit.NANOSECONDS.toSeconds(nowNs - sinceNs)
                                + " s")
                .setHint("run it again: it goes on with what is not in place")
                .build();
    }

    private static String words(Awaited due) {
        return switch (due) {
            case OFFER -> "an offer, or the end of the offers";
            case ANSWER -> "an answer to what was offered";
            case CONFIRMATION -> "the confirmation of what arrived whole";
            case STREAM_END -> "the end of a data stream that was given up";
            case SETTLEMENT -> "files to be durable under their names";
            case GOODBYE -> "the goodbye, all files being settled";
        };
    }
}
