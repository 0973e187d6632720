package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.FileOffer;

/**
 * A file, link or directory that is being received. {@link Target#commit} takes it through the
 * steps to its name: first its bytes are durable, then it has its name, then that is durable.
 */
public sealed interface TargetEntry permits ReceivedFile, PendingLink, PendingDirectory {
    /** Returns what was offered. */
    FileOffer offer();

    /** Returns the name below the target's root. */
    ByteString name();

    /**
     * Gives mode and time, and makes content, mode and time durable.
     *
     * @throws TargetFault if that fails
     */
    void seal() throws TargetFault;

    /**
     * Gives the final name.
     *
     * @throws TargetFault if that fails
     */
    void publish() throws TargetFault;

    /** Returns in how many directories this entry, or those above it, are new. */
    int newLevels();

    /**
     * Looks whether the name leads to what got it: a directory may have been moved away meanwhile.
     *
     * @throws TargetFault if it does not
     */
    void checkInPlace() throws TargetFault;

    /**
     * Lets go of it before it has its name.
     *
     * @param keep whether what a later run can go on from stays
     */
    void abandon(boolean keep);
}
