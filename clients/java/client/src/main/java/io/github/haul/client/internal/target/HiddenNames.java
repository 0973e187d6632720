package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.wire.Limits;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;

/** Names of haul's own files beside a target: those of the program haul. */
public final class HiddenNames {
    private static final ByteString DOT = ByteString.copyFromUtf8(".");
    private static final ByteString PART = ByteString.copyFromUtf8(".haul-part");
    private static final ByteString JOURNAL = ByteString.copyFromUtf8(".haul-journal");
    private static final ByteString STAGED = ByteString.copyFromUtf8(".haul-staged");
    private static final ByteString DURABLE = ByteString.copyFromUtf8(".haul-durable");
    private static final List<ByteString> SUFFIXES =
            List.of(
                    PART,
                    JOURNAL,
                    STAGED,
                    DURABLE,
                    ByteString.copyFromUtf8(".haul-shared"),
                    ByteString.copyFromUtf8(".haul-ranges"),
                    ByteString.copyFromUtf8(".haul-range"));

    /** Characters of a hash in the hidden name of a link. */
    private static final int LINK_HASH_CHARACTERS = 16;

    private HiddenNames() {}

    /**
     * Whether a name is one of haul's own, which no file that is moved may have.
     *
     * @param name a component of a name
     * @return whether it is
     */
    public static boolean isHidden(ByteString name) {
        return name.startsWith(DOT) && SUFFIXES.stream().anyMatch(name::endsWith);
    }

    /** Whether a component of a path is hidden. */
    static boolean holdsHidden(ByteString path) {
        ByteString rest = path;
        while (!rest.isEmpty()) {
            if (isHidden(last(rest))) {
                return true;
            }
            rest = parent(rest);
        }
        return false;
    }

    /**
     * Name of a file until it is whole.
     *
     * @param name its last component
     * @return the name in the same directory
     */
    public static ByteString part(ByteString name) {
        return hidden(name, PART);
    }

    /**
     * Name of the journal beside a temporary.
     *
     * @param name the last component of the file's name
     * @return the name in the same directory
     */
    public static ByteString journal(ByteString name) {
        return hidden(name, JOURNAL);
    }

    /** Name of a directory that the program haul hides until all that comes into it is there. */
    static ByteString staged(ByteString name) {
        return hidden(name, STAGED);
    }

    /** Name of the list, beside that directory, of what is durable in it. */
    static ByteString durable(ByteString name) {
        return hidden(name, DURABLE);
    }

    /** Name of a link until it is published: not that of a file, for no lock protects it. */
    static ByteString link(ByteString name) {
        ByteString hashed = ByteString.copyFromUtf8("link ").concat(name);
        String digits = HexFormat.of().formatHex(sha256(hashed)).substring(0, LINK_HASH_CHARACTERS);
        return hidden(ByteString.copyFromUtf8(digits), PART);
    }

    static byte[] sha256(ByteString bytes) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            digest.update(bytes.asReadOnlyByteBuffer());
            return digest.digest();
        } catch (NoSuchAlgorithmException missing) {
            throw new IllegalStateException("every Java platform has SHA-256", missing);
        }
    }

    private static ByteString hidden(ByteString name, ByteString suffix) {
        boolean fits = 1 + name.size() + JOURNAL.size() <= Limits.COMPONENT_BYTES_MAX;
        ByteString stem =
                fits ? name : ByteString.copyFromUtf8(HexFormat.of().formatHex(sha256(name)));
        return DOT.concat(stem).concat(suffix);
    }

    /** The last component of a path. */
    static ByteString last(ByteString path) {
        return path.substring(lastSlash(path) + 1);
    }

    /** A path without its last component; empty for one component. */
    static ByteString parent(ByteString path) {
        return path.substring(0, Math.max(0, lastSlash(path)));
    }

    /** Joins two parts of a path; an empty part adds nothing. */
    static ByteString join(ByteString base, ByteString name) {
        if (base.isEmpty() || name.isEmpty()) {
            return base.concat(name);
        }
        return base.concat(ByteString.copyFromUtf8("/")).concat(name);
    }

    private static int lastSlash(ByteString path) {
        int at = path.size() - 1;
        while (at >= 0 && path.byteAt(at) != '/') {
            at--;
        }
        return at;
    }
}
