package io.github.haul.client.internal.machine;

import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.Xattr;

/** The memory that offers take, by which both sides count (SPEC.md, 5). */
final class Offers {
    private static final long FILE_BYTES = 256;
    private static final long HOLE_BYTES = 16;
    private static final long XATTR_BYTES = 64;

    private Offers() {}

    /** The memory that an offer counts for, in bytes. */
    static long memoryBytes(FileOffer offer) {
        long bytes = FILE_BYTES + offer.getName().size() + offer.getLinkTarget().size();
        bytes += HOLE_BYTES * offer.getHolesCount();
        for (Xattr xattr : offer.getXattrsList()) {
            bytes += XATTR_BYTES + xattr.getName().size() + xattr.getValue().size();
        }
        return bytes;
    }
}
