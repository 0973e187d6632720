package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.Side;
import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileSystemException;
import java.nio.file.FileSystemLoopException;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.ReadOnlyFileSystemException;
import java.util.Locale;

/** A fault of one file at the target, as its peer is told of it. */
public final class TargetFault extends IOException {
    private static final long serialVersionUID = 1;

    /** A kind of failure that the system's words tell of. */
    private enum Cause {
        NO_SPACE(FaultCode.NO_SPACE, "no space left", "quota exceeded"),
        READ_ONLY(FaultCode.READ_ONLY, "read-only file system"),
        NOT_PERMITTED(FaultCode.NOT_PERMITTED, "permission denied", "operation not permitted"),
        LINK(FaultCode.NAME_REFUSED, "levels of symbolic links"),
        NOT_FOUND(FaultCode.NOT_FOUND, "no such file", "not a directory"),
        OPEN_FILES(FaultCode.IO_FAILED, "too many open files"),
        TOO_LARGE(FaultCode.IO_FAILED, "file too large"),
        OTHER(FaultCode.IO_FAILED);

        private final FaultCode code;
        private final String[] words;

        Cause(FaultCode code, String... words) {
            this.code = code;
            this.words = words;
        }

        private String hint() {
            return switch (this) {
                case NO_SPACE ->
                        "free space there, then run the same command again: it goes on where it"
                                + " stopped";
                case READ_ONLY -> "remount it writable or choose another";
                case NOT_PERMITTED -> "check owner and mode, or run that side as a user who may";
                case LINK ->
                        "a symbolic link is on the way, and none is followed; name the real place";
                case NOT_FOUND -> "check the name";
                case OPEN_FILES -> "let that side have more open files (ulimit -n)";
                case TOO_LARGE ->
                        "raise the limit on file sizes of that side (ulimit -f), or choose a file"
                                + " system that holds files of this size";
                case OTHER -> "see the kernel's log of that host, then run the same command again";
            };
        }

        /**
         * Finds the cause by the type of the exception and, as Java has no types for most, by the
         * words of strerror(3) in it: in a locale of another language those are not known, and the
         * fault is IO_FAILED with these words.
         */
        private static Cause of(Exception error) {
            if (error instanceof NoSuchFileException || error instanceof NotDirectoryException) {
                return NOT_FOUND;
            }
            if (error instanceof AccessDeniedException) {
                return NOT_PERMITTED;
            }
            if (error instanceof FileSystemLoopException) {
                return LINK;
            }
            if (error instanceof ReadOnlyFileSystemException) {
                return READ_ONLY;
            }
            String found = words(error).toLowerCase(Locale.ROOT);
            for (Cause cause : values()) {
                for (String words : cause.words) {
                    if (found.contains(words)) {
                        return cause;
                    }
                }
            }
            return OTHER;
        }
    }

    private final transient Fault fault;

    TargetFault(Fault fault) {
        super(fault.getWhat());
        this.fault = fault;
    }

    /** Returns the fault. */
    public Fault fault() {
        return fault;
    }

    /**
     * The fault of a failed call of the file system.
     *
     * @param name the file's name below the target
     * @param what what could not be done
     * @param error the failure; one that is a fault already stays as it is
     */
    static TargetFault of(ByteString name, String what, Exception error) {
        if (error instanceof TargetFault known) {
            return known;
        }
        Cause cause = Cause.of(error);
        return of(cause.code, name, what, "", words(error), cause.hint());
    }

    static TargetFault of(
            FaultCode code, ByteString name, String what, String needs, String found, String hint) {
        return new TargetFault(
                Fault.newBuilder()
                        .setCode(code)
                        .setSide(Side.TARGET)
                        .setPath(name)
                        .setWhat(what)
                        .setNeeds(needs)
                        .setFound(found)
                        .setHint(hint)
                        .build());
    }

    /** The system's words, without the path, which the fault has by itself. */
    private static String words(Exception error) {
        if (error instanceof FileSystemException named) {
            String reason = named.getReason();
            if (reason != null && !reason.isEmpty()) {
                return reason;
            }
            return switch (error.getClass().getSimpleName()) {
                case "NoSuchFileException" -> "no such file or directory";
                case "AccessDeniedException" -> "permission denied";
                case "FileAlreadyExistsException" -> "something has that name already";
                case "DirectoryNotEmptyException" -> "the directory is not empty";
                default -> error.getClass().getSimpleName();
            };
        }
        String message = error.getMessage();
        return message == null ? error.getClass().getSimpleName() : message;
    }
}
