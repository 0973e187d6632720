package io.github.haul.client.internal.machine;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.Growth;
import io.github.haul.client.internal.proto.Side;
import io.github.haul.client.internal.wire.Limits;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import org.jspecify.annotations.Nullable;

/**
 * The names taken in a session: one file for a name.
 *
 * <p>Names are kept as 64 bits of their SHA-256, in two generations, so that memory is bounded
 * (some 9 MiB): the last half of {@link Limits#TAKEN_NAMES_MAX} names is always known. Two
 * different names have one hash with a probability of 2^-64 a pair; the second of them is refused
 * in words. No peer can make a name that has the hash of another.
 */
final class TakenNames {
    private static final int GENERATION_MAX = Limits.TAKEN_NAMES_MAX / 2;

    private final TargetPath path;
    private final Repeats repeats;
    private final MessageDigest sha256;

    /** The first component of all names, where the target's path stands for one source. */
    private @Nullable ByteString source;

    private NameSet young = new NameSet();
    private NameSet old = new NameSet();

    TakenNames(TargetPath path, Repeats repeats) {
        this.path = path;
        this.repeats = repeats;
        try {
            sha256 = MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException("every JDK has SHA-256", impossible);
        }
    }

    /** Takes the name of an offer, and returns null, or the fault of a second file of one name. */
    @Nullable Fault take(FileOffer offer) {
        if (path == TargetPath.NAME_OF_ONE_SOURCE) {
            ByteString first = firstComponent(offer.getName());
            if (source == null) {
                source = first;
            } else if (!source.equals(first)) {
                return taken(
                        offer,
                        "another source, " + source.toStringUtf8() + ", was offered before",
                        "end the target with / to keep their names");
            }
        }
        long hash = hash(offer.getName());
        if (holds(hash)) {
            return taken(
                    offer,
                    "a file of that name came before",
                    "give each source a target of its own, by a command each");
        }
        if (isKept(offer)) {
            if (young.size() >= GENERATION_MAX) {
                old = young;
                young = new NameSet();
            }
            young.add(hash);
        }
        return null;
    }

    /** Whether the name of an offer is kept: several sources may share a directory. */
    static boolean isKept(FileOffer offer) {
        return offer.getKind() != FileKind.DIRECTORY;
    }

    /** Whether a hash is that of a name that is taken. */
    boolean holds(long hash) {
        return young.contains(hash) || old.contains(hash);
    }

    /** Whether a name stays taken once its file is in place. */
    boolean keeps(FileOffer offer) {
        return repeats == Repeats.REFUSED && offer.getGrowth() == Growth.NOT_GROWING;
    }

    /** Releases a name, which may be offered again: nothing was put there under it. */
    void release(long hash) {
        young.remove(hash);
        old.remove(hash);
    }

    /** How many names are known. */
    int size() {
        return young.size() + old.size();
    }

    /** The first 64 bits of a name's SHA-256. */
    long hash(ByteString name) {
        sha256.update(name.asReadOnlyByteBuffer());
        return ByteBuffer.wrap(sha256.digest()).getLong();
    }

    private static ByteString firstComponent(ByteString name) {
        int end = 0;
        while (end < name.size() && name.byteAt(end) != '/') {
            end++;
        }
        return name.substring(0, end);
    }

    private static Fault taken(FileOffer offer, String found, String hint) {
        return Fault.newBuilder()
                .setCode(FaultCode.NAME_TAKEN)
                .setSide(Side.TARGET)
                .setPath(offer.getName())
                .setWhat("another file has this name already")
                .setNeeds("one file for a name in a transfer")
                .setFound(found)
                .setHint(hint)
                .build();
    }
}
