package io.github.haul.client.internal.source;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.Side;
import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.NoSuchFileException;

/** Faults of sources, in the words that the other side's user sees too. */
public final class SourceFaults {
    private SourceFaults() {}

    /**
     * The fault of a source that could not be read.
     *
     * @param name its name
     * @param what what failed, as in "cannot be read"
     * @param error why
     * @return the fault
     */
    public static Fault of(ByteString name, String what, IOException error) {
        FaultCode code = FaultCode.IO_FAILED;
        String hint = "";
        if (error instanceof NoSuchFileException) {
            code = FaultCode.NOT_FOUND;
        } else if (error instanceof AccessDeniedException) {
            code = FaultCode.NOT_PERMITTED;
            hint = "run it as a user who may read it, or change its mode";
        }
        String found = error.getMessage() == null ? "" : error.getMessage();
        String kind = error.getClass().getSimpleName();
        return of(code, name, what).setFound(kind + ": " + found).setHint(hint).build();
    }

    /**
     * The fault of a source that is not what was offered.
     *
     * @param name its name
     * @param found how it differs
     * @return the fault
     */
    public static Fault changed(ByteString name, String found) {
        return of(FaultCode.SOURCE_CHANGED, name, "changed while it was being moved")
                .setFound(found)
                .setHint("run the same command again when nothing writes to it")
                .build();
    }

    static Fault.Builder of(FaultCode code, ByteString name, String what) {
        return Fault.newBuilder().setCode(code).setSide(Side.SOURCE).setPath(name).setWhat(what);
    }
}
