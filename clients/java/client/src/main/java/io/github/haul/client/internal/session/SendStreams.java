package io.github.haul.client.internal.session;

import io.github.haul.client.TransferOptions;
import io.github.haul.client.internal.proto.Progress;
import io.github.haul.client.internal.proto.StreamProgress;
import io.github.haul.client.internal.wire.SpanDigest;
import java.util.HashSet;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** The data streams of a push, each of which is watched for itself. */
final class SendStreams extends DataStreams<SendStream> {
    private final SendShared shared;

    private long endedBytes;

    /** Streams that were given up and have not ended yet. */
    private final Set<Integer> stalled = new HashSet<>();

    SendStreams(
            OpenSession session,
            SendShared shared,
            Inbox inbox,
            Headway headway,
            TransferOptions options) {
        super(session, inbox, headway, options);
        this.shared = shared;
    }

    @Override
    SendStream make(int number, SpanDigest digest, long delayMs) {
        return new SendStream(number, session(), shared, inbox(), digest, delayMs);
    }

    @Override
    Sequel ended(int number, @Nullable SendStream stream, String why, boolean isFinishing) {
        endedBytes += stream == null ? 0 : stream.movedBytes();
        boolean wasStalled = stalled.remove(number);
        boolean awaited =
                shared.with(
                        machine -> {
                            boolean awaits = machine.awaitsAcknowledgement(number);
                            machine.dropStream(number, why);
                            return awaits;
                        });
        if (isFinishing) {
            return Sequel.NONE;
        }
        return wasStalled || awaited ? Sequel.NEXT_FOR_WORK : Sequel.NEXT;
    }

    /** Shuts a stream down that the receiver is done with. */
    void closed(int number) {
        SendStream stream = get(number);
        if (stream != null) {
            stream.close();
            shared.notifyStreams();
        }
    }

    /** Bytes that went out on all streams. */
    long sentBytes() {
        return endedBytes + open().stream().mapToLong(SendStream::movedBytes).sum();
    }

    /** Takes the receiver's word of what came on each stream. */
    void heard(Progress progress) {
        for (StreamProgress told : progress.getStreamsList()) {
            SendStream stream = get(told.getStream());
            if (stream != null) {
                stream.watch().received = told.getReceivedBytes();
                stream.watch().isOnStorage = told.getOnStorage();
            }
        }
    }

    /** Gives up streams that have something under way and get nothing through. */
    void watch(long nowNs) {
        for (SendStream stream : open()) {
            int number = stream.number();
            SendStream.Watch watch = stream.watch();
            boolean waits = shared.with(machine -> machine.awaitsAcknowledgement(number));
            long moved = stream.movedBytes() + watch.received;
            if (moved != watch.seen || !waits) {
                watch.seen = moved;
                watch.seenAtNs = nowNs;
            } else if (nowNs - watch.seenAtNs > stallAfterNs()) {
                watch.seenAtNs = nowNs;
                stall(stream);
            }
        }
    }

    private void stall(SendStream stream) {
        if (stream.watch().isOnStorage) {
            tellStall("the receiver waits for its disk");
            return;
        }
        tellStall("nothing arrives on a data connection: another takes its place");
        stalled.add(stream.number());
        shared.run(machine -> machine.dropStream(stream.number(), "stalled"));
        stream.close();
        shared.notifyStreams();
    }

    /** Whether any stream has something under way. */
    boolean isAnyAtWork() {
        return open().stream()
                .anyMatch(
                        stream ->
                                shared.with(
                                        machine -> machine.awaitsAcknowledgement(stream.number())));
    }

    /** Lets the streams say their orderly end, and waits for that. */
    void end() {
        shared.stop();
        joinAll();
    }

    /** Ends the streams at once. */
    void stop() {
        shared.stop();
        closeAll();
        open().forEach(DataStream::interrupt);
        joinAll();
    }
}
