package io.github.haul.client.internal.session;

import io.github.haul.client.TransferOptions;
import io.github.haul.client.internal.machine.Receiver;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.Progress;
import io.github.haul.client.internal.proto.StreamProgress;
import io.github.haul.client.internal.target.TargetFault;
import io.github.haul.client.internal.wire.SpanDigest;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The data streams of a pull. */
final class ReceiveStreams extends InboundStreams<ReceiveStream> {
    private final ReceiveShared shared;
    private final Map<Integer, Fault> failures = new ConcurrentHashMap<>();

    ReceiveStreams(
            OpenSession session,
            ReceiveShared shared,
            Inbox inbox,
            Headway headway,
            TransferOptions options) {
        super(session, shared, inbox, headway, options);
        this.shared = shared;
    }

    @Override
    ReceiveStream make(int number, SpanDigest digest, long delayMs) {
        return new ReceiveStream(number, session(), shared, inbox(), digest, delayMs, this::failed);
    }

    private void failed(int file, TargetFault failed) {
        failures.putIfAbsent(file, failed.fault());
        inbox().wake();
    }

    /** Takes the files that could not be written. */
    Map<Integer, Fault> takeFailures() {
        Map<Integer, Fault> taken = new LinkedHashMap<>(failures);
        taken.keySet().forEach(failures::remove);
        return taken;
    }

    /** Bytes whose digests have agreed. */
    long verifiedBytes() {
        return shared.with(Receiver::verifiedBytes);
    }

    /** What this side tells the sender of its streams. */
    Progress.Builder progress() {
        Progress.Builder progress = Progress.newBuilder().setReceivedBytes(receivedBytes());
        for (ReceiveStream stream : open()) {
            progress.addStreams(
                    StreamProgress.newBuilder()
                            .setStream(stream.number())
                            .setReceivedBytes(stream.movedBytes())
                            .setOnStorage(stream.isOnStorage()));
        }
        return progress;
    }
}
