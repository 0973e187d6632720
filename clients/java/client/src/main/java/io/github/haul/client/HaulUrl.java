package io.github.haul.client;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * A server, the token that opens it, and a path below the token's root (SPEC.md, 2): {@code
 * haul://TOKEN@HOST[:PORT]/path}.
 *
 * <p>{@link #toString} leaves the token out, so that no log holds it.
 */
public final class HaulUrl {
    /** The port of URLs that name none. */
    public static final int PORT_DEFAULT = 7117;

    private static final int PORT_MAX = 65_535;
    private static final int HEX = 16;

    /** Token, host in brackets, host, port and path. */
    private static final Pattern SHAPE =
            Pattern.compile(
                    "haul://(?:([^/]*)@)?(?:\\[([0-9A-Fa-f:.]+(?:%[^\\]/]+)?)]|([^/:@\\[\\]]+))"
                            + "(?::([0-9]{1,5}))?(?:/(.*))?",
                    Pattern.DOTALL);

    private final @Nullable HaulToken token;
    private final String host;
    private final int port;
    private final byte[] path;

    private HaulUrl(@Nullable HaulToken token, String host, int port, byte[] path) {
        this.token = token;
        this.host = host;
        this.port = port;
        this.path = path;
    }

    /**
     * Reads a URL as {@code haul serve} prints it.
     *
     * @param text the URL
     * @return the URL
     * @throws IllegalArgumentException if the text is none; its token is not repeated
     */
    public static HaulUrl parse(String text) {
        Matcher parts = SHAPE.matcher(text);
        if (!parts.matches()) {
            throw wrong(
                    text.startsWith("haul://")
                            ? "the host or port is wrong"
                            : "no haul:// in front");
        }
        HaulToken token = parts.group(1) == null ? null : HaulToken.parse(parts.group(1));
        String host = parts.group(2) == null ? parts.group(3) : parts.group(2);
        int port = parts.group(4) == null ? PORT_DEFAULT : Integer.parseInt(parts.group(4));
        if (port == 0 || port > PORT_MAX) {
            throw wrong("the host or port is wrong");
        }
        return new HaulUrl(token, host, port, decode(parts.group(5) == null ? "" : parts.group(5)));
    }

    private static IllegalArgumentException wrong(String why) {
        return new IllegalArgumentException(
                "not a haul URL: "
                        + why
                        + ". It looks like haul://TOKEN@HOST:7117/path; `haul serve` prints one");
    }

    private static byte[] decode(String path) {
        byte[] encoded = path.getBytes(StandardCharsets.UTF_8);
        ByteArrayOutputStream decoded = new ByteArrayOutputStream(encoded.length);
        for (int at = 0; at < encoded.length; at++) {
            if (encoded[at] != '%') {
                decoded.write(encoded[at]);
                continue;
            }
            int high = at + 1 < encoded.length ? Character.digit(encoded[at + 1], HEX) : -1;
            int low = at + 2 < encoded.length ? Character.digit(encoded[at + 2], HEX) : -1;
            if (high < 0 || low < 0) {
                throw wrong(
                        "a % in its path is not followed by two hexadecimal digits; a % of a name"
                                + " is written %25");
            }
            decoded.write(HEX * high + low);
            at += 2;
        }
        return decoded.toByteArray();
    }

    /**
     * The token of the URL.
     *
     * @return the token, or null where the URL has none
     */
    public @Nullable HaulToken token() {
        return token;
    }

    /**
     * Name or address of the server, without the brackets of IPv6.
     *
     * @return the host
     */
    public String host() {
        return host;
    }

    /**
     * The port of the server.
     *
     * @return 1 to 65535
     */
    public int port() {
        return port;
    }

    /**
     * The path below the token's root, decoded: bytes, as names are, and not text.
     *
     * @return the path, without a {@code /} in front
     */
    public byte[] path() {
        return path.clone();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof HaulUrl url
                && java.util.Objects.equals(token, url.token)
                && host.equals(url.host)
                && port == url.port
                && Arrays.equals(path, url.path);
    }

    @Override
    public int hashCode() {
        return 31 * (31 * host.hashCode() + port) + Arrays.hashCode(path);
    }

    @Override
    public String toString() {
        String server = host.contains(":") ? "[" + host + "]" : host;
        StringBuilder text = new StringBuilder("haul://").append(token == null ? "" : "...@");
        text.append(server).append(':').append(port).append('/');
        for (byte one : path) {
            boolean isPlain = one > 0x20 && one < 0x7f && one != '%';
            text.append(isPlain ? String.valueOf((char) one) : String.format("%%%02X", one));
        }
        return text.toString();
    }
}
