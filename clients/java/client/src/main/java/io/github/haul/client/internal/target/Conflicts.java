package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.OnConflict;
import io.github.haul.client.internal.wire.Limits;
import java.io.IOException;
import org.jspecify.annotations.Nullable;

/**
 * Decisions about an offered file whose name is taken at the target: it is skipped, replaced,
 * refused, or received under another name.
 */
final class Conflicts {
    /** Most names that are tried for a file whose own is taken: NAME.1, NAME.2, ... */
    private static final int OTHER_NAMES_MAX = 1000;

    private Conflicts() {}

    /**
     * The decision about an offer.
     *
     * @param skips whether the same is there already
     * @param replaces whether something else is there, and gives way
     * @param name the name under which it is received, or under which the same is
     */
    record Decision(boolean skips, boolean replaces, ByteString name) {}

    /** Decides about a file or a link, {@code there} being what has its name. */
    static Decision decide(
            TargetRoot root,
            ByteString name,
            @Nullable FileLook there,
            FileOffer offer,
            OnConflict onConflict)
            throws TargetFault {
        if (there == null) {
            return new Decision(false, false, name);
        }
        boolean keepsSame = onConflict != OnConflict.REPLACE;
        if (isSourceItself(there, offer) || keepsSame && isSame(root, name, there, offer)) {
            return new Decision(true, false, name);
        }
        if (onConflict == OnConflict.KEEP_BOTH) {
            return otherName(root, name, offer);
        }
        if (there.isDirectory()) {
            throw refused(name, "a directory of that name is there");
        }
        if (there.kind() == FileLook.Kind.OTHER) {
            throw refused(
                    name, "a FIFO, socket or device of that name is there, which no file replaces");
        }
        if (onConflict == OnConflict.FAIL) {
            throw exists(name, there, offer);
        }
        return new Decision(false, true, name);
    }

    private static TargetFault refused(ByteString name, String what) {
        String hint = "remove it, or choose another target";
        return TargetFault.of(FaultCode.NAME_REFUSED, name, what, "", "", hint);
    }

    private static TargetFault exists(ByteString name, FileLook there, FileOffer offer) {
        String found;
        if (!there.isFile()) {
            found = "something else";
        } else if (there.sizeBytes() == offer.getSizeBytes()) {
            found = "a file of another time";
        } else {
            found = "a file of " + there.sizeBytes() + " bytes, not of " + offer.getSizeBytes();
        }
        return TargetFault.of(
                FaultCode.EXISTS,
                name,
                "something of that name is there already",
                "",
                found,
                "replace, keep-both or skip-same for what is there says what to do");
    }

    /** The first numbered name that is free, or that this very file has already. */
    private static Decision otherName(TargetRoot root, ByteString name, FileOffer offer)
            throws TargetFault {
        for (int number = 1; number <= OTHER_NAMES_MAX; number++) {
            ByteString other = name.concat(ByteString.copyFromUtf8("." + number));
            if (HiddenNames.last(other).size() > Limits.COMPONENT_BYTES_MAX) {
                break;
            }
            FileLook there = root.look(other);
            if (there == null) {
                return new Decision(false, false, other);
            }
            if (isSame(root, other, there, offer)) {
                return new Decision(true, false, other);
            }
        }
        throw TargetFault.of(
                FaultCode.EXISTS,
                name,
                "no other name is free for it",
                "one of NAME.1 to NAME." + OTHER_NAMES_MAX + ", of 255 bytes at most",
                "",
                "tidy the target up, or choose another rule for what is there");
    }

    /**
     * Whether what is there is the very inode that is offered, by another path or a network file
     * system that both hosts have.
     */
    private static boolean isSourceItself(FileLook there, FileOffer offer) {
        boolean hasCtime = there.ctimeS() != 0 || there.ctimeNs() != 0;
        return hasCtime
                && there.inode() == offer.getInode()
                && there.ctimeS() == offer.getCtimeS()
                && there.ctimeNs() == offer.getCtimeNs();
    }

    /** Whether the same file is there, by size and time, or a link by where it leads. */
    private static boolean isSame(
            TargetRoot root, ByteString name, FileLook there, FileOffer offer) {
        return switch (offer.getKind()) {
            case REGULAR ->
                    there.isFile()
                            && there.sizeBytes() == offer.getSizeBytes()
                            && there.mtimeS() == offer.getMtimeS()
                            && there.mtimeNs() == offer.getMtimeNs()
                            && hasTime(offer);
            case SYMLINK -> leadsAsOffered(root, name, there, offer);
            default -> false;
        };
    }

    private static boolean leadsAsOffered(
            TargetRoot root, ByteString name, FileLook there, FileOffer offer) {
        if (there.kind() != FileLook.Kind.LINK) {
            return false;
        }
        try (TargetRoot.Place place = root.parentOf(name)) {
            // As bytes: two links that lead to one place may differ.
            ByteString target = NativeName.bytes(place.directory().readLink(place.last()));
            return target.equals(offer.getLinkTarget());
        } catch (IOException notReadable) {
            return false;
        }
    }

    /** Whether an offer has a modification time; {@code zero:} has none, as it is no file. */
    static boolean hasTime(FileOffer offer) {
        return offer.getInode() != 0 || offer.getDevice() != 0;
    }

    /** Fails where something else than a directory has the name of one. */
    static void checkDirectory(ByteString name, @Nullable FileLook there) throws TargetFault {
        if (there == null || there.isDirectory()) {
            return;
        }
        throw TargetFault.of(
                FaultCode.NAME_REFUSED,
                name,
                "something else has the name of this directory",
                "a directory, or none yet",
                there.kind().words(),
                "remove it");
    }

    /** The fault of a hard link that cannot be made: the file itself is offered then. */
    static TargetFault noHardLink(ByteString name, String found) {
        return TargetFault.of(
                FaultCode.KIND_UNSUPPORTED, name, "cannot be made as a hard link", "", found, "");
    }
}
