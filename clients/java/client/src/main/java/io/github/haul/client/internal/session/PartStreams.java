package io.github.haul.client.internal.session;

import io.github.haul.client.TransferOptions;
import io.github.haul.client.internal.wire.SpanDigest;

/** The data streams of a file that is read in parts. */
final class PartStreams extends InboundStreams<PartStream> {
    private final PartShared shared;

    PartStreams(
            OpenSession session,
            PartShared shared,
            Inbox inbox,
            Headway headway,
            TransferOptions options) {
        super(session, shared, inbox, headway, options);
        this.shared = shared;
    }

    @Override
    PartStream make(int number, SpanDigest digest, long delayMs) {
        return new PartStream(number, session(), shared, inbox(), digest, delayMs);
    }
}
