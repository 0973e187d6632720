package io.github.haul.client.internal.session;

import io.github.haul.client.TransferOptions;
import io.github.haul.client.internal.machine.OfferAnswer;
import io.github.haul.client.internal.machine.Receiver;
import io.github.haul.client.internal.machine.ReceiverEvent;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.Growth;
import io.github.haul.client.internal.proto.SideReport;
import io.github.haul.client.internal.wire.ProtocolViolation;
import org.jspecify.annotations.Nullable;

/**
 * A role that receives: it hears the sender, keeps its streams at work and ends the session. Its
 * kinds say which spans they want, and what becomes of them.
 */
abstract class InboundRole implements Role {
    private final Patience patience;
    private final long goodbyeMaxNs;
    private @Nullable SessionEnd end;
    private boolean isFinishing;
    private boolean peerFinished;
    private long finishingAtNs;
    private long handled;

    /**
     * A role whose session has just begun.
     *
     * @param goodbyeMaxNs the longest wait for the sender's goodbye
     */
    InboundRole(TransferOptions options, long goodbyeMaxNs) {
        this.goodbyeMaxNs = goodbyeMaxNs;
        patience = new Patience(options.stallAfter().toNanos());
    }

    abstract SharedMachine<Receiver> shared();

    abstract InboundStreams<?> streams();

    /** Handles an event, but for those of streams and of the session's end. */
    abstract void handleEvent(ReceiverEvent event);

    /** Does what is due beside the events. */
    abstract void work(long nowNs);

    /** Whether nothing more is wanted: the goodbye is said once all is settled. */
    abstract boolean isDone();

    /** Does what is left when all is settled, and says what the goodbye tells the sender. */
    abstract SideReport lastWord();

    /** Tells what has got on. */
    void tell(long nowNs) {}

    /** What has got on beside messages and bytes, in a number that grows. */
    long headway() {
        return 0;
    }

    final boolean isFinishing() {
        return isFinishing;
    }

    @Override
    public final void handle(Control message) throws ProtocolViolation {
        handled += message.hasNotice() ? 0 : 1;
        boolean grows =
                message.hasFileOffer() && message.getFileOffer().getGrowth() != Growth.NOT_GROWING;
        ProtocolViolation.unless(!grows, "a file that grows, though none is followed");
        shared().run(machine -> machine.handle(message));
        handleEvents();
    }

    @Override
    public @Nullable Control pollMessage() {
        return shared().find(Receiver::pollMessage);
    }

    @Override
    public final @Nullable SessionEnd pump(long nowNs) {
        handleEvents();
        SessionEnd cut = streams().handleEnded(nowNs, isFinishing);
        work(nowNs);
        handleEvents();
        finish(nowNs);
        if (!isFinishing) {
            streams().watch(nowNs);
        }
        tell(nowNs);
        if (end != null) {
            return end;
        }
        if (isFinishing && (peerFinished || nowNs - finishingAtNs > goodbyeMaxNs)) {
            return new SessionEnd.Finished();
        }
        if (cut != null) {
            return cut;
        }
        Fault due =
                patience.check(
                        nowNs,
                        handled + headway() + streams().receivedBytes(),
                        () -> shared().find(Receiver::awaits));
        return due == null ? null : new SessionEnd.Refused(due, true);
    }

    private void handleEvents() {
        for (ReceiverEvent event = pollEvent(); event != null; event = pollEvent()) {
            if (event instanceof ReceiverEvent.CloseStream close) {
                streams().close(close.stream());
            } else if (event instanceof ReceiverEvent.Finished) {
                peerFinished = true;
            } else if (event instanceof ReceiverEvent.Refused refused) {
                end = new SessionEnd.Refused(refused.fault(), false);
            } else {
                handleEvent(event);
            }
        }
    }

    private @Nullable ReceiverEvent pollEvent() {
        return shared().find(Receiver::pollEvent);
    }

    /**
     * Answers an offer.
     *
     * @param what what it means when the answer cannot be given, which ends the session
     * @return whether it was given
     */
    final boolean answer(int file, OfferAnswer answer, String what) {
        try {
            shared().run(machine -> machine.answer(file, answer));
            return true;
        } catch (ProtocolViolation violation) {
            end =
                    new SessionEnd.Refused(
                            Fault.newBuilder()
                                    .setCode(FaultCode.PROTOCOL_VIOLATION)
                                    .setWhat(what)
                                    .setFound(String.valueOf(violation.getMessage()))
                                    .build(),
                            true);
            return false;
        }
    }

    /** Says goodbye once nothing more is wanted and all is settled. */
    private void finish(long nowNs) {
        if (isDone() && !isFinishing && shared().with(Receiver::mayFinish)) {
            isFinishing = true;
            finishingAtNs = nowNs;
            SideReport report = lastWord();
            shared().run(machine -> machine.finish(report));
        }
    }

    @Override
    public final boolean isAtWork() {
        return shared().with(Receiver::lacksSpans);
    }
}
