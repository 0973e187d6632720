package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * Names on the wire as paths of Windows, by "Naming Files, Paths, and Namespaces" of its manual.
 *
 * <p>A name goes there as it is, or not at all: what Windows would read as another path, as another
 * file or as a device, is no name there.
 */
final class WindowsName {
    private static final int FIRST_PRINTED = 0x20;

    /** Characters that separate, that name streams of a file, or that are wildcards. */
    private static final String RESERVED = "\\:*?\"<>|";

    private static final Set<String> DEVICES =
            Set.of("CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$");
    private static final List<String> NUMBERED_DEVICES = List.of("COM", "LPT");
    private static final String NUMBERS = "0123456789\u00b9\u00b2\u00b3";

    private WindowsName() {}

    /**
     * The text of a relative path.
     *
     * @param name one or more components, {@code /} between them
     * @return the text, null where Windows has no such name
     */
    static @Nullable String text(ByteString name) {
        if (!name.isValidUtf8() || name.isEmpty()) {
            return null;
        }
        String text = name.toStringUtf8();
        for (String component : text.split("/", -1)) {
            if (!isComponent(component)) {
                return null;
            }
        }
        return text;
    }

    /**
     * The name of a path.
     *
     * @param text the path, by either separator
     * @return the name on the wire
     */
    static ByteString name(String text) {
        return ByteString.copyFromUtf8(text.replace('\\', '/'));
    }

    private static boolean isComponent(String component) {
        if (component.equals(".") || component.equals("..")) {
            // Only targets of links hold these: names are refused before.
            return true;
        }
        boolean isPlain =
                component
                        .chars()
                        .allMatch(one -> one >= FIRST_PRINTED && RESERVED.indexOf(one) < 0);
        // Windows leaves dots and blanks at the end away.
        boolean isWhole = !component.endsWith(".") && !component.endsWith(" ");
        return isPlain && isWhole && !component.isEmpty() && !isDevice(component);
    }

    /** Whether it names a device, which Windows has in every directory, with any extension. */
    private static boolean isDevice(String component) {
        int dot = component.indexOf('.');
        String stem = dot < 0 ? component : component.substring(0, dot);
        stem = stem.stripTrailing().toUpperCase(Locale.ROOT);
        if (stem.length() == 4 && NUMBERED_DEVICES.contains(stem.substring(0, 3))) {
            return NUMBERS.indexOf(stem.charAt(3)) >= 0;
        }
        return DEVICES.contains(stem);
    }
}
