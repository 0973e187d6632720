package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.machine.SpanGrid;
import io.github.haul.client.internal.machine.SpanSet;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** The place {@code null:}: what comes is verified and thrown away, and no disk is touched. */
public final class NullTarget implements ReceivePlace {
    private final TargetOptions options;

    /**
     * Makes the place.
     *
     * @param options rules, of which it needs the size of spans and whether this is a dry run
     */
    public NullTarget(TargetOptions options) {
        this.options = options;
    }

    @Override
    public void giveRootMode(int mode) {}

    @Override
    public boolean isOfSeveralSpans(long sizeBytes) {
        // It has no descriptors that would have to be counted.
        return false;
    }

    @Override
    public Prepared prepare(FileOffer offer) {
        if (options.isDryRun()) {
            return new Prepared.Planned(false, ByteString.EMPTY);
        }
        try {
            long spanBytes = options.spanBytesFor(offer.getSizeBytes());
            SpanGrid grid = new SpanGrid(offer.getSizeBytes(), spanBytes);
            SpanSet durable = grid.spansWithin(offer.getHolesList());
            DiscardedFile file = new DiscardedFile(offer, grid);
            return new Prepared.Need(
                    file, spanBytes, durable, 0, ByteString.EMPTY, 0, 0, ByteString.EMPTY, null);
        } catch (ProtocolViolation noGrid) {
            throw new IllegalStateException("the size of spans was chosen for the file", noGrid);
        }
    }

    @Override
    public Map<TargetEntry, Optional<Fault>> commit(List<? extends TargetEntry> entries) {
        Map<TargetEntry, Optional<Fault>> none = new LinkedHashMap<>();
        entries.forEach(entry -> none.put(entry, Optional.empty()));
        return none;
    }

    @Override
    public List<Fault> finishDirectories() {
        return List.of();
    }

    @Override
    public void close() {}
}
