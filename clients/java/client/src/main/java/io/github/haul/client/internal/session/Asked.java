package io.github.haul.client.internal.session;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.Side;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** The sources that a pull asks for: a server brings each of them, and no others. */
final class Asked {
    /** Whether each name has come; null where any name may, as the contents of a directory. */
    private final @Nullable Map<ByteString, Boolean> names;

    Asked(List<ByteString> paths) {
        Map<ByteString, Boolean> asked = new LinkedHashMap<>();
        for (ByteString path : paths) {
            asked.put(nameOf(path), false);
        }
        names = asked.containsKey(ByteString.EMPTY) ? null : asked;
    }

    /** The name that a source brings: its last component; empty where its contents come. */
    static ByteString nameOf(ByteString path) {
        int slash = -1;
        for (int at = 0; at < path.size(); at++) {
            slash = path.byteAt(at) == '/' ? at : slash;
        }
        ByteString last = path.substring(slash + 1);
        boolean isDots =
                last.equals(ByteString.copyFromUtf8("."))
                        || last.equals(ByteString.copyFromUtf8(".."));
        return isDots ? ByteString.EMPTY : last;
    }

    /** Whether the sources go into the target as a directory, whatever is there. */
    static boolean goIntoDirectory(List<ByteString> paths) {
        return paths.size() != 1 || nameOf(paths.get(0)).isEmpty();
    }

    /** The fault of what nobody asked for, or null. */
    @Nullable Fault check(ByteString offered) {
        if (names == null) {
            return null;
        }
        int slash = 0;
        while (slash < offered.size() && offered.byteAt(slash) != '/') {
            slash++;
        }
        ByteString first = offered.substring(0, slash);
        return names.replace(first, true) == null ? PullRole.unasked(offered) : null;
    }

    /** The faults of what was asked for, and neither offered nor said to have failed. */
    List<Fault> missing(boolean hasFailures) {
        List<Fault> faults = new ArrayList<>();
        if (names != null && !hasFailures) {
            names.forEach(
                    (name, hasCome) -> {
                        if (!hasCome) {
                            faults.add(
                                    Fault.newBuilder()
                                            .setCode(FaultCode.IO_FAILED)
                                            .setSide(Side.SOURCE)
                                            .setPath(name)
                                            .setWhat("was asked for and not offered")
                                            .build());
                        }
                    });
        }
        return faults;
    }
}
