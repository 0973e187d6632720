package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.FaultCode;
import java.io.ByteArrayOutputStream;
import java.net.URI;
import java.nio.file.FileSystems;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;

/**
 * Names of bytes as paths of Java, and back.
 *
 * <p>A path that is made of a string goes through the encoding of {@code sun.jnu.encoding}, and so
 * cannot hold every name: not in the locale C those beyond ASCII, in no locale those that are not
 * valid in it. One that is made of a {@code file:} URI holds its escaped bytes as they are. Whether
 * it does is asked of each name beyond ASCII, by the way back.
 */
final class NativeName {
    private static final boolean IS_WINDOWS = FileSystems.getDefault().getSeparator().equals("\\");
    private static final int FIRST_PRINTED = 0x21;
    private static final int LAST_PRINTED = 0x7e;
    private static final int BYTE_MASK = 0xff;
    private static final int HEX = 16;
    private static final String SAFE =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._/";

    private NativeName() {}

    /**
     * A name of one or more components as a relative path of exactly these bytes.
     *
     * @param name the bytes
     * @return the path
     * @throws TargetFault with NAME_REFUSED if Java cannot hold the name on this host
     */
    static Path of(ByteString name) throws TargetFault {
        Path path = IS_WINDOWS ? windowsPath(name) : path(name);
        if (path == null && IS_WINDOWS) {
            throw TargetFault.of(
                    FaultCode.NAME_REFUSED,
                    name,
                    "Windows cannot hold this name",
                    "UTF-8 without \\ : * ? \" < > |, a dot or blank at the end, or a device's"
                            + " name",
                    "another name",
                    "rename it at the source, or receive it on another system");
        }
        if (path == null) {
            throw TargetFault.of(
                    FaultCode.NAME_REFUSED,
                    name,
                    "Java cannot hold this name here",
                    "a file system and a locale that keep the bytes of a name as they are",
                    "sun.jnu.encoding " + System.getProperty("sun.jnu.encoding", "not known"),
                    "start the program with LC_ALL=C.UTF-8, or receive the file by `haul pull`");
        }
        return path;
    }

    private static @Nullable Path windowsPath(ByteString name) {
        String text = WindowsName.text(name);
        try {
            return text == null ? null : Path.of(text);
        } catch (InvalidPathException refused) {
            return null;
        }
    }

    private static @Nullable Path path(ByteString name) {
        boolean isPlain = !name.isEmpty();
        StringBuilder uri = new StringBuilder("file:///");
        for (byte one : name) {
            int octet = one & BYTE_MASK;
            isPlain &= octet >= FIRST_PRINTED && octet <= LAST_PRINTED;
            if (octet == 0) {
                return null;
            }
            if (SAFE.indexOf(octet) >= 0) {
                uri.append((char) octet);
            } else {
                uri.append(String.format("%%%02x", octet));
            }
        }
        try {
            Path path =
                    isPlain
                            ? Path.of(name.toStringUtf8())
                            : relative(Path.of(URI.create(uri.toString())));
            return path != null && bytes(path).equals(name) ? path : null;
        } catch (IllegalArgumentException refused) {
            // Java says InvalidPathException, or dislikes the URI.
            return null;
        }
    }

    private static @Nullable Path relative(Path absolute) {
        int count = absolute.getNameCount();
        return count == 0 ? null : absolute.subpath(0, count);
    }

    /** The bytes of a relative path, or of the names of an absolute one. */
    static ByteString bytes(Path path) {
        String text = path.toString();
        if (IS_WINDOWS) {
            return WindowsName.name(text);
        }
        if (text.chars().allMatch(one -> one >= FIRST_PRINTED && one <= LAST_PRINTED)) {
            return ByteString.copyFromUtf8(text);
        }
        Path absolute = path.isAbsolute() ? path : path.getFileSystem().getPath("/").resolve(path);
        String raw = absolute.toUri().getRawPath();
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        // A URI ends with a slash where a directory has that path.
        int end = raw.length() > 1 && raw.endsWith("/") ? raw.length() - 1 : raw.length();
        for (int at = path.isAbsolute() ? 0 : 1; at < end; at++) {
            if (raw.charAt(at) == '%') {
                bytes.write(Integer.parseInt(raw.substring(at + 1, at + 3), HEX));
                at += 2;
            } else {
                bytes.write(raw.charAt(at));
            }
        }
        return ByteString.copyFrom(bytes.toByteArray());
    }
}
