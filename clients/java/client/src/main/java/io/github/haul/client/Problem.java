package io.github.haul.client;

/**
 * What went wrong, in words for a user: what was tried, what it needs, what was found, and what to
 * do. Words of the server are shown as they come; each may be empty but {@code what}.
 *
 * @param code the fault's name in the protocol, as {@code NO_SPACE}; empty where this client alone
 *     found it
 * @param side whose fault it is: {@code source}, {@code target}, {@code path}, or empty
 * @param path the file it concerns, or empty
 * @param what what was tried and failed
 * @param needs what it needs
 * @param found what was found
 * @param hint what to do
 * @param pathEncoded where bytes of the path are no text, all of it percent-encoded as in the path
 *     of a URL; else empty
 */
public record Problem(
        String code,
        String side,
        String path,
        String what,
        String needs,
        String found,
        String hint,
        String pathEncoded) {
    /**
     * Describes what concerns no file, or one whose name is text.
     *
     * @param code the fault's name, or empty
     * @param side whose fault it is, or empty
     * @param path the file it concerns, or empty
     * @param what what was tried and failed
     * @param needs what it needs
     * @param found what was found
     * @param hint what to do
     */
    public Problem(
            String code,
            String side,
            String path,
            String what,
            String needs,
            String found,
            String hint) {
        this(code, side, path, what, needs, found, hint, "");
    }

    @Override
    public String toString() {
        StringBuilder text = new StringBuilder();
        if (!path.isEmpty()) {
            text.append(path).append(": ");
        }
        text.append(what);
        append(text, "; it needs ", needs);
        append(text, "; found: ", found);
        append(text, "; ", hint);
        return text.toString();
    }

    private static void append(StringBuilder text, String between, String words) {
        if (!words.isEmpty()) {
            text.append(between).append(words);
        }
    }
}
