package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.FileOffer;

/** A directory that was made, with its owner's full rights until all is in it. */
final class PendingDirectory implements TargetEntry {
    private final FileOffer offer;
    private final ByteString name;
    private final int newLevels;

    PendingDirectory(FileOffer offer, ByteString name, int newLevels) {
        this.offer = offer;
        this.name = name;
        this.newLevels = newLevels;
    }

    @Override
    public FileOffer offer() {
        return offer;
    }

    @Override
    public ByteString name() {
        return name;
    }

    @Override
    public void seal() {}

    @Override
    public void publish() {}

    @Override
    public int newLevels() {
        return newLevels;
    }

    @Override
    public void checkInPlace() {}

    @Override
    public void abandon(boolean keep) {}
}
