package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.FileOffer;
import java.util.Arrays;

/**
 * Identity of what is moved, and where to: a journal holds only for the same.
 *
 * @param sizeBytes length of the source
 * @param mtimeS modification time of the source, seconds since 1970
 * @param mtimeNs its nanoseconds
 * @param sourceInode inode of the source
 * @param sourceDevice device of the source
 * @param targetInode inode of the temporary
 * @param targetDevice device of the temporary
 * @param digest number of the digest that verified the spans
 * @param nameHash first half of the SHA-256 of the target's name in its directory
 */
record JournalIdentity(
        long sizeBytes,
        long mtimeS,
        int mtimeNs,
        long sourceInode,
        long sourceDevice,
        long targetInode,
        long targetDevice,
        int digest,
        ByteString nameHash) {
    private static final int NAME_HASH_BYTES = 16;

    static JournalIdentity of(FileOffer offer, ByteString last, FileLook temporary, int digest) {
        byte[] hash = HiddenNames.sha256(last);
        return new JournalIdentity(
                offer.getSizeBytes(),
                offer.getMtimeS(),
                offer.getMtimeNs(),
                offer.getInode(),
                offer.getDevice(),
                temporary.inode(),
                temporary.device(),
                digest,
                ByteString.copyFrom(Arrays.copyOf(hash, NAME_HASH_BYTES)));
    }

    /** The same with other numbers of devices, which a file system may get at each mount. */
    JournalIdentity onDevices(long source, long target) {
        return new JournalIdentity(
                sizeBytes,
                mtimeS,
                mtimeNs,
                sourceInode,
                source,
                targetInode,
                target,
                digest,
                nameHash);
    }
}
