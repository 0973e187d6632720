package io.github.haul.client.internal.source;

import com.google.protobuf.ByteString;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystem;
import java.nio.file.Path;

/**
 * Names of files as bytes, which is what they are on the wire and on Unix.
 *
 * <p>A {@link Path} shows text, in which bytes that are none are lost. Its URI has each byte, so
 * that any name of Unix goes both ways, whatever the locale is.
 */
public final class NameBytes {
    private static final char REPLACEMENT = '\uFFFD';
    private static final int HEX = 16;
    private static final int ASCII_MAX = 0x7e;

    private NameBytes() {}

    /**
     * The bytes of a path's last component.
     *
     * @param path a path that has one
     * @return the bytes: of Unix as they are, of other systems in UTF-8
     */
    public static ByteString ofLast(Path path) {
        String text = String.valueOf(path.getFileName());
        if (!isUnix(path.getFileSystem()) || isPlain(text)) {
            return ByteString.copyFromUtf8(text);
        }
        String raw = path.toUri().getRawPath();
        // A directory's URI ends with a slash.
        String trimmed = raw.endsWith("/") ? raw.substring(0, raw.length() - 1) : raw;
        return decode(trimmed.substring(trimmed.lastIndexOf('/') + 1));
    }

    /**
     * The bytes of a whole path, as of the target of a link.
     *
     * @param path the path, absolute or not
     * @return its bytes
     */
    static ByteString ofText(Path path) {
        String text = path.toString();
        if (!isUnix(path.getFileSystem()) || isPlain(text)) {
            return ByteString.copyFromUtf8(text);
        }
        ByteString slash = ByteString.copyFromUtf8("/");
        ByteString bytes = path.isAbsolute() ? slash : ByteString.EMPTY;
        for (int at = 0; at < path.getNameCount(); at++) {
            bytes = at > 0 ? bytes.concat(slash) : bytes;
            bytes = bytes.concat(ofLast(path.getName(at)));
        }
        return bytes;
    }

    /**
     * The path of a name below a directory.
     *
     * @param directory the directory
     * @param component bytes of one component
     * @return the path; its own bytes are those of the name, which {@link #ofLast} can tell
     */
    public static Path below(Path directory, ByteString component) {
        if (!isUnix(directory.getFileSystem()) || isPlain(component)) {
            return directory.resolve(component.toStringUtf8());
        }
        StringBuilder encoded = new StringBuilder("file:///");
        for (byte one : component) {
            encoded.append('%').append(String.format("%02X", one));
        }
        return directory.resolve(
                directory
                        .getFileSystem()
                        .provider()
                        .getPath(URI.create(encoded.toString()))
                        .getFileName());
    }

    private static boolean isUnix(FileSystem files) {
        return files.getSeparator().equals("/");
    }

    /** Whether text is ASCII, which every locale shows as it is. */
    private static boolean isPlain(String text) {
        return text.chars().allMatch(one -> one <= ASCII_MAX && one != REPLACEMENT && one != '?');
    }

    private static boolean isPlain(ByteString bytes) {
        for (byte one : bytes) {
            if (one <= 0 || one > ASCII_MAX) {
                return false;
            }
        }
        return true;
    }

    private static ByteString decode(String encoded) {
        byte[] text = encoded.getBytes(StandardCharsets.US_ASCII);
        ByteString.Output bytes = ByteString.newOutput(text.length);
        for (int at = 0; at < text.length; at++) {
            if (text[at] == '%') {
                int high = Character.digit(text[at + 1], HEX);
                bytes.write(HEX * high + Character.digit(text[at + 2], HEX));
                at += 2;
            } else {
                bytes.write(text[at]);
            }
        }
        return bytes.toByteString();
    }
}
