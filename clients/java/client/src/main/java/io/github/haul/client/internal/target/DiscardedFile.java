package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.machine.SpanGrid;
import io.github.haul.client.internal.proto.FileOffer;
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicLong;

/** What is received and thrown away: its bytes are verified, and nothing is written. */
final class DiscardedFile implements ReceivedFile {
    private final FileOffer offer;
    private final SpanGrid grid;
    private final AtomicLong verifiedBytes = new AtomicLong();

    DiscardedFile(FileOffer offer, SpanGrid grid) {
        this.offer = offer;
        this.grid = grid;
    }

    @Override
    public FileOffer offer() {
        return offer;
    }

    @Override
    public ByteString name() {
        return offer.getName();
    }

    @Override
    public SpanGrid grid() {
        return grid;
    }

    @Override
    public boolean keepsDigests() {
        return false;
    }

    @Override
    public void write(ByteBuffer bytes, long offsetBytes) {
        bytes.position(bytes.limit());
    }

    @Override
    public void verified(int span, byte[] digest) {
        verifiedBytes.addAndGet(grid.lenBytes(span));
    }

    /** Counts what is verified: there is nothing more to be done for it. */
    @Override
    public long sync() {
        return verifiedBytes.getAndSet(0);
    }

    @Override
    public long undurableBytes() {
        return verifiedBytes.get();
    }

    @Override
    public void seal() {}

    @Override
    public void publish() {}

    @Override
    public int newLevels() {
        return 0;
    }

    @Override
    public void checkInPlace() {}

    @Override
    public void abandon(boolean keep) {}
}
