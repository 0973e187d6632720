package io.github.haul.client.internal.wire;

import com.google.protobuf.ByteString;
import org.jspecify.annotations.Nullable;

/**
 * Check of the names that a peer asks for: relative, without {@code .} and {@code ..}, not too
 * long.
 */
public final class Names {
    private Names() {}

    /**
     * Says why a name is refused.
     *
     * @param name the name below a target
     * @return the reason, or null for a good name
     */
    public static @Nullable String refusal(ByteString name) {
        if (name.isEmpty()) {
            return "the name is empty";
        }
        if (name.size() > Limits.NAME_BYTES_MAX) {
            return "the name is longer than 4095 bytes";
        }
        if (name.byteAt(0) == '/') {
            return "the name is absolute";
        }
        int begin = 0;
        String refused = null;
        for (int at = 0; at <= name.size(); at++) {
            byte one = at < name.size() ? name.byteAt(at) : (byte) '/';
            if (one == 0) {
                return "the name holds a zero byte";
            }
            if (one == '/') {
                refused = refused == null ? refusalOfComponent(name, begin, at) : refused;
                begin = at + 1;
            }
        }
        return refused;
    }

    private static @Nullable String refusalOfComponent(ByteString name, int begin, int end) {
        int length = end - begin;
        if (length == 0) {
            return "the name has an empty component";
        }
        boolean isDots =
                name.byteAt(begin) == '.'
                        && (length == 1 || length == 2 && name.byteAt(begin + 1) == '.');
        if (isDots) {
            return "the name has a `.` or `..` component";
        }
        return length > Limits.COMPONENT_BYTES_MAX
                ? "a component of the name is longer than 255 bytes"
                : null;
    }
}
